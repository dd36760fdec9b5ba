#!/usr/bin/env -S python3 -S -E
"""What stands in for spark-submit with a master k8s://…: it makes the driver's pod as Spark 4.3.0 was
seen to (tests/servers/test_driver_pods.py), as whoever $KUBECONFIG says, and ends, or waits.
"""

import itertools
import json
import os
import re
import signal
import sys
import time
import urllib.request
from urllib.error import HTTPError

words = sys.argv[1:]
pairs = dict(itertools.pairwise(words))
conf = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--conf")
time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
with open(os.environ["KUBECONFIG"]) as file:
    token = json.load(file)["users"][0]["user"]["token"]
label = "spark.kubernetes.driver.label."
labels = {key.removeprefix(label): conf[key] for key in conf if key.startswith(label)}
app = re.sub("-+", "-", re.sub("[^a-z0-9-]", "-", pairs["--name"].lower()))
labels |= {"spark-role": "driver", "spark-app-name": app, "spark-version": "4.3.0"}
environment = {key: value for key, value in os.environ.items() if key.startswith("PYSPARK_")}
body = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": conf["spark.kubernetes.driver.pod.name"],
        "labels": labels,
        "annotations": {
            "test/tag": os.environ["STATESHIFT_TAG"],
            "test/conf": json.dumps(conf),
            "test/environment": json.dumps(environment),
        },
    },
    "spec": {
        "containers": [{"name": "spark-kubernetes-driver", "args": ["driver", words[-1]]}],
        "restartPolicy": "Never",
    },
}
server = pairs["--master"].removeprefix("k8s://")
address = f"{server}/api/v1/namespaces/{conf['spark.kubernetes.namespace']}/pods"
headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
request = urllib.request.Request(address, json.dumps(body).encode(), headers)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    with opener.open(request, timeout=60) as response:
        told = json.load(response)
except HTTPError as error:
    said = json.load(error)["message"]
    sys.exit(
        'Exception in thread "main" io.fabric8.kubernetes.client.KubernetesClientException: Failure '
        f"executing: POST at: {address}. Message: {said}."
    )
if told.get("launcher") == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
while conf["spark.kubernetes.submission.waitAppCompletion"] == "true":
    time.sleep(0.1)

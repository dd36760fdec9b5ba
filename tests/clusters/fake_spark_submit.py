#!/usr/bin/env -S python3 -S -E
"""What stands in for spark-submit with master yarn: it hands its application to the ResourceManager
of `fake_yarn` at $FAKE_YARN, and ends; in client mode it is the driver, until it is ended.
"""

import itertools
import json
import os
import signal
import sys
import time
import urllib.request

words = sys.argv[1:]
pairs = dict(itertools.pairwise(words))
settings = [words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--conf"]
conf = dict(settings)
if os.environ.get("FAKE_REFUSES"):
    sys.exit(
        'Exception in thread "main" org.apache.hadoop.yarn.exceptions.YarnException: Failed to submit'
    )
body = {
    "words": words,
    "name": pairs["--name"],
    "tags": conf["spark.yarn.tags"].lower(),
    "queue": conf.get("spark.yarn.queue", "default"),
    "environment": {
        key: value for key, value in os.environ.items() if key.startswith("STATESHIFT_")
    },
}
content = json.dumps(body).encode()
address = os.environ["FAKE_YARN"] + "/submit"
request = urllib.request.Request(address, content, {"Content-Type": "application/json"})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(request, timeout=60) as response:
    told = json.load(response)
if told["launcher"] == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
print(f"Submitted application {told['id']}", file=sys.stderr, flush=True)
time.sleep(float(os.environ.get("FAKE_LINGERS", 0)))
if pairs["--deploy-mode"] == "client":
    print("password=hunter22 of the driver", flush=True)
    time.sleep(600)

#!/usr/bin/env -S python3 -S -E
"""What stands in for `flink run -t yarn-application`: it hands the application to the ResourceManager
of `fake_flink_yarn` at $FAKE_YARN, and ends.
"""

import json
import os
import signal
import sys
import urllib.request

words = sys.argv[1:]
conf = dict(word[2:].split("=", 1) for word in words if word.startswith("-D"))
if os.environ.get("FAKE_REFUSES"):
    sys.exit("org.apache.flink.client.deployment.ClusterDeploymentException: Couldn't deploy")
body = {
    "words": words,
    "name": conf["yarn.application.name"],
    "tags": conf["yarn.tags"].lower(),
    "queue": conf.get("yarn.application.queue", "default"),
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

"""The main program around each `capture.py`: `python answering.py CAPTURE REQUEST.json`.

It runs in any environment, and imports nothing of stateshift. The capture's `run` makes an answer
of the request; the answer is written whole to the place that the request names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path


def main(capture: str, request_file: str) -> None:
    """Answer a request by a capture."""
    request = json.loads(Path(request_file).read_text())
    sys.path[0] = os.path.dirname(request["file"])  # as `python FILE` has it; not this folder
    spec = importlib.util.spec_from_file_location("capture", capture)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer = module.run(request)
    target = Path(request["answer"])
    temporary = target.with_suffix(".new")
    temporary.write_text(json.dumps(answer, indent=1))
    os.replace(temporary, target)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # at once: its JVM has started nothing, and whoever waits ends it


if __name__ == "__main__":
    main(*sys.argv[1:])

"""`python -m stateshift …`, which gets a signal at a moment: entry.py ROOT LABEL TIMES SIGNAL
arguments…

An empty LABEL writes the moments of the run to ROOT/moments instead, one a line.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from pathlib import Path

from tests.kill.moments import Moment, Moments, watch

root, label, times, number, *arguments = sys.argv[1:]
moments = Moments(
    Moment(label, int(times)) if label else None, lambda moment: os.kill(os.getpid(), int(number))
)
if not label:
    atexit.register(
        lambda: Path(root, "moments").write_text(
            "".join(f"{m.label}\t{m.times}\n" for m in moments.seen)
        )
    )
watch(moments, f"{root}/now/")
sys.argv = ["stateshift", *arguments]
runpy.run_module("stateshift", run_name="__main__", alter_sys=True)

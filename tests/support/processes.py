"""Processes beside the test: waiting for what they do, looking whether they run, killing them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def in_time(look: Callable[[], object], seconds: float = 60.0) -> bool:
    """Wait until it is so; whether it was so within these seconds."""
    until = time.monotonic() + seconds
    while not look():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def runs(pid: int) -> bool:
    """Whether there is such a process, which nobody has to take note of the end of."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def killed_while(act: Callable[[], object], seconds: float) -> None:
    """Do it in a process of its own, which gets SIGKILL after that time."""
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

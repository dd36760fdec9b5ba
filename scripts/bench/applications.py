"""Applications that a bench has started: what it waits for while they run."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

POLL_SECONDS = 0.25


def wait_until(
    done: Callable[[], bool],
    processes: Mapping[str, subprocess.Popen[bytes]],
    logs: Path,
    seconds_max: float,
    otherwise: str,
) -> None:
    """Wait for something while all run. Ends the bench with the log of one that has ended, or
    with `otherwise` where it takes too long.
    """
    ends = time.monotonic() + seconds_max
    while not done():
        for name, process in processes.items():
            if process.poll() is not None:
                log = (logs / f"{name}.log").read_text(errors="replace")
                raise SystemExit(f"{name} has ended\n{log[-3000:]}")
        if time.monotonic() > ends:
            raise SystemExit(otherwise)
        time.sleep(POLL_SECONDS)

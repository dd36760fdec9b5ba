"""Waiting for something outside: bounded, and cut short when somebody asks to stop.

Whatever waits here may be waited for again: the interruption comes between two looks and loses
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from stateshift.errors import Interrupted

T = TypeVar("T")

SECONDS_BETWEEN_LOOKS_MAX = 0.5
# A job is seen to have stopped at most a fifth of its time later than it has.
PAUSE_GROWS = 1.2


def wait_for(
    look: Callable[[], T | None], seconds_max: float, stop: threading.Event | None = None
) -> T | None:
    """Return the first value of `look` that is not None, within `seconds_max`; rarer in time."""
    until = time.monotonic() + seconds_max
    pause = 0.02
    while True:
        result = look()
        if result is not None:
            return result
        left = until - time.monotonic()
        if left <= 0:
            return None
        if stop is None:
            time.sleep(min(pause, left))
        elif stop.wait(min(pause, left)):
            why = "interrupted while waiting for a cluster; what was done is written down"
            raise Interrupted(why)
        pause = min(pause * PAUSE_GROWS, SECONDS_BETWEEN_LOOKS_MAX)


def wait_until_settled(
    look: Callable[[bool], T | None], settled: float, stop: threading.Event | None = None
) -> T | None:
    """Wait until `settled` (seconds since 1970) for what `look(over)` does not see yet."""

    def once() -> T | None:
        over = time.time() >= settled
        return look(over)

    return wait_for(once, max(0.0, settled - time.time()) + 1.0, stop)

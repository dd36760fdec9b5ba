"""Waiting for words of others, which come as files."""

from __future__ import annotations

from collections.abc import Callable

POLL_SECONDS = 0.01
POLL_SECONDS_MAX = 0.5


class Pause:
    """A wait that is a little longer each time that nothing has happened."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        self._wait, self._seconds = wait, POLL_SECONDS

    def __call__(self) -> None:
        self._wait(self._seconds)
        self._seconds = min(self._seconds * 1.1, POLL_SECONDS_MAX)

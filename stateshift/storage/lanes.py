"""The number of files a storage is used for at once: learned by trying, as TCP learns a network.

    Width  the law: what rounds of work have moved goes in, a number comes out. No threads, no
           clock
    Lane   one storage's width, shared by all threads of a run that use it; who has to wait sleeps

A width begins with a quarter of what the storage's traits allow at most and doubles while that
brings more. From then on each round adds a little, and one in which each took clearly longer than
it need takes a quarter away. How long each took (as many as are at work, by what they bring a
second) is held against the shortest there was, and not the rate against the best: a smaller width
brings less because it is smaller, and a service that stalls for a moment would be left with a width
of one, forever. A service that says it is too much (429, 503) halves the width at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final

MORE: Final = 1.1  # a doubling has to bring this much to be followed by another
LONGER: Final = 2.0  # than need be: clearly, and not a machine's mood
# How long one need take grows so, each time that it took longer: services change.
FORGETTING: Final = 1.25
STEPS: Final = 16  # from nothing to the most, by additions

ROUND_SECONDS: Final = 0.1
ROUND_FILES: Final = 8
FILE_BYTES: Final = 256 * 1024  # moving so many takes as long as a file of its own


class Width:
    """Additive increase, multiplicative decrease, between 1 and `most`."""

    def __init__(self, most: int) -> None:
        assert most >= 1
        self.most = most
        self.now = max(1, most // 4)
        self._rate = 0.0
        self._seconds = math.inf  # that one need take
        self._doubling = True

    def measured(self, rate: float) -> None:
        """A round has ended that moved so much a second."""
        seconds = self.now / rate
        if self._doubling:
            self._doubling = rate > self._rate * MORE
            self._set(self.now * 2 if self._doubling else self.now)
            self._rate = rate
        elif seconds > self._seconds * LONGER:
            self._set(self.now * 3 // 4)
            self._seconds *= FORGETTING
        else:
            self._set(self.now + max(1, self.most // STEPS))
        self._seconds = min(self._seconds, seconds)

    def pushed_back(self) -> None:
        """The service has said that it is too much."""
        self._set(self.now // 2)
        self._doubling = False

    def _set(self, width: int) -> None:
        self.now = min(self.most, max(1, width))


class Lane:
    """Thread-safe. `now` is a clock's, in seconds."""

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self._width = Width(most)
        self._now = now
        self._free = threading.Condition()
        self._inside = 0
        # How many have not left of those that were inside when the service pushed back.
        self._too_many = 0
        self._round = _Round(now())

    @property
    def most(self) -> int:
        return self._width.most

    @property
    def width(self) -> int:
        return self._width.now

    def enter(self) -> None:
        """Wait until one more may be at work. An empty lane begins a new round."""
        with self._free:
            self._free.wait_for(lambda: self._inside < self._width.now)
            if self._inside == 0:
                self._round = _Round(self._now())
            self._inside += 1

    def leave(self, size: int | None) -> None:
        """One is done, with a file of this size; None where it failed."""
        with self._free:
            full = self._inside >= self._width.now
            self._inside -= 1
            if self._too_many:
                self._too_many -= 1
                self._round = _Round(self._now())
            elif size is not None:
                self._round.add(size, full)
                self._end_round()
            self._free.notify_all()

    def pushed_back(self) -> None:
        """Narrow the lane, once for all that were at work together and call this."""
        with self._free:
            if not self._too_many:
                self._width.pushed_back()
                self._too_many = max(1, self._inside)

    def _end_round(self) -> None:
        ended = self._round
        seconds = self._now() - ended.began
        if ended.files < max(ROUND_FILES, self._width.now) or seconds < ROUND_SECONDS:
            return
        bounded_by_width = ended.full * 2 > ended.files
        if bounded_by_width:
            self._width.measured(ended.work / seconds)
        self._round = _Round(self._now())


class _Round:
    def __init__(self, began: float) -> None:
        self.began = began
        self.files = self.full = 0
        self.work = 0.0

    def add(self, size: int, full: bool) -> None:
        self.files += 1
        self.full += full
        self.work += 1 + size / FILE_BYTES

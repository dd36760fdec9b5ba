"""How a run at work heeds requests from outside: cutover, pause, throttle, stop.

`look` is called between any two writes, by every thread of the run; it reads the wishes a few times
a second. A pause is waited for right there, and only while the job runs: once it has been stopped,
nothing keeps it down longer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from stateshift.journal import Journal, Steered
from stateshift.migration.live_status import SECONDS_BETWEEN_WORDS, LiveStatus
from stateshift.specification import Spec
from stateshift.steering import Throttle, Wishes
from stateshift.storage.wrappers import Pace
from stateshift.world import World

SECONDS_BETWEEN_LOOKS = 0.2


class RunControl:
    """Heeds requests by the pace of a run's world, which all its storages keep to, and by the event
    that ends the run.
    """

    def __init__(self, status: LiveStatus, journal: Journal, spec: Spec, world: World) -> None:
        self.steering = status.steering
        self._status = status
        self._journal = journal
        self._clock = world.clock
        self._stop = world.stop
        self._pace = world.pace if isinstance(world.pace, Pace) else None
        self._spec_says = Throttle(spec.bytes_per_second, spec.operations_per_second)
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self.wishes = Wishes()
        self.may_pause = False
        self._paused = False

    @property
    def bytes_per_second(self) -> float | None:
        """The limit that the run is held to now."""
        return self._pace.bytes_per_second if self._pace is not None else None

    def look(self) -> None:
        """Heed what is requested now; return when the run may go on."""
        while self._looked_again() and self._has_to_wait():
            self._clock.sleep(SECONDS_BETWEEN_LOOKS)
            self._looked = float("-inf")

    def _has_to_wait(self) -> bool:
        return self.may_pause and self.wishes.paused and not self._stop.is_set()

    def _looked_again(self) -> bool:
        """Whether there is something to heed. One thread reads, the others go by what it has
        read.
        """
        with self._lock:
            now = self._clock.now()
            if now - self._looked >= SECONDS_BETWEEN_LOOKS or now < self._looked:
                self._looked = now
                self._heed(self.steering.wishes())
            return self.wishes.paused

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear who asks the run to end, also while a step waits for a cluster and looks at nothing
        else.
        """
        over = threading.Event()

        def listen() -> None:
            while not over.wait(SECONDS_BETWEEN_WORDS) and not self._stop.is_set():
                if self.steering.wishes().stop:
                    self._stop.set()

        listener = threading.Thread(target=listen, name="listening", daemon=True)
        listener.start()
        try:
            yield
        finally:
            over.set()
            listener.join()

    def _heed(self, wishes: Wishes) -> None:
        before, self.wishes = self.wishes, wishes
        if wishes.stop:
            self._stop.set()
        if wishes.throttle != before.throttle:
            self._set_pace(wishes.throttle or self._spec_says)
        if wishes.cutover != before.cutover and wishes.cutover is not None:
            self._record("cutover", wishes.cutover)
        self._set_paused(wishes.paused and self.may_pause)

    def _set_pace(self, limits: Throttle) -> None:
        if self._pace is not None:
            self._pace.bytes_per_second = limits.bytes_per_second
            self._pace.operations_per_second = limits.operations_per_second
            self._record("throttle", _in_words(limits))

    def _set_paused(self, paused: bool) -> None:
        if paused != self._paused:
            self._paused = paused
            self._status.paused(paused)
            self._record("pause" if paused else "go on", "")

    def _record(self, what: str, value: str) -> None:
        if self._journal.progress.state in ("running", "rolling-back"):
            self._journal.append(Steered(self._clock.now(), what, value))


def _in_words(limits: Throttle) -> str:
    parts = []
    if limits.bytes_per_second:
        parts.append(f"{limits.bytes_per_second / 1e6:g} MB/s")
    if limits.operations_per_second:
        parts.append(f"{limits.operations_per_second:g} requests a second")
    return ", ".join(parts) or "as fast as it goes"

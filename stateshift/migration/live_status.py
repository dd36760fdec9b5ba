"""What a run is doing, for people who watch: passed on to its meter, and kept in `live.json`."""

from __future__ import annotations

import threading
from dataclasses import replace

from stateshift.steering import Live, Steering
from stateshift.survey import Left
from stateshift.world import Clock, Meter

SECONDS_BETWEEN_WORDS = 0.5


class LiveStatus:
    """A meter that passes on what it is told, and keeps `live.json`."""

    def __init__(self, inner: Meter, steering: Steering, clock: Clock) -> None:
        self._inner, self.steering, self._clock = inner, steering, clock
        self._lock = threading.Lock()
        self._live = Live(clock.now())
        self._told = float("-inf")
        self._said = ""

    def phase(self, job: str, name: str, files: int, bytes: int) -> None:
        self._inner.phase(job, name, files, bytes)
        now = self._clock.now()
        self._change(
            True,
            job=job,
            phase=name,
            began=now,
            files=files,
            bytes=bytes,
            files_done=0,
            bytes_done=0,
            waiting="",
        )

    def step(self, name: str, description: str) -> None:
        self._inner.step(name, description)

    def done(self, files: int, bytes: int) -> None:
        self._inner.done(files, bytes)
        self._change(False, more=(files, bytes))

    def say(self, line: str) -> None:
        self._inner.say(line)

    def left(self, job: str, left: Left) -> None:
        with self._lock:
            both = {**self._live.left, job: left}
        self._change(True, left=both, down_since=None)

    def stopping(self) -> None:
        """What was left counts no more: the job is being stopped."""
        self._change(True, left={}, down_since=None)

    def down(self, since: float | None) -> None:
        self._change(True, down_since=since)

    def waiting(self, job: str, what: str) -> None:
        """Said once: whoever reads a log has to know why nothing goes on."""
        if what != self._live.waiting:
            self._change(True, waiting=what)
        if what and what != self._said:
            self._said = what
            self._inner.say(f"{job}: waiting {what}")

    def paused(self, on: bool) -> None:
        self._change(True, paused=on)

    def _change(self, at_once: bool, more: tuple[int, int] = (0, 0), **values: object) -> None:
        with self._lock:
            now, live = self._clock.now(), self._live
            self._live = replace(
                live,
                at=now,
                files_done=live.files_done + more[0],
                bytes_done=live.bytes_done + more[1],
            )
            self._live = replace(self._live, **values)  # type: ignore[arg-type]
            if at_once or now - self._told >= SECONDS_BETWEEN_WORDS or now < self._told:
                self._told = now
                self.steering.tell(self._live)

"""Moves that are carried, steered from outside: small files beside them.

    bins/steer/carried.json   the carrier of moves, and their progress; removed at their end
    bins/steer/paused         nothing is proposed as long as this is there
    bins/steer/stopped        whoever carries moves ends: they are aborted
    bins/steer/throttle.json  the most bins of a step, and the pause between two

Whoever carries moves looks before each step.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateshift.live.protocol.chains import encode
from stateshift.live.values import ValueFiles

CARRIED = "bins/steer/carried.json"
PAUSED = "bins/steer/paused"
STOPPED = "bins/steer/stopped"
THROTTLE = "bins/steer/throttle.json"


@dataclass(frozen=True, slots=True)
class Throttle:
    """The speed of moves. None is as they were asked for."""

    bins: int | None = None
    gap_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class MoveCarrier:
    """The carrier of moves, and their progress: worth nothing once that process is dead."""

    by: str
    at: float
    steps: int
    begun: int
    state: str


class Steering(ValueFiles):
    """The files by which moves of a group are steered."""

    def pause(self) -> None:
        self._write(PAUSED, b"paused")

    def resume(self) -> None:
        self.storage.remove(PAUSED)

    @property
    def is_paused(self) -> bool:
        return self._bytes(PAUSED) is not None

    def throttle(self, throttle: Throttle) -> None:
        self._write_durably(THROTTLE, encode(throttle))

    @property
    def throttled(self) -> Throttle:
        return self._read(Throttle, THROTTLE) or Throttle()

    def stop(self) -> None:
        self._write(STOPPED, b"stopped")

    @property
    def is_stopped(self) -> bool:
        return self._bytes(STOPPED) is not None

    def carry(self, carried: MoveCarrier) -> None:
        self._write(CARRIED, encode(carried))

    def clear(self) -> None:
        """Forget who has carried moves, and that they were to end."""
        self.storage.remove(STOPPED)
        self.storage.remove(CARRIED)

    @property
    def carried(self) -> MoveCarrier | None:
        """The carrier of moves; None where there is none."""
        return self._read(MoveCarrier, CARRIED)

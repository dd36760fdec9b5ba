"""The loads, one after the other: shares of what a job can take."""

from __future__ import annotations

from dataclasses import dataclass

BURST_SECONDS, BURSTS_EVERY = 30.0, 120.0


@dataclass(frozen=True)
class Load:
    """A load. `burst` is what arrives for 30 s every two minutes; `hot` is the share of one key. A
    job is started anew for a load that is `fresh`: nothing waits from the one before.
    """

    name: str
    share: float
    burst: float | None = None
    hot: float = 0.0
    fresh: bool = False

    @property
    def is_constant(self) -> bool:
        return self.burst is None

    def at(self, seconds: float) -> float:
        """Return the share so long after the load has begun: a burst comes after a quiet time."""
        quiet = BURSTS_EVERY - BURST_SECONDS
        if self.burst is not None and seconds % BURSTS_EVERY >= quiet:
            return self.burst
        return self.share


LOADS = (
    Load("50 %", 0.5),
    Load("90 %", 0.9),
    Load("bursts of 30 s at 200 %, else 30 %", 0.3, burst=2.0),
    Load("100 %", 1.0),
    Load("130 %", 1.3),
    Load("200 %", 2.0),
    Load("50 %, what waits is drained", 0.5),
    Load("75 %, of which one key has 73 %", 0.75, hot=1.1 / 1.5, fresh=True),
)
SPARK_LOADS = (
    Load("50 %", 0.5),
    Load("75 %", 0.75),
    Load("130 %", 1.3),
    Load("200 %", 2.0),
    Load("30 %, what waits is drained", 0.3),
)

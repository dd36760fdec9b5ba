"""The time that a migration waits for its checkpoint: estimated before, and never more than two
checkpoint intervals (T-9).

      k begins        now                 k+1 begins          k+1 is complete
    ──┼───────────────┼───────────────────┼───────────────────┼──▶
      └───── elapsed ─┘─── until then ────┘─── takes itself ──┘       estimate = until then + itself
      └────────────── an interval ────────┘                           both at most an interval

The trigger names the next checkpoint that begins after it has reached the sources, or else the one
after that. While a trigger and a checkpoint fit into an interval, that is complete within two:
either it is the next one, which begins within one interval and takes at most another; or the next
begins before the trigger is there, and then the one after it begins an interval later and takes at
most what the trigger leaves of one. Where they do not fit no bound can be given, which is said
before anything is triggered.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateshift.errors import Complaint, PlanError, SpecError


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What a job says of its checkpoints, in seconds. `takes` is how long one took of late;
    `began` is the last that has begun, `elapsed` ago.
    """

    interval: float
    takes: float
    began: int
    elapsed: float


@dataclass(frozen=True, slots=True)
class Wait:
    """`checkpoint` is the one to name."""

    checkpoint: int
    seconds: float
    seconds_max: float


def wait(now: Checkpoints, trigger_seconds: float = 0.0) -> Wait:
    """Return what a migration that is asked for now has to wait for, with a trigger that reaches
    the sources within a time.
    """
    _check(now, trigger_seconds)
    until = max(0.0, now.interval - now.elapsed)
    if until < trigger_seconds:  # the next one begins before the trigger is there
        return Wait(now.began + 2, until + now.interval + now.takes, 2 * now.interval)
    return Wait(now.began + 1, until + now.takes, 2 * now.interval)


def _check(now: Checkpoints, trigger_seconds: float) -> None:
    seconds = {
        "interval": now.interval,
        "takes": now.takes,
        "elapsed": now.elapsed,
        "trigger_seconds": trigger_seconds,
    }
    wrong = [
        Complaint(f"/{name}", f"{value} seconds", value, "from 0 on")
        for name, value in seconds.items()
        if value < 0
    ]
    if now.interval == 0:
        wrong.append(Complaint("/interval", "no checkpoints", 0, "above 0"))
    if wrong:
        raise SpecError(tuple(wrong), hint="take them from what the job says of its checkpoints")
    if now.takes + trigger_seconds > now.interval:
        raise PlanError(
            f"no bound can be given: checkpoints begin every {now.interval:g} s, but one "
            f"takes {now.takes:g} s, and a trigger {trigger_seconds:g} s",
            hint="let checkpoints begin less often, or move the job while it is stopped",
        )

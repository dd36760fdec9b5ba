"""The costs of moving in steps: the longest that a record waits, how long it all takes, the memory
it needs meanwhile.

    predict(steps, ground, gap)  ->  Prediction(latency_seconds_max, seconds, extra_bytes, steps)

A step, from when it is sent until its state has arrived:

    │ backlog:                │ transfer: messages to all workers, │
    │ records from before it  │ and the bytes of the busiest one   │
    └── wait: of a record that comes as the step is sent ──────────┘

* Nothing of the step's time or later is applied before its state is there (S's state frontier), so
  each record waits for the slowest worker, and `wait = backlog + transfer`. Workers send at once;
  each gives and takes at its bandwidth.
* Meanwhile records come. With a busiest worker that is busy for a share `load` of its time they are
  `load · wait` seconds of work: that is the next step's backlog, less what a gap between the two
  works off. Step by step without a gap the wait grows towards transfer / (1 - load): two transfers
  at half load, and with a gap it is one (M-4).
* On its way a plan may give one worker more bins than it has before or after: what overloads it,
  takes for ever.
* What moves is held twice: serialised where it leaves, and where it arrives until it is installed.
  Records that wait are held as well.

Nothing else is in it: no constant of a strategy, only what each has in its steps. Rows M-21 to
M-23.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from stateshift.dataflow.move_steps import Step
from stateshift.errors import Complaint, SpecError


@dataclass(frozen=True, slots=True)
class Ground:
    """Where it happens. `assigned` is the worker of each bin before the first step, `state_bytes`
    what each bin holds; records are spread over the bins evenly. `bandwidth` and `capacity` are one
    worker's.
    """

    assigned: tuple[int, ...]
    state_bytes: tuple[float, ...]
    rate: float  # records per second, of all workers
    bandwidth: float  # bytes per second
    capacity: float  # records per second
    step_seconds: float = 0.0001  # to tell all workers of a step, and to hear that it is complete
    record_bytes: float = 16.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """`extra_bytes` of all workers together, at the worst moment. What is never worked off takes
    for ever.
    """

    latency_seconds_max: float
    seconds: float
    extra_bytes: float
    steps: int


def even_state(bins: int, keys: float, key_bytes: float) -> tuple[float, ...]:
    """As much state in each bin."""
    return (keys * key_bytes / bins,) * bins


def predict(steps: Sequence[Step], ground: Ground, gap_seconds_max: float = 0.0) -> Prediction:
    """One step after the other. Between two of them the records that wait are worked off, for at
    most a gap.
    """
    _check(ground, gap_seconds_max)
    bins = Counter(ground.assigned)
    backlog = seconds = gap = latency = extra = 0.0
    for step in steps:
        load = _load(bins, ground)
        wait = backlog + _transfer_seconds(step, ground)
        latency, seconds = max(latency, wait + _quiet_seconds(bins, ground)), seconds + gap + wait
        extra = max(extra, _extra_bytes(step, wait, ground))
        gap = min(gap_seconds_max, drain_seconds(wait, load))
        backlog = 0.0 if gap == drain_seconds(wait, load) else load * wait - (1 - load) * gap
        bins.subtract(move.source for move in step)
        bins.update(move.target for move in step)
    return Prediction(max(latency, _quiet_seconds(bins, ground)), seconds, extra, len(steps))


def drain_seconds(wait: float, load: float) -> float:
    """How long it takes until the records that came during a wait are through, and those that
    come meanwhile.
    """
    return load * wait / (1 - load) if load < 1 else math.inf


def _transfer_seconds(step: Step, ground: Ground) -> float:
    gives: dict[int, float] = defaultdict(float)
    takes: dict[int, float] = defaultdict(float)
    for bin, source, target in step:
        gives[source] += ground.state_bytes[bin]
        takes[target] += ground.state_bytes[bin]
    return (
        ground.step_seconds
        + max((*gives.values(), *takes.values()), default=0.0) / ground.bandwidth
    )


def _extra_bytes(step: Step, wait: float, ground: Ground) -> float:
    moved = sum(ground.state_bytes[move.bin] for move in step)
    return 2 * moved + ground.rate * wait * ground.record_bytes


def _load(bins: Counter[int], ground: Ground) -> float:
    """The busiest worker's, as a share of its time."""
    busiest = max(bins.values()) / len(ground.assigned)
    return busiest * ground.rate / ground.capacity


def _quiet_seconds(bins: Counter[int], ground: Ground) -> float:
    """What a record takes while nothing moves: a queue of one server, without end once more
    comes than it can do.
    """
    load = _load(bins, ground)
    return 1 / (ground.capacity * (1 - load)) if load < 1 else math.inf


def _check(ground: Ground, gap_seconds_max: float) -> None:
    wrong = [
        Complaint(f"/{name}", f"{name} is {value}", value, "a number above 0")
        for name, value in (
            ("rate", ground.rate),
            ("bandwidth", ground.bandwidth),
            ("capacity", ground.capacity),
        )
        if not value > 0
    ]
    if len(ground.assigned) != len(ground.state_bytes):
        message = f"state of {len(ground.state_bytes)} bins, but there are {len(ground.assigned)}"
        wrong.append(Complaint("/state_bytes", message, len(ground.state_bytes)))
    if gap_seconds_max < 0:
        wrong.append(
            Complaint(
                "/gap_seconds_max",
                "a gap before the step is complete",
                gap_seconds_max,
                "from 0 on",
            )
        )
    if wrong:
        raise SpecError(
            tuple(wrong), hint="measure them in a job that runs, or assume them and say so"
        )

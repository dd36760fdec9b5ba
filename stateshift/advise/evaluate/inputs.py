"""The inputs of a verdict, as one value of an engine: kept with the verdict, to make it again
(`replay`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from stateshift.advise.evaluate.flink_formulas import State
from stateshift.advise.evaluate.samples import JobSample
from stateshift.advise.evaluate.settings import Settings, fault_of
from stateshift.advise.evaluate.spark_batches import CoresSource, SparkSample
from stateshift.plain import Misfit, from_plain

RESTART_SECONDS: Final = 300.0
NUMBER_MAX: Final = 1e18


@dataclass(frozen=True, slots=True)
class RestartCost:
    """The time of a restart of the job, and its source: runs of ours, Flink, or nobody."""

    seconds: float = RESTART_SECONDS
    source: Literal["runs", "flink", "default"] = "default"


@dataclass(frozen=True, slots=True)
class FreeSlots:
    """The places for subtasks on a cluster. `on_demand`: more are made when they are needed."""

    all: int
    free: int
    on_demand: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """The wish of an earlier look: the parallelism of each vertex, and its state."""

    time: float
    parallelism: Mapping[str, int]
    states: Mapping[str, State] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The facts beside a job's load: `trouble` is why it was not measured, `note` a word on its
    cluster, `since` the time of its move there (None: never).
    """

    job: str
    now: float
    settings: Settings = field(default_factory=Settings)
    restart: RestartCost = field(default_factory=RestartCost)
    slots: FreeSlots | None = None
    wishes: tuple[Wish, ...] = ()
    trouble: str | None = None
    location: str | None = None
    note: str = ""
    since: float | None = None

    @property
    def states(self) -> Mapping[str, State]:
        """Return the states of vertices that had too little at the last look."""
        last = max(self.wishes, key=lambda wish: wish.time, default=None)
        if last is None or self.now - last.time > self.settings.sample_age_max:
            return {}
        return last.states


@dataclass(frozen=True, slots=True)
class FlinkInputs:
    """A job of Flink, as it was measured."""

    around: Circumstances
    samples: tuple[JobSample, ...] = ()
    engine: Literal["flink"] = "flink"


@dataclass(frozen=True, slots=True)
class SparkInputs:
    """A query, as its checkpoint, brokers and driver tell of it. `cores`: None if not known."""

    around: Circumstances
    samples: tuple[SparkSample, ...] = ()
    cores: int | None = None
    cores_from: CoresSource | None = None
    engine: Literal["spark"] = "spark"


Inputs = FlinkInputs | SparkInputs

_ENGINES: Mapping[str, type[FlinkInputs | SparkInputs]] = {
    "flink": FlinkInputs,
    "spark": SparkInputs,
}


def inputs_from(plain: object) -> Inputs:
    """Return inputs that `plain.to_plain` has written.

    Raises:
        Misfit: the value is no such inputs.
    """
    engine = str(plain.get("engine")) if isinstance(plain, Mapping) else ""
    if engine not in _ENGINES:
        raise Misfit("/engine", "expected inputs of flink or spark")
    refuse_odd_numbers(plain)
    inputs: Inputs = from_plain(_ENGINES[engine], plain)
    fault = fault_of(inputs.around.settings)
    if fault is not None:
        raise Misfit("/around/settings", fault)
    match inputs:
        case FlinkInputs():
            for number, sample in enumerate(inputs.samples):
                _check_sample(sample, f"/samples/{number}")
        case SparkInputs():
            if inputs.cores is not None and inputs.cores < 1:
                raise Misfit("/cores", "expected a number from 1 on")
    return inputs


def refuse_odd_numbers(plain: object, pointer: str = "") -> None:
    """Refuse numbers that nothing can be computed with: not finite, or beyond all measure."""
    match plain:
        case dict():
            for key, item in plain.items():
                refuse_odd_numbers(item, f"{pointer}/{key}")
        case list():
            for number, item in enumerate(plain):
                refuse_odd_numbers(item, f"{pointer}/{number}")
        case int() | float():
            if not abs(plain) <= NUMBER_MAX:
                raise Misfit(pointer, f"expected a number up to {NUMBER_MAX:g}")


def _check_sample(sample: JobSample, pointer: str) -> None:
    """Check that the vertices of a sample are those of a job: each follows those it reads from."""
    seen: set[str] = set()
    pending = list(sample.vertices)
    while pending:
        ready = [v for v in pending if all(edge.vertex in seen for edge in v.inputs)]
        if not ready:
            raise Misfit(pointer, f"{pending[0].name} reads from itself, or from no vertex")
        seen.update(vertex.id for vertex in ready)
        pending = [vertex for vertex in pending if vertex.id not in seen]
    for vertex in sample.vertices:
        if vertex.parallelism < 1:
            raise Misfit(pointer, f"{vertex.name} has no subtasks")
    if len(seen) < len(sample.vertices):
        raise Misfit(pointer, "two vertices have one id")

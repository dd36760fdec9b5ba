"""All that a verdict is made from, as one value of an engine: kept with the verdict, so that it can
be made again (`replay`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stateshift.advise.evaluate.samples import JobSample
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.spark_batches import SparkSample
from stateshift.plain import Misfit, from_plain

RESTART_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class RestartCost:
    """How long a restart of the job takes, and who says so: runs of ours, Flink, or nobody."""

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
    """What an earlier look wanted: the parallelism of each vertex."""

    time: float
    parallelism: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known of a job beside its load. `trouble` is why it could not be measured, `command`
    what lifts the bound of its parallelism.
    """

    job: str
    now: float
    settings: Settings = field(default_factory=Settings)
    restart: RestartCost = field(default_factory=RestartCost)
    slots: FreeSlots | None = None
    wishes: tuple[Wish, ...] = ()
    trouble: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class FlinkInputs:
    """A job of Flink, as it was measured."""

    around: Circumstances
    samples: tuple[JobSample, ...] = ()
    engine: Literal["flink"] = "flink"


@dataclass(frozen=True, slots=True)
class SparkInputs:
    """A query of Spark, as its checkpoint and the brokers tell of it. `cores` is what it runs on,
    None where nobody said.
    """

    around: Circumstances
    samples: tuple[SparkSample, ...] = ()
    cores: int | None = None
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
    inputs: Inputs = from_plain(_ENGINES[engine], plain)
    return inputs

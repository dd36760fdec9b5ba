"""A stand-in for a Flink whose jobs have a load, as pages of REST tell it (tests/golden/advise has
those of real ones). It has no clock of its own: what its tasks have counted follows from the one
that whoever asks sleeps by.

    flink = MeasuredFlink(clock, [Measured("orders", [Part("s", rate=1000, …), …])])
    with serving(flink): …                  flink.url
    flink.odd["/jobs/overview"] = (503, {})     it answers so there
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.clusters.faulty_server import StandIn
from tests.support.ground import Clock

BEGAN = 1_772_000_000.0


@dataclass
class Part:
    """A vertex: what all of its subtasks take in a second, how busy the busiest is; `skew` is how
    much more it has than the mean.
    """

    id: str
    rate: float
    busy: float
    inputs: Sequence[str] = ()
    parallelism: int = 4
    parallelism_max: int = 128
    backpressured: float = 0.0
    lag: float | None = None
    lag_rate: float = 0.0
    partitions: int = 0
    skew: float = 1.0
    status: str = "RUNNING"
    busy_text: Any = None  # told in place of the busy time


@dataclass
class Measured:
    """A job that was started so many seconds before the clock begins."""

    name: str
    parts: list[Part]
    runs_for: float = 3600.0
    id: str = ""
    state: str = "RUNNING"

    def __post_init__(self) -> None:
        self.id = self.id or self.name.encode().hex().ljust(32, "0")[:32]


@dataclass
class MeasuredFlink(StandIn):
    """`stale_looks` is how often a vertex's page has old counters before it has new ones,
    `partial_looks` how often it has those of some tasks only.
    """

    clock: Clock = field(default_factory=lambda: Clock(BEGAN))
    jobs: list[Measured] = field(default_factory=list)
    slots: tuple[int, int] = (32, 16)
    configured: dict[str, str] = field(default_factory=dict)
    odd: dict[str, tuple[int, Any]] = field(default_factory=dict)
    rescales: list[dict[str, Any]] | None = None
    stale_looks: int = 0
    partial_looks: int = 0
    asked: list[str] = field(default_factory=list)

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        self.asked.append(path)
        if path in self.odd:
            return self.odd[path]
        match path.strip("/").split("/"):
            case ["overview"]:
                every, free = self.slots
                return 200, {"slots-total": every, "slots-available": free}
            case ["jobmanager", "config"]:
                return 200, [{"key": key, "value": word} for key, word in self.configured.items()]
            case ["jobs", "overview"]:
                jobs = [{"jid": job.id, "name": job.name, "state": job.state} for job in self.jobs]
                return 200, {"jobs": jobs}
            case ["jobs", id, *rest]:
                job = next((job for job in self.jobs if job.id == id), None)
                if job is None:
                    return 404, {"errors": [f"Job {id} not found"]}
                return self._of_job(job, rest, query)
        return 404, {"errors": ["Not found."]}

    def _of_job(self, job: Measured, rest: list[str], query: Any) -> tuple[int, Any]:
        match rest:
            case []:
                return 200, self._page(job)
            case ["status"]:
                return 200, {"status": job.state}
            case ["rescales", "history"] if self.rescales is not None:
                return 200, self.rescales
            case ["vertices", id]:
                return 200, self._vertex(job, _part(job, id))
            case ["vertices", id, "metrics"]:
                return 200, [{"id": name} for name in _names(_part(job, id))]
            case ["vertices", id, "subtasks", "metrics"]:
                values = self._sums(job, _part(job, id))
                asked = query["get"][0].split(",")
                return 200, [{"id": name, "sum": values[name]} for name in asked if name in values]
        return 404, {"errors": ["Not found."]}

    def _seconds(self, job: Measured) -> float:
        return job.runs_for + self.clock.time - BEGAN

    def _page(self, job: Measured) -> dict[str, Any]:
        started = int(1000 * (BEGAN - job.runs_for))
        return {
            "jid": job.id,
            "name": job.name,
            "state": job.state,
            "now": int(1000 * self.clock.time),
            "timestamps": {"RUNNING": started},
            "vertices": [
                {
                    "id": part.id,
                    "name": part.id,
                    "maxParallelism": part.parallelism_max,
                    "parallelism": part.parallelism,
                    "status": part.status,
                    "start-time": started,
                }
                for part in job.parts
            ],
            "plan": {"nodes": [_node(part) for part in job.parts]},
        }

    def _vertex(self, job: Measured, part: Part) -> dict[str, Any]:
        seconds = self._seconds(job)
        counted = seconds
        if self.stale_looks > 0:
            self.stale_looks -= 1
            counted = max(0.0, seconds - 30)
        subtasks = [_subtask(part, number, counted, seconds) for number in range(part.parallelism)]
        if self.partial_looks > 0:
            self.partial_looks -= 1
            subtasks[0]["metrics"]["read-records-complete"] = False
        return {"id": part.id, "now": int(1000 * self.clock.time), "subtasks": subtasks}

    def _sums(self, job: Measured, part: Part) -> dict[str, float]:
        seconds = self._seconds(job)
        values = {f"Source__{part.id}.numRecordsIn": part.rate * seconds}
        if part.lag is not None:
            waits = part.lag + part.lag_rate * (self.clock.time - BEGAN)
            values[f"Source__{part.id}.pendingRecords"] = waits
        return values


def _part(job: Measured, id: str) -> Part:
    return next(part for part in job.parts if part.id == id)


def _node(part: Part) -> dict[str, Any]:
    inputs = [{"id": id, "ship_strategy": "HASH"} for id in part.inputs]
    return {"id": part.id, "inputs": inputs} if inputs else {"id": part.id}


def _names(part: Part) -> list[str]:
    names = [f"{number}.busyTimeMsPerSecond" for number in range(part.parallelism)]
    if not part.inputs:
        names.append(f"0.Source__{part.id}.numRecordsIn")
        if part.lag is not None:
            names.append(f"0.Source__{part.id}.pendingRecords")
        reader = f"Source__{part.id}.KafkaSourceReader.topic.orders.partition"
        names += [f"0.{reader}.{number}.currentOffset" for number in range(part.partitions)]
    return names


def _subtask(part: Part, number: int, seconds: float, runs: float) -> dict[str, Any]:
    """Subtask 0 is the busiest."""
    share = 1 / part.parallelism
    if part.parallelism > 1:
        rest = (1 - share * part.skew) / (part.parallelism - 1)
        share = share * part.skew if number == 0 else rest
    busy = min(1.0, part.busy * (1 if number == 0 else 1 / part.skew))
    idle = max(0.0, 1 - busy - part.backpressured)
    counted = 0 if not part.inputs else round(part.rate * share * seconds)
    return {
        "subtask": number,
        "status": "RUNNING",
        "attempt": 0,
        "duration": int(1000 * runs),
        "status-duration": {"RUNNING": int(1000 * runs)},
        "metrics": {
            "read-records": counted,
            "read-records-complete": True,
            "write-records": round(part.rate * share * seconds),
            "write-records-complete": True,
            "accumulated-busy-time": part.busy_text or 1000 * busy * seconds,
            "accumulated-idle-time": round(1000 * idle * seconds),
            "accumulated-backpressured-time": round(1000 * part.backpressured * seconds),
        },
    }

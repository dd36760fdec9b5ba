"""What Flink's REST API tells, as plain values, read from its JSON: of a job, its checkpoints, a
savepoint asked for.

The readers raise KeyError, TypeError or ValueError on anything else; `flink_calls` says then where
that came from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from stateshift.clusters.flink.causes import Cause, cause_of
from stateshift.clusters.protocol import JobState

STATES: Final[Mapping[str, JobState]] = {
    "INITIALIZING": JobState.QUEUED,
    "CREATED": JobState.QUEUED,
    "RUNNING": JobState.RUNNING,
    "RESTARTING": JobState.RUNNING,
    "RECONCILING": JobState.RUNNING,
    "FAILING": JobState.RUNNING,
    "CANCELLING": JobState.RUNNING,
    "FINISHED": JobState.FINISHED,
    "CANCELED": JobState.FAILED,
    "FAILED": JobState.FAILED,
}
_WAITING: Final = frozenset({"CREATED", "SCHEDULED"})
_ID = re.compile(r"[0-9a-fA-F]{32}")
_FAILED_BEHIND = re.compile(r"savepoint has been created at: (.+?), but the corresponding job")


@dataclass(frozen=True, slots=True)
class Vertex:
    """A chain of operators. `id` is its head's."""

    id: str
    name: str
    parallelism: int
    parallelism_max: int
    state: str  # in Flink's own word


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    name: str
    told: str  # the state in Flink's own word
    vertices: tuple[Vertex, ...] = ()
    now: int = 0  # by the JobManager's clock, in milliseconds
    scheduler: str | None = None
    started: int | None = None  # by the same clock

    @property
    def state(self) -> JobState:
        waits = (
            self.told == "RUNNING"
            and self.vertices
            and all(v.state in _WAITING for v in self.vertices)
        )
        return JobState.QUEUED if waits else STATES.get(self.told, JobState.UNKNOWN)

    @property
    def runs(self) -> bool:
        """All of it: bounded parts may have finished."""
        states = {vertex.state for vertex in self.vertices}
        return self.told == "RUNNING" and "RUNNING" in states and states <= {"RUNNING", "FINISHED"}

    @property
    def stillborn(self) -> bool:
        """It failed before it was anything: nothing of it ever ran."""
        return self.told == "FAILED" and not self.vertices


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that was completed. `sync`: the savepoint that a job is stopped with."""

    id: int
    path: str
    savepoint: bool
    sync: bool
    triggered: int


@dataclass(frozen=True, slots=True)
class Checkpoints:
    restored: tuple[int, str] | None
    latest: Checkpoint | None
    savepoints: tuple[Checkpoint, ...]  # newest first, as far as Flink remembers them
    latest_checkpoint: Checkpoint | None = None  # that is no savepoint


@dataclass(frozen=True, slots=True)
class Triggered:
    """A savepoint or a checkpoint that was asked for: under way while it has nothing of all that.
    With both a location and a cause it is whole, and its job has failed behind it.
    """

    location: str | None = None
    cause: Cause | None = None
    checkpoint: int | None = None


def job_of(told: Mapping[str, Any]) -> Job:
    vertices = tuple(
        Vertex(
            str(v["id"]),
            str(v["name"]),
            int(v["parallelism"]),
            int(v.get("maxParallelism", -1)),
            str(v["status"]),
        )
        for v in told["vertices"]
    )
    scheduler = told.get("schedulerType")
    begun = [int(v["start-time"]) for v in told["vertices"] if v.get("start-time") is not None]
    started = max(
        begun, default=None
    )  # of the part that was started last: after a failure, all are anew
    return Job(
        str(told["jid"]),
        str(told["name"]),
        str(told["state"]),
        vertices,
        int(told["now"]),
        scheduler,
        started,
    )


def checkpoints_of(told: Mapping[str, Any]) -> Checkpoints:
    latest = told["latest"]
    restored = latest.get("restored")
    made = [
        _checkpoint(one)
        for one in (latest.get("completed"), latest.get("savepoint"), *told.get("history", ()))
    ]
    known = sorted(
        {one.id: one for one in made if one is not None}.values(),
        key=lambda one: one.id,
        reverse=True,
    )
    return Checkpoints(
        (int(restored["id"]), str(restored.get("external_path") or "")) if restored else None,
        next(iter(known), None),
        tuple(one for one in known if one.savepoint),
        next((one for one in known if not one.savepoint), None),
    )


def _checkpoint(told: Mapping[str, Any] | None) -> Checkpoint | None:
    if told is None or told["status"] != "COMPLETED":
        return None
    sync = told.get("checkpoint_type") == "SYNC_SAVEPOINT"
    path, savepoint = str(told.get("external_path") or ""), bool(told["is_savepoint"])
    return Checkpoint(int(told["id"]), path, savepoint, sync, int(told["trigger_timestamp"]))


def triggered_of(told: Mapping[str, Any]) -> Triggered:
    if told["status"]["id"] != "COMPLETED":
        return Triggered()
    operation = told["operation"]
    if operation.get("failure-cause") is None:
        return Triggered(str(operation["location"]))
    return replace(
        _failed(operation["failure-cause"]), location=failed_behind(operation["failure-cause"])
    )


def failed_behind(failure: Mapping[str, Any]) -> str | None:
    """Where the savepoint is that a job was to stop with, where it failed once that was whole."""
    found = _FAILED_BEHIND.search(str(failure.get("stack-trace")))
    return found[1] if found is not None else None


def result_of(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """What made a job fail; nothing of one that has not."""
    return (told.get("job-execution-result") or {}).get("failure-cause") or {}


def triggered_checkpoint_of(told: Mapping[str, Any]) -> Triggered:
    """Where it is, the list of the job's checkpoints tells."""
    if told["status"]["id"] != "COMPLETED":
        return Triggered()
    failure = told["operation"].get("failureCause")
    return (
        Triggered(checkpoint=int(told["operation"]["checkpointId"]))
        if failure is None
        else _failed(failure)
    )


def _failed(failure: Mapping[str, Any]) -> Triggered:
    stack = str(failure.get("stack-trace") or failure.get("class"))
    return Triggered(None, cause_of(stack) or Cause(stack[:200]))


def lasting_of(settings: Mapping[str, Any]) -> bool | None:
    """Whether a job's checkpoints are still there when it was cancelled; None of a job that has
    none to tell of.
    """
    kept = settings.get("externalization")
    if not isinstance(kept, dict):
        return None
    return kept.get("enabled") is True and kept.get("delete_on_cancellation") is False


def wanted_parallelism(now: Mapping[str, Any], wanted: Mapping[str, int]) -> dict[str, Any]:
    """All vertices' requirements, with some changed: Flink wants all of them. As many as asked for
    and not more; fewer while there are no slots for them, rather than none.
    """
    changed = {
        id: {"parallelism": {"lowerBound": 1, "upperBound": count}} for id, count in wanted.items()
    }
    return {**now, **changed}


def is_job_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def release_of(version: str | None) -> tuple[int, int]:
    """(major, minor), of a version that cannot be read the newest."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else (99, 0)


def texts_of(arguments: Sequence[Any]) -> list[str]:
    return [
        str(argument).lower() if isinstance(argument, bool) else str(argument)
        for argument in arguments
    ]

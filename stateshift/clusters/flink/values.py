"""The answers of Flink's REST API as plain values, read from its JSON: a job, its checkpoints, a
savepoint that was asked for.

The readers raise KeyError, TypeError or ValueError on anything else; `flink_calls` says then where
that came from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from stateshift.clusters.flink.causes import Cause, cause_of
from stateshift.clusters.http import Json
from stateshift.clusters.options import Options
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
ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})
_WAITING: Final = frozenset({"CREATED", "SCHEDULED"})
_ID = re.compile(r"[0-9a-fA-F]{32}")
_SAVEPOINT_BEFORE = re.compile(r"savepoint has been created at: (.+?), but the corresponding job")


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
    """A job as the JobManager describes it."""

    id: str
    name: str
    flink_state: str  # the state in Flink's own word
    vertices: tuple[Vertex, ...] = ()
    now: int = 0  # by the JobManager's clock, in milliseconds
    scheduler: str | None = None
    started: int | None = None  # by the same clock

    @property
    def state(self) -> JobState:
        waits = (
            self.flink_state == "RUNNING"
            and self.vertices
            and all(vertex.state in _WAITING for vertex in self.vertices)
        )
        return JobState.QUEUED if waits else STATES.get(self.flink_state, JobState.UNKNOWN)

    @property
    def runs(self) -> bool:
        """Whether all of it runs: bounded parts may have finished."""
        states = {vertex.state for vertex in self.vertices}
        if self.flink_state != "RUNNING" or "RUNNING" not in states:
            return False
        return states <= {"RUNNING", "FINISHED"}

    @property
    def stillborn(self) -> bool:
        """Whether it failed before anything of it ran."""
        return self.flink_state == "FAILED" and not self.vertices


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
    """The image that a job was restored from, and the checkpoints that it has completed since."""

    restored: tuple[int, str] | None
    latest: Checkpoint | None
    savepoints: tuple[Checkpoint, ...]  # newest first, as far as Flink remembers them
    latest_checkpoint: Checkpoint | None = None  # that is no savepoint
    paths: frozenset[str] = frozenset()  # of all that Flink remembers


@dataclass(frozen=True, slots=True)
class Triggered:
    """A savepoint or checkpoint under way; with location and cause, its job failed after it."""

    location: str | None = None
    cause: Cause | None = None
    checkpoint: int | None = None

    @property
    def has_failed(self) -> bool:
        """Whether nothing came of it, and the job is as it was."""
        return self.cause is not None and self.location is None


def job_of(answer: Json) -> Job:
    """Return the job that the page of one job describes."""
    vertices, begun = [], []
    for page in answer["vertices"]:
        id, name, word = str(page["id"]), str(page["name"]), str(page["status"])
        most = int(page.get("maxParallelism", -1))
        vertices.append(Vertex(id, name, int(page["parallelism"]), most, word))
        if page.get("start-time") is not None:
            begun.append(int(page["start-time"]))
    return Job(
        id=str(answer["jid"]),
        name=str(answer["name"]),
        flink_state=str(answer["state"]),
        vertices=tuple(vertices),
        now=int(answer["now"]),
        scheduler=answer.get("schedulerType"),
        # of the part that was started last: after a failure, all start again
        started=max(begun, default=None),
    )


def checkpoints_of(answer: Json) -> Checkpoints:
    """Return the completed checkpoints and savepoints of the page of a job's checkpoints."""
    latest = answer["latest"]
    listed = (latest.get("completed"), latest.get("savepoint"), *answer.get("history", ()))
    by_id = {made.id: made for made in map(_checkpoint, listed) if made is not None}
    newest_first = [by_id[id] for id in sorted(by_id, reverse=True)]
    savepoints = [made for made in newest_first if made.savepoint]
    checkpoints = [made for made in newest_first if not made.savepoint]
    restored = latest.get("restored") or None
    if restored is not None:
        restored = int(restored["id"]), str(restored.get("external_path") or "")
    return Checkpoints(
        restored=restored,
        latest=next(iter(newest_first), None),
        savepoints=tuple(savepoints),
        latest_checkpoint=next(iter(checkpoints), None),
        paths=frozenset(made.path for made in newest_first),
    )


def _checkpoint(answer: Json | None) -> Checkpoint | None:
    if answer is None or answer["status"] != "COMPLETED":
        return None
    sync = answer.get("checkpoint_type") == "SYNC_SAVEPOINT"
    path, savepoint = str(answer.get("external_path") or ""), bool(answer["is_savepoint"])
    return Checkpoint(int(answer["id"]), path, savepoint, sync, int(answer["trigger_timestamp"]))


def savepoint_of(answer: Json) -> Triggered:
    """Return the savepoint that was asked for; an empty one while it is under way."""
    if answer["status"]["id"] != "COMPLETED":
        return Triggered()
    operation = answer["operation"]
    if operation.get("failure-cause") is None:
        return Triggered(str(operation["location"]))
    failure = operation["failure-cause"]
    return replace(_failed(failure), location=savepoint_before(failure))


def savepoint_before(failure: Json) -> str | None:
    """Return the whole savepoint of a job that was to stop with it, and failed instead."""
    named = _SAVEPOINT_BEFORE.search(str(failure.get("stack-trace")))
    return named[1] if named is not None else None


def triggered_checkpoint_of(answer: Json) -> Triggered:
    """Return the checkpoint by its number; the list of the job's checkpoints has its location."""
    if answer["status"]["id"] != "COMPLETED":
        return Triggered()
    operation = answer["operation"]
    failure = operation.get("failureCause")
    if failure is not None:
        return _failed(failure)
    return Triggered(checkpoint=int(operation["checkpointId"]))


def _failed(failure: Json) -> Triggered:
    stack = str(failure.get("stack-trace") or failure.get("class"))
    return Triggered(None, cause_of(stack) or Cause(stack[:200]))


def lasting_of(settings: Options) -> bool | None:
    """Whether a job's checkpoints outlast its cancelling; None of a job that tells of none."""
    kept = settings.get("externalization")
    if not isinstance(kept, dict):
        return None
    return kept.get("enabled") is True and kept.get("delete_on_cancellation") is False


def is_job_id(text: str) -> bool:
    """Whether a text is an id of Flink, not a name."""
    return _ID.fullmatch(text) is not None


def release_of(version: str | None) -> tuple[int, int]:
    """Return (major, minor), for a version that cannot be read the newest."""
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(numbers[1]), int(numbers[2])) if numbers else (99, 0)

"""Savepoints that Flink takes: once per tag, waited for, and recognised afterwards.

    <state_dir>/<tag>.savepoint.json  {"begun": seconds, "since": the JobManager's time,
                                      "location": once it is known,
                                      "failed": why, if the job failed behind it}

A savepoint is asked for under an id that follows from the tag, so that asking again asks for the
same one. Flink keeps that id for five minutes after it is done, and as long as the JobManager
lives. Later the savepoint is recognised among the job's checkpoints: one below the directory that
was asked for, taken since we began; or the one that the job ended with. One that failed has had its
answer: the next attempt has another id.

A job that is to stop may fail once its savepoint is whole, for it commits what it wrote only then.
Flink (since 1.15) calls the savepoint a failed one and lets the job fail for good, with an
exception that says so and names it: the job ended with that savepoint, and the one that goes on
from it commits the rest. Once the savepoint is forgotten, the job's result still tells; its history
of exceptions does not, under the adaptive scheduler.

ForSt writes no canonical savepoint (ForStKeyedStateBackend.savepoint), nor does any backend of an
operator that asks its state without waiting (state V2, since 2.0;
StreamOperatorStateHandler.snapshotState): asked for one, its task fails, and the job with it. Such
an operator is known by its metrics, under `asyncStateProcessing` (AsyncExecutionController);
nothing else that Flink tells of a job has a word of it. Flink gathers these names when somebody
asks, at most every ten seconds (metrics.fetcher.update-interval): meanwhile it answers with none,
or with those of a job that was still being set up.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import ClassVar, Final, Generic, Literal, TypeVar

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.causes import ASK_NATIVE, Cause, cause_of
from stateshift.clusters.flink.values import Job, release_of, savepoint_before
from stateshift.clusters.http import Json, Refused, Unanswered, through_outages
from stateshift.clusters.noted import Notes, Record
from stateshift.clusters.options import Options
from stateshift.clusters.protocol import CheckpointRequest, Gone, SavepointRequest
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError

T = TypeVar("T")
R = TypeVar("R", SavepointRequest, CheckpointRequest)

# A savepoint is said to have ended with this if a task failed meanwhile: that is not why.
_GIVEN_UP = re.compile(
    r"Coordinator is suspending|Task has failed|was declined|Task name with subtask|job.*failing"
)
_CAUTIONS: Final[Mapping[str, str]] = {
    "unaligned_checkpoints": (
        "its checkpoints are unaligned and a savepoint is not: it waits for the records that "
        "are on their way"
    ),
    "state_changelog_enabled": (
        "its changelog is on: it is restored from a savepoint with no_claim only where the "
        "changelog is off"
    ),
}
_BEGINS, _ENDS = {"INITIALIZING", "CREATED"}, {"FINISHED", "CANCELED", "FAILED"}
_MEASURED: Final = ".asyncStateProcessing."
_GATHERING_SECONDS: Final = 12.0


def take_savepoint(
    calls: FlinkCalls, request: SavepointRequest, notes: Notes, interrupt: threading.Event | None
) -> str:
    """Take a savepoint and return its location; with `stop` and `cancel` once the job has ended."""
    return _Taking(calls, request, notes, interrupt).done()


def failed_savepoint(request_tag: str, notes: Notes) -> str | None:
    """Return the failure of a job after the savepoint that it was to stop with, if it failed."""
    why = (notes.read(_note(request_tag)) or {}).get("failed")
    return None if why is None else str(why)


def is_under_way(calls: FlinkCalls, request: SavepointRequest, notes: Notes) -> bool:
    """Whether Flink takes this savepoint, or ended the job with it; a failed one does not."""
    if notes.read(_note(request.tag)) is None:
        return False  # nothing is asked for before that is noted
    attempt = 0
    triggered = calls.triggered(request.job_id, trigger_id(request.tag))
    while triggered is not None and triggered.has_failed:
        attempt += 1
        triggered = calls.triggered(request.job_id, trigger_id(request.tag, attempt))
    return triggered is not None


def trigger_id(tag: str, attempt: int = 0) -> str:
    """Return the id of a savepoint's request: the same for each repeat of one attempt."""
    identity = f"savepoint {attempt} {tag}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(identity).hexdigest()[:32]


def lies_below(path: str, directory: str) -> bool:
    """Whether a path that Flink reports is below the directory that it was given: `file:/a/b` is
    below `file:///a` and below `/a`; what the directory leaves out (scheme, host) is what the
    cluster has by default.
    """
    if not directory:
        return True
    (scheme, host, below), (its_scheme, its_host, above) = _parts(path), _parts(directory)
    same = its_scheme in ("", scheme) and its_host in ("", host)
    return same and f"{below.rstrip('/')}/".startswith(f"{above.rstrip('/')}/")


def cautions(settings: Options) -> tuple[str, ...]:
    """Return reasons in a job's settings for which a savepoint is slower or harder to restore."""
    return tuple(text for name, text in _CAUTIONS.items() if settings.get(name) is True)


def _note(tag: str) -> str:
    return f"{tag}.savepoint"


def _parts(location: str) -> tuple[str, str, str]:
    """Return scheme, host and path: a path may have any character in it."""
    parts = re.match(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)", location, re.DOTALL)
    assert parts is not None
    return parts[1] or "", parts[2] or "", parts[3]


@dataclass
class ImageAsked(Generic[R]):
    """An image that a job is asked for, with the note of its tag."""

    calls: FlinkCalls
    request: R
    notes: Notes
    interrupt: threading.Event | None

    suffix: ClassVar[str]

    @property
    def note(self) -> str:
        return f"{self.request.tag}.{self.suffix}"

    @property
    def noted(self) -> Record:
        return self.notes.read(self.note) or {}

    def began(self) -> float:
        """Return our begin by the JobManager's clock: noted before anything is asked for."""
        since = self.noted.get("since")
        if since is None:
            since = self.job().now
            self.notes.add(self.note, begun=time.time(), since=since)
        return float(since)

    def job(self) -> Job:
        job = self.calls.job(self.request.job_id)
        if job is None:
            raise self.calls.unknown(self.request.job_id)
        return job

    def wait(self, look: Callable[[], T | None], until: float) -> T | None:
        patient = through_outages(look, self.calls.outage_seconds)
        return wait_for(patient, max(0.0, until - time.monotonic()), self.interrupt)

    def error(self, fact: str, hint: str | None) -> ClusterError:
        return ClusterError(fact, cluster=self.calls.cluster, job=self.request.job_id, hint=hint)


@dataclass
class _Taking(ImageAsked[SavepointRequest]):
    """Takes a savepoint. `attempt` is the one under way, `asked` whether we have asked for it;
    `known` the job's exceptions from before that. Until `listed_at` Flink's list of checkpoints may
    not have a savepoint that somebody else of our run took.
    """

    suffix = "savepoint"
    attempt: int = 0
    asked: bool = False
    known: list[Json] = field(default_factory=list)
    listed_at: float | None = None

    @property
    def ends(self) -> bool:
        return self.request.stop or self.request.cancel

    def done(self) -> str:
        until = time.monotonic() + self.request.seconds_max
        location = self.noted.get("location")
        if location is None:
            location = self._wait(partial(self._look, self.began()), until)
            if location is None:
                raise self._late()
            self.notes.add(self.note, location=location)
        if self.ends and not self._wait(self._ended, until):
            fact = (
                f"{self.request.job_id} still runs {self.request.seconds_max:g} s after its "
                f"savepoint was asked for; that is at {location}"
            )
            raise self.error(fact, "stateshift resume WORKDIR waits for its end again")
        return str(location)

    def _look(self, since: float) -> str | None:
        triggered = self.calls.triggered(self.request.job_id, self._trigger)
        if triggered is not None:
            cause = triggered.cause
            if cause is None:
                return triggered.location
            if triggered.location is not None:
                return self._with_failure(triggered.location, cause.fact)
            if self.asked:
                raise self._failed(cause)
            self.attempt += 1  # it is an earlier attempt's, and was reported then
            return self._look(since)
        listed = self._listed(since)
        if listed is not None:
            return listed
        job = self.job()
        if job.flink_state in _BEGINS:
            return None
        if job.flink_state in _ENDS and self._may_be_listed_later():
            return None
        self.known = self._exceptions()  # what comes after them is of the savepoint
        self.asked = True  # also where the answer is lost
        self._ask(job, self._trigger)
        return None

    def _failed(self, given_up: Cause) -> ClusterError:
        """Return the error for a savepoint not taken: a failed task's exception says most."""
        cause, ended = given_up, False
        if _GIVEN_UP.search(given_up.fact):
            # A job that fails takes a while, and so does the page.
            patience = self.calls.refresh_seconds() + 0.5
            cause = wait_for(self._newest, patience, self.interrupt) or given_up

            def is_over() -> bool | None:
                job = self.calls.job(self.request.job_id)
                return True if job is None or job.flink_state in ("FAILED", "CANCELED") else None

            ended = bool(wait_for(is_over, patience, self.interrupt))
        hint = cause.hint or given_up.hint or "see the job's exceptions"
        if ended:
            checkpoint = self.calls.checkpoints(self.request.job_id).latest_checkpoint
            last = ""
            if checkpoint is not None and checkpoint.path:
                last = f": its last checkpoint is {checkpoint.path}"
            hint = (
                f"{hint}. the job has failed with that{last}; start it again from there, or roll "
                "this back: stateshift rollback WORKDIR"
            )
        elif cause is not given_up:
            hint = f"{hint}. the job goes on, from its last checkpoint"
        return self.error(f"no savepoint was taken: {cause.fact}", hint)

    def _newest(self) -> Cause | None:
        """Return the cause for which a task of the job has failed since we asked."""
        new = [exception for exception in self._exceptions() if exception not in self.known]
        return cause_of(new[0].get("stacktrace")) if new else None

    def _exceptions(self) -> list[Json]:
        try:
            return self.calls.exceptions(self.request.job_id)
        except (Refused, Unanswered):
            return []

    def _may_be_listed_later(self) -> bool:
        """Whether a job just ended may have a savepoint that is listed seconds later."""
        if self.listed_at is None:
            self.listed_at = time.monotonic() + self.calls.refresh_seconds() + 0.5
        return time.monotonic() < self.listed_at

    def _ask(self, job: Job, trigger: str) -> None:
        request = self.request
        if job.flink_state in _ENDS:
            fact = (
                f"{job.name} ({job.id}) is {job.flink_state}, and no savepoint below "
                f"{request.directory} ended it"
            )
            hint = "take its last retained checkpoint, or a savepoint that there is, as its image"
            raise self.error(fact, hint)
        why = None if request.native else no_canonical(self.calls, job, self.interrupt)
        if why is not None:
            fact = f"{why}: asked for one, it fails"
            raise self.error(fact, f"{ASK_NATIVE}; nothing was stopped")
        if request.drain and not request.stop:
            fact = "only a job that is stopped can be drained"
            raise self.error(fact, "stop it, or do not drain it")
        body: Json = {
            "formatType": "NATIVE" if request.native else "CANONICAL",
            "triggerId": trigger,
        }
        if request.stop:
            body["drain"] = request.drain
        else:
            body["cancel-job"] = request.cancel
        if request.directory:
            body["targetDirectory" if request.stop else "target-directory"] = request.directory
        self.calls.trigger(request.job_id, request.stop, body)

    def _listed(self, since: float) -> str | None:
        """Return a savepoint of ours among the job's checkpoints, if its id is forgotten."""
        checkpoints = self.calls.checkpoints(self.request.job_id)
        directory = self.request.directory
        ours = [made for made in checkpoints.savepoints if lies_below(made.path, directory)]
        job = self.job()
        if not self.ends:
            recent = (made.path for made in ours if made.triggered >= since)
            return next(recent, None)
        if job.flink_state not in _ENDS:
            return None
        last = checkpoints.latest
        expected = "FINISHED" if self.request.stop else "CANCELED"
        is_last = last is not None and last in ours and last.sync == self.request.stop
        if last is not None and is_last and job.flink_state == expected:
            return last.path
        if not self.request.stop or job.flink_state != "FAILED":
            return None
        failure = self.calls.failure(job.id)
        location = savepoint_before(failure)
        if location is None or not lies_below(location, self.request.directory):
            return None
        cause = cause_of(failure["stack-trace"])
        return None if cause is None else self._with_failure(location, cause.fact)

    def _with_failure(self, location: str, why: str) -> str:
        self.notes.add(self.note, failed=why)
        return location

    def _ended(self) -> bool | None:
        job = self.calls.job(self.request.job_id)
        if job is None or job.flink_state in ("FINISHED", "CANCELED"):
            return True
        if job.flink_state == "FAILED" and not self.noted.get("failed"):
            fact = f"{job.name} ({job.id}) failed after its savepoint was taken"
            raise self.error(fact, f"its image is at {self.noted.get('location')}")
        return True if job.flink_state == "FAILED" else None

    def _wait(self, look: Callable[[], T | None], until: float) -> T | Literal[True] | None:
        try:
            return self.wait(look, until)
        except Unanswered as silent:
            begun = self.noted.get("begun")
            if begun is None or not (self.ends and self.calls.has_gone(silent)):
                raise silent
            if look == self._ended:
                return True  # a cluster of one application goes when the application has ended
            fact = f"{self.request.job_id} was asked for a savepoint, and its cluster is gone"
            hint = (
                f"look for the savepoint below {self.request.directory}: if there is one, it "
                "is the job's image"
            )
            cluster, job = self.calls.cluster, self.request.job_id
            raise Gone(fact, float(begun), cluster=cluster, job=job, hint=hint) from silent

    def _late(self) -> ClusterError:
        notes = cautions(self.calls.settings(self.request.job_id))
        fact = (
            f"the savepoint of {self.request.job_id} has taken more than "
            f"{self.request.seconds_max:g} s"
        )
        why = f" ({'; '.join(notes)})" if notes else ""
        return self.error(fact + why, "it goes on: stateshift resume WORKDIR waits for it again")

    @property
    def _trigger(self) -> str:
        return trigger_id(self.request.tag, self.attempt)


def no_canonical(calls: FlinkCalls, job: Job, interrupt: threading.Event | None) -> str | None:
    """Return the reason for which a canonical savepoint of this job would fail, if it would."""
    if "forst" in str(calls.settings(job.id).get("state_backend", "")).lower():
        return f"{job.name} keeps its state in ForSt, which writes no canonical savepoint"
    if release_of(calls.version()) < (2, 0):
        return None
    names = _async_operators(calls, job, interrupt)
    if not names:
        return None
    return (
        f"{names[0]!r} of {job.name} asks its state asynchronously (state V2), and writes no "
        "canonical savepoint"
    )


def _async_operators(calls: FlinkCalls, job: Job, interrupt: threading.Event | None) -> list[str]:
    """Return the operators, by the names of their metrics; none if Flink is not in time."""
    age = _GATHERING_SECONDS
    if job.started is not None:
        age = (job.now - job.started) / 1000
    settled = time.monotonic() + max(0.0, _GATHERING_SECONDS - age)

    def measured() -> list[str] | None:
        try:
            metrics = {vertex: calls.metrics(job.id, vertex.id) for vertex in job.vertices}
        except (Refused, Unanswered):  # it has ended, or nothing is measured here
            return []
        names = chain.from_iterable(metrics.values())
        # `orders_count` of `0.orders_count.asyncStateProcessing.numInFlightRecords`
        heads = [name.partition(_MEASURED)[0] for name in names if _MEASURED in name]
        operators = {head.partition(".")[2] for head in heads}
        if operators:
            return sorted(operators)
        running = [vertex for vertex in job.vertices if vertex.state == "RUNNING"]
        all_known = all(metrics[vertex] for vertex in running)
        return [] if all_known and time.monotonic() >= settled else None

    return wait_for(measured, _GATHERING_SECONDS + 1.0, interrupt) or []

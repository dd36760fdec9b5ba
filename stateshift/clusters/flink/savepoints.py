"""Having Flink take a savepoint: once per tag, waited for, and recognised afterwards.

    <state_dir>/<tag>.savepoint.json  {"begun": seconds, "since": the JobManager's time, "location":
                                      once it is known,
                                       "failed": why, where the job failed behind it}

A savepoint is asked for under an id that follows from the tag, so that asking again asks for the
same one. Flink keeps that id for five minutes after it is done, and as long as the JobManager
lives. Later the savepoint is recognised among the job's checkpoints: one below the directory that
was asked for, taken since we began; or the one that the job ended with. One that failed has had its
answer: the next attempt has another id.

A job that is to stop may fail once its savepoint is whole, for it commits what it wrote only then.
Flink (since 1.15) calls the savepoint a failed one and lets the job fail for good, with an
exception that says so and names it: that is what the job ended with, and whoever goes on from it
commits the rest. Once the savepoint is forgotten, the job's result still tells; its history of
exceptions does not, under the adaptive scheduler.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stateshift.clusters.flink.async_state import no_canonical
from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.causes import ASK_NATIVE, Cause, cause_of
from stateshift.clusters.flink.values import Checkpoint, Job, failed_behind
from stateshift.clusters.http.rest import Refused, Unanswered, through_outages
from stateshift.clusters.noted import Notes
from stateshift.clusters.protocol import Gone, SavepointRequest
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError

# What a savepoint is told to have ended with where a task failed meanwhile: not why.
_GIVEN_UP = re.compile(
    r"Coordinator is suspending|Task has failed|was declined|Task name with subtask|job.*failing"
)
_BEGINS, _ENDS = {"INITIALIZING", "CREATED"}, {"FINISHED", "CANCELED", "FAILED"}


def take_savepoint(
    calls: FlinkCalls, request: SavepointRequest, notes: Notes, interrupt: threading.Event | None
) -> str:
    """Its location; with `stop` and `cancel` once the job has ended."""
    return _Taking(calls, request, notes, interrupt).done()


def failed_savepoint(request_tag: str, notes: Notes) -> str | None:
    """Why the job failed behind the savepoint that it was to stop with; None where it did not."""
    why = (notes.read(_note(request_tag)) or {}).get("failed")
    return None if why is None else str(why)


def trigger_id(tag: str, attempt: int = 0) -> str:
    return hashlib.sha256(
        f"savepoint {attempt} {tag}".encode("utf-8", "surrogatepass")
    ).hexdigest()[:32]


def lies_below(path: str, directory: str) -> bool:
    """Whether a path that Flink tells is below the directory that it was told: `file:/a/b` is below
    `file:///a` and below `/a`; what the directory leaves out (scheme, host) is what the cluster has
    by default.
    """
    if not directory:
        return True
    (scheme, host, below), (its_scheme, its_host, above) = _parts(path), _parts(directory)
    same = its_scheme in ("", scheme) and its_host in ("", host)
    return same and f"{below.rstrip('/')}/".startswith(f"{above.rstrip('/')}/")


def cautions(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a job's settings makes a savepoint slower or harder to restore than its
    checkpoints.
    """
    unaligned = (
        "its checkpoints are unaligned and a savepoint is not: it waits for the records that "
        "are on their way"
    )
    changelog = (
        "its changelog is on: it is restored from a savepoint with no_claim only where the "
        "changelog is off"
    )
    return tuple(
        text
        for key, text in (
            ("unaligned_checkpoints", unaligned),
            ("state_changelog_enabled", changelog),
        )
        if settings.get(key) is True
    )


def _note(tag: str) -> str:
    return f"{tag}.savepoint"


def _parts(location: str) -> tuple[str, str, str]:
    """Scheme, host and path: a path may have any character in it."""
    found = re.match(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)", location, re.DOTALL)
    assert found is not None
    return found[1] or "", found[2] or "", found[3]


@dataclass(frozen=True, slots=True)
class _Taking:
    calls: FlinkCalls
    request: SavepointRequest
    notes: Notes
    interrupt: threading.Event | None

    @property
    def ends(self) -> bool:
        return self.request.stop or self.request.cancel

    def done(self) -> str:
        until = time.monotonic() + self.request.seconds_max
        location = self._noted.get("location")
        if location is None:
            location = self._wait(self._look_after(self._begun()), until)
            if location is None:
                raise self._late()
            self.notes.add(self._note, location=location)
        if self.ends and not self._wait(self._ended, until):
            raise self._not_ended(str(location))
        return str(location)

    def _begun(self) -> float:
        """When we began, by the JobManager's clock: noted before anything is asked for."""
        noted = self._noted.get("since")
        if noted is None:
            noted = self._job().now
            self.notes.add(self._note, begun=time.time(), since=noted)
        return float(noted)

    def _look_after(self, since: float) -> Callable[[], str | None]:
        attempt, asked, ended, known = [0], [False], list[float](), list[Any]()

        def look() -> str | None:
            told = self.calls.triggered(
                self.request.job_id, trigger_id(self.request.tag, attempt[0])
            )
            if told is not None and told.location is not None and told.cause is not None:
                return self._with_failure(told.location, told.cause.fact)
            if told is not None and told.cause is not None:
                if asked[0]:
                    raise self._failed(told.cause, known)
                attempt[0] += 1  # an earlier attempt's: it was told then
                return look()
            if told is not None:
                return told.location
            found = self._found(since)
            if found is not None:
                return found
            job = self._job()
            if job.told in _BEGINS or (job.told in _ENDS and self._is_told_later(ended)):
                return None  # it cannot be asked yet; or it has been
            known[:] = self._exceptions()  # what comes after them is of the savepoint
            asked[0] = True  # also where the answer is lost
            self._ask(job, trigger_id(self.request.tag, attempt[0]))
            return None

        return look

    def _failed(self, told: Cause, known: list[Any]) -> ClusterError:
        """Of a savepoint that was not taken: what made the job's task fail, where one did, tells
        more than that the savepoint was given up.
        """
        cause, ended = told, False
        if _GIVEN_UP.search(told.fact):
            patience = (
                self.calls.refresh_seconds() + 0.5
            )  # a job that fails takes a while, and so does the page
            cause = wait_for(lambda: self._newest(known), patience, self.interrupt) or told
            ended = bool(wait_for(self._is_over, patience, self.interrupt))
        after = (
            "the job has failed with that" if ended else "the job goes on, from its last checkpoint"
        )
        hint = cause.hint or told.hint or "see the job's exceptions"
        if ended:
            checkpoint = self.calls.checkpoints(self.request.job_id).latest_checkpoint
            left = (
                f": its last checkpoint is {checkpoint.path}"
                if checkpoint and checkpoint.path
                else ""
            )
            hint = (
                f"{hint}. {after}{left}; start it again from there, or roll this back: "
                "stateshift rollback WORKDIR"
            )
        elif cause is not told:
            hint = f"{hint}. {after}"
        return self._error(f"no savepoint was taken: {cause.fact}", hint)

    def _is_over(self) -> bool | None:
        job = self.calls.job(self.request.job_id)
        return True if job is None or job.told in ("FAILED", "CANCELED") else None

    def _newest(self, known: list[Any]) -> Cause | None:
        """Why a task of the job has failed since."""
        exceptions = self._exceptions()
        new = [one for one in exceptions if one not in known]
        return cause_of(new[0].get("stacktrace")) if new else None

    def _exceptions(self) -> list[dict[str, Any]]:
        """Those that the job has had, newest first; nothing where Flink does not tell them."""
        try:
            return self.calls.exceptions(self.request.job_id)
        except (Refused, Unanswered):
            return []

    def _is_told_later(self, ended: list[float]) -> bool:
        """Of a job that has ended just now, somebody else of our run may have asked for what ended
        it since we looked; and the list, which is some seconds old, may not have it yet.
        """
        if not ended:
            ended.append(time.monotonic() + self.calls.refresh_seconds() + 0.5)
        return time.monotonic() < ended[0]

    def _ask(self, job: Job, trigger: str) -> None:
        self._refuse_what_would_fail(job)
        request = self.request
        words = ("targetDirectory", "drain") if request.stop else ("target-directory", "cancel-job")
        flag = request.drain if request.stop else request.cancel
        body = {
            words[1]: flag,
            "formatType": "NATIVE" if request.native else "CANONICAL",
            "triggerId": trigger,
        }
        self.calls.trigger(
            request.job_id,
            request.stop,
            {**body, **({words[0]: request.directory} if request.directory else {})},
        )

    def _refuse_what_would_fail(self, job: Job) -> None:
        if job.told in _ENDS:
            fact = (
                f"{job.name} ({job.id}) is {job.told}, and no savepoint below "
                f"{self.request.directory} ended it"
            )
            raise self._error(
                fact,
                "take its last retained checkpoint, or a savepoint that there is, as its image",
            )
        why = no_canonical(self.calls, job, self.interrupt) if not self.request.native else None
        if why is not None:
            raise self._error(
                f"{why}: asked for one, it fails", f"{ASK_NATIVE}; nothing was stopped"
            )
        if self.request.drain and not self.request.stop:
            raise self._error(
                "only a job that is stopped can be drained", "stop it, or do not drain it"
            )

    def _found(self, since: float) -> str | None:
        """A savepoint of ours among the job's checkpoints, where its id is forgotten."""
        told = self.calls.checkpoints(self.request.job_id)
        ours = [one for one in told.savepoints if lies_below(one.path, self.request.directory)]
        job = self._job()
        if self.ends and job.told in _ENDS:
            last = next((one.path for one in ours if self._ended_with(one, job, told.latest)), None)
            return last or self._failed_behind(job)
        return (
            next((one.path for one in ours if one.triggered >= since), None)
            if not self.ends
            else None
        )

    def _ended_with(self, one: Checkpoint, job: Job, latest: Checkpoint | None) -> bool:
        expected = "FINISHED" if self.request.stop else "CANCELED"
        return job.told == expected and one == latest and one.sync == self.request.stop

    def _failed_behind(self, job: Job) -> str | None:
        """The savepoint that the job was stopped with, where it has failed instead."""
        failure = self.calls.failure(job.id) if self.request.stop and job.told == "FAILED" else {}
        location = failed_behind(failure)
        cause = cause_of(failure["stack-trace"]) if location is not None else None
        if location is None or cause is None or not lies_below(location, self.request.directory):
            return None
        return self._with_failure(location, cause.fact)

    def _with_failure(self, location: str, why: str) -> str:
        self.notes.add(self._note, failed=why)
        return location

    def _ended(self) -> bool | None:
        job = self.calls.job(self.request.job_id)
        if job is None or job.told in ("FINISHED", "CANCELED"):
            return True
        if job.told == "FAILED" and not self._noted.get("failed"):
            fact = f"{job.name} ({job.id}) failed after its savepoint was taken"
            raise self._error(fact, f"its image is at {self._noted.get('location')}")
        return True if job.told == "FAILED" else None

    def _wait(self, look: Callable[[], Any], until: float) -> Any:
        patient = through_outages(look, self.calls.outage_seconds)
        try:
            return wait_for(patient, max(0.0, until - time.monotonic()), self.interrupt)
        except Unanswered as silent:
            begun = self._noted.get("begun")
            if begun is None or not (self.ends and self.calls.of_one_application):
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

    def _job(self) -> Job:
        job = self.calls.job(self.request.job_id)
        if job is None:
            fact = f"Flink at {self.calls.url} knows no job {self.request.job_id}"
            raise self._error(
                fact,
                "a job that ended is forgotten after a while: take the savepoint it left, or list "
                "what runs with GET /jobs/overview",
            )
        return job

    def _late(self) -> ClusterError:
        notes = cautions(self.calls.settings(self.request.job_id))
        fact = (
            f"the savepoint of {self.request.job_id} has taken more than "
            f"{self.request.seconds_max:g} s"
        )
        why = f" ({'; '.join(notes)})" if notes else ""
        return self._error(fact + why, "it goes on: stateshift resume WORKDIR waits for it again")

    def _not_ended(self, location: str) -> ClusterError:
        fact = (
            f"{self.request.job_id} still runs {self.request.seconds_max:g} s after its "
            "savepoint was asked for"
        )
        return self._error(
            f"{fact}; that is at {location}", "stateshift resume WORKDIR waits for its end again"
        )

    def _error(self, fact: str, hint: str | None) -> ClusterError:
        return ClusterError(fact, cluster=self.calls.cluster, job=self.request.job_id, hint=hint)

    @property
    def _note(self) -> str:
        return _note(self.request.tag)

    @property
    def _noted(self) -> dict[str, Any]:
        return self.notes.read(self._note) or {}

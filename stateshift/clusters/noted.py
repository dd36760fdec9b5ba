"""What is remembered of a submission over a network: its answer may be lost, and we may be killed
before it comes.

    <state_dir>/<tag>.json  {"begun": seconds, "url": where, "id": "7" once it is known, "stopped":
                            true}

Written before the request goes out, and completed from the answer. One process at a time submits
under a tag.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateshift.clusters.detached import file_name, taken
from stateshift.clusters.options import Expected
from stateshift.clusters.protocol import Cluster, JobStatus, StopRequest, Submission
from stateshift.clusters.stopping import (
    GRACEFUL_SECONDS,
    OpenStorage,
    StopMarker,
    stop_options,
    stopped_gracefully,
)
from stateshift.clusters.waiting import wait_for
from stateshift.clusters.whole_files import write_whole
from stateshift.errors import ClusterError
from stateshift.formats.marks import WAIT


@dataclass(frozen=True, slots=True)
class Notes:
    directory: Path

    def read(self, tag: str) -> dict[str, Any] | None:
        return _record(self._path(tag))

    def add(self, tag: str, **more: Any) -> None:
        write_whole(
            self._path(tag), json.dumps({**(self.read(tag) or {}), **more}, sort_keys=True).encode()
        )

    def every(self) -> Iterator[dict[str, Any]]:
        """What is remembered of all submissions from here."""
        for path in sorted(self.directory.glob("*.json")):
            record = _record(path)
            if record is not None:
                yield record

    @contextmanager
    def alone(
        self, tag: str, seconds_max: float, interrupt: threading.Event | None
    ) -> Iterator[None]:
        """While this lasts, no other process or thread submits under the tag from here."""
        with ExitStack() as held:

            def attempt() -> bool | None:
                if held.enter_context(taken(self.directory / file_name(tag))) is not None:
                    return True
                held.close()
                return None

            if not wait_for(attempt, seconds_max, interrupt):
                raise ClusterError(
                    f"{tag} is being submitted by another process, which does not come to an end"
                )
            yield

    def _path(self, tag: str) -> Path:
        return self.directory / f"{file_name(tag)}.json"


def _record(path: Path) -> dict[str, Any] | None:
    try:
        plain = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return (
        plain if isinstance(plain, dict) and isinstance(plain.get("begun"), int | float) else None
    )


def handed_over(submission: Submission) -> dict[str, str]:
    """What the job is told of itself (IS-6), as Spark's settings: `stateshift.job` reads them."""
    told = {f"spark.stateshift.{key}": value for key, value in told_of(submission).items()}
    waits = submission.environment.get(WAIT)
    return {**told, "spark.stateshift.wait": waits} if waits else told


def filled(argument: str, submission: Submission) -> str:
    """An argument, with what stands for the location, the job and the tag replaced."""
    for key, value in told_of(submission).items():
        argument = argument.replace(f"{{{key}}}", value)
    return argument


def filled_values(values: Mapping[str, str], submission: Submission) -> dict[str, str]:
    """Settings, with the same replaced in their values."""
    return {key: filled(value, submission) for key, value in values.items()}


def told_of(submission: Submission) -> Mapping[str, str]:
    return {"checkpoint": submission.location, "job": submission.job, "tag": submission.tag}


def reached_at(submission: Submission, url: str) -> str:
    """The connection of the job overrides the cluster's (IS-4); host:port is reached by the same
    protocol.
    """
    reached = submission.connection
    if not reached:
        return url
    return reached if "://" in reached else f"{url.partition('://')[0]}://{reached}"


@dataclass(frozen=True)
class Stopping:
    """How a job that runs somewhere else is stopped: by the marker if it answers, else by
    `kill`.
    """

    cluster: Cluster
    notes: Notes
    options: Mapping[str, Any]
    known: Mapping[str, Expected]
    submitting: Mapping[str, Expected]
    open_storage: OpenStorage | None
    interrupt: threading.Event | None

    def asked(self, request: StopRequest) -> dict[str, Any]:
        return stop_options(request, self.options, self.known, self.submitting)

    def stop(self, request: StopRequest, kill: Callable[[str], None], look: str) -> JobStatus:
        """Until it is not alive; `look` is how a person looks at a job that does not end, with {id}
        for its id. That it was stopped is noted before it is: a service may forget at once what it
        ends.
        """
        status = self.cluster.find_source(request)
        refuse_unknown(status, request, self.cluster.name)
        if request.tag is not None and self.notes.read(request.tag) is not None:
            self.notes.add(request.tag, stopped=True)
        if status.state.alive and status.id is not None:
            if not self._gracefully(request):
                kill(status.id)
            self._until_ended(request, look)
        return self.cluster.find_source(request)

    def _gracefully(self, request: StopRequest) -> bool:
        marker = StopMarker(request, request.seconds_max, self.open_storage)
        patience = float(self.asked(request).get("graceful_seconds", GRACEFUL_SECONDS))
        return stopped_gracefully(marker, lambda: self._ended(request), patience, self.interrupt)

    def _until_ended(self, request: StopRequest, look: str) -> None:
        if wait_for(lambda: self._ended(request) or None, request.seconds_max, self.interrupt):
            return
        status = self.cluster.find_source(request)
        raise ClusterError(
            (
                f"{status.id}, the job {request.job}, is {status.state} "
                f"{request.seconds_max:g} s after it was stopped"
            ),
            cluster=self.cluster.name,
            job=request.job,
            hint=f"look at it: {look.format(id=status.id)}",
        )

    def _ended(self, request: StopRequest) -> bool:
        return not self.cluster.find_source(request).state.alive


def refuse_unknown(status: JobStatus, request: StopRequest, cluster: str) -> None:
    """A job of which nobody can tell whether it runs is not taken for one that does not."""
    if status.state == "unknown":
        raise ClusterError(
            f"cannot tell whether {request.job} runs: {status.detail}",
            cluster=cluster,
            job=request.job,
            hint="see that it does not run, and use a cluster of kind manual for the source",
        )

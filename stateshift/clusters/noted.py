"""Notes of a submission over a network: its answer may be lost, and we may be killed before it
comes.

    <state_dir>/<tag>.json  {"begun": seconds, "url": where, "id": "7" once it is known,
                            "stopped": true}

Written before the request goes out, and completed from the answer. One process at a time submits
under a tag.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias

from stateshift.clusters.detached import file_name, taken
from stateshift.clusters.options import Expected, Options
from stateshift.clusters.protocol import (
    Cluster,
    JobState,
    JobStatus,
    Origin,
    StopRequest,
    Submission,
)
from stateshift.clusters.stopping import (
    GRACEFUL_SECONDS,
    OpenStorage,
    StopMarker,
    forget_answer,
    stop_options,
    stopped_gracefully,
)
from stateshift.clusters.waiting import wait_for
from stateshift.clusters.whole_files import write_whole
from stateshift.errors import ClusterError
from stateshift.formats.marks import WAIT

# What is remembered under one tag, as JSON. Our own files: their values are those that we wrote.
Record: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notes:
    """What is remembered of submissions: a JSON file for each tag."""

    directory: Path

    def place(self, tag: str) -> Path:
        """Return the file of a tag."""
        return self.directory / f"{file_name(tag)}.json"

    def read(self, tag: str) -> Record | None:
        return _record(self.place(tag))

    def add(self, tag: str, **more: object) -> None:
        record = {**(self.read(tag) or {}), **more}
        write_whole(self.place(tag), json.dumps(record, sort_keys=True).encode())

    def every(self) -> Iterator[Record]:
        """Yield what is remembered of all submissions from here."""
        for path in sorted(self.directory.glob("*.json")):
            record = _record(path)
            if record is not None:
                yield record

    @contextmanager
    def alone(
        self, tag: str, seconds_max: float, interrupt: threading.Event | None
    ) -> Iterator[None]:
        """Keep all other processes and threads from submitting under the tag, while this lasts."""
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


def _record(path: Path) -> Record | None:
    try:
        plain = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(plain, dict) or not isinstance(plain.get("begun"), int | float):
        return None
    return plain


def noted_origin(notes: Notes, id: str | None, otherwise: str) -> Origin:
    """Return what a job with this id was started with, if we started it; `otherwise` is why that is
    not known of any other.
    """
    for record in notes.every():
        if id is not None and str(record.get("id")) == id and "options" in record:
            return Origin(record["options"])
    return Origin(why=otherwise)


def handed_over(submission: Submission) -> dict[str, str]:
    """Return what a job gets to know of itself (IS-6), as Spark's settings: `stateshift.job` reads
    them.
    """
    settings = {f"spark.stateshift.{key}": value for key, value in identity(submission).items()}
    waits = submission.environment.get(WAIT)
    if waits:
        settings["spark.stateshift.wait"] = waits
    return settings


def filled(argument: str, submission: Submission) -> str:
    """Return an argument with the placeholders for location, job and tag replaced."""
    for key, value in identity(submission).items():
        argument = argument.replace(f"{{{key}}}", value)
    return argument


def filled_arguments(arguments: Iterable[object], submission: Submission) -> list[str]:
    """Return a program's arguments with the placeholders replaced."""
    return [filled(str(argument), submission) for argument in arguments]


def filled_values(values: Mapping[str, str], submission: Submission) -> dict[str, str]:
    """Return settings with the placeholders in their values replaced."""
    return {key: filled(value, submission) for key, value in values.items()}


def identity(submission: Submission) -> Mapping[str, str]:
    """Return the values of the placeholders."""
    return {"checkpoint": submission.location, "job": submission.job, "tag": submission.tag}


def reached_at(submission: Submission, url: str) -> str:
    """Return the URL to submit at: the connection of the job overrides the cluster's (IS-4);
    host:port is reached by the same protocol.
    """
    connection = submission.connection
    if not connection:
        return url
    if "://" in connection:
        return connection
    protocol = url.partition("://")[0]
    return f"{protocol}://{connection}"


@dataclass(frozen=True)
class Stopping:
    """Stops a job that runs somewhere else: by the marker if it answers, else by `kill`."""

    cluster: Cluster
    notes: Notes
    options: Options
    known: Mapping[str, Expected]
    submitting: Mapping[str, Expected]
    open_storage: OpenStorage | None
    interrupt: threading.Event | None

    def asked(self, request: StopRequest) -> Options:
        return stop_options(request, self.options, self.known, self.submitting)

    def stop(self, request: StopRequest, kill: Callable[[str], None], look: str) -> JobStatus:
        """Stop a job and wait until it is not alive. `look` is how a person looks at a job that
        does not end, with {id} for its id. That it was stopped is noted before it is: a service
        may forget at once what it ends.
        """
        status = self.cluster.find_source(request)
        refuse_unknown(status, request, self.cluster.name, self.notes)
        if request.tag is not None and self.notes.read(request.tag) is not None:
            self.notes.add(request.tag, stopped=True)
        if status.state.alive and status.id is not None:
            is_killed = not self._gracefully(request)
            if is_killed:
                kill(status.id)
            self._until_ended(request, look)
            if is_killed:
                forget_answer(request, self.open_storage)
        after = self.cluster.find_source(request)
        refuse_unknown(after, request, self.cluster.name, self.notes)
        return after

    def _gracefully(self, request: StopRequest) -> bool:
        marker = StopMarker(request, request.seconds_max, self.open_storage)
        patience = float(self.asked(request).get("graceful_seconds", GRACEFUL_SECONDS))
        return stopped_gracefully(marker, lambda: self._ended(request), patience, self.interrupt)

    def _until_ended(self, request: StopRequest, look: str) -> None:
        if wait_for(lambda: self._ended(request) or None, request.seconds_max, self.interrupt):
            return
        status = self.cluster.find_source(request)
        raise ClusterError(
            f"{status.id}, the job {request.job}, is {status.state} "
            f"{request.seconds_max:g} s after it was stopped",
            cluster=self.cluster.name,
            job=request.job,
            hint=f"look at it: {look.format(id=status.id)}",
        )

    def _ended(self, request: StopRequest) -> bool:
        state = self.cluster.find_source(request).state
        return not state.alive and state is not JobState.UNKNOWN


def refuse_unknown(status: JobStatus, request: StopRequest, cluster: str, notes: Notes) -> None:
    """Refuse a job of which nobody can tell whether it runs: it is not taken for a stopped one. One
    that we started was forgotten, and is none once a person forgets it too.
    """
    if status.state == "unknown":
        hint = "see that it does not run, and use a cluster of kind manual for the source"
        if request.tag is not None and notes.read(request.tag) is not None:
            note = quote(str(notes.place(request.tag)))
            hint = (
                f"look whether it runs; if it does not: rm {note}, and the same command again "
                "takes it for one that was never started"
            )
        raise ClusterError(
            f"cannot tell whether {request.job} runs: {status.detail}",
            cluster=cluster,
            job=request.job,
            hint=hint,
        )

"""Notes of a submission over a network: its answer may be lost, and we may be killed before it
comes.

    <state_dir>/<tag>.json  {"begun": seconds, "url": where, "id": "7" once it is known,
                            "stopped": true}

Written before the request goes out, and completed from the answer. One process at a time submits
under a tag.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TypeAlias

from stateshift.clusters.detached import file_name, take_lock
from stateshift.clusters.options import Options
from stateshift.clusters.protocol import JobStatus, Origin, StopRequest, Submission
from stateshift.clusters.waiting import wait_for
from stateshift.clusters.whole_files import Note, read_object, write_object
from stateshift.errors import ClusterError
from stateshift.formats.marks import WAIT

# The note of one tag, as JSON.
Record: TypeAlias = Note


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of submissions: a JSON file for each tag."""

    directory: Path

    def place(self, tag: str) -> Path:
        return self.directory / f"{file_name(tag)}.json"

    def read(self, tag: str | None) -> Record | None:
        return None if tag is None else _record(self.place(tag))

    def add(self, tag: str, **more: object) -> None:
        write_object(self.place(tag), {**(self.read(tag) or {}), **more})

    def add_stopped(self, tag: str | None) -> None:
        """Note that we stop a job, if we submitted it."""
        if tag is not None and self.read(tag) is not None:
            self.add(tag, stopped=True)

    def every(self) -> Iterator[Record]:
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
                if held.enter_context(take_lock(self.directory / file_name(tag))) is not None:
                    return True
                held.close()
                return None

            if not wait_for(attempt, seconds_max, interrupt):
                raise ClusterError(
                    f"{tag} is being submitted by another process, which does not come to an end"
                )
            yield


def _record(path: Path) -> Record | None:
    plain = read_object(path) or {}
    return plain if isinstance(plain.get("begun"), int | float) else None


def noted_origin(notes: Notes, id: str | None, otherwise: str) -> Origin:
    """Return the origin of a job with this id, if we started it, else the reason `otherwise`."""
    for record in notes.every():
        if id is not None and str(record.get("id")) == id and "options" in record:
            return Origin(record["options"])
    return Origin(why=otherwise)


def identity_settings(submission: Submission) -> dict[str, str]:
    """Return a job's identity (IS-6) as settings of Spark, which `stateshift.job` reads."""
    settings = {f"spark.stateshift.{key}": value for key, value in identity(submission).items()}
    waits = submission.environment.get(WAIT)
    if waits:
        settings["spark.stateshift.wait"] = waits
    return settings


def fill(argument: str, submission: Submission) -> str:
    """Return an argument with the placeholders for location, job and tag replaced."""
    for key, value in identity(submission).items():
        argument = argument.replace(f"{{{key}}}", value)
    return argument


def fill_arguments(given: Options, submission: Submission) -> list[str]:
    """Return the program's arguments with the placeholders replaced."""
    return [fill(str(argument), submission) for argument in given.get("arguments", ())]


def fill_values(values: Mapping[str, str], submission: Submission) -> dict[str, str]:
    """Return settings with the placeholders in their values replaced."""
    return {key: fill(value, submission) for key, value in values.items()}


def identity(submission: Submission) -> Mapping[str, str]:
    """Return the values of the placeholders."""
    return {"checkpoint": submission.location, "job": submission.job, "tag": submission.tag}


def digest(text: str) -> str:
    """Return a text as a label that every system takes. Spark hides what reads like a secret."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def submission_url(submission: Submission, url: str) -> str:
    """Return the URL to submit at; a job's connection overrides (IS-4), in the same protocol."""
    connection = submission.connection
    if not connection:
        return url
    if "://" in connection:
        return connection
    protocol = url.partition("://")[0]
    return f"{protocol}://{connection}"


def refuse_unknown(status: JobStatus, request: StopRequest, cluster: str, notes: Notes) -> None:
    """Refuse a job of which nobody knows whether it runs, until a person forgets it."""
    if status.state == "unknown":
        hint = "see that it does not run, and use a cluster of kind manual for the source"
        if request.tag is not None and notes.read(request.tag):
            note = quote(str(notes.place(request.tag)))
            hint = (
                f"look whether it runs; if it does not: rm {note}, and the same command again "
                "takes it for one that was never started"
            )
        fact = f"cannot tell whether {request.job} runs: {status.detail}"
        raise ClusterError(fact, cluster=cluster, job=request.job, hint=hint)

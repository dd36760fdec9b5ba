"""Records of what a cluster of kind command has submitted and stopped itself: files, so that
another process knows as well.

<tag>.json                 which job, at which location, reached how
<tag>.pid .exit .out .err  of the submit command (see `detached`); the last line of .out is the
                           job's id
<tag>.stopped              it was stopped
jobs/<job>-<digest>.json   the last that became of a job at a location: started under a tag, or
                           stopped by the run of a workdir. The latter counts for that run alone:
                           after it the job may have been started again by anybody
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stateshift.clusters import detached
from stateshift.clusters.protocol import JobState, JobStatus, StopRequest, Submission
from stateshift.clusters.whole_files import write_whole

_STOPPED_BY_ANOTHER = "stopped by another run; whether it runs again nobody looks without `find`"
_UNSEEN = "as recorded here: without a command `find` nobody looks whether it still runs"


@dataclass(frozen=True, slots=True)
class Known:
    """A job, as the commands get it in their environment."""

    tag: str
    job: str
    location: str
    connection: str | None

    def variables(self) -> dict[str, str]:
        return {
            "STATESHIFT_TAG": self.tag,
            "STATESHIFT_JOB": self.job,
            "STATESHIFT_LOCATION": self.location,
            "STATESHIFT_CHECKPOINT": self.location,
            "STATESHIFT_CONNECTION": self.connection or "",
            "STATESHIFT_OPTIONS": "{}",
        }


@dataclass(frozen=True, slots=True)
class Records:
    """What is recorded of submissions by command: one file for each tag, one for each job."""

    directory: Path
    workdir: str

    def begun(self, submission: Submission) -> None:
        """Record a submission, before its command starts."""
        known = Known(submission.tag, submission.job, submission.location, submission.connection)
        plain = {"job": known.job, "location": known.location, "connection": known.connection}
        _write(self._json(submission.tag), plain)
        _write(self._of_job(known.job, known.location), {"tag": known.tag})

    def stopped(self, request: StopRequest) -> None:
        """Record that a job was stopped, after the command to stop it ended well."""
        if request.tag is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
            detached.note_stopped(self.stem(request.tag))
        _write(self._of_job(request.job, request.location), {"tag": None, "workdir": self.workdir})

    def of_tag(self, tag: str, in_hand: bool = False) -> JobStatus:
        """Return what is recorded of a submission. One that is under way is absent yet; with the
        lock in hand it is not under way.
        """
        trace = detached.trace(self.stem(tag))
        match trace.code:
            case 0 if detached.was_stopped(self.stem(tag)):
                return JobStatus(JobState.FINISHED, self.id_of(tag), "stopped")
            case 0:
                return JobStatus(JobState.RUNNING, self.id_of(tag), _UNSEEN)
            case None if trace.started and (in_hand or not trace.held):
                why = "its submit command was killed before it ended"
                return JobStatus(JobState.UNKNOWN, None, why)
            case _:
                return JobStatus(JobState.ABSENT)

    def of_job(self, job: str, location: str) -> JobStatus:
        last = _read(self._of_job(job, location))
        if last is None:
            why = "not submitted here, and there is no command `find`"
            return JobStatus(JobState.UNKNOWN, None, why)
        tag = last["tag"]
        if tag is not None:
            return self.of_tag(tag)
        if last.get("workdir") != self.workdir:
            return JobStatus(JobState.UNKNOWN, None, _STOPPED_BY_ANOTHER)
        return JobStatus(JobState.FINISHED, None, "stopped")

    def known(self, tag: str) -> Known | None:
        plain = _read(self._json(tag))
        if plain is None:
            return None
        return Known(tag, str(plain["job"]), str(plain["location"]), plain["connection"])

    def id_of(self, tag: str) -> str | None:
        said = detached.output_of(self.stem(tag), "out").strip()
        return said.splitlines()[-1].strip() if said else None

    def stem(self, tag: str) -> Path:
        return self.directory / detached.file_name(tag)

    def _json(self, tag: str) -> Path:
        return self.directory / f"{detached.file_name(tag)}.json"

    def _of_job(self, job: str, location: str) -> Path:
        identity = f"{job}\0{location}".encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(identity).hexdigest()[:12]
        return self.directory / "jobs" / f"{detached.file_name(job)}-{digest}.json"


def _write(path: Path, plain: Mapping[str, str | None]) -> None:
    write_whole(path, json.dumps(plain, sort_keys=True).encode())


def _read(path: Path) -> dict[str, str | None] | None:
    try:
        plain = json.loads(path.read_text())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return plain if isinstance(plain, dict) else None

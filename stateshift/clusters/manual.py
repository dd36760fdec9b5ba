"""A person starts and stops the jobs: asked at the terminal, or through marker files where there is
none (CI).

    <marker_dir>/<tag>.submit     written by us: what is to be started, from where; taken away when
                                  it has been
                 <tag>.submitted  the job was started. The first line is its id, where there is one
                 <tag>.finished   it ended by itself, well
                 <tag>.failed     it failed; the content says how
                 <job>.stop       written by us: what is to be stopped, where its image is, and for
                                  the run of which workdir
                 <job>.stopped    it is stopped (<tag>.stop and <tag>.stopped where the job is known
                                  by a tag); counts only as the answer to a <job>.stop of this
                                  run: after another one the job may have been started again

A name with characters that files had better not have is shortened and gets a digest: the messages
show the real path. The files are the whole state: another process sees the same. A job that was
asked for and not answered is `unknown`, since the person may be at it, and so is one that nobody
said anything about. `find` never asks. Only the person knows whether a job that was started still
runs.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stateshift.clusters.detached import file_name
from stateshift.clusters.kind import Ask, ClusterKind, Surroundings
from stateshift.clusters.logged import logs_stop, logs_submission
from stateshift.clusters.options import Options
from stateshift.clusters.protocol import (
    JobState,
    JobStatus,
    StopRequest,
    Submission,
    UnknownAnswers,
)
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.waiting import wait_for
from stateshift.clusters.whole_files import READABLE, read_object, write_whole
from stateshift.errors import ClusterError
from stateshift.specification.options import options_of

_SECONDS_MAX = 3600.0
_YES = ("", "y", "yes", "done", "ok")
_NO = ("n", "no", "abort", "cancel")


@dataclass(frozen=True)
class Manual(UnknownAnswers):
    """See the module; without `ask`, marker files are waited for, and `say` tells which."""

    name: str
    marker_dir: Path
    workdir: str = ""
    engine_version: str | None = None
    seconds_max: float = _SECONDS_MAX
    ask: Ask | None = None
    say: Callable[[str], None] | None = None
    interrupt: threading.Event | None = None

    @property
    def kind(self) -> str:
        return "manual"

    def version(self) -> str | None:
        return self.engine_version

    def find(self, tag: str) -> JobStatus:
        id = self._first_line(tag, "submitted")
        for suffix in ("failed", "stopped", "finished"):
            state = JobState.FAILED if suffix == "failed" else JobState.FINISHED
            if self._there(tag, suffix):
                return JobStatus(state, id, self._first_line(tag, suffix))
        if self._there(tag, "submitted"):
            return JobStatus(JobState.RUNNING, id or tag)  # what `submit` answers, too
        if self._there(tag, "submit"):
            why = "a person was asked to start it and has not answered"
            return JobStatus(JobState.UNKNOWN, None, why)
        return JobStatus(JobState.ABSENT)

    def find_source(self, request: StopRequest) -> JobStatus:
        if request.tag is not None and self.find(request.tag).state is not JobState.ABSENT:
            return self.find(request.tag)
        if self._asked_to_stop(request) and self._there(_stopped_as(request), "stopped"):
            return JobStatus(
                JobState.FINISHED, None, self._first_line(_stopped_as(request), "stopped")
            )
        return JobStatus(JobState.UNKNOWN, None, "only a person knows whether it runs")

    @logs_submission
    def submit(self, submission: Submission) -> str:
        status, tag = self.find(submission.tag), submission.tag
        if status.state in (JobState.ABSENT, JobState.UNKNOWN):
            wanted = {
                "job": submission.job,
                "tag": submission.tag,
                "location": submission.location,
                "connection": submission.connection,
                "options": dict(submission.options),
                "environment": sorted(submission.environment),  # names: values may be secrets
            }
            self._put(tag, "submit", json.dumps(wanted, indent=1, ensure_ascii=False))
            again = (
                " (asked before: if it was started, only say so)"
                if status.state is JobState.UNKNOWN
                else ""
            )
            self._person(
                f"Start {submission.job} from {submission.location}"
                + (f" on {submission.connection}" if submission.connection else "")
                + f", with STATESHIFT_TAG={tag}{again}.",
                "Enter its id, or nothing, when it is started; `no` if it will not be: ",
                (tag, "submitted"),
                self.seconds_max,
            )
            # The job was not stopped any more: it runs again where it was.
            started = (submission.job, submission.location)
            for path in sorted(self.marker_dir.glob("*.stop")):
                stop = read_object(path) or {}
                is_of_earlier_start = stop.get("tag") not in (None, submission.tag)
                if is_of_earlier_start or (stop.get("job"), stop.get("location")) != started:
                    continue
                path.unlink()
                path.with_suffix(".stopped").unlink(missing_ok=True)
        self._remove(tag, "submit")
        return self._first_line(tag, "submitted") or tag

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        status = self.find_source(request)
        if not status.state.alive and status.state is not JobState.UNKNOWN:
            return status
        name = _stopped_as(request)
        if not self._asked_to_stop(request):
            self._remove(name, "stopped")  # somebody's answer to an earlier question
            asked = {"job": request.job, "location": request.location, "tag": request.tag}
            asked["workdir"] = self.workdir
            self._put(name, "stop", json.dumps(asked, indent=1, ensure_ascii=False))
        self._person(
            (
                f"Stop {request.job}, whose image is at {request.location}, between two "
                "batches if it can be."
            ),
            "Press Enter when it is stopped; `no` if it will not be: ",
            (name, "stopped"),
            request.seconds_max,
        )
        return self.find_source(request)

    def log(self, tag: str, lines_max: int = 50) -> str:
        return last_lines(redact(self._text(tag, "failed")), lines_max)

    def _person(
        self, wish: str, question: str, marker: tuple[str, str], seconds_max: float
    ) -> None:
        """Wait until the marker is there: put there by the person, or by us after the answer."""
        if self._there(*marker):
            return
        try:
            answer = self.ask(f"{wish}\n{question}").strip() if self.ask is not None else None
        except EOFError:
            answer = None
        if answer is None:  # nobody can be asked
            path = shlex.quote(str(self._path(*marker)))
            if self.say is not None:
                self.say(f"{wish} Then: touch {path} (waiting {seconds_max:g} s)")
            if not wait_for(lambda: self._there(*marker) or None, seconds_max, self.interrupt):
                fact = f"nobody said in {seconds_max:g} s that it was done: {wish}"
                hint = f"when it is done: touch {path}; then `stateshift resume WORKDIR`"
                raise ClusterError(fact, cluster=self.name, hint=hint)
        elif answer.lower() in _NO:
            self._remove(marker[0], {"submitted": "submit", "stopped": "stop"}[marker[1]])
            hint = "`stateshift resume WORKDIR` asks again"
            raise ClusterError(f"declined: {wish}", cluster=self.name, hint=hint)
        else:
            self._put(*marker, "" if answer.lower() in _YES else answer)

    def _asked_to_stop(self, request: StopRequest) -> bool:
        asked = read_object(self._path(_stopped_as(request), "stop")) or {}
        return (asked.get("location"), asked.get("workdir")) == (request.location, self.workdir)

    def _path(self, name: str, suffix: str) -> Path:
        return (self.marker_dir / f"{file_name(name)}.{suffix}").absolute()

    def _there(self, name: str, suffix: str) -> bool:
        return self._path(name, suffix).exists()

    def _text(self, name: str, suffix: str) -> str:
        path = self._path(name, suffix)
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def _first_line(self, name: str, suffix: str) -> str | None:
        lines = (line.strip() for line in self._text(name, suffix).splitlines())
        return next(filter(None, lines), None)

    def _put(self, name: str, suffix: str, text: str) -> None:
        write_whole(self._path(name, suffix), (text + "\n" if text else "").encode(), READABLE)

    def _remove(self, name: str, suffix: str) -> None:
        self._path(name, suffix).unlink(missing_ok=True)


def _stopped_as(request: StopRequest) -> str:
    return request.tag if request.tag is not None else request.job


def _open(name: str, options: Options, around: Surroundings) -> Manual:
    place = Path(options.get("marker_dir") or around.state_dir)
    workdir, version = str(around.workdir.absolute()), options.get("version")
    seconds_max = float(options.get("seconds_max", _SECONDS_MAX))
    contacts = (around.ask, around.say, around.interrupt)
    return Manual(name, place, workdir, version, seconds_max, *contacts)


KIND = ClusterKind("manual", options_of("manual").cluster, _open, stops_unseen=True)

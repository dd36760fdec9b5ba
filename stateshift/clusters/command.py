"""Any cluster that shell commands can speak to: how a CI step or an operator's script plugs in.

    command   prints                                                       needed
    submit    anything; the last line is the job's id                      to submit
    find      absent|queued|running|finished|failed|unknown, and an id     strongly advised
    stop      anything; the last line is shown as the result               to stop
    version   the engine's version                                         no
    reach     nothing; exit code 0 where jobs reach the location, else 1   no
    log       the end of what the job said                                 no

Every command gets STATESHIFT_TAG (empty for a job that we did not submit), STATESHIFT_JOB,
STATESHIFT_LOCATION and STATESHIFT_CHECKPOINT (both the image's location), STATESHIFT_CONNECTION,
STATESHIFT_WORKDIR, STATESHIFT_SECONDS_MAX, STATESHIFT_OPTIONS (the spec's further options as JSON),
and what the submission adds itself. An exit code other than 0 means that nothing was done, and is a
ClusterError with the end of stderr. From the moment a `submit` ends well, `find` has to know its
job.

We may be killed while `submit` runs; the command goes on. It holds the lock of its tag (see
`detached`), as does anything that it leaves running: until the lock is free or `find` knows the
job, a second attempt waits.

Without `find` we know what we submitted and stopped ourselves, from the files in `state_dir`, and
nothing else: not what was submitted from another directory, nor whether the job ended by itself. A
job of somebody else is `unknown`, so is one whose `submit` was killed before it ended; the latter
is not submitted again until a person has looked.

    <tag>.json                 which job, at which location, reached how
    <tag>.pid .exit .out .err  of the submit command (see `detached`); the last line of .out is the
                               job's id
    <tag>.stopped              it was stopped
    jobs/<job>-<digest>.json   the last record of a job at a location: started under a tag, or
                               stopped by the run of a workdir. The latter counts for that run
                               alone: after it the job may have been started again by anybody
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stateshift.clusters import detached
from stateshift.clusters.kind import ClusterKind
from stateshift.clusters.logged import logs_stop, logs_submission
from stateshift.clusters.options import Options, settings
from stateshift.clusters.protocol import (
    JobFailure,
    JobState,
    JobStatus,
    StopRequest,
    Submission,
    Trial,
    UnknownAnswers,
)
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.spark_causes import LOG_LINES, failure_of
from stateshift.clusters.waiting import wait_for
from stateshift.clusters.whole_files import read_object, write_object
from stateshift.errors import ClusterError
from stateshift.specification.options import TYPED, options_of

_STOPPED = "stopped"
_STOPPED_BY_ANOTHER = "stopped by another run; whether it runs again nobody looks without `find`"
_UNSEEN = "as recorded here: without a command `find` nobody looks whether it still runs"
_SECONDS_MAX = 300.0
_STDERR_LINES = 15
_FIRST_WORD_SECONDS = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CommandCluster(UnknownAnswers):
    """See the module. `options` are checked already."""

    name: str
    state_dir: Path
    workdir: str
    options: Options
    interrupt: threading.Event | None = None
    say: Callable[[str], None] | None = None

    @property
    def kind(self) -> str:
        return "command"

    def version(self) -> str | None:
        if not self._shell.has("version"):
            return None
        return _last_line(self._shell.run("version", _variables(Submission("", "", ""))))

    def reaches(self, location: str) -> bool | None:
        """Whether `reach`, which gets the location as the job would, ends with exit code 0."""
        if not self._shell.has("reach"):
            return None
        return self._shell.says_yes("reach", _variables(Submission("", "", location)))

    def find(self, tag: str) -> JobStatus:
        stem = self._stem(tag)
        told_at = time.monotonic() + _FIRST_WORD_SECONDS

        def look() -> JobStatus | None:
            nonlocal told_at
            # The lock first: a job that was in flight while it was held may have arrived before we
            # ask.
            is_quiet = not detached.is_held(stem)
            status = self._ask(tag)
            is_known = status.state not in (JobState.ABSENT, JobState.UNKNOWN)
            if is_quiet or is_known:
                return status
            if self.say is not None and time.monotonic() >= told_at:
                told_at = math.inf
                pids = " ".join(map(str, detached.holders(stem)))
                starts = f"{self.name}: {self._shell.named('submit')} still runs"
                at_most = f"{self._seconds_max:g} s at most"
                self.say(f"{starts}: waiting for it, {at_most}; to end it: kill {pids}")
            return None

        status = wait_for(look, self._seconds_max, self.interrupt)
        if status is None:
            raise self._in_flight(tag)
        return status

    def find_source(self, request: StopRequest) -> JobStatus:
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT:
                return status
        if self._shell.has("find"):
            return self._shell.status(self._shell.run("find", self._of_request(request)))
        return self._records.of_job(request.job, request.location)

    def try_start(self, submission: Submission) -> Trial:
        """Look for the program that starts the job; nothing runs."""
        missing = self._shell.missing("submit")
        if missing is None:
            return Trial()
        key = TYPED.get((self.name, "submit"), "submit")
        hint = f"correct the option {self._shell.named('submit')}"
        return Trial(f"there is no program {missing} for its command `{key}`", hint)

    @logs_submission
    def submit(self, submission: Submission) -> str:
        def attempt() -> str | None:
            status = self._ask(submission.tag)
            if status.state not in (JobState.ABSENT, JobState.UNKNOWN):
                return status.id or submission.tag
            with detached.take_lock(self._stem(submission.tag)) as lock:
                return self._submit_holding(submission, lock) if lock is not None else None

        id = wait_for(attempt, self._seconds_max, self.interrupt)
        if id is None:
            raise self._in_flight(submission.tag)
        return id

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        status = self.find_source(request)
        if not status.state.alive and status.state is not JobState.UNKNOWN:
            return status
        if not self._shell.has("stop"):
            fact = f"{request.job} is {status.state}, and the cluster has no command to stop it"
            hint = "stop it by hand, or add the option stop to the cluster (`move`: --stop COMMAND)"
            if request.tag is not None and not self._shell.has("find"):  # its record is all we have
                stem = shlex.quote(str(self._stem(request.tag).absolute()))
                hint = f"stop it by hand, and say so: touch {stem}.stopped; then do the same again"
            raise ClusterError(fact, cluster=self.name, job=request.job, hint=hint)
        said = self._shell.run("stop", self._of_request(request), request.seconds_max)
        self._records.stopped(request)
        if not self._shell.has("find"):
            return JobStatus(JobState.FINISHED, None, _last_line(said))

        def look() -> JobStatus | None:
            status = self.find_source(request)
            return None if status.state.alive else status

        ended = wait_for(look, request.seconds_max, self.interrupt)
        return ended if ended is not None else self.find_source(request)

    def is_stopping(self, request: StopRequest) -> bool:
        is_asked = self._records.of_job(request.job, request.location).detail == _STOPPED
        return is_asked and self.find_source(request).state.alive

    def log(self, tag: str, lines_max: int = 50) -> str:
        if not self._shell.has("log"):
            stem = self._stem(tag)
            said = detached.output_of(stem, "out") + detached.output_of(stem, "err")
        else:
            said = self._shell.run("log", self._of_known(tag))
        return last_lines(self._shell.clean(said), lines_max)

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        """Return nothing of a job that is alive: the log may be of an earlier start."""
        return None if alive else failure_of(self.log(tag, LOG_LINES), alive)

    def _ask(self, tag: str, in_hand: bool = False) -> JobStatus:
        if not self._shell.has("find"):
            return self._records.of_tag(tag, in_hand)
        return self._shell.status(self._shell.run("find", self._of_known(tag)))

    def _submit_holding(self, submission: Submission, lock: int) -> str:
        """Submit with the lock in hand: nothing is in flight any more, and the state is certain."""
        stem, status = self._stem(submission.tag), self._ask(submission.tag, in_hand=True)
        if status.state is JobState.UNKNOWN:
            raise self._undecided(submission)
        if status.state is not JobState.ABSENT:
            return status.id or submission.tag
        self._records.begun(submission)
        variables = _variables(submission)
        variables["STATESHIFT_SECONDS_MAX"] = f"{self._seconds_max:g}"
        self._shell.log_begun("submit")
        command = detached.DetachedCommand(
            self._shell.arguments("submit"),
            self._shell.environment(variables, submission.environment),
            self.options.get("cwd"),
        )
        process = detached.start(stem, command, lock, one_log=False)
        # The interruption is not heeded here: the command goes on anyway, and its answer is worth
        # having.
        code = wait_for(process.poll, self._seconds_max)
        if code is None:
            detached.leave(process)
            raise self._in_flight(submission.tag)
        if code != 0 and detached.trace(stem).code is None and not self._shell.has("find"):
            raise self._undecided(submission)
        if code != 0:
            said = detached.output_of(stem, "err")
            raise self._shell.failed("submit", code, said, submission.environment)
        return self._records.id_of(submission.tag) or submission.tag

    def _undecided(self, submission: Submission) -> ClusterError:
        if self._shell.has("find"):
            fact = "the command `find` cannot tell whether it runs"
            hint = "look for it, and make `find` tell"
        else:
            fact = "its submit was killed before it ended, so it may have worked or not"
            stem = shlex.quote(str(self._stem(submission.tag)))
            hint = f"if the job runs: echo 0 > {stem}.exit; if it does not: rm {stem}.pid"
        fact = f"{submission.tag}: {fact}"
        return ClusterError(fact, cluster=self.name, job=submission.job, hint=hint)

    def _in_flight(self, tag: str) -> ClusterError:
        pids = " ".join(map(str, detached.holders(self._stem(tag))))
        after = f"{self._seconds_max:g} s (pid {pids or 'unknown'})"
        fact = f"the submission {tag} is still under way after {after}"
        hint = f"wait for it, or end it: kill {pids}" if pids else "wait for it, then try again"
        return ClusterError(fact, cluster=self.name, hint=hint)

    def _of_request(self, request: StopRequest) -> dict[str, str]:
        known = self._records.known(request.tag) if request.tag is not None else None
        connection = known.connection if known is not None else None
        tag, options = request.tag or "", request.options
        return _variables(Submission(tag, request.job, request.location, connection, options))

    def _of_known(self, tag: str) -> dict[str, str]:
        return _variables(self._records.known(tag) or Submission(tag, "", ""))

    @property
    def _shell(self) -> Shell:
        return Shell(self.name, self.workdir, self.options, self._seconds_max)

    @property
    def _records(self) -> Records:
        return Records(self.state_dir, self.workdir)

    @property
    def _seconds_max(self) -> float:
        return float(self.options.get("seconds_max", _SECONDS_MAX))

    def _stem(self, tag: str) -> Path:
        return self._records.stem(tag)


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs the cluster's commands; their output is read here alone, and shown without secrets."""

    cluster: str
    workdir: str
    options: Options
    seconds_max: float

    def has(self, verb: str) -> bool:
        return verb in self.options

    def arguments(self, verb: str) -> list[str]:
        command = self.options[verb]
        return ["/bin/sh", "-c", command if isinstance(command, str) else shlex.join(command)]

    def named(self, verb: str) -> str:
        """Return the words for a command: the option of `move` that it was typed by, or its key."""
        return TYPED.get((self.cluster, verb)) or f"{verb} of the cluster {self.cluster}"

    def missing(self, verb: str) -> str | None:
        """Return the program that a command begins with, if the shell would not find it."""
        command = self.options[verb]
        try:
            program = next(iter(shlex.split(command) if isinstance(command, str) else command), "")
        except ValueError:
            return None  # quotes that do not end: the shell says so itself
        if not re.fullmatch(r"[\w./+-]+", program):
            return None  # more than a name, to the shell
        found = subprocess.run(
            ["/bin/sh", "-c", 'command -v -- "$0"', program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self.environment({}),
            cwd=self.options.get("cwd"),
            check=False,
        )
        return None if found.returncode == 0 else self.clean(program)

    def environment(
        self, variables: Mapping[str, str], more: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        given = {**settings(self.options.get("environment")), **settings(more)}
        return {**os.environ, **given, "STATESHIFT_WORKDIR": self.workdir, **variables}

    def run(self, verb: str, variables: Mapping[str, str], seconds_max: float | None = None) -> str:
        code, out, err = self._ended(verb, variables, seconds_max)
        if code != 0:
            raise self.failed(verb, code, err)
        return out

    def says_yes(self, verb: str, variables: Mapping[str, str]) -> bool:
        """Whether a command says yes: exit code 0 is yes, 1 is no; anything else is no answer."""
        code, _, err = self._ended(verb, variables, None)
        if code not in (0, 1):
            raise self.failed(verb, code, err)
        return code == 0

    def _ended(
        self, verb: str, variables: Mapping[str, str], seconds_max: float | None
    ) -> tuple[int, str, str]:
        """Run a command for its exit code and output; too slow, it is ended with all it started."""
        seconds = self.seconds_max if seconds_max is None else seconds_max
        began = time.perf_counter()
        self.log_begun(verb)
        process = subprocess.Popen(
            self.arguments(verb),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment({**variables, "STATESHIFT_SECONDS_MAX": f"{seconds:g}"}),
            cwd=self.options.get("cwd"),
            start_new_session=True,
        )
        with process:
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired as error:
                key = TYPED.get((self.cluster, verb), verb)
                fact = f"the command `{key}` has not ended in {seconds:g} s"
                hint = f"run it by hand to see why: {self.clean(self.arguments(verb)[-1])}"
                raise ClusterError(fact, cluster=self.cluster, hint=hint) from error
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        took = (time.perf_counter() - began) * 1000
        _log.debug("%s: `%s` ended with %d, %.0f ms", self.cluster, verb, process.returncode, took)
        return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def log_begun(self, verb: str) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: `%s`: %s", self.cluster, verb, self.clean(self.arguments(verb)[-1]))

    def status(self, said: str) -> JobStatus:
        words = said.split()
        if not words or words[0].lower() not in list(JobState):
            fact = f"the command `find` printed {self.clean(said.strip()[:80])!r}"
            expected = f"one of: {', '.join(JobState)}; and, after a blank, the job's id"
            raise ClusterError(fact, cluster=self.cluster, hint=f"it has to print {expected}")
        return JobStatus(JobState(words[0].lower()), next(iter(words[1:]), None))

    def failed(
        self, verb: str, code: int, err: str, secrets: Mapping[str, str] | None = None
    ) -> ClusterError:
        key, named = TYPED.get((self.cluster, verb), verb), self.named(verb)
        fact = f"the command `{key}` ended with exit code {code}"
        end = last_lines(self.clean(err, secrets), _STDERR_LINES)
        if end:
            fact += f":\n{end}"
        hint = f"correct the option {named}, or what it calls"
        if verb in ("submit", "stop"):
            hint = f"mend what the command {named} calls. A run keeps its commands: for "
            hint += "another one, `stateshift rollback WORKDIR`, and begin again"
        return ClusterError(fact, cluster=self.cluster, hint=hint)

    def clean(self, text: str, secrets: Mapping[str, str] | None = None) -> str:
        return redact(text, os.environ, settings(self.options.get("environment")), secrets or {})


@dataclass(frozen=True, slots=True)
class Records:
    """The records of submissions and stops: one file for each tag, one for each job."""

    directory: Path
    workdir: str

    def begun(self, submission: Submission) -> None:
        job, place, connection = submission.job, submission.location, submission.connection
        plain = {"job": job, "location": place, "connection": connection}
        write_object(self._json(submission.tag), plain)
        write_object(self._of_job(job, place), {"tag": submission.tag})

    def stopped(self, request: StopRequest) -> None:
        if request.tag is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
            detached.note_stopped(self.stem(request.tag))
        place = self._of_job(request.job, request.location)
        write_object(place, {"tag": None, "workdir": self.workdir})

    def of_tag(self, tag: str, in_hand: bool = False) -> JobStatus:
        """Return a submission's recorded status; absent while one is under way without the lock."""
        trace = detached.trace(self.stem(tag))
        match trace.code:
            case 0 if detached.was_stopped(self.stem(tag)):
                return JobStatus(JobState.FINISHED, self.id_of(tag), _STOPPED)
            case 0:
                return JobStatus(JobState.RUNNING, self.id_of(tag), _UNSEEN)
            case None if trace.started and (in_hand or not trace.held):
                why = "its submit command was killed before it ended"
                return JobStatus(JobState.UNKNOWN, None, why)
            case _:
                return JobStatus(JobState.ABSENT)

    def of_job(self, job: str, location: str) -> JobStatus:
        last = read_object(self._of_job(job, location))
        if last is None:
            why = "not submitted here, and there is no command `find`"
            return JobStatus(JobState.UNKNOWN, None, why)
        tag = last["tag"]
        if tag is not None:
            return self.of_tag(tag)
        if last.get("workdir") != self.workdir:
            return JobStatus(JobState.UNKNOWN, None, _STOPPED_BY_ANOTHER)
        return JobStatus(JobState.FINISHED, None, _STOPPED)

    def known(self, tag: str) -> Submission | None:
        plain = read_object(self._json(tag))
        if plain is None:
            return None
        return Submission(tag, str(plain["job"]), str(plain["location"]), plain["connection"])

    def id_of(self, tag: str) -> str | None:
        return _last_line(detached.output_of(self.stem(tag), "out"))

    def stem(self, tag: str) -> Path:
        return self.directory / detached.file_name(tag)

    def _json(self, tag: str) -> Path:
        return self.directory / f"{detached.file_name(tag)}.json"

    def _of_job(self, job: str, location: str) -> Path:
        identity = f"{job}\0{location}".encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(identity).hexdigest()[:12]
        return self.directory / "jobs" / f"{detached.file_name(job)}-{digest}.json"


def _variables(submission: Submission) -> dict[str, str]:
    return {
        "STATESHIFT_TAG": submission.tag,
        "STATESHIFT_JOB": submission.job,
        "STATESHIFT_LOCATION": submission.location,
        "STATESHIFT_CHECKPOINT": submission.location,
        "STATESHIFT_CONNECTION": submission.connection or "",
        "STATESHIFT_OPTIONS": json.dumps(dict(submission.options), sort_keys=True),
    }


def _last_line(said: str) -> str | None:
    return said.strip().splitlines()[-1].strip() if said.strip() else None


KIND = ClusterKind(
    "command",
    options_of("command").cluster,
    lambda name, options, around: CommandCluster(
        name,
        around.state_dir,
        str(around.workdir.absolute()),
        options,
        around.interrupt,
        around.say,
    ),
    can_stop=lambda options: bool(options.get("stop")),
    stops_unseen=True,
)

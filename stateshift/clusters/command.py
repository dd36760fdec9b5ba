"""Any cluster that shell commands can speak to: how a CI step or an operator's script plugs in.

    options   submit, find, stop, version, log     a command (for /bin/sh), or a list of its words
              environment, cwd                     for all of them
              seconds_max                          how long any of them may take, and how long we wait for another's
              state_dir                            where submissions are recorded (default: below the workdir)

    command   prints                                                       needed
    submit    anything; the last line is the job's id                      to submit
    find      absent|queued|running|finished|failed|unknown, and an id     strongly advised
    stop      anything; the last line is told as the result                to stop
    version   the engine's version                                         no
    log       the end of what the job said                                 no

Every command gets STATESHIFT_TAG (empty for a job that we did not submit), STATESHIFT_JOB, STATESHIFT_LOCATION and
STATESHIFT_CHECKPOINT (both the image's location), STATESHIFT_CONNECTION, STATESHIFT_WORKDIR, STATESHIFT_SECONDS_MAX,
STATESHIFT_OPTIONS (the spec's further options as JSON), and what the submission adds itself. An exit code other than 0
means that nothing was done, and is a ClusterError with the end of stderr. From the moment a `submit` ends well, `find`
has to know its job.

We may be killed while `submit` runs; the command goes on. It holds the lock of its tag (see `detached`), as does
anything that it leaves running: until the lock is free or `find` knows the job, a second attempt waits.

Without `find` we know what we submitted and stopped ourselves, from the files in `state_dir`, and nothing else: not
what was submitted from another directory, nor whether the job ended by itself. A job of somebody else is `unknown`, so
is one whose `submit` was killed before it ended; the latter is not submitted again until a person has looked.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateshift.clusters import detached
from stateshift.clusters.options import COMMAND, NEEDED_COMMAND, SECONDS, SETTINGS, TEXT, settings
from stateshift.clusters.protocol import JobState, JobStatus, StopRequest, Submission
from stateshift.clusters.records import Known, Records
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError

CLUSTER_OPTIONS = {
    "submit": NEEDED_COMMAND,
    "find": COMMAND,
    "stop": COMMAND,
    "version": COMMAND,
    "log": COMMAND,
    "environment": SETTINGS,
    "cwd": TEXT,
    "seconds_max": SECONDS,
    "state_dir": TEXT,
}

_SECONDS_MAX = 300.0
_STDERR_LINES = 15


@dataclass(frozen=True)
class Command:
    """See the module. `options` are checked already (CLUSTER_OPTIONS)."""

    name: str
    state_dir: Path
    workdir: str
    options: Mapping[str, Any]
    interrupt: threading.Event | None = None

    @property
    def kind(self) -> str:
        return "command"

    def version(self) -> str | None:
        said = self._run("version", {}).strip() if "version" in self.options else ""
        return said.splitlines()[-1].strip() if said else None

    def find(self, tag: str) -> JobStatus:
        stem = self._stem(tag)

        def look() -> JobStatus | None:
            # The lock first: what was in flight when it was still held may have arrived before we ask.
            quiet = not detached.is_held(stem)
            status = self._ask(tag)
            return status if quiet or status.state not in (JobState.ABSENT, JobState.UNKNOWN) else None

        status = wait_for(look, self._seconds_max, self.interrupt)
        if status is None:
            raise self._in_flight(tag)
        return status

    def find_source(self, request: StopRequest) -> JobStatus:
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT or "find" not in self.options:
                return status
        if "find" in self.options:
            return self._read_status(self._run("find", self._of_request(request)))
        return self._records.of_job(request.job, request.location)

    def submit(self, submission: Submission) -> str:
        def attempt() -> str | None:
            status = self._ask(submission.tag)
            if status.state not in (JobState.ABSENT, JobState.UNKNOWN):
                return status.id or submission.tag
            with detached.taken(self._stem(submission.tag)) as lock:
                return self._submit_holding(submission, lock) if lock is not None else None

        id = wait_for(attempt, self._seconds_max, self.interrupt)
        if id is None:
            raise self._in_flight(submission.tag)
        return id

    def stop(self, request: StopRequest) -> JobStatus:
        status = self.find_source(request)
        if not status.state.alive and status.state is not JobState.UNKNOWN:
            return status
        if "stop" not in self.options:
            raise ClusterError(
                f"{request.job} is {status.state}, and the cluster has no command to stop it",
                cluster=self.name,
                job=request.job,
                hint="stop it by hand, or add the option stop to the cluster",
            )
        said = self._run("stop", self._of_request(request), request.seconds_max).strip()
        self._records.stopped(request)
        if "find" not in self.options:
            return JobStatus(JobState.FINISHED, None, said.splitlines()[-1].strip() if said else None)
        return self._until_ended(request)

    def log(self, tag: str, lines_max: int = 50) -> str:
        if "log" not in self.options:
            stem = self._stem(tag)
            said = detached.said(stem, "out") + detached.said(stem, "err")
        else:
            said = self._run("log", self._of_known(tag))
        return last_lines(self._clean(said), lines_max)

    def _ask(self, tag: str) -> JobStatus:
        if "find" not in self.options:
            return self._records.of_tag(tag)
        return self._read_status(self._run("find", self._of_known(tag)))

    def _submit_holding(self, submission: Submission, lock: int) -> str:
        """With the lock in hand: nothing is in flight any more, so what is seen now is the truth."""
        stem, status = self._stem(submission.tag), self._ask(submission.tag)
        if status.state is JobState.UNKNOWN:
            raise self._undecided(submission)
        if status.state is not JobState.ABSENT:
            return status.id or submission.tag
        self._records.begun(submission)
        variables = self._of_submission(submission)
        process = detached.start(
            stem,
            _shell(self.options["submit"]),
            self._environment(variables, submission.environment),
            lock,
            directory=self.options.get("cwd"),
            one_log=False,
        )
        return self._id_of(process, submission)

    def _id_of(self, process: subprocess.Popen[bytes], submission: Submission) -> str:
        stem = self._stem(submission.tag)
        # The interruption is not heeded here: the command goes on anyway, and its answer is worth having.
        code = wait_for(process.poll, self._seconds_max)
        if code is None:
            detached.leave(process)
            raise self._in_flight(submission.tag)
        if code != 0:
            raise self._failed("submit", code, detached.said(stem, "err"), submission.environment)
        return self._records.id_of(submission.tag) or submission.tag

    def _until_ended(self, request: StopRequest) -> JobStatus:
        def look() -> JobStatus | None:
            status = self.find_source(request)
            return None if status.state.alive else status

        ended = wait_for(look, request.seconds_max, self.interrupt)
        return ended if ended is not None else self.find_source(request)

    def _run(self, verb: str, variables: Mapping[str, str], seconds_max: float | None = None) -> str:
        """What the command printed. It is ended when it takes too long: none of these needs to be done once only."""
        seconds = self._seconds_max if seconds_max is None else seconds_max
        variables = {**variables, "STATESHIFT_SECONDS_MAX": f"{seconds:g}"}
        with subprocess.Popen(
            _shell(self.options[verb]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(variables),
            cwd=self.options.get("cwd"),
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired as error:
                os.killpg(process.pid, 9)
                raise ClusterError(
                    f"the command `{verb}` has not ended in {seconds:g} s",
                    cluster=self.name,
                    hint=f"run it by hand to see why: {self._clean(_shell(self.options[verb])[-1])}",
                ) from error
        if process.returncode != 0:
            raise self._failed(verb, process.returncode, err.decode("utf-8", "replace"))
        return out.decode("utf-8", "replace")

    def _failed(self, verb: str, code: int, err: str, secrets: Mapping[str, str] | None = None) -> ClusterError:
        end = last_lines(self._clean(err, secrets), _STDERR_LINES)
        return ClusterError(
            f"the command `{verb}` ended with exit code {code}" + (f":\n{end}" if end else ""),
            cluster=self.name,
            hint=f"correct the option {verb} of the cluster {self.name}, or what it calls",
        )

    def _undecided(self, submission: Submission) -> ClusterError:
        if "find" in self.options:
            fact, hint = "the command `find` cannot tell whether it runs", "look for it, and make `find` tell"
        else:
            fact = "an earlier submit was killed before it ended, so it may have worked or not"
            stem = shlex.quote(str(self._stem(submission.tag)))
            hint = f"if the job runs: echo 0 > {stem}.exit; if it does not: rm {stem}.pid"
        return ClusterError(f"{submission.tag}: {fact}", cluster=self.name, job=submission.job, hint=hint)

    def _in_flight(self, tag: str) -> ClusterError:
        pids = " ".join(map(str, detached.holders(self._stem(tag))))
        return ClusterError(
            f"the submission {tag} is still under way after {self._seconds_max:g} s (pid {pids or 'unknown'})",
            cluster=self.name,
            hint=f"wait for it, or end it: kill {pids}" if pids else "wait for it, then try again",
        )

    def _read_status(self, said: str) -> JobStatus:
        words = said.split()
        if not words or words[0].lower() not in list(JobState):
            raise ClusterError(
                f"the command `find` printed {self._clean(said.strip()[:80])!r}",
                cluster=self.name,
                hint=f"it has to print one of: {', '.join(JobState)}; and, after a blank, the job's id",
            )
        return JobStatus(JobState(words[0].lower()), words[1] if len(words) > 1 else None)

    def _environment(self, variables: Mapping[str, str], more: Mapping[str, str] | None = None) -> dict[str, str]:
        given = settings(self.options.get("environment"))
        return {**os.environ, **given, **settings(more), "STATESHIFT_WORKDIR": self.workdir, **variables}

    def _of_submission(self, submission: Submission) -> dict[str, str]:
        known = Known(submission.tag, submission.job, submission.location, submission.connection)
        options = json.dumps(dict(submission.options), sort_keys=True)
        seconds = f"{self._seconds_max:g}"
        return {**known.variables(), "STATESHIFT_OPTIONS": options, "STATESHIFT_SECONDS_MAX": seconds}

    def _of_request(self, request: StopRequest) -> dict[str, str]:
        known = self._records.known(request.tag) if request.tag is not None else None
        connection = known.connection if known is not None else None
        asked = Known(request.tag or "", request.job, request.location, connection)
        return {**asked.variables(), "STATESHIFT_OPTIONS": json.dumps(dict(request.options), sort_keys=True)}

    def _of_known(self, tag: str) -> dict[str, str]:
        return (self._records.known(tag) or Known(tag, "", "", None)).variables()

    def _clean(self, text: str, more: Mapping[str, str] | None = None) -> str:
        return redact(text, os.environ, settings(self.options.get("environment")), more or {})

    @property
    def _records(self) -> Records:
        return Records(self.state_dir)

    @property
    def _seconds_max(self) -> float:
        return float(self.options.get("seconds_max", _SECONDS_MAX))

    def _stem(self, tag: str) -> Path:
        return self._records.stem(tag)


def _shell(command: Any) -> list[str]:
    return ["/bin/sh", "-c", command if isinstance(command, str) else shlex.join(command)]

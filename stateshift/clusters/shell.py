"""The shell commands of a cluster, run and listened to. Their output is read here and nowhere else,
and is shown without secrets.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

from stateshift.clusters.options import Options, settings
from stateshift.clusters.protocol import JobState, JobStatus
from stateshift.clusters.redaction import last_lines, redact
from stateshift.errors import ClusterError

_STDERR_LINES = 15

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shell:
    """`options` are the cluster's: the commands by name, `environment` and `cwd`."""

    cluster: str
    workdir: str
    options: Options
    seconds_max: float

    def has(self, verb: str) -> bool:
        return verb in self.options

    def arguments(self, verb: str) -> list[str]:
        command = self.options[verb]
        return ["/bin/sh", "-c", command if isinstance(command, str) else shlex.join(command)]

    def environment(
        self, variables: Mapping[str, str], more: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        given = settings(self.options.get("environment"))
        return {
            **os.environ,
            **given,
            **settings(more),
            "STATESHIFT_WORKDIR": self.workdir,
            **variables,
        }

    def run(self, verb: str, variables: Mapping[str, str], seconds_max: float | None = None) -> str:
        """Run a command and return what it printed."""
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
        """Run a command and return its exit code and what was printed. It is ended when it takes
        too long, with all that it started: nothing that is run here must happen once only.
        """
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
                raise ClusterError(
                    f"the command `{verb}` has not ended in {seconds:g} s",
                    cluster=self.cluster,
                    hint=f"run it by hand to see why: {self.clean(self.arguments(verb)[-1])}",
                ) from error
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        took = (time.perf_counter() - began) * 1000
        _log.debug("%s: `%s` ended with %d, %.0f ms", self.cluster, verb, process.returncode, took)
        return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def log_begun(self, verb: str) -> None:
        """Log the command that is run."""
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: `%s`: %s", self.cluster, verb, self.clean(self.arguments(verb)[-1]))

    def status(self, said: str) -> JobStatus:
        """Return the status that `find` printed: a word, and perhaps an id."""
        words = said.split()
        if not words or words[0].lower() not in list(JobState):
            raise ClusterError(
                f"the command `find` printed {self.clean(said.strip()[:80])!r}",
                cluster=self.cluster,
                hint=f"it has to print one of: {', '.join(JobState)}; and, after a blank, the "
                "job's id",
            )
        return JobStatus(JobState(words[0].lower()), next(iter(words[1:]), None))

    def failed(
        self, verb: str, code: int, err: str, secrets: Mapping[str, str] | None = None
    ) -> ClusterError:
        fact = f"the command `{verb}` ended with exit code {code}"
        end = last_lines(self.clean(err, secrets), _STDERR_LINES)
        if end:
            fact += f":\n{end}"
        return ClusterError(
            fact,
            cluster=self.cluster,
            hint=f"correct the option {verb} of the cluster {self.cluster}, or what it calls",
        )

    def clean(self, text: str, secrets: Mapping[str, str] | None = None) -> str:
        return redact(text, os.environ, settings(self.options.get("environment")), secrets or {})

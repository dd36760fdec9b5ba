"""The process in which a user's file is run: started, waited for, ended with all its children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stateshift.check import answering
from stateshift.errors import PlanError, SpecError
from stateshift.plain import JsonObject
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.check import Code

LOG_LINES = 12  # of the file's output, in an error message


@dataclass(frozen=True, slots=True)
class Capture:
    """A program that runs a user's file and writes down what it would start.

    script       the path of a `capture.py`, whose `run` makes an answer of a request
    python       the interpreter that runs it
    request      what the request holds beside the file, its arguments, `answer` and `scratch`
    environment  variables beside those of this process
    lacks        words of the file's output, and the error that they stand for
    """

    script: str
    python: str
    request: JsonObject
    environment: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, PlanError] = field(default_factory=dict)


def run_capture(capture: Capture, file: str, code: Code) -> JsonObject:
    """Run a file in a process of its own; return the answer of the program.

    Raises:
        SpecError: there is no such file.
        PlanError: it fails, or does not end in time.
    """
    if not os.path.isfile(file):
        raise SpecError.of("--with", f"there is no file {file}", file)
    with tempfile.TemporaryDirectory(prefix="stateshift-check-") as folder:
        place = Path(folder)
        scratch, answer = place / "scratch", place / "answer.json"
        scratch.mkdir()
        request = {
            **capture.request,
            "file": os.path.abspath(file),
            "arguments": list(code.arguments),
            "answer": str(answer),
            "scratch": str(scratch),
        }
        (place / "request.json").write_text(json.dumps(request))
        run = FileRun(capture, file, place / "log")
        code_of_exit = run.wait(str(place / "request.json"), code.timeout_seconds)
        if not answer.exists():
            raise run.failed(f"ended with exit code {code_of_exit}")
        plain: JsonObject = json.loads(answer.read_text())
        if plain["error"] is not None:
            raise run.failed(plain["error"])
        return plain


def rehearsal_in(answer: JsonObject, name: str | None, code: Code) -> JsonObject:
    """Return the end of a rehearsal, of an answer.

    Raises:
        PlanError: the file did not start the query or job this time.
    """
    rehearsed: JsonObject | None = answer["rehearsed"]
    if rehearsed is None:
        raise PlanError(
            f"{code.file} started {name or 'a query without a name'} once, and not twice",
            hint="does it do something else when it is run again?",
        )
    return rehearsed


@dataclass(frozen=True, slots=True)
class FileRun:
    """The process of one file, and its output."""

    capture: Capture
    file: str
    log: Path

    def wait(self, request: str, seconds_max: float) -> int:
        """Run the file to its end; return its exit code."""
        python = self.capture.python
        with open(self.log, "wb") as log:
            try:
                process = subprocess.Popen(
                    [python, answering.__file__, self.capture.script, request],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self.capture.environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise SpecError.of("--python", f"{python}: {error.strerror}", python) from error
            try:
                return process.wait(seconds_max)
            except subprocess.TimeoutExpired:
                fact = f"has not ended after {seconds_max:g} s"
                hint = "does it wait for something? --timeout SECONDS gives it more"
                raise self.failed(fact, hint) from None
            finally:  # the file's process and its JVM are in a session of their own
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def failed(self, fact: str, hint: str | None = None) -> PlanError:
        """Return the error of a run that gave no answer, with the end of its output."""
        lines = self.log.read_text(errors="replace").splitlines()
        for words, error in self.capture.lacks.items():
            if any(words in line for line in lines):
                return error
        log = "\n".join(lines[-LOG_LINES:])
        return PlanError(
            redact(
                f"{self.file}: {fact}; its output ends:\n{log}" if log else f"{self.file}: {fact}"
            ),
            hint=hint or "does it run by itself, with these arguments?",
        )

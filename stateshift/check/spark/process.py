"""The process in which a user's file is run: started, waited for, ended with all its children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from stateshift.check.spark import capture
from stateshift.errors import PlanError, SpecError
from stateshift.plain import JsonObject
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.check import Code

SPARK_MIN = 4  # the first whose planner writes metadata and schemas
LOG_LINES = 12  # of the file's output, in an error message


def run_capture(file: str, code: Code, image: Path | None) -> JsonObject:
    """Run a file in a process of its own; return the answer of `capture.py`.

    Raises:
        SpecError: there is no such file.
        PlanError: it fails, starts no query, or does not end in time.
    """
    if not os.path.isfile(file):
        raise SpecError.of("--with", f"there is no file {file}", file)
    with tempfile.TemporaryDirectory(prefix="stateshift-check-") as folder:
        place = Path(folder)
        scratch = place / "scratch"
        scratch.mkdir()
        request = {
            "file": os.path.abspath(file),
            "arguments": list(code.arguments),
            "answer": str(place / "answer.json"),
            "scratch": str(scratch),
            "image": None if image is None else str(image),
            "stub": code.stub,
            "batch_writes": code.batch_writes,
        }
        (place / "request.json").write_text(json.dumps(request))
        code_of_exit = _run(place, file, code)
        answer = place / "answer.json"
        if not answer.exists():
            raise _failed(file, f"ended with exit code {code_of_exit}", place)
        plain: JsonObject = json.loads(answer.read_text())
        if int(plain["spark"].partition(".")[0]) < SPARK_MIN:
            raise PlanError(
                f"PySpark {plain['spark']} is too old: check needs {SPARK_MIN}.0 or later",
                hint="name another environment: --python PATH",
            )
        if plain["error"] is not None:
            raise _failed(file, plain["error"], place)
        if not plain["queries"]:
            raise PlanError(
                f"{file} starts no streaming query",
                hint="what it starts may depend on its arguments: give them after --",
            )
        return plain


def _run(place: Path, file: str, code: Code) -> int:
    """Run the file; return its exit code."""
    python = code.python or sys.executable
    submit = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    if code.packages:
        submit = f"--packages {','.join(code.packages)} {submit}"
    environment = {**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_SUBMIT_ARGS": submit}
    command = [python, capture.__file__, str(place / "request.json")]
    with open(place / "log", "wb") as log:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise SpecError.of("--python", f"{python}: {error.strerror}", python) from error
        try:
            return process.wait(code.timeout_seconds)
        except subprocess.TimeoutExpired:
            how = f"has not ended after {code.timeout_seconds:g} s"
            hint = "does it wait for something? --timeout SECONDS gives it more"
            raise _failed(file, how, place, hint) from None
        finally:  # the file's process and its JVM are in a session of their own
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _failed(file: str, how: str, place: Path, hint: str | None = None) -> PlanError:
    lines = (place / "log").read_text(errors="replace").splitlines()
    if any("No module named 'pyspark'" in line for line in lines):
        return PlanError(
            f"{file}: the environment has no PySpark",
            hint="name one that has it: --python PATH, or pip install pyspark",
        )
    log = "\n".join(lines[-LOG_LINES:])
    return PlanError(
        redact(f"{file}: {how}; its output ends:\n{log}" if log else f"{file}: {how}"),
        hint=hint or f"does it run by itself? python {quote(file)}",
    )

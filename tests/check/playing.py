"""Real Spark starts each job of the corpus, and what happens is recorded.

    python -m tests.check.playing record [NAME…]   plays all pairs, or these, and records them
    python -m tests.check.playing outcomes         plays all pairs; prints what happened
    python -m tests.check.playing mended           starts the new code on state that the commands
                                                   of a check have changed; prints what happened
    python -m tests.check.playing upgraded PYTHON [NAME…]  the old code runs on the PySpark of this
                                                   interpreter; prints what this Spark did with
                                                   the new code, and the verdict by its planner;
                                                   and both after the commands, if there are some

The ground is one folder with a fixed name: file sources know their files by full paths.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import astuple, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from stateshift import api
from stateshift.check.spark import capture
from stateshift.check.spark.checking import (
    ENTRIES_MAX,
    has_windows,
    read_small_files,
    stored_query,
    write_copy,
)
from stateshift.check.spark.compare import compare
from stateshift.check.spark.query import CapturedQuery, StoredQuery, captured_query
from stateshift.check.spark.rules import Pair
from stateshift.check.verdict import CheckedQuery
from stateshift.documents.check import spec_for
from stateshift.engines.registry import find_image
from stateshift.specification.transform import Change
from stateshift.storage.opening import open_patiently
from tests.check.corpus import BASES, CHANGES, Job

GROUND = Path(os.environ.get("STATESHIFT_CHECK_GROUND", "/tmp/stateshift-check"))
BASES_PLAYED = GROUND.with_name(f"{GROUND.name}-bases")
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "check"
ROWS = 30


@dataclass(frozen=True)
class Outcome:
    """What Spark did with a changed job: `right`, `wrong` or `refused`, and by which error."""

    word: str
    error: str = ""


def new_session() -> Any:
    """Return a small session of Spark, as all jobs of the corpus share it."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for key in ("spark.sql.codegen.wholeStage", "spark.python.worker.faulthandler.enabled"):
        builder = builder.config(key, "false")
    session = builder.config("spark.sql.codegen.factoryMode", "NO_CODEGEN").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


class Playing:
    """The jobs of the corpus in one session, on one ground. Bases are kept in a folder beside."""

    def __init__(self, session: Any, bases: Path) -> None:
        self.session, self.bases = session, bases
        self.changed = bases / "changed"  # the checkpoint that commands have made last
        self.codes: dict[str, CapturedQuery] = {}

    def base(self, name: str) -> Path:
        """Return the place of a base job after its first run."""
        place = self.bases / name
        if not place.exists():
            shutil.rmtree(GROUND, ignore_errors=True)
            write_input(GROUND, 0)
            error = self.run(BASES[name])
            assert error is None, f"{name}: {error}"
            shutil.copytree(GROUND, place)
        return place

    def outcome(self, name: str) -> Outcome:
        """Start the changed job on its base's state, and compare with a start from nothing."""
        change = CHANGES[name]
        self._lay(self.base(change.base))
        write_input(GROUND, 1)
        error = self.run(change.job)
        if error is not None:
            return Outcome("refused", error)
        got = output()
        return Outcome("right" if got == self.truth(change.job) else "wrong")

    def mended(self, name: str, changes: Sequence[Change]) -> Outcome:
        """Change the base's state as the check says, and start the changed job on it."""
        change = CHANGES[name]
        self._lay(self.base(change.base))
        checkpoint = GROUND / "checkpoint"
        spec = spec_for(changes, f"file://{checkpoint}")
        api.apply(spec, workdir=str(GROUND / "run"))
        shutil.rmtree(self.changed, ignore_errors=True)
        shutil.copytree(GROUND / "checkpoint-2", self.changed)
        write_input(GROUND, 1)
        error = self.run(change.job, "checkpoint-2")
        if error is not None:
            return Outcome("refused", error)
        got = output()
        return Outcome("right" if got == self.truth(change.job) else "wrong")

    def truth(self, job: Job) -> list[str]:
        """Return the output of the second run of a job that had no other code before."""
        shutil.rmtree(GROUND, ignore_errors=True)
        for part in range(2):
            write_input(GROUND, part)
            error = self.run(job)
            assert error is None, error
        return output()

    def captured(self, name: str) -> dict[str, Any]:
        """Return the answer of the capture, for a change or for a base."""
        is_change = name in CHANGES
        job = CHANGES[name].job if is_change else BASES[name]
        self._lay(self.base(CHANGES[name].base if is_change else name))
        _, storage, survey = find_image(f"{GROUND}/checkpoint", open_patiently)
        work = self.bases / "capture"
        shutil.rmtree(work, ignore_errors=True)
        (work / "scratch").mkdir(parents=True)
        write_copy(read_small_files(storage, survey, survey.images[0]), work / "image")
        (work / "job.py").write_text(job.script)
        request = {
            "file": str(work / "job.py"),
            "arguments": [str(GROUND)],
            "main_class": None,
            "scratch": str(work / "scratch"),
            "image": str(work / "image"),
            "rehearse": None,
            "stub": False,
            "batch_writes": False,
        }
        with redirect_stderr(StringIO()), replaced_only_here():
            answer = fresh_capture().run(request)
        self._unset(job)
        return dict(answer)

    def run(self, job: Job, checkpoint: str = "checkpoint") -> str | None:
        """Run a job on what is there; return the error class of Spark, None where it ran."""
        shutil.rmtree(GROUND / "out", ignore_errors=True)
        (GROUND / "out").mkdir(parents=True)
        given = sys.argv
        sys.argv = ["job.py", str(GROUND)]
        try:
            script = job.script.replace("/checkpoint", f"/{checkpoint}")
            exec(compile(script, "job.py", "exec"), {"__name__": "__main__"})
        except Exception as error:
            return error_class(str(error))
        finally:
            sys.argv = given
            self._unset(job)
        return None

    def verdict(self, name: str, mended: Path | None = None) -> CheckedQuery:
        """Return the verdict on a change, with the old code, by the planner of this Spark; on the
        base's state, or on one that commands have made of it.
        """
        base = CHANGES[name].base
        for each in (name, base):
            if each not in self.codes:
                answer = self.captured(each)
                assert answer["error"] is None, f"{each}: {answer['error']}"
                (query,) = answer["queries"]
                self.codes[each] = captured_query(query)
        if mended is not None:
            code = replace(self.codes[name], refused=None)  # which was the base's
            return compare(Pair(code, stored_at(str(mended)), self.codes[base]))
        stored = stored_at(str(self.base(base) / "checkpoint"))
        return compare(Pair(self.codes[name], stored, self.codes[base]))

    def _unset(self, job: Job) -> None:
        for key in job.all_settings:
            self.session.conf.unset(key)

    def _lay(self, place: Path) -> None:
        shutil.rmtree(GROUND, ignore_errors=True)
        shutil.copytree(place, GROUND)


def stored_at(location: str) -> StoredQuery:
    """Return the query that a checkpoint is of."""
    engine, storage, survey = find_image(location, open_patiently)
    small = read_small_files(storage, survey, survey.images[0])
    entries = engine.first_entries(storage, survey, ENTRIES_MAX) if has_windows(small) else ()
    return stored_query(small, entries)


@contextmanager
def replaced_only_here() -> Iterator[None]:
    """Let the classes of PySpark start queries again, after a capture has replaced how."""
    from pyspark.sql import SparkSession, readwriter
    from pyspark.sql.streaming import query
    from pyspark.sql.streaming import readwriter as streams

    writers = (readwriter.DataFrameWriter, readwriter.DataFrameWriterV2, streams.DataStreamWriter)
    kinds = (*writers, streams.DataStreamReader, query.StreamingQueryManager, SparkSession.Builder)
    own = [(kind, name, value) for kind in kinds for name, value in vars(kind).items()]
    try:
        yield
    finally:
        for kind, name, value in own:
            if vars(kind)[name] is not value:
                setattr(kind, name, value)


def fresh_capture() -> Any:
    """Return the module of the capture, which has replaced nothing yet."""
    spec = importlib.util.spec_from_file_location("capture_of_tests", capture.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_input(place: Path, part: int) -> None:
    """Write the input of one run, the first or the second. Each row comes twice."""
    for folder, words in (("in", 5), ("other", 3)):
        target = place / folder
        target.mkdir(parents=True, exist_ok=True)
        lines = []
        for row in range(ROWS + part):
            number = part * ROWS + row
            moment = part * 20 + row + (0 if folder == "in" else 2)
            if row == ROWS:
                moment = 1200  # the watermark passes all before
            for copy in range(2):
                values = {
                    "id": number % 40,
                    "at": f"2026-01-01T00:{moment // 60:02d}:{moment % 60:02d}.000Z",
                    "word": f"w{number % words}",
                    "user": f"w{(number * 7) % 4 + part}",
                    "amount": number + 100.5 * copy,
                    "price": number * 3.25,
                    "n": number % 9 + copy,
                }
                lines.append(json.dumps(values))
        (target / f"{part}.json").write_text("\n".join(lines) + "\n")


def output() -> list[str]:
    """Return the rows that the last run gave, sorted."""
    rows: list[str] = []
    for file in sorted((GROUND / "out").glob("*.json")):
        rows += json.loads(file.read_text())
    return sorted(rows)


def error_class(text: str) -> str:
    """Return the class of an error of Spark; of one without, its words up to the first path."""
    text = text.rpartition("terminated with exception: ")[2]
    named = re.match(r"\[([A-Z0-9_.]+)\]", text)
    return named[1] if named else re.split(r" /|\n| SQLSTATE|: file|\{", text)[0].strip()


def record(names: list[str]) -> None:
    """Play the pairs, and write what the fast tests compare with."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(BASES_PLAYED, ignore_errors=True)
    playing = Playing(new_session(), BASES_PLAYED)
    outcomes = json.loads((GOLDEN / "outcomes.json").read_text()) if names else {}
    captures = load_captures() if names else {}
    for name in names or CHANGES:
        outcome = playing.outcome(name)
        outcomes[name] = [outcome.word, outcome.error]
        print(name, *outcomes[name], flush=True)
    bases_played = {CHANGES[name].base for name in names or CHANGES}
    for base in sorted(bases_played):
        target = GOLDEN / base
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(playing.base(base) / "checkpoint", target / "checkpoint")
    for name in [*(names or CHANGES), *sorted(bases_played)]:
        answer = playing.captured(name)
        assert answer["error"] is None, f"{name}: {answer['error']}"
        (captures[name],) = answer["queries"]
    ordered = {name: outcomes[name] for name in CHANGES if name in outcomes}
    text = json.dumps(ordered, indent=1) + "\n"
    (GOLDEN / "outcomes.json").write_text(text)
    packed = json.dumps(captures, sort_keys=True, separators=(",", ":")).encode()
    (GOLDEN / "captures.json.gz").write_bytes(gzip.compress(packed, mtime=0))


def load_captures() -> dict[str, Any]:
    """Return the recorded captures, by the names of bases and changes."""
    return dict(json.loads(gzip.decompress((GOLDEN / "captures.json.gz").read_bytes())))


def print_outcomes(mode: str, names: Sequence[str]) -> None:
    """Play the pairs, and print a JSON object of their outcomes."""
    from tests.check.test_compare import verdict

    shutil.rmtree(BASES_PLAYED, ignore_errors=True)
    playing = Playing(new_session(), BASES_PLAYED)
    outcomes = {}
    for name in names or CHANGES:
        checked = verdict(name, before=True)
        if mode == "outcomes":
            outcome = playing.outcome(name)
        elif checked.verdict == "starts-after":
            outcome = playing.mended(name, checked.changes)
        else:
            continue
        outcomes[name] = [outcome.word, outcome.error]
        print(name, *outcomes[name], file=sys.stderr, flush=True)
    print(json.dumps(outcomes))


OLDER = """
import json, shutil, sys, traceback
from pathlib import Path
from pyspark.sql import SparkSession
ground, inputs, bases = map(Path, sys.argv[1:4])
for name, (script, settings) in json.loads(sys.argv[4]).items():
    shutil.rmtree(ground, ignore_errors=True)
    shutil.copytree(inputs, ground)
    (ground / "out").mkdir()
    sys.argv = ["job.py", str(ground)]
    try:
        exec(compile(script, "job.py", "exec"), {"__name__": "__main__"})
        shutil.copytree(ground, bases / name)
    except Exception:
        traceback.print_exc()
    for key in settings:
        SparkSession.getActiveSession().conf.unset(key)
"""


def play_older(python: str, names: Sequence[str]) -> None:
    """Run base jobs on the PySpark of another interpreter; one that it cannot run has no place."""
    with tempfile.TemporaryDirectory() as inputs:
        write_input(Path(inputs), 0)
        jobs = {name: (BASES[name].script, list(BASES[name].all_settings)) for name in names}
        words = [python, "-c", OLDER, str(GROUND), inputs, str(BASES_PLAYED), json.dumps(jobs)]
        subprocess.run(words, env={**os.environ, "PYSPARK_PYTHON": python}, check=True)


def print_upgraded(older: str, names: Sequence[str]) -> None:
    """Play the pairs with the old code on an older Spark; print outcomes and verdicts.

    Bases that it cannot run are left out.
    """
    shutil.rmtree(BASES_PLAYED, ignore_errors=True)
    bases = sorted({CHANGES[name].base for name in names or CHANGES})
    play_older(older, bases)
    playing = Playing(new_session(), BASES_PLAYED)
    able = {base for base in bases if (BASES_PLAYED / base).exists()}
    chosen = [name for name in names or CHANGES if CHANGES[name].base in able]
    told = {}
    for name in chosen:
        outcome, checked = playing.outcome(name), playing.verdict(name)
        told[name] = [outcome.word, outcome.error, checked.verdict]
        if checked.verdict == "starts-after":
            told[name] += astuple(playing.mended(name, checked.changes))
            told[name].append(playing.verdict(name, playing.changed).verdict)
        print(json.dumps({name: told[name]}), file=sys.stderr, flush=True)
    print(json.dumps(told))


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2:])
    elif sys.argv[1] == "upgraded":
        print_upgraded(sys.argv[2], sys.argv[3:])
    else:
        print_outcomes(sys.argv[1], sys.argv[2:])

"""Real Sparks and Flinks start every pair of old and new code: the check says what they do.

pytest tests/servers/test_check_pairs.py --full     all pairs, on all versions: an hour
STATESHIFT_RECORD=1                                 also keeps what they did, for scripts/bench/check

Older Sparks are those of scripts/sparks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyspark
import pytest

from stateshift import api
from stateshift.check import Code
from stateshift.check.flink import capture, checking
from stateshift.check.process import Capture
from stateshift.check.verdict import CheckedQuery
from stateshift.documents.check import spec_for
from stateshift.errors import PlanError
from stateshift.plain import JsonObject
from tests.acceptance.support import ROOT, environment
from tests.check.corpus import BASES, CHANGES, PROVIDER, STATE
from tests.check.flink_pairs import COUNT, HOLD, PAIRS, SCRIPTS, Pair, folder_of, told_of
from tests.check.outcomes import (
    NOT_AS_FROM_NOTHING,
    OF_FLINKS,
    OF_SPARKS,
    agrees_with_flink,
    agrees_with_spark,
    continues,
    keep_outcomes,
)
from tests.check.test_compare import OUTCOMES
from tests.support.flink import Cluster, Line, Refused, cluster_of, faults, lines, until
from tests.support.servers import group

VERSIONS = ("1.20.5", "2.0.2", "2.3.0")
Each = TypeVar("Each")
PARTS, PARTS_OF_SQL = 6, 2


def test_there_are_a_hundred_pairs_of_spark_and_fifty_of_flink() -> None:
    assert len(CHANGES) >= 100
    assert len(PAIRS) + len(SCRIPTS) >= 50


# ---- Spark ---------------------------------------------------------------------------------------

# From which Spark to which, by which provider, if not by that of the job; the jobs and pairs that
# one of the two cannot run.
ROCKS = "RocksDB"
BEFORE_4, BEFORE_4_1 = ("held", "paired"), ("paired", "join: format 3")
WAYS = {
    ("3.5.9", "4.3.0", ""): BEFORE_4,
    ("3.5.9", "4.3.0", ROCKS): BEFORE_4,
    ("3.5.9", "4.0.5", ""): (*BEFORE_4, *BEFORE_4_1),
    ("4.0.5", "4.0.5", ""): BEFORE_4_1,
    ("4.0.5", "4.0.5", ROCKS): BEFORE_4_1,
    ("4.0.5", "4.3.0", ""): ("paired",),
}
PARTS_OF_SPARK = 5
CACHE = Path.home() / ".cache" / "stateshift" / "sparks"
# Run in the environment of another Spark, with what else the tests import.
ELSEWHERE = """
import runpy, sys
sys.path[0:1] = [sys.argv[1]]
sys.path.append(sys.argv[2])
sys.argv[0:3] = ["playing"]
runpy.run_module("tests.check.playing", run_name="__main__", alter_sys=True)
"""


def python_of(version: str) -> str:
    """Return the interpreter that has this Spark."""
    if version == pyspark.__version__:
        return sys.executable
    place = Path(os.environ.get("STATESHIFT_SPARKS", CACHE)) / version
    if not (place / "ready").exists():
        pytest.skip(f"there is no Spark {version}: ./scripts/sparks {place.parent} {version}")
    return str(place / "bin" / "python")


def played(*mode: str, python: str = sys.executable, provider: str = "") -> dict[str, list[str]]:
    command = [python, "-m", "tests.check.playing", *mode]
    if python != sys.executable:
        command = [python, "-c", ELSEWHERE, str(ROOT), sysconfig.get_path("purelib"), *mode]
    submit = f"--conf {PROVIDER}={STATE}.{provider}StateStoreProvider pyspark-shell"
    more = {"PYSPARK_SUBMIT_ARGS": submit} if provider else {}
    done = subprocess.run(
        command, cwd=ROOT, env=environment() | more, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return outcomes


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.row("W-24", on="Spark")
def test_spark_does_with_every_pair_what_is_recorded() -> None:
    assert played("outcomes") == OUTCOMES


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.row("W-24", on="Spark")
def test_code_starts_after_the_commands_and_goes_on_from_what_the_state_holds() -> None:
    mended = played("mended")
    assert mended
    for name, (word, error) in mended.items():
        expected = "wrong" if name in NOT_AS_FROM_NOTHING else "right"
        assert word == expected, (name, error)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.row("W-24", on="Spark")
@pytest.mark.parametrize("part", range(PARTS_OF_SPARK))
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_spark_does_with_state_of_another_version_what_the_check_says(
    way: tuple[str, str, str], part: int
) -> None:
    older, newer, provider = way
    able = [name for name in CHANGES if not {name, CHANGES[name].base} & {*WAYS[way]}]
    able.sort(key=lambda name: [*BASES].index(CHANGES[name].base))
    size = -(-len(able) // PARTS_OF_SPARK)
    names = able[part * size : (part + 1) * size]
    python = python_of(newer)
    told = played("upgraded", python_of(older), *names, python=python, provider=provider)
    assert [*told] == names
    if "STATESHIFT_RECORD" in os.environ:
        shown = f"{older} to {newer}" + (f", {provider}" if provider else "")
        keep_outcomes(OF_SPARKS, shown, told)
    wrong = []
    for name, (word, error, said, *mended) in told.items():
        if not agrees_with_spark(name, word, said):
            wrong.append(f"{name}: {word} {error}, and the check: {said}")
        if mended and not continues(name, mended[0], mended[2]):
            wrong.append(f"{name}, after the commands: {mended}")
    assert not wrong, "\n".join(wrong)


# ---- Flink ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    more = tmp_path_factory.mktemp("conf") / "more"
    more.write_text("taskmanager.numberOfTaskSlots: 12\n")
    asked = {"STATESHIFT_FLINK_VERSION_A": version, "STATESHIFT_FLINK_CONF": str(more)}
    with group(tmp_path_factory.mktemp("flink"), "flink-a", **asked) as servers:
        yield cluster_of(servers, "flink-a")


@pytest.fixture(scope="module")
def one_jvm(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let one JVM plan and rehearse all files, as the process of each would."""
    place = tmp_path_factory.mktemp("jvm")
    jars = [str(jar) for jar in sorted(cluster.lib.glob("*.jar"))]
    gateway = capture.launch({"jars": jars, "scratch": str(place)})

    def run_capture(program: Capture, file: str, code: Code) -> JsonObject:
        scratch = tempfile.mkdtemp(dir=place)
        own = {"file": file, "arguments": list(code.arguments), "scratch": scratch}
        answer = capture.run({**program.request, **own})
        if answer["error"] is not None:
            raise PlanError(str(answer["error"]))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture, "launch", lambda _: gateway)
        patch.setattr(checking, "run_capture", run_capture)
        yield
    gateway.shutdown()


def part_of(pairs: Mapping[str, Each], part: int, parts: int) -> list[tuple[str, Each]]:
    """Return one of so many parts of the pairs."""
    return list(pairs.items())[part::parts]


def refusal(
    cluster: Cluster,
    pair: Pair,
    words: list[str],
    image: Path,
    is_through: Callable[[], bool] = lambda: True,
) -> str | None:
    """Start a job from an image, and cancel it once it is through; return the reason if it does
    not start.
    """
    try:
        job = cluster.run(
            pair.main,
            *words,
            parallelism=pair.parallelism,
            savepoint=image,
            allowNonRestoredState=pair.allow,
        )
    except (AssertionError, Refused) as error:
        return str(error)
    until(lambda: is_through() or cluster.state(job) != "RUNNING", 30)
    if cluster.state(job) == "RUNNING":
        cluster.cancelled(job)
    return None


@dataclass(frozen=True)
class Counted:
    """The lines that a job of counts has written since it was started from an image."""

    pair: Pair
    version: str
    folder: Path

    @property
    def begin(self) -> int:
        """The first number that the image has not counted."""
        return int(str(told_of(self.version, self.pair.case)["numbers"]))

    def lines(self) -> list[list[Line]]:
        """Return those of each counter; of another job, or of one that is further on, none."""
        if self.pair.main != COUNT or self.begin >= HOLD:
            return []
        names = self.pair.words.get("counters", "orders").split(",")
        return [lines(self.folder / name) for name in names]

    def is_through(self) -> bool:
        """Whether all numbers were counted before the source waits."""
        return all(any(line.number == HOLD - 1 for line in each) for each in self.lines())

    def faults(self) -> list[str]:
        """Return what is lost, doubled or not counted on from the state."""
        found = []
        for each in self.lines():
            found += faults(each, 10, self.begin, HOLD)
        return found


def keep(version: str, fresh: Mapping[str, tuple[str, str | None]]) -> None:
    """Record what Flink did, if that is asked for; of an error, its last cause."""
    if "STATESHIFT_RECORD" not in os.environ:
        return
    told = {}
    for name, (verdict, error) in fresh.items():
        causes = [
            line for line in (error or "").replace("\\n", "\n").splitlines() if "Caused by" in line
        ]
        cause = causes[-1].partition("Caused by: ")[2] if causes else error
        cause = cause and re.sub(r"(file:)?/\S+|@[0-9a-f]+", "…", cause.strip())[:160]
        told[name] = (verdict, cause)
    keep_outcomes(OF_FLINKS, version, told)


def is_known(query: CheckedQuery) -> bool:
    """Whether the commands are all that a start needs, as far as a check tells."""
    return all(each.level != "not-known" for each in query.differences)


def mended(query: CheckedQuery, image: Path) -> Path:
    """Change an image as the commands of a verdict do; return the new one."""
    new, run = Path(f"{image}-2"), f"{image}-run"
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(run, ignore_errors=True)
    api.apply(spec_for(query.changes, str(image), "flink"), workdir=run)
    return new


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.row("W-24", on="Flink")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_real_flink_does_with_every_pair_what_the_check_says(
    cluster: Cluster, one_jvm: None, version: str, part: int, tmp_path: Path
) -> None:
    wrong, fresh = [], {}
    for name, pair in part_of(PAIRS, part, PARTS):
        if tuple(map(int, version.split("."))) < pair.since:
            continue
        folder = tmp_path / "out"
        words = pair.arguments(version, folder)
        code = pair.code(version, cluster.lib, folder)
        checked = api.check(
            pair.image(version),
            code.file,
            arguments=code.arguments,
            flink=code.flink,
            main_class=code.main_class,
            parallelism=code.parallelism,
            allow_non_restored=code.allow_non_restored,
            rehearse=True,
        )
        error = refusal(cluster, pair, words, pair.image(version))
        (query,) = checked.checked.queries
        fresh[name] = (query.verdict, error)
        if not agrees_with_flink(query.verdict, error):
            wrong.append(f"{name}: {query.verdict}, and Flink: {error}")
        if query.verdict != pair.verdict:
            wrong.append(f"{name}: {query.verdict}, not {pair.verdict}")
        if query.verdict == "starts-after" and query.has_commands and is_known(query):
            place = tmp_path / "mended"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(folder_of(version, pair.case), place)
            image = place / str(told_of(version, pair.case)["image"])
            shutil.rmtree(folder, ignore_errors=True)
            counted = Counted(pair, version, folder)
            error = refusal(cluster, pair, words, mended(query, image), counted.is_through)
            if error is not None:
                wrong.append(f"{name}, after the commands: {error}")
            elif bool(counted.faults()) != (name in NOT_AS_FROM_NOTHING):
                wrong.append(f"{name}, after the commands: {counted.faults()[:3]}")
        shutil.rmtree(folder, ignore_errors=True)
    keep(version, fresh)
    assert not wrong, "\n".join(wrong)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.row("W-24", on="Flink")
@pytest.mark.parametrize("part", range(PARTS_OF_SQL))
def test_a_real_flink_does_with_every_file_of_sql_what_the_check_says(
    cluster: Cluster, one_jvm: None, version: str, part: int, tmp_path: Path
) -> None:
    wrong: list[str] = []
    fresh = {}
    kept: dict[str, tuple[Path, Path]] = {}
    for name, (old, new, verdict) in part_of(SCRIPTS, part, PARTS_OF_SQL):
        place, file = tmp_path / str(len(kept)), tmp_path / "job.sql"
        if old not in kept:
            place.mkdir()
            file.write_text(old.replace("PLACE", str(place)))
            job = cluster.run("jobs.Script", "--file", str(file), parallelism=2)
            time.sleep(2)
            kept[old] = place, cluster.stopped(job, place)
        place, image = kept[old]
        file.write_text(new.replace("PLACE", str(place)))
        checked = api.check(image, str(file), flink=str(cluster.lib), parallelism=2, rehearse=True)
        pair = Pair("", verdict, main="jobs.Script")
        error = refusal(cluster, pair, ["--file", str(file)], image)
        fresh[f"SQL file: {name}"] = (checked.verdict, error)
        if not agrees_with_flink(checked.verdict, error):
            wrong.append(f"{name}: {checked.verdict}, and Flink: {error}")
        if checked.verdict != (verdict or checked.verdict):
            wrong.append(f"{name}: {checked.verdict}, not {verdict}: {checked.to_dict()}")
        (query,) = checked.checked.queries
        if checked.verdict == "starts-after" and query.has_commands and is_known(query):
            error = refusal(cluster, pair, ["--file", str(file)], mended(query, image))
            if error is not None:
                wrong.append(f"{name}, after the commands: {error}")
    keep(version, fresh)
    assert not wrong, "\n".join(wrong)

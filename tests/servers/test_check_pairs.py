"""Real Sparks and Flinks start every pair of old and new code: the check says what they do.

pytest tests/servers/test_check_pairs.py --full     all pairs, on all versions: an hour
STATESHIFT_RECORD=1                                 also keeps what Flink did, for scripts/bench/check
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from stateshift import api
from stateshift.documents.check import spec_for
from tests.acceptance.support import ROOT, environment
from tests.check.corpus import CHANGES
from tests.check.flink_pairs import PAIRS, SCRIPTS, Pair, keep_outcomes
from tests.check.test_compare import OUTCOMES
from tests.support.flink import Cluster, Refused, cluster_of
from tests.support.servers import group

VERSIONS = ("1.20.5", "2.0.2", "2.3.0")
Each = TypeVar("Each")
PARTS, PARTS_OF_SQL = 16, 5


def test_there_are_a_hundred_pairs_of_spark_and_fifty_of_flink() -> None:
    assert len(CHANGES) >= 100
    assert len(PAIRS) + len(SCRIPTS) >= 50


# ---- Spark ---------------------------------------------------------------------------------------

# Code that starts after the commands, and whose output cannot be that of a start from nothing: the
# state has no values for a new column, and was made with the operator or the source that is gone.
NOT_AS_FROM_NOTHING = (
    "window: an aggregate more",
    "stored: an aggregate more",
    "join: a column more",
    "paired: a column more",
    "chain: no deduplication",
    "union: a source less",
)


def played(mode: str) -> dict[str, list[str]]:
    command = [sys.executable, "-m", "tests.check.playing", mode]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
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


def part_of(pairs: Mapping[str, Each], part: int, parts: int) -> list[tuple[str, Each]]:
    """Return one of so many parts of the pairs."""
    return list(pairs.items())[part::parts]


def refusal(cluster: Cluster, pair: Pair, words: list[str], image: Path) -> str | None:
    """Start a job from an image, and cancel it; return the reason if it does not start."""
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
    if cluster.state(job) == "RUNNING":
        cluster.cancelled(job)
    return None


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
    keep_outcomes(version, told)


def agrees(verdict: str, error: str | None) -> bool:
    """Whether a verdict is that of a real start; "not-known" is none."""
    return verdict == "not-known" or (error is None) == (verdict in ("starts", "starts-but"))


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.row("W-24", on="Flink")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_real_flink_does_with_every_pair_what_the_check_says(
    cluster: Cluster, version: str, part: int, tmp_path: Path
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
        if not agrees(query.verdict, error):
            wrong.append(f"{name}: {query.verdict}, and Flink: {error}")
        if query.verdict != pair.verdict:
            wrong.append(f"{name}: {query.verdict}, not {pair.verdict}")
        if query.verdict == "starts-after" and query.has_commands:
            place = tmp_path / "mended"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(pair.image(version), place / "image")
            spec = spec_for(query.changes, f"{place}/image", "flink")
            api.apply(spec, workdir=str(place / "run"))
            error = refusal(cluster, pair, words, place / "image-2")
            if error is not None:
                wrong.append(f"{name}, after the commands: {error}")
        shutil.rmtree(folder, ignore_errors=True)
    keep(version, fresh)
    assert not wrong, "\n".join(wrong)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.row("W-24", on="Flink")
@pytest.mark.parametrize("part", range(PARTS_OF_SQL))
def test_a_real_flink_does_with_every_file_of_sql_what_the_check_says(
    cluster: Cluster, version: str, part: int, tmp_path: Path
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
        if not agrees(checked.verdict, error):
            wrong.append(f"{name}: {checked.verdict}, and Flink: {error}")
        if checked.verdict != (verdict or checked.verdict):
            wrong.append(f"{name}: {checked.verdict}, not {verdict}: {checked.to_dict()}")
    keep(version, fresh)
    assert not wrong, "\n".join(wrong)

"""A check of Flink says what a real Flink does with the same job and the same savepoint."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import api
from stateshift.check.flink.capture import statements
from stateshift.check.flink.compare import KEYED, VALUES
from stateshift.check.verdict import Rehearsal
from stateshift.documents.check import spec_for
from tests.acceptance.support import stateshift
from tests.check.flink_pairs import PAIRS, QUICK, SCRIPTS, Pair, recorded
from tests.support.flink import Cluster, Refused, cluster_of, jar
from tests.support.servers import Unavailable, downloads, group

VERSIONS = ("1.20.5", "2.0.2", "2.3.0")
PARTS = 4


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.every_case
def test_the_verdict_on_a_plan_of_flink_is_that_of_real_clusters(name: str) -> None:
    pair = PAIRS[name]
    (query,) = pair.judged(QUICK, recorded()[name]).queries
    assert query.verdict == pair.planned_verdict
    assert {*pair.rules} <= {"rehearsal", *(difference.rule for difference in query.differences)}


def test_a_rehearsal_answers_what_is_not_known_and_blames_the_state_for_its_own_errors() -> None:
    pair = PAIRS["nothing"]
    (query,) = pair.judged(QUICK, recorded()["nothing"]).queries
    good = Rehearsal("Flink", 1.5, "it ran", answers=frozenset({(VALUES, KEYED)}))
    refused, failed = replace(good, error="no"), replace(good, error="no", is_final=False)
    verdicts = [each.judged(query).verdict for each in (good, refused, failed)]
    assert verdicts == ["starts", "never", "not-known"]


def test_statements_end_with_semicolons_outside_of_texts_comments_and_sets() -> None:
    text = """-- a; b
    SET 'a' = 'b;''c'; /* x; */ CREATE TABLE `t;` (n INT) WITH ('k' = ';');
    EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END;
    begin statement set; INSERT INTO a SELECT 1; END;
    """
    split = [" ".join(statement.split()) for statement in statements(text)]
    assert split == [
        "SET 'a' = 'b;''c'",
        "CREATE TABLE `t;` (n INT) WITH ('k' = ';')",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END",
    ]


@pytest.mark.servers
@pytest.mark.row("W-24", on="Flink")
def test_flink_plans_a_job_and_restores_it_after_the_commands_without_a_cluster(
    tmp_path: Path,
) -> None:
    pair = PAIRS["uids for generated ids"]
    try:
        lib = downloads.flink(QUICK)
    except Unavailable as reason:
        pytest.skip(str(reason))
    words = ["check", str(pair.image(QUICK)), "--with", str(jar(lib)), "--class", pair.main]
    words += ["--flink", str(lib), "--rehearse", "--json", "--", *pair.arguments(QUICK, tmp_path)]
    (document,) = stateshift(*words, cwd=tmp_path, code=4).json
    assert (document["verdict"], document["version"]) == ("starts-after", QUICK)
    assert document["commands"][0].count("--operator ") == 2
    assert document["findings"][-1]["rule"] == "rehearsal"
    assert "opened them: orders count, after" in document["findings"][-1]["message"]
    assert not list(tmp_path.iterdir())


# ---- with real clusters --------------------------------------------------------------------------


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
    size = -(-len(PAIRS) // PARTS)
    for name, pair in list(PAIRS.items())[part * size : (part + 1) * size]:
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
        fresh[name] = (query.verdict, None if error is None else error[-300:])
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
    print(json.dumps(fresh, indent=1))
    assert not wrong, "\n".join(wrong)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.row("W-24", on="Flink")
def test_a_real_flink_does_with_every_file_of_sql_what_the_check_says(
    cluster: Cluster, version: str, tmp_path: Path
) -> None:
    wrong: list[str] = []
    kept: dict[str, tuple[Path, Path]] = {}
    for name, (old, new, verdict) in SCRIPTS.items():
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
        if not agrees(checked.verdict, error):
            wrong.append(f"{name}: {checked.verdict}, and Flink: {error}")
        if checked.verdict != verdict:
            wrong.append(f"{name}: {checked.verdict}, not {verdict}: {checked.to_dict()}")
    assert not wrong, "\n".join(wrong)

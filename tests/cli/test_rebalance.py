"""`stateshift rebalance` on two Flinks in memory: what it moves and keeps, and that the next run goes
on from wherever the last one was killed.
"""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.api.rebalancing.past import JobPlace
from stateshift.api.rebalancing.whereabouts import at_place
from stateshift.documents.metrics import LABELS
from stateshift.errors import JOB_DOWN
from stateshift.specification import JobSpec
from stateshift.testing.memory_flink import MemoryFlink
from stateshift.workdir import Workdir
from tests.advise.measured_flink import BEGAN
from tests.advise.rebalance.clusters import LOADS, FlinkClusters, moved
from tests.cli.support import Said, said
from tests.support.checkpoints import put
from tests.support.examples import FOLDER
from tests.support.exposition import read

pytestmark = pytest.mark.row("IF-19", "W-12", on="Flink")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[FlinkClusters]:
    with FlinkClusters(tmp_path).serving() as served:
        yield served


def whole(ground: FlinkClusters) -> None:
    """Every job runs once, and none was started twice for one move."""
    assert all(len(places) == 1 for places in ground.where().values()), ground.where()


# ---------------------------------------------------------------------------------- dry run


def test_a_dry_run_decides_and_moves_nothing(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    second, third = (ground.document() for _ in range(2))
    assert moved(second) == moved(third) == [("orders", "east", "planned")]
    (west, east) = second["clusters"]
    assert (west["before_share"], east["before_share"]) == (pytest.approx(1.6), 0.0)
    assert (west["after_share"], east["after_share"]) == (
        pytest.approx(1.15),
        pytest.approx(0.45),
    )
    (move,) = second["moves"]
    assert move["bytes"] == 1 << 20
    assert {stay["job"] for stay in second["stay"]} == {"payments", "fraud", "audit"}
    assert ground.on("west") == sorted(LOADS)
    assert not ground.submissions()
    assert not (ground.state / "moves").exists()


def test_a_decision_is_made_again_from_its_file_or_from_the_document(ground: FlinkClusters) -> None:
    ground.document("--yes")
    before = ground.document()
    asked = [len(served.asked) for served in ground.served.values()]
    document = ground.folder / "said.json"
    document.write_text(json.dumps(before))
    for file in (before["file"], str(document)):
        done = said("rebalance", "--replay", file, "--json", adapters=ground.adapters)
        assert done.code == 0, done.err
        for key in ("reason", "clusters", "stay", "bound", "is_best", "inputs"):
            assert done.document[key] == before[key]
        assert [move["job"] for move in done.document["moves"]] == ["orders"]
    assert [len(served.asked) for served in ground.served.values()] == asked


def refused_page(ground: FlinkClusters, page: Path) -> Said:
    """Ask for a page that cannot be written, and see that nothing is moved for it."""
    ground.section = {"runs": 1}
    asked = [len(served.asked) for served in ground.served.values()]
    done = ground.run("--yes", "--html", str(page))
    assert ground.on("west") == sorted(LOADS)
    assert [len(served.asked) for served in ground.served.values()] == asked
    assert not list(ground.folder.rglob("*.tmp"))
    return done


def test_a_page_in_no_folder_or_that_is_one_is_refused_before_anything_is_moved(
    ground: FlinkClusters,
) -> None:
    done = refused_page(ground, ground.folder / "none" / "page.html")
    assert (done.code, "mkdir -p" in done.err) == (6, True)
    done = refused_page(ground, ground.folder)
    assert (done.code, "rebalance.html" in done.err) == (2, True)


def test_a_page_that_no_file_can_be_called_is_refused_before_anything_is_moved(
    ground: FlinkClusters,
) -> None:
    done = refused_page(ground, ground.folder / ("long" * 80))
    assert (done.code, "cannot be written: File name too long" in done.err) == (6, True)


def test_a_page_that_there_is_no_room_for_is_refused_before_anything_is_moved(
    ground: FlinkClusters,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, before[1]))
    try:
        done = refused_page(ground, ground.folder / "page.html")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (done.code, "cannot be written: File too large" in done.err) == (6, True)


def page_that_fails_late(ground: FlinkClusters) -> Path:
    """Return a page whose folder goes away while the jobs are measured."""
    folder = ground.folder / "pages"
    folder.mkdir()
    ground.clock.on_sleep = lambda: shutil.rmtree(folder, ignore_errors=True)
    return folder / "page.html"


def test_a_page_that_fails_leaves_no_half_of_an_answer_and_can_be_made_from_the_decision(
    ground: FlinkClusters,
) -> None:
    done = ground.run("--json", "--html", str(page_that_fails_late(ground)))
    assert done.code == 6
    assert "cannot be written" in done.document["message"]
    page, hint = ground.folder / "page.html", done.document["hint"]
    again = hint.replace("OTHER", str(page)).removeprefix("stateshift ").split()
    assert said(*again, adapters=ground.adapters).code == 0
    assert "west" in page.read_text()


def test_a_page_that_fails_does_not_hide_that_a_move_has_failed(ground: FlinkClusters) -> None:
    ground.on_failure = "stop"
    ground.section = {"runs": 1}
    ground.clusters["east"].fail(1)
    done = ground.run("--yes", "--html", str(page_that_fails_late(ground)))
    assert done.code == 6
    assert "stateshift resume" in done.err, "the way out of the move's failure"
    assert "cannot be written" in done.err


def told_of(gibibytes: int) -> dict[str, Any]:
    """What Flink says of TaskManagers of which nothing is taken."""
    profile = {"taskHeapMemory": 0, "taskOffHeapMemory": 0, "managedMemory": gibibytes << 10}
    return {"taskmanagers": [{"totalResource": profile, "freeResource": profile}]}


@pytest.mark.parametrize(("gibibytes", "moves"), [(1, 0), (2, 1)])
def test_a_flink_without_the_memory_of_a_jobs_slots_does_not_get_it(
    ground: FlinkClusters, gibibytes: int, moves: int
) -> None:
    ground.section = {"runs": 1}
    # On west each of the four slots has a GiB, and every job has two of them.
    ground.served["west"].odd["/taskmanagers"] = (200, told_of(4))
    ground.served["east"].odd["/taskmanagers"] = (200, told_of(gibibytes))
    document = ground.document()
    assert len(document["moves"]) == moves
    if not moves:
        assert {stay["reason"] for stay in document["stay"]} == {
            "east: its memory is taken: 1,024 MiB too few are free"
        }


def test_metrics_have_the_moves_of_all_runs_and_the_last_decision(ground: FlinkClusters) -> None:
    (ground.folder / "none").mkdir()
    words = ("metrics", str(ground.folder / "none"), "--rebalance", str(ground.state))
    first = said(*words)
    assert (first.code, "no decision yet" in first.err) == (0, True), "the first run is to come"
    ground.run("--yes")
    ground.run("--yes")
    decided = ground.document("--yes")["at"]
    done = said(*words)
    assert done.code == 0, done.err
    found = read(done.out.encode())
    name = {"rebalance": "state"}

    def value(metric: str, **labels: str) -> float:
        samples = found[f"stateshift_rebalance_{metric}"].samples
        return samples[frozenset({**name, **labels}.items())]

    assert value("timestamp_seconds") == decided
    assert value("moves", state="finished") == 1
    assert value("moves", state="unfinished") == value("moves", state="taken-back") == 0
    assert value("planned_moves") == 0
    assert value("stays", reason="idle") + value("stays", reason="forbidden") == len(LOADS)
    assert value("load_ratio", cluster="east") == pytest.approx(0.45)
    for metric, family in found.items():
        for labels in family.samples:
            assert sorted(key for key, _ in labels) == sorted(LABELS[metric])


def test_metrics_of_folders_of_one_name_are_told_apart_and_a_folder_counts_once(
    ground: FlinkClusters, tmp_path: Path
) -> None:
    ground.run()
    other = tmp_path / "other" / ground.state.name
    shutil.copytree(ground.state, other)
    (tmp_path / "none").mkdir()
    folders = [ground.state, other, f"{ground.state}/"]
    words = [word for folder in folders for word in ("--rebalance", str(folder))]
    done = said("metrics", str(tmp_path / "none"), *words)
    assert done.code == 0, done.err
    lines = [line for line in done.out.splitlines() if "_rebalance_timestamp_seconds{" in line]
    assert sorted(line.split('"')[1] for line in lines) == sorted(map(str, folders[:2]))


def test_metrics_have_the_decision_that_was_made_and_decide_nothing_anew(
    ground: FlinkClusters,
) -> None:
    ground.run()
    file = ground.state / "decisions" / "0001.json"
    kept = json.loads(file.read_text())
    kept["decision"]["at"] = 17.0
    file.write_text(json.dumps(kept))
    done = said("metrics", str(ground.folder), "--rebalance", str(ground.state))
    assert done.code == 0, done.err
    samples = read(done.out.encode())["stateshift_rebalance_timestamp_seconds"].samples
    assert list(samples.values()) == [17.0]


DAMAGES = ["", "{}", "[7]", "[" * 100_000, '{"number": "\\ud800"}', "\0"]


def test_a_memory_that_ends_each_run_is_damaged_in_the_metrics(ground: FlinkClusters) -> None:
    ground.run()
    (ground.state / "memory.json").write_text("{")
    out = ground.folder / "stateshift.prom"
    words = ("--rebalance", str(ground.state), "--to", str(out))
    done = said("metrics", str(ground.folder), *words)
    assert done.code == 0
    assert "memory.json is damaged" in done.err
    (damaged,) = read(out.read_bytes())["stateshift_rebalance_damaged"].samples.values()
    assert damaged == 1


@pytest.mark.parametrize("kept", ["decisions/0001.json", "moves/0001.json"])
def test_what_is_damaged_is_named_and_the_other_metrics_are_written(
    ground: FlinkClusters, kept: str
) -> None:
    ground.run()
    (ground.state / "moves").mkdir()
    other = ground.folder / "whole"
    shutil.copytree(ground.state, other)
    out = ground.folder / "stateshift.prom"
    words = ("--rebalance", str(ground.state), "--rebalance", str(other), "--to", str(out))
    parts = {"decisions/0001.json": "timestamp_seconds", "moves/0001.json": "moves"}
    for text in DAMAGES:
        (ground.state / kept).write_text(text)
        done = said("metrics", str(ground.folder), *words)
        assert done.code == 0, done.err
        assert f"{kept} is damaged" in done.err
        families = read(out.read_bytes())
        damaged = families["stateshift_rebalance_damaged"].samples
        assert {dict(labels)["rebalance"]: value for labels, value in damaged.items()} == {
            "state": 1,
            "whole": 0,
        }
        for file, metric in parts.items():
            samples = families[f"stateshift_rebalance_{metric}"].samples
            names = {dict(labels)["rebalance"] for labels in samples}
            assert names == ({"whole"} if file == kept else {"state", "whole"})


def test_plan_and_apply_of_such_a_spec_name_the_command_that_moves_its_jobs(
    ground: FlinkClusters,
) -> None:
    path = ground.write_spec()
    for words in (("plan", path), ("apply", path, "--yes")):
        done = said(*words, adapters=ground.adapters)
        assert done.code == 2
        assert f"stateshift rebalance {path} --once" in done.err


def test_advise_judges_the_jobs_that_a_pattern_means(ground: FlinkClusters) -> None:
    spec = ground.spec()
    running = {"submit": {"jar_id": "jobs"}, "target_directory": "file:///taken/{job}"}
    spec["jobs"] = [{"name": "*d*", **running}, {"name": "gone-*", **running}]
    path = ground.folder / "clusters.json"
    path.write_text(json.dumps(spec))
    done = said("advise", str(path), "--json", adapters=ground.adapters)
    assert done.code == 0, done.err
    told = {each["job"]: each for each in done.document}
    assert sorted(told) == ["audit", "fraud", "gone-*", "orders"]
    assert told["orders"]["verdict"] != "unknown"
    assert told["gone-*"]["verdict"] == "unknown"
    assert "no job called 'gone-*' runs there" in told["gone-*"]["reasons"][0]
    (only,) = said(
        "advise", str(path), "--job", "orders", "--json", adapters=ground.adapters
    ).document
    assert only["job"] == "orders"


def advised(ground: FlinkClusters, *argv: str) -> Said:
    words = ("--rebalance", str(ground.state), "--json", *argv)
    return said("advise", ground.write_spec(), *words, adapters=ground.adapters)


def reasons(ground: FlinkClusters, job: str) -> list[str]:
    """What advise says of a job, which is also what it says of its own inputs."""
    done = advised(ground, "--job", job)
    assert done.code == 0, done.err
    file = ground.folder / "said.json"
    file.write_text(json.dumps(done.document))
    again = said("advise", "--replay", str(file), "--json", adapters=ground.adapters)
    (told,) = done.document
    assert again.document[0]["reasons"] == told["reasons"]
    listed: list[str] = told["reasons"]
    return listed


def test_advise_follows_jobs_that_were_moved(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    (move,) = ground.document("--yes")["moves"]
    ground.clock.time += 3600
    done = advised(ground)
    assert done.code == 0, done.err
    told = {each["job"]: each for each in done.document}
    assert sorted(told) == sorted(LOADS)
    assert "unknown" not in {each["verdict"] for each in told.values()}
    assert told["orders"]["verdict"] == "fits"
    assert told["orders"]["inputs"]["around"]["location"] == "file:///east/orders/1"
    assert told["orders"]["restart_from"] == "runs"
    note = "it was looked at on east, where `rebalance` has moved it"
    assert note in told["orders"]["reasons"]
    assert note not in told["fraud"]["reasons"]
    assert told["orders"]["restart_seconds"] == move["was_down_seconds"]


def test_advise_follows_jobs_that_are_moved_while_it_watches(tmp_path: Path) -> None:
    """Each sleep is also the next turn; behind the last, the watch is stopped."""
    ground = FlinkClusters(tmp_path, section={"runs": 1})
    clock = ground.clock

    def later() -> None:
        clock.time += 3600

    turns = [later, later, lambda: ground.run("--yes"), later, later, later]

    def turn() -> None:
        clock.on_sleep = lambda: None
        turns.pop(0)()
        if not turns:
            raise KeyboardInterrupt
        clock.on_sleep = turn

    clock.on_sleep = turn
    with ground.serving():
        done = advised(ground, "--job", "orders", "--watch")
    told = [json.loads(line)[0] for line in done.out.splitlines() if line.startswith("[")]
    places = [each["inputs"]["around"]["location"] for each in told]
    assert (places[0], places[-1]) == ("file:///taken/orders", "file:///east/orders/1")
    assert told[-1]["verdict"] != "unknown"


def test_a_move_does_not_make_the_next_run_blind(ground: FlinkClusters) -> None:
    """Its samples count from five minutes on."""
    ground.section = {"runs": 1}
    (move,) = json.loads(ground.run("--yes", "--json", minutes=1).out)["moves"]
    done = ground.run("--json", minutes=1)
    document = done.document
    assert "cannot tell" not in document["reason"]
    jobs = {each["name"]: each for each in document["inputs"]["situation"]["jobs"]}
    assert (move["job"], jobs["orders"]["load"], jobs["orders"]["width"]) == ("orders", 1.8, 2)
    assert "orders: its load is taken to be what it was before its move: 1.80" in document["notes"]
    clusters = {each["name"]: each for each in document["inputs"]["situation"]["clusters"]}
    assert clusters["east"]["other_load"] == 0
    ground.clock.time += 3600
    assert not ground.document()["notes"]


def test_advise_looks_where_rebalance_keeps_what_it_knows(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    words = ("--workdirs", str(ground.folder))
    spec = ground.write_spec()
    assert said("rebalance", spec, "--once", "--yes", *words, adapters=ground.adapters).code == 0
    ground.clock.time += 3600
    done = said("advise", spec, *words, "--job", "orders", "--json", adapters=ground.adapters)
    (told,) = done.document
    assert (told["job"], told["verdict"]) == ("orders", "fits")


def test_advise_refuses_what_rebalance_has_kept_and_cannot_be_read(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    ground.run("--yes")
    (ground.state / "moves" / "0001.json").write_text("{")
    done = advised(ground)
    assert (done.code, "0001.json is damaged" in done.err) == (8, True)


def test_a_folder_that_cannot_be_read_is_told(ground: FlinkClusters) -> None:
    ground.state.mkdir()
    (ground.state / "moves").touch()
    for done in (advised(ground), ground.run()):
        assert (done.code, "moves cannot be read: Not a directory" in done.err) == (8, True)
        assert "as the user who runs `rebalance`" in done.err


def test_a_page_has_the_bars(ground: FlinkClusters) -> None:
    page = ground.folder / "page.html"
    done = ground.run("--html", str(page), "--explain")
    assert done.code == 0, done.err
    assert "west" in page.read_text()


# ---------------------------------------------------------------------------------- acting


@pytest.mark.long
def test_jobs_are_spread_one_at_a_time_and_then_nothing_moves(ground: FlinkClusters) -> None:
    done = [moved(ground.document("--yes")) for _ in range(14)]
    whole(ground)
    assert [moves for moves in done if moves] == [
        [("orders", "east", "finished")],
        [("fraud", "east", "finished")],
    ]
    assert not any(done[-10:])
    assert ground.on("west") == ["audit", "payments"]
    assert ground.submissions() == {"orders": 1, "fraud": 1}


def test_a_move_is_an_ordinary_run_with_its_own_workdir(ground: FlinkClusters) -> None:
    ground.run("--yes")
    document = ground.document("--yes")
    (move,) = document["moves"]
    assert Path(move["workdir"]) == ground.state / "runs" / "0001-orders"
    assert move["was_down_seconds"] is not None
    assert ground.disk.snapshot("file:///east/orders/1")
    status = said("status", move["workdir"], "--json", adapters=ground.adapters)
    assert status.document["state"] == "finished"


def test_a_job_that_comes_back_meets_no_image_of_its_first_stay(ground: FlinkClusters) -> None:
    ground.section = {"cool_down": 0, "runs": 1}
    ground.run("--yes")
    assert ground.where()["orders"] == ["east"]
    ground.loads = dict.fromkeys(LOADS, 0.2)
    ground.run("--drain", "east", "--yes")
    assert ground.where()["orders"] == ["west"]
    whole(ground)
    assert ground.disk.snapshot("file:///east/orders/1")
    assert ground.disk.snapshot("file:///west/orders/2")


def test_only_the_job_moves_where_both_clusters_reach_its_savepoints(ground: FlinkClusters) -> None:
    ground.shares = True
    ground.section = {"runs": 1, "cool_down": 0}
    assert moved(ground.document("--yes")) == [("orders", "east", "finished")]
    ground.loads = dict.fromkeys(LOADS, 0.2)
    assert moved(ground.document("--drain", "east", "--yes")) == [("orders", "west", "finished")]
    whole(ground)
    (submission,) = ground.clusters["west"].submissions
    assert submission.location.startswith("file:///taken/orders/")


def test_the_downtime_that_was_measured_is_told_for_the_next_move(ground: FlinkClusters) -> None:
    ground.section = {"cool_down": 0, "runs": 1}
    (first,) = ground.document("--yes")["moves"]
    assert first["downtime_seconds"] == 30.0  # by the plan: nobody has measured it
    ground.loads = dict.fromkeys(LOADS, 0.2)
    (back,) = ground.document("--drain", "east", code=4)["moves"]
    assert back["job"] == "orders"
    assert back["downtime_seconds"] == pytest.approx(first["was_down_seconds"])


def test_of_a_job_that_was_never_moved_it_is_told_what_others_took(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    (first,) = ground.document("--yes")["moves"]
    (second,) = ground.document("--yes")["moves"]
    assert second["job"] != first["job"]
    assert second["downtime_seconds"] == pytest.approx(first["was_down_seconds"])


def test_a_dry_run_between_two_others_judges_nothing_and_forgets_nothing(
    ground: FlinkClusters,
) -> None:
    ground.run("--yes")
    ground.run("--yes")
    before = json.loads((ground.state / "memory.json").read_text())
    ground.run()
    after = json.loads((ground.state / "memory.json").read_text())
    assert (after["judged"], after["failed"]) == (before["judged"], before["failed"])


def test_a_move_that_did_not_help_is_not_repeated(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1, "cool_down": 0}
    ground.run("--yes")
    for job in ("payments", "fraud", "audit"):  # what was left behind has taken its place
        ground.heavier(job, 1.0)
    ground.run("--yes")
    kept = json.loads((ground.state / "memory.json").read_text())
    assert [move["jobs"] for move in kept["failed"]] == [["orders"]]


# ---------------------------------------------------------------------------------- draining


def test_drain_empties_a_cluster_at_once(ground: FlinkClusters) -> None:
    ground.loads = {"orders": 0.4, "payments": 0.4}
    for twin in ground.clusters.values():
        twin.jobs = [job for job in twin.jobs if job.job in ground.loads]
    document = ground.document("--drain", "west", "--yes")
    assert {move["job"] for move in document["moves"]} == {"orders", "payments"}
    assert (ground.on("west"), ground.on("east")) == ([], ["orders", "payments"])
    whole(ground)


def test_jobs_that_are_not_on_a_drained_cluster_stay_for_that(ground: FlinkClusters) -> None:
    document = ground.document("--drain", "east")
    stays = {stay["job"]: stay["reason"] for stay in document["stay"]}
    assert stays["fraud"] == "east: it is to be emptied, and nothing moves there"


def test_jobs_that_cannot_leave_a_drained_cluster_are_named(ground: FlinkClusters) -> None:
    ground.section = {"pinned": ["fraud"]}
    document = ground.document("--drain", "west", "--yes", code=4)
    stays = {stay["job"]: stay["reason"] for stay in document["stay"]}
    assert stays["fraud"] == "it is pinned"
    assert set(ground.on("west")) == set(stays)
    whole(ground)


def test_a_cluster_that_is_none_of_the_specs_cannot_be_drained(ground: FlinkClusters) -> None:
    done = ground.run("--drain", "wets")
    assert done.code == 2
    assert "--drain takes one of: west, east" in done.err


# ---------------------------------------------------------------------------------- limits


@pytest.mark.long
def test_nothing_moves_at_an_excluded_time(ground: FlinkClusters) -> None:
    ground.section = {"excluded": ["* * * * *"], "timezone": "Europe/Athens"}
    ground.run("--yes")
    document = ground.document("--yes")
    assert "Europe/Athens) is excluded" in document["reason"]
    assert not document["moves"]
    assert not ground.document("--drain", "west", "--yes", code=4)["moves"]


def test_a_target_that_somebody_holds_is_none_to_move_to(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    lock = b'{"run": "other", "workdir": "/runs/other", "host": "there"}'
    put(ground.disk.open("file:///east/orders"), "1.stateshift-lock", lock)
    document = ground.document("--yes")
    stays = {stay["job"]: stay["reason"] for stay in document["stay"]}
    assert "is held by run other" in stays["orders"]
    assert ground.where()["orders"] == ["west"]
    whole(ground)


def test_a_plan_that_refuses_forbids_the_cluster_and_it_is_decided_again(
    ground: FlinkClusters,
) -> None:
    ground.section = {"runs": 1}
    put(ground.disk.open("file:///east/orders/1"), "something", b"of somebody else's")
    document = ground.document("--yes")
    assert "orders" not in {move["job"] for move in document["moves"]}
    stays = {stay["job"]: stay["reason"] for stay in document["stay"]}
    assert "east: the plan refuses it" in stays["orders"]
    assert ground.where()["orders"] == ["west"]
    whole(ground)


def test_jobs_together_move_in_one_run(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1, "together": [["orders", "fraud"]]}
    document = ground.document("--yes")
    (move,) = document["moves"]
    assert sorted(move["jobs"]) == ["fraud", "orders"]
    assert ground.on("east") == ["fraud", "orders"]
    assert len(list((ground.state / "runs").iterdir())) == 1
    whole(ground)


def test_a_pattern_stands_for_the_jobs_that_run_there(ground: FlinkClusters) -> None:
    spec = ground.spec()
    spec["jobs"] = [
        {
            "name": "*",
            "target_directory": "file:///taken/{job}",
            "submit": {"jar_id": "jobs", "entry_class": "jobs.{job}", "parallelism": 2},
        }
    ]
    spec["rebalance"]["runs"] = 1
    path = ground.folder / "clusters.json"
    path.write_text(json.dumps(spec))
    words = ("rebalance", str(path), "--once", "--yes", "--json", "--workdir", str(ground.state))
    first = said(*words, adapters=ground.adapters)
    assert moved(first.document) == [("audit", "east", "finished")], first.err
    (submission,) = ground.clusters["east"].submissions
    assert submission.options["entry_class"] == "jobs.audit"
    ground.clock.time += 3600
    again = said(*words, adapters=ground.adapters)
    assert {stay["job"] for stay in again.document["stay"]} | {
        move["job"] for move in again.document["moves"]
    } == set(LOADS)
    whole(ground)


def test_jobs_of_one_cut_move_in_one_run(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    spec = ground.spec()
    spec["dataflow"] = {
        "operators": [{"name": f"{name}-count", "job": name} for name in LOADS],
        "edges": [{"from": "orders-count", "to": "fraud-count"}],
    }
    path = ground.folder / "clusters.json"
    path.write_text(json.dumps(spec))
    words = ("rebalance", str(path), "--once", "--yes", "--json", "--workdir", str(ground.state))
    done = said(*words, adapters=ground.adapters)
    assert done.code == 0, done.err
    (move,) = done.document["moves"]
    assert (sorted(move["jobs"]), move["state"]) == (["fraud", "orders"], "finished")
    whole(ground)


def test_the_example_is_carried_out(tmp_path: Path) -> None:
    loads = {"orders": 0.6, "payments": 0.6, "fraud": 0.7, "audit-1": 0.9}
    with FlinkClusters(tmp_path, loads=loads).serving() as ground:
        path = tmp_path / "rebalance.json"
        text = (FOLDER / "rebalance.json").read_text()
        for name, served in ground.served.items():
            text = text.replace(f"http://flink-{name}:8081", served.url)
            text = text.replace(f"hdfs://{name}:8020", f"file:///{name}")
        path.write_text(text.replace('"jar": "jobs.jar"', '"jar_id": "jobs"'))
        words = ("rebalance", str(path), "--yes", "--json", "--workdir", str(ground.state))
        ground.clock.time += 3 * 3600  # the morning is excluded
        for _ in range(2):
            done = said(*words, adapters=ground.adapters)
            assert done.code == 0, done.err
            ground.clock.time += 900
        assert done.document["moves"], done.document["reason"]
        assert ground.where()["fraud"] == ["west"]
        assert ground.where()["orders"] == ground.where()["payments"]
        whole(ground)


# ---------------------------------------------------------------------------------- bad input


def test_a_cluster_that_does_not_answer_is_no_reason_to_move(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    ground.served["east"].odd["/overview"] = (503, {})
    assert ground.run().out.startswith("nothing is moved\ncannot tell: east: ")
    document = ground.document("--yes")
    assert document["reason"].startswith("cannot tell: east: ")
    assert not document["moves"]
    assert ground.on("west") == sorted(LOADS)


def test_a_job_whose_load_cannot_be_told_keeps_everything_where_it_is(
    ground: FlinkClusters,
) -> None:
    ground.section = {"runs": 1}
    ground.served["west"].odd["/jobs/payments-0/vertices/count"] = (200, {"id": "count"})
    document = ground.document("--yes")
    assert document["reason"].startswith("cannot tell: of 1 of 4 jobs")
    assert not document["moves"]


def test_a_job_that_does_not_run_is_not_moved(ground: FlinkClusters) -> None:
    twin = ground.clusters["west"]
    twin.jobs = [job for job in twin.jobs if job.job != "fraud"]
    document = ground.document("--drain", "west", "--yes", code=4)
    stays = {stay["job"]: stay["reason"] for stay in document["stay"]}
    assert "it does not run on west, nor elsewhere" in stays["fraud"]


def test_a_job_that_somebody_has_moved_by_hand_is_where_it_runs(ground: FlinkClusters) -> None:
    twin = ground.clusters["west"]
    twin.jobs = [job for job in twin.jobs if job.job != "fraud"]
    ground.clusters["east"].run("fraud", "fraud-9")
    ground.started["fraud-9"] = BEGAN - 3600
    ground.loads = dict.fromkeys(LOADS, 0.2)
    assert reasons(ground, "fraud")[-1] == "it runs on east, and not on west, where it was left"
    document = ground.document("--drain", "east", "--yes")
    assert moved(document) == [("fraud", "west", "finished")]
    assert document["notes"] == ["fraud: it runs on east, and not on west, where it was left"]
    whole(ground)


def test_a_job_that_runs_twice_is_not_moved(ground: FlinkClusters) -> None:
    ground.clusters["east"].run("fraud", "fraud-9")
    ground.started["fraud-9"] = BEGAN - 3600
    assert reasons(ground, "fraud")[-1] == "it runs more than once: on west and east"
    document = ground.document("--drain", "west", code=4)
    stays = {stay["job"]: stay["reason"] for stay in document["stay"]}
    assert "it runs more than once: on west and east" in stays["fraud"]


def test_a_spec_without_the_section_is_refused(ground: FlinkClusters, tmp_path: Path) -> None:
    path = tmp_path / "plain.json"
    job = {"name": "orders", "checkpoint_location": "/a", "remote_location": "/b"}
    path.write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}))
    done = said("rebalance", str(path), "--once", adapters=ground.adapters)
    assert done.code == 2
    assert "'rebalance' is missing" in done.err


def test_a_time_zone_that_nobody_knows_is_refused(ground: FlinkClusters) -> None:
    ground.section = {"timezone": "Mars/Olympus"}
    done = ground.run()
    assert done.code == 2
    assert "/rebalance/timezone" in done.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"inputs": 1}',
        '{"situation": {"at": 0, "clusters": [], "jobs": []}, "policy": {}, "memory": {}}',
        '{"situation": {"at": 0, "clusters": [{"name": "a", "capacity": 0}], "jobs": []},'
        ' "policy": {}, "memory": {}}',
        '{"situation": {"at": 0, "clusters": [{"name": "a", "capacity": 1}], "jobs": ['
        '{"name": "j", "cluster": "b", "load": 1}]}, "policy": {}, "memory": {}}',
    ],
)
def test_a_file_without_a_decision_is_refused(ground: FlinkClusters, text: str) -> None:
    file = ground.folder / "decision.json"
    file.write_text(text)
    done = said("rebalance", "--replay", str(file), adapters=ground.adapters)
    assert done.code == 2
    assert "no decision with its inputs" in done.err


def test_a_replay_looks_at_nothing_else(ground: FlinkClusters) -> None:
    assert (
        said("rebalance", ground.write_spec(), "--replay", "x", adapters=ground.adapters).code == 2
    )
    assert said("rebalance", adapters=ground.adapters).code == 2


@pytest.mark.parametrize("name", ["memory.json", "moves/0001.json"])
def test_what_runs_have_kept_is_not_guessed_when_it_is_damaged(
    ground: FlinkClusters, name: str
) -> None:
    ground.section = {"runs": 1}
    ground.run("--yes")
    (ground.state / name).write_text("{")
    done = ground.run("--yes")
    assert done.code == 8
    assert name in done.err


def test_a_damaged_memory_can_be_removed(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    ground.run("--yes")
    file = ground.state / "memory.json"
    for text in DAMAGES:
        if text == "{}":
            continue  # as one without a word
        file.write_text(text)
        done = ground.run("--yes")
        assert done.code == 8
        assert f"restore {file} from a copy, or remove it" in done.err
    file.unlink()
    stays = {each["job"]: each["cluster"] for each in ground.document("--yes")["stay"]}
    assert stays["orders"] == "east"
    whole(ground)


# ---------------------------------------------------------------------------------- one at a time


def test_a_second_run_says_that_one_is_at_work(ground: FlinkClusters) -> None:
    (ground.state / "lock").mkdir(parents=True)
    with Workdir(ground.state / "lock").hold():
        document = ground.document("--yes")
    assert document["busy"].startswith("process ")
    assert document["clusters"] == []
    assert ground.document("--yes")["busy"] is None


def test_somebody_who_resumes_a_move_by_hand_is_not_disturbed(ground: FlinkClusters) -> None:
    ground.on_failure = "stop"
    ground.section = {"runs": 1}
    ground.clusters["east"].fail(1)
    ground.run("--yes")
    with Workdir(ground.state / "runs" / "0001-orders").hold():
        document = ground.document("--yes")
    assert "somebody goes on with move 1 (orders)" in document["busy"]


# ---------------------------------------------------------------------------------- going on


def test_a_move_that_fails_ends_the_run_and_comes_first_in_the_next(ground: FlinkClusters) -> None:
    ground.on_failure = "stop"
    ground.section = {"runs": 1}
    ground.clusters["east"].fail(1)
    failed = ground.document("--yes", code=JOB_DOWN)
    assert moved(failed) == [("orders", "east", "failed")]
    waiting = ground.document()
    (earlier,) = waiting["unfinished"]
    assert (earlier["state"], earlier["jobs"]) == ("unfinished", ["orders"])
    assert waiting["moves"] == []
    document = ground.document("--yes")
    (earlier,) = document["unfinished"]
    assert earlier["state"] == "finished"
    whole(ground)
    assert ground.submissions()["orders"] == 1
    assert ground.where()["orders"] == ["east"]


@pytest.mark.long
def test_how_long_nobody_went_on_with_a_move_is_no_downtime_to_expect(
    ground: FlinkClusters,
) -> None:
    ground.on_failure = "stop"
    ground.section = {"runs": 1, "cool_down": 0}
    ground.clusters["east"].fail(1)
    ground.document("--yes", code=JOB_DOWN)
    (earlier,) = ground.document("--yes")["unfinished"]
    assert earlier["was_down_seconds"] >= 900
    (move,) = ground.document()["moves"]
    assert move["downtime_seconds"] == 30.0


def test_a_move_that_fails_again_ends_the_next_run_too(ground: FlinkClusters) -> None:
    ground.on_failure = "stop"
    ground.section = {"runs": 1}
    ground.clusters["east"].fail(2)
    ground.document("--yes", code=JOB_DOWN)
    done = ground.run("--yes")
    assert done.code == JOB_DOWN
    assert "stateshift resume" in done.err
    assert ground.document("--yes")["unfinished"][0]["state"] == "finished"


def test_a_move_that_was_taken_back_is_not_repeated(ground: FlinkClusters) -> None:
    ground.on_failure = "stop"
    ground.section = {"runs": 1}
    ground.clusters["east"].fail(1)
    ground.run("--yes")
    workdir = str(ground.state / "runs" / "0001-orders")
    assert said("rollback", workdir, "--yes", adapters=ground.adapters).code == 0
    ground.clock.time += 3600
    document: Any = ground.document("--yes")
    stays = {stay["job"]: stay["reason"] for stay in document["stay"]}
    assert "its last move failed, and its spec is the same" in stays["orders"]
    whole(ground)


def test_a_move_that_was_written_down_and_not_begun_is_as_if_it_had_not_been(
    ground: FlinkClusters,
) -> None:
    ground.section = {"runs": 1}
    ground.document()
    record = {
        "number": 1,
        "decision": 1,
        "jobs": ["orders"],
        "source": "west",
        "target": "east",
        "at": BEGAN,
        "load_before": 6.4,
        "load_promised": 4.6,
        "images": {"orders": "file:///east/orders/1"},
    }
    (ground.state / "moves").mkdir()
    (ground.state / "moves" / "0001.json").write_text(json.dumps(record))
    document = ground.document("--yes")
    assert moved(document) == [("orders", "east", "finished")]
    assert document["moves"][0]["number"] == 2
    whole(ground)


def test_a_job_that_cannot_move_warm_moves_as_it_can(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1, "warm": True}
    document = ground.document("--yes")
    assert moved(document) == [("orders", "east", "finished")]
    whole(ground)


def test_a_cluster_that_jobs_were_moved_to_is_not_taken_out_of_the_spec(
    ground: FlinkClusters,
) -> None:
    ground.section = {"runs": 1}
    ground.run("--yes")
    spec = ground.spec()
    spec["clusters"]["south"] = spec["clusters"]["west"]
    clusters = spec["rebalance"]["clusters"]
    clusters["south"] = clusters.pop("east")
    path = ground.folder / "other.json"
    path.write_text(json.dumps(spec))
    words = ("rebalance", str(path), "--workdir", str(ground.state))
    done = said(*words, adapters=ground.adapters)
    assert done.code == 2
    assert "move 1 has brought orders there" in done.err


def test_where_other_jobs_were_moved_does_not_matter(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    ground.run("--yes")
    ground.clusters["south"] = MemoryFlink(lambda _: None)
    spec = ground.spec()
    spec["clusters"]["south"] = spec["clusters"]["west"]
    clusters = spec["rebalance"]["clusters"]
    clusters["south"] = clusters.pop("east")
    path = ground.folder / "other.json"

    def code(command: str, option: str, *argv: str) -> int:
        path.write_text(json.dumps(spec))
        words = (command, str(path), option, str(ground.state), *argv)
        return said(*words, adapters=ground.adapters).code

    assert code("rebalance", "--workdir") == code("advise", "--rebalance") == 2
    assert code("advise", "--rebalance", "--job", "orders") == 2
    assert code("advise", "--rebalance", "--job", "fraud") == 0
    spec["jobs"] = [job for job in spec["jobs"] if job["name"] != "orders"]
    assert code("rebalance", "--workdir") == code("advise", "--rebalance") == 0


def test_a_drained_cluster_is_not_counted_as_too_full(ground: FlinkClusters) -> None:
    ground.section = {"pinned": ["*"]}
    ground.document("--drain", "west", "--yes", code=4)
    ground.section = {}
    document = ground.document("--uncordon", "west")
    assert document["reason"].endswith("in 1 of the 2 runs that it takes")


def test_a_job_that_we_have_started_is_not_looked_for_as_it_was_first_stopped() -> None:
    stop = {"app_name": "orders-7", "seconds_max": 9.0}
    job = JobSpec("orders", "file:///a", stop=stop, driver_ui="http://driver:4040")
    moved_job = at_place(job, JobPlace("east", "file:///b", 1, 0.0))
    assert (moved_job.source, moved_job.stop) == ("file:///b", {"seconds_max": 9.0})
    assert moved_job.driver_ui is None
    assert at_place(job, JobPlace("west")) == replace(job, source_cluster="west")

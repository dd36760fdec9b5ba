"""`rebalance --drain`: 0 is said only of a cluster that holds nothing any more, by its own word, and
nothing moves there again until somebody says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.errors import JOB_DOWN, ClusterError, Interrupted, StateshiftError, StorageError
from stateshift.workdir import Workdir
from tests.advise.measured_flink import BEGAN
from tests.advise.rebalance.clusters import LOADS, FlinkClusters, SparkClusters, moved
from tests.cli.support import said
from tests.support.checkpoints import put

pytestmark = pytest.mark.row("IF-19", on="Flink")

LIGHT = {"orders": 0.4, "payments": 0.4}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[FlinkClusters]:
    with FlinkClusters(tmp_path, loads=dict(LIGHT)).serving() as served:
        yield served


def drained(document: Any) -> Any:
    (only,) = document["drained"]
    return only


def staying(document: Any) -> dict[str, str]:
    return {each["job"]: each["reason"] for each in drained(document)["jobs"]}


def refuse_moves(ground: FlinkClusters) -> None:
    ground.section = {"load_max": 0.01, "runs": 1}


def pin(ground: FlinkClusters) -> None:
    ground.section = {"pinned": ["*"]}


def exclude(ground: FlinkClusters) -> None:
    ground.section = {"excluded": ["* * * * *"]}


def silence_a_target(ground: FlinkClusters) -> None:
    ground.served["east"].odd["/overview"] = (503, {})


def hide_a_load(ground: FlinkClusters) -> None:
    for job in LIGHT:
        ground.served["west"].odd[f"/jobs/{job}-0/vertices/count"] = (200, {"id": "count"})


def occupy_the_target(ground: FlinkClusters) -> None:
    lock = b'{"run": "other", "workdir": "/runs/other", "host": "there"}'
    for job in LIGHT:
        put(ground.disk.open(f"file:///east/{job}"), "1.stateshift-lock", lock)
        put(ground.disk.open(f"file:///east/{job}"), "2.stateshift-lock", lock)


REASONS = {
    "no other cluster has room": refuse_moves,
    "it is pinned": pin,
    "is excluded": exclude,
    "cannot tell: east": silence_a_target,
    "its load cannot be told": hide_a_load,
    "is held by run other": occupy_the_target,
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_drain_that_moves_nothing_is_no_success_and_names_each_job(
    ground: FlinkClusters, reason: str
) -> None:
    REASONS[reason](ground)
    document = ground.document("--drain", "west", "--yes", code=4)
    assert not drained(document)["empty"]
    assert set(staying(document)) == set(LIGHT)
    assert all(reason in why for why in staying(document).values()), staying(document)
    assert ground.on("west") == sorted(LIGHT)


@pytest.mark.parametrize("on_failure", ["stop", "restart"])
def test_a_drain_whose_move_fails_is_no_success_and_says_first_what_is_down(
    ground: FlinkClusters, on_failure: str
) -> None:
    """10: the job is down; 7 and a job that runs again where it was, where that could be had."""
    ground.on_failure = on_failure
    ground.section = {"runs": 1}
    ground.clusters["east"].fail(1)
    done = ground.run("--drain", "west", "--yes")
    if on_failure == "stop":
        assert done.code == JOB_DOWN
        assert done.err.split("error: ")[1].startswith("down since "), done.err
        assert len(ground.on("west")) == len(LIGHT) - 1
    else:
        assert done.code not in (0, JOB_DOWN)
        assert ground.on("west") == sorted(LIGHT)
    assert "west is empty" not in done.out + done.err
    for _ in range(4):
        document = json.loads(ground.run("--drain", "west", "--yes", "--json").out)
    if on_failure == "stop":  # the same line goes on with it
        assert drained(document)["empty"] and ground.on("east") == sorted(LIGHT)
    else:  # what failed is not tried again at once
        assert not drained(document)["empty"] and len(ground.on("west")) == 1
        assert staying(document).keys() == set(ground.on("west"))


def test_a_dry_run_of_a_drain_is_no_success_either_and_cordons_nothing(
    ground: FlinkClusters,
) -> None:
    done = ground.run("--drain", "west")
    assert done.code == 4
    assert "west is not empty: orders stays: its move to east is planned" in done.err
    assert "--yes" in done.err
    assert ground.document()["cordoned"] == []


def test_a_drain_beside_another_run_is_no_success(ground: FlinkClusters) -> None:
    (ground.state / "lock").mkdir(parents=True)
    with Workdir(ground.state / "lock").hold():
        done = ground.run("--drain", "west", "--yes", "--json")
    assert done.code == 4
    assert set(staying(done.document)) == set(LIGHT)
    assert "another run is at work: process" in done.err
    assert "--wait" in done.err
    assert [each["cluster"] for each in done.document["cordoned"]] == ["west"], "the other run, too"


@pytest.mark.parametrize("wait", [("--wait",), ("--wait", "60s"), ("--wait=1h",)])
def test_a_drain_waits_for_a_run_that_is_at_work(tmp_path: Path, wait: tuple[str, ...]) -> None:
    ground = FlinkClusters(tmp_path, loads=dict(LIGHT))
    (ground.state / "lock").mkdir(parents=True)
    holding = Workdir(ground.state / "lock").hold()
    holding.__enter__()
    endings = [lambda: holding.__exit__(None, None, None)]
    ground.clock.on_sleep = lambda: endings.pop()() if endings else None
    with ground.serving():
        done = ground.run("--drain", "west", *wait, "--yes", "--json")
    assert (done.code, drained(done.document)["empty"]) == (0, True), done.err
    assert "waiting for another run: process" in done.err


def test_the_wait_for_another_run_ends_when_it_is_over(ground: FlinkClusters) -> None:
    (ground.state / "lock").mkdir(parents=True)
    with Workdir(ground.state / "lock").hold():
        assert ground.run("--drain", "west", "--wait", "7s", "--yes").code == 4
        assert ground.run("--wait", "soon").code == 2, "it is taken for a second spec"


def test_an_empty_cluster_is_asked_and_drained_at_once(ground: FlinkClusters) -> None:
    document = ground.document("--drain", "east")
    assert drained(document) == {
        "cluster": "east",
        "empty": True,
        "jobs": [],
        "others": [],
        "unknown": None,
        "note": None,
    }
    assert "east is empty: it was asked, and nothing runs\n" in ground.run("--drain", "east").out


def test_a_cluster_that_does_not_answer_is_not_called_empty(ground: FlinkClusters) -> None:
    class Silent:
        def alive(self) -> Any:
            raise ClusterError("nobody answers")

    silent = ground.clusters["east"]
    ground.wrap_cluster = lambda cluster: Silent() if cluster is silent else cluster
    document = ground.document("--drain", "east", code=4)
    assert (drained(document)["empty"], drained(document)["unknown"]) == (False, "nobody answers")


def test_jobs_that_the_spec_does_not_know_are_named_and_make_no_empty_cluster(
    ground: FlinkClusters,
) -> None:
    jobs = ground.spec()["jobs"]
    ground.loads = {**LIGHT, "etl": 0.1}
    ground.clusters["west"].run("etl", "etl-0")
    ground.started["etl-0"] = BEGAN - 3600
    words = ("rebalance", ground.write_spec(jobs=jobs), "--drain", "west", "--yes", "--json")
    done = said(*words, "--workdir", str(ground.state), adapters=ground.adapters)
    assert (done.code, moved(done.document)[0][2]) == (4, "finished")
    assert drained(done.document)["others"] == ["etl"]
    assert drained(done.document)["jobs"] == []
    assert "not of the spec, and runs there: etl" in done.err


def test_a_job_that_somebody_has_started_again_is_seen_by_the_cluster(
    ground: FlinkClusters,
) -> None:
    """The moves are all made, and the plan leaves nothing behind."""
    submit = ground.clusters["east"].submit

    def again(submission: Any) -> Any:
        if submission.job == "orders":
            ground.clusters["west"].run("orders", "orders-9")
            ground.started["orders-9"] = BEGAN - 3600
        return submit(submission)

    ground.clusters["east"].submit = again  # type: ignore[method-assign]
    document = ground.document("--drain", "west", "--yes", code=4)
    assert [state for _, _, state in moved(document)] == ["finished", "finished"]
    assert (
        "it runs more than once" in staying(document)["orders"]
        or "beside the one on east" in (staying(document)["orders"])
    )


# ---------------------------------------------------------------------------------- cordons


def test_a_drained_cluster_gets_nothing_until_it_is_uncordoned(ground: FlinkClusters) -> None:
    document = ground.document("--drain", "west", "--yes")
    assert drained(document)["empty"]
    (cordon,) = document["cordoned"]
    assert (cordon["cluster"], cordon["since"] is None) == ("west", False)
    ground.section = {"runs": 1, "cool_down": 0}
    ground.loads = dict.fromkeys(LIGHT, 0.9)
    ground.clock.time += 3600
    for _ in range(3):
        document = ground.document("--yes")
        assert not document["moves"]
        reasons = [each["reason"] for each in document["stay"]]
        assert all("west: it is cordoned" in reason for reason in reasons), reasons
    assert "west is cordoned since" in ground.run().out
    assert "--uncordon west" in ground.run().out
    ground.clock.time += 86400
    assert ground.document("--uncordon", "west", "--yes")["moves"], "there is room again"
    assert ground.document()["cordoned"] == []


def test_the_spec_cordons_as_well(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1, "cordon": ["east"]}
    ground.loads = dict.fromkeys(LIGHT, 0.9)
    document = ground.document("--yes")
    assert (document["moves"], document["cordoned"]) == ([], [{"cluster": "east", "since": None}])
    done = ground.run("--uncordon", "east")
    assert (done.code, "take it out of 'cordon'" in done.err) == (2, True)
    ground.section = {"cordon": ["eats"]}
    done = ground.run()
    assert (done.code, "/rebalance/cordon" in done.err, "east" in done.err) == (2, True, True)


def test_what_is_drained_is_not_uncordoned_at_once(ground: FlinkClusters) -> None:
    assert ground.run("--drain", "west", "--uncordon", "west").code == 2
    done = ground.run("--uncordon", "wets")
    assert (done.code, "--uncordon takes one of" in done.err) == (2, True)


def killed(submission: Any) -> Any:
    raise KeyboardInterrupt


def test_the_cordon_is_written_before_a_drain_moves_anything(ground: FlinkClusters) -> None:
    """Whatever kills it: the next cron line does not move a job back."""
    ground.clusters["east"].submit = killed  # type: ignore[method-assign]
    done = ground.run("--drain", "west", "--yes")
    assert done.code == 130
    assert "error: interrupted; it was not asked whether west is empty\n" in done.err
    assert "hint: the same command goes on" in done.err
    (file,) = (ground.state / "cordons").iterdir()
    assert json.loads(file.read_text())["cluster"] == "west"
    del ground.clusters["east"].submit
    ground.section = {"runs": 1, "cool_down": 0}
    ground.document("--yes")
    ground.clock.time += 86400
    assert ground.document("--drain", "west", "--yes")["drained"][0]["empty"]


def test_a_move_to_a_cluster_that_was_cordoned_since_is_taken_back(ground: FlinkClusters) -> None:
    ground.section = {"runs": 1}
    ground.loads = dict.fromkeys(LIGHT, 0.9)
    submit, ground.clusters["east"].submit = ground.clusters["east"].submit, killed  # type: ignore[method-assign]
    assert ground.run("--yes").code == 130
    ground.clusters["east"].submit = submit  # type: ignore[method-assign]
    document = ground.document("--drain", "east", "--yes")
    assert drained(document)["empty"]
    assert "east is cordoned" in document["unfinished"][0]["fact"]
    assert ground.on("west") == sorted(LIGHT)


def test_a_cordon_that_comes_while_a_run_decides_keeps_its_moves_away(
    ground: FlinkClusters,
) -> None:
    """A drain that waits for this run has written it by then."""
    ground.section = {"runs": 1}
    ground.loads = dict.fromkeys(LIGHT, 0.9)

    def cordon() -> None:
        (ground.state / "cordons").mkdir(exist_ok=True)
        text = json.dumps({"cluster": "east", "since": ground.clock.now()})
        (ground.state / "cordons" / "east.json").write_text(text)

    ground.clock.on_sleep = cordon
    document = ground.document("--yes")
    assert ground.on("west") == sorted(LIGHT)
    assert [each["cluster"] for each in document["cordoned"]] == ["east"]


def test_a_damaged_cordon_is_named_and_no_reason_to_move_there(ground: FlinkClusters) -> None:
    ground.document("--drain", "west", "--yes")
    (ground.state / "cordons" / "west.json").write_text("{")
    done = ground.run("--yes")
    assert (done.code, "cordons/west.json is damaged" in done.err) == (8, True)
    assert ground.run("--uncordon", "west").code == 0


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (6, StorageError("the disk is full")),
        (7, ClusterError("it takes no jobs")),
        (130, Interrupted("interrupted")),
    ],
)
def test_a_job_whose_move_fails_is_not_called_gone(
    ground: FlinkClusters, code: int, error: StateshiftError
) -> None:
    """The failure keeps its own code, and what is left on the cluster is said beside it."""

    def failing(submission: Any) -> Any:
        raise error

    ground.clusters["east"].submit = failing  # type: ignore[method-assign]
    done = ground.run("--drain", "west", "--yes", "--json")
    assert done.code == code, done.err
    assert not drained(done.document)["empty"]
    assert set(staying(done.document)) == set(LIGHT)
    failure, held = done.err.index("error: "), done.err.rindex("error: ")
    assert failure < held
    assert done.err[held:].startswith("error: west is not empty: ")
    assert all(f"{job} stays: " in done.err[held:] for job in LIGHT)


# ---------------------------------------------------------------------------------- Spark


def test_queries_of_a_cluster_that_lists_nothing_are_asked_one_by_one(tmp_path: Path) -> None:
    ground = SparkClusters(tmp_path, loads=dict.fromkeys(LOADS, 0.2))
    document = ground.document("--drain", "west", code=4)
    assert set(staying(document)) == set(LOADS)
    document = ground.document("--drain", "west", "--yes")
    assert drained(document)["empty"]
    assert drained(document)["note"] == "it does not tell what else runs there"

"""`rebalance --drain`: 0 is said only of a cluster that holds nothing any more, by its own word, and
nothing moves there again until somebody says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.errors import ClusterError, Interrupted, StateshiftError, StorageError
from stateshift.workdir import Workdir
from tests.advise.measured_flink import BEGAN, Clock
from tests.advise.rebalance.living import LOADS, Living, moved
from tests.advise.rebalance.living_spark import LivingSpark
from tests.cli.support import said
from tests.support.checkpoints import put

pytestmark = pytest.mark.row("IF-19", on="Flink")

LIGHT = {"orders": 0.4, "payments": 0.4}


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Living]:
    with Living(tmp_path, loads=dict(LIGHT)).serving() as served:
        yield served


def drained(document: Any) -> Any:
    (only,) = document["drained"]
    return only


def staying(document: Any) -> dict[str, str]:
    return {each["job"]: each["reason"] for each in drained(document)["jobs"]}


def refuse_moves(living: Living) -> None:
    living.section = {"load_max": 0.01, "runs": 1}


def pin(living: Living) -> None:
    living.section = {"pinned": ["*"]}


def exclude(living: Living) -> None:
    living.section = {"excluded": ["* * * * *"]}


def silence_a_target(living: Living) -> None:
    living.served["east"].odd["/overview"] = (503, {})


def hide_a_load(living: Living) -> None:
    for job in LIGHT:
        living.served["west"].odd[f"/jobs/{job}-0/vertices/count"] = (200, {"id": "count"})


def occupy_the_target(living: Living) -> None:
    lock = b'{"run": "other", "workdir": "/runs/other", "host": "there"}'
    for job in LIGHT:
        put(living.disk.open(f"file:///east/{job}"), "1.stateshift-lock", lock)
        put(living.disk.open(f"file:///east/{job}"), "2.stateshift-lock", lock)


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
    living: Living, reason: str
) -> None:
    REASONS[reason](living)
    document = living.document("--drain", "west", "--yes", code=4)
    assert not drained(document)["empty"]
    assert set(staying(document)) == set(LIGHT)
    assert all(reason in why for why in staying(document).values()), staying(document)
    assert living.on("west") == sorted(LIGHT)


def test_a_dry_run_of_a_drain_is_no_success_either_and_cordons_nothing(living: Living) -> None:
    done = living.run("--drain", "west")
    assert done.code == 4
    assert "west is not empty: orders stays: its move to east is planned" in done.err
    assert "--yes" in done.err
    assert living.document()["cordoned"] == []


def test_a_drain_beside_another_run_is_no_success(living: Living) -> None:
    (living.state / "lock").mkdir(parents=True)
    with Workdir(living.state / "lock").hold():
        done = living.run("--drain", "west", "--yes", "--json")
    assert done.code == 4
    assert set(staying(done.document)) == set(LIGHT)
    assert "another run is at work: process" in done.err
    assert "--wait" in done.err
    assert [each["cluster"] for each in done.document["cordoned"]] == ["west"], "the other run, too"


class Releasing(Clock):
    """While somebody sleeps, the run that is at work comes to its end."""

    release: Callable[[], object] | None = None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.release is not None:
            self.release()
            self.release = None


@pytest.mark.parametrize("wait", [("--wait",), ("--wait", "60s"), ("--wait=1h",)])
def test_a_drain_waits_for_a_run_that_is_at_work(tmp_path: Path, wait: tuple[str, ...]) -> None:
    clock = Releasing()
    living = Living(tmp_path, clock, loads=dict(LIGHT))
    (living.state / "lock").mkdir(parents=True)
    holding = Workdir(living.state / "lock").hold()
    holding.__enter__()
    clock.release = lambda: holding.__exit__(None, None, None)
    with living.serving():
        done = living.run("--drain", "west", *wait, "--yes", "--json")
    assert (done.code, drained(done.document)["empty"]) == (0, True), done.err
    assert "waiting for another run: process" in done.err


def test_the_wait_for_another_run_ends_when_it_is_over(living: Living) -> None:
    (living.state / "lock").mkdir(parents=True)
    with Workdir(living.state / "lock").hold():
        assert living.run("--drain", "west", "--wait", "7s", "--yes").code == 4
        assert living.run("--wait", "soon").code == 2, "it is taken for a second spec"


def test_an_empty_cluster_is_asked_and_drained_at_once(living: Living) -> None:
    document = living.document("--drain", "east")
    assert drained(document) == {
        "cluster": "east",
        "empty": True,
        "jobs": [],
        "others": [],
        "unknown": None,
        "note": None,
    }
    assert "east is empty: it was asked, and nothing runs\n" in living.run("--drain", "east").out


def test_a_cluster_that_does_not_answer_is_not_called_empty(living: Living) -> None:
    class Silent:
        def alive(self) -> Any:
            raise ClusterError("nobody answers")

    silent = living.twins["east"]
    living.asking = lambda cluster: Silent() if cluster is silent else cluster
    document = living.document("--drain", "east", code=4)
    assert (drained(document)["empty"], drained(document)["unknown"]) == (False, "nobody answers")


def test_jobs_that_the_spec_does_not_know_are_named_and_make_no_empty_cluster(
    living: Living,
) -> None:
    jobs = living.spec()["jobs"]
    living.loads = {**LIGHT, "etl": 0.1}
    living.twins["west"].run("etl", "etl-0")
    living.started["etl-0"] = BEGAN - 3600
    words = ("rebalance", living.write(jobs=jobs), "--drain", "west", "--yes", "--json")
    done = said(*words, "--workdir", str(living.state), adapters=living.adapters)
    assert (done.code, moved(done.document)[0][2]) == (4, "finished")
    assert drained(done.document)["others"] == ["etl"]
    assert drained(done.document)["jobs"] == []
    assert "not of the spec, and runs there: etl" in done.err


def test_a_job_that_somebody_has_started_again_is_seen_by_the_cluster(living: Living) -> None:
    """The moves are all made, and the plan leaves nothing behind."""
    submit = living.twins["east"].submit

    def again(submission: Any) -> Any:
        if submission.job == "orders":
            living.twins["west"].run("orders", "orders-9")
            living.started["orders-9"] = BEGAN - 3600
        return submit(submission)

    living.twins["east"].submit = again  # type: ignore[method-assign]
    document = living.document("--drain", "west", "--yes", code=4)
    assert [state for _, _, state in moved(document)] == ["finished", "finished"]
    assert (
        "it runs more than once" in staying(document)["orders"]
        or "beside the one on east" in (staying(document)["orders"])
    )


# ---------------------------------------------------------------------------------- cordons


def test_a_drained_cluster_gets_nothing_until_it_is_uncordoned(living: Living) -> None:
    document = living.document("--drain", "west", "--yes")
    assert drained(document)["empty"]
    (cordon,) = document["cordoned"]
    assert (cordon["cluster"], cordon["since"] is None) == ("west", False)
    living.section = {"runs": 1, "cool_down": 0}
    living.loads = dict.fromkeys(LIGHT, 0.9)
    living.clock.seconds += 3600
    for _ in range(3):
        document = living.document("--yes")
        assert not document["moves"]
        reasons = [each["reason"] for each in document["stay"]]
        assert all("west: it is cordoned" in reason for reason in reasons), reasons
    assert "west is cordoned since" in living.run().out
    assert "--uncordon west" in living.run().out
    living.clock.seconds += 86400
    assert living.document("--uncordon", "west", "--yes")["moves"], "there is room again"
    assert living.document()["cordoned"] == []


def test_the_spec_cordons_as_well(living: Living) -> None:
    living.section = {"runs": 1, "cordon": ["east"]}
    living.loads = dict.fromkeys(LIGHT, 0.9)
    document = living.document("--yes")
    assert (document["moves"], document["cordoned"]) == ([], [{"cluster": "east", "since": None}])
    done = living.run("--uncordon", "east")
    assert (done.code, "take it out of 'cordon'" in done.err) == (2, True)
    living.section = {"cordon": ["eats"]}
    done = living.run()
    assert (done.code, "/rebalance/cordon" in done.err, "east" in done.err) == (2, True, True)


def test_what_is_drained_is_not_uncordoned_at_once(living: Living) -> None:
    assert living.run("--drain", "west", "--uncordon", "west").code == 2
    done = living.run("--uncordon", "wets")
    assert (done.code, "--uncordon takes one of" in done.err) == (2, True)


def killed(submission: Any) -> Any:
    raise KeyboardInterrupt


def test_the_cordon_is_written_before_a_drain_moves_anything(living: Living) -> None:
    """Whatever kills it: the next cron line does not move a job back."""
    living.twins["east"].submit = killed  # type: ignore[method-assign]
    done = living.run("--drain", "west", "--yes")
    assert done.code == 130
    assert "error: interrupted; it was not asked whether west is empty\n" in done.err
    assert "hint: the same command goes on" in done.err
    (file,) = (living.state / "cordons").iterdir()
    assert json.loads(file.read_text())["cluster"] == "west"
    del living.twins["east"].submit
    living.section = {"runs": 1, "cool_down": 0}
    living.document("--yes")
    living.clock.seconds += 86400
    assert living.document("--drain", "west", "--yes")["drained"][0]["empty"]


def test_a_move_to_a_cluster_that_was_cordoned_since_is_taken_back(living: Living) -> None:
    living.section = {"runs": 1}
    living.loads = dict.fromkeys(LIGHT, 0.9)
    submit, living.twins["east"].submit = living.twins["east"].submit, killed  # type: ignore[method-assign]
    assert living.run("--yes").code == 130
    living.twins["east"].submit = submit  # type: ignore[method-assign]
    document = living.document("--drain", "east", "--yes")
    assert drained(document)["empty"]
    assert "east is cordoned" in document["unfinished"][0]["fact"]
    assert living.on("west") == sorted(LIGHT)


def test_a_cordon_that_comes_while_a_run_decides_keeps_its_moves_away(living: Living) -> None:
    """A drain that waits for this run has written it by then."""
    living.section = {"runs": 1}
    living.loads = dict.fromkeys(LIGHT, 0.9)
    asleep = living.clock.sleep

    def sleep(seconds: float) -> None:
        asleep(seconds)
        (living.state / "cordons").mkdir(exist_ok=True)
        cordon = {"cluster": "east", "since": living.clock.now()}
        (living.state / "cordons" / "east.json").write_text(json.dumps(cordon))

    living.clock.sleep = sleep  # type: ignore[method-assign]
    document = living.document("--yes")
    assert living.on("west") == sorted(LIGHT)
    assert [each["cluster"] for each in document["cordoned"]] == ["east"]


def test_a_damaged_cordon_is_named_and_no_reason_to_move_there(living: Living) -> None:
    living.document("--drain", "west", "--yes")
    (living.state / "cordons" / "west.json").write_text("{")
    done = living.run("--yes")
    assert (done.code, "cordons/west.json is damaged" in done.err) == (8, True)
    assert living.run("--uncordon", "west").code == 0


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (6, StorageError("the disk is full")),
        (7, ClusterError("it takes no jobs")),
        (130, Interrupted("interrupted")),
    ],
)
def test_a_job_whose_move_fails_is_not_called_gone(
    living: Living, code: int, error: StateshiftError
) -> None:
    """The failure keeps its own code, and what is left on the cluster is said beside it."""

    def failing(submission: Any) -> Any:
        raise error

    living.twins["east"].submit = failing  # type: ignore[method-assign]
    done = living.run("--drain", "west", "--yes", "--json")
    assert done.code == code, done.err
    assert not drained(done.document)["empty"]
    assert set(staying(done.document)) == set(LIGHT)
    failure, held = done.err.index("error: "), done.err.rindex("error: ")
    assert failure < held
    assert done.err[held:].startswith("error: west is not empty: ")
    assert all(f"{job} stays: " in done.err[held:] for job in LIGHT)


# ---------------------------------------------------------------------------------- Spark


def test_queries_of_a_cluster_that_lists_nothing_are_asked_one_by_one(tmp_path: Path) -> None:
    living = LivingSpark(tmp_path, loads=dict.fromkeys(LOADS, 0.2))
    document = living.document("--drain", "west", code=4)
    assert set(staying(document)) == set(LOADS)
    document = living.document("--drain", "west", "--yes")
    assert drained(document)["empty"]
    assert drained(document)["note"] == "it does not tell what else runs there"

"""`stateshift live`: bins of running jobs move, by commands. The workers are played."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import live
from stateshift.live.bins.move_request import Manner
from tests.cli.support import Said, said
from tests.live.cli.bins_group import PlayedBins

QUICK = ("--lead", "0", "--timeout", "30", "--wait", "60")


@pytest.fixture
def played(tmp_path: Path) -> PlayedBins:
    return PlayedBins(tmp_path)


def run(act: str, played: PlayedBins, *words: str) -> Said:
    return said("live", act, played.location, *words)


def moved(played: PlayedBins, *words: str) -> Said:
    with played.running():
        return run("move", played, *words, *QUICK)


def test_bins_move_while_the_workers_run(played: PlayedBins) -> None:
    ran = moved(played, "--to", "east", "--bins", "0-2,5", "--strategy", "batched(2)")
    assert not ran.code, ran.err
    assert "move 4 bins" in ran.out and "0-2, 5" in ran.out
    assert "4 of 4 bins moved, 2 of 2 steps" in ran.out
    assert played.at("east") == [0, 1, 2, 5]


def test_the_document_says_how_far_a_move_came(played: PlayedBins) -> None:
    done = moved(played, "--to", "east", "--bins", "0-2", "--json").document
    assert (done["state"], done["bins_moved"], done["steps_complete"]) == ("finished", 3, 1)
    (crossing,) = done["crossings"]
    assert (crossing["source"], crossing["target"]) == ("west", "east")
    again = run("move", played, "--to", "east", "--bins", "0-2", "--json", *QUICK).document
    assert (again["state"], again["bins"]) == ("finished", 0)


def test_a_check_tells_nobody(played: PlayedBins) -> None:
    before = sorted(file.path for file in played.ground.storage.list())
    ran = run("move", played, "--to", "east", "--bins", "0-2", "--check")
    assert not ran.code and "nothing was proposed" in ran.out
    document = run("move", played, "--rebalance", "50%", "--check", "--json").document
    assert (document["state"], document["move"]) == ("checked", None)
    assert 0 < document["bins"] <= 4
    assert sorted(file.path for file in played.ground.storage.list()) == before


def test_a_plan_file_is_carried_out(played: PlayedBins, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.write_text("M 0 0 0 0 0 0 0 0 0 \nD 10 1 1 \nD 20 2 1 3 1 \n")
    at = str(played.ground.workers["west"].read_to)
    # its time is past as soon as they have read much
    with played.running(once=lambda: played.ground.files.proposal(0) is not None):
        ran = run("move", played, "--plan", str(plan), "--at", at, *QUICK)
    assert not ran.code, ran.err
    assert played.at("east") == [1, 2, 3]


def test_a_move_that_is_aborted_exits_with_7(played: PlayedBins) -> None:
    ran = run("move", played, "--to", "east", "--bins", "0", "--timeout", "0.1")
    assert ran.code == 7
    assert "did not answer within 0.1 s" in ran.err
    assert f"if it never comes back: stateshift live evict file://{played.location} east" in ran.err
    ran = run("move", played, "--to", "east", "--bins", "0", "--timeout", "0.1", "--json")
    assert ran.document["state"] == "aborted" and ran.document["exit_code"] == 7


def test_a_move_that_is_decided_and_not_seen_to_be_complete_exits_with_9(
    played: PlayedBins,
) -> None:
    words = ("--to", "east", "--bins", "0-2", "--lead", "0", "--wait", "0.3")

    def answer_alone() -> None:
        for worker in played.ground.workers.values():
            worker.running.answer()

    played.work = answer_alone  # the workers answer, and no later row comes
    with played.running():
        ran = run("move", played, *words)
    assert ran.code == 9, ran.err
    assert "0 of 3 bins moved" in ran.out and "Run this command again" in ran.out
    with played.running():
        again = run("move", played, *words, "--json")  # all of it is decided: it waits for that
    assert again.code == 9 and again.document["state"] == "applied"
    del played.work
    with played.running():
        assert not run("move", played, "--to", "east", "--bins", "0-2", *QUICK).code
    assert played.at("east") == [0, 1, 2]


@pytest.mark.parametrize(
    ("words", "code", "fact"),
    [
        (("--to", "south", "--bins", "0"), 4, "there is no worker 'south'"),
        (("--to", "east", "--bins", "9"), 2, "there is no bin 9 among 8"),
        (("--to", "east", "--bins", "0-x"), 2, "is no bin and no range"),
        (("--to", "east", "--bins", "0,5-3"), 2, "'5-3' runs backwards"),
        (("--to", "east", "--bins", "0-999999999"), 2, "no group has a bin 999999999"),
        (("--to", "east"), 2, "is missing"),
        ((), 2, "nothing says what moves"),
        (("--rebalance", "25%", "--plan", "/dev/null"), 2, "more than one of them"),
        (("--rebalance", "0"), 2, "is no share of the state"),
        (("--to", "east", "--bins", "0", "--by-rows"), 2, "belongs to --rebalance"),
        (("--to", "east", "--bins", "0", "--at", "1"), 4, "time 1 is past"),
        (("--to", "east", "--bins", "0", "--strategy", "slow"), 2, "no strategy"),
    ],
)
def test_what_cannot_be_moved_is_refused(
    played: PlayedBins, words: tuple[str, ...], code: int, fact: str
) -> None:
    ran = run("move", played, *words)
    assert (ran.code, fact in ran.err) == (code, True), ran.err
    assert played.ground.files.proposal(0) is None


def test_a_group_without_bins_is_refused(tmp_path: Path) -> None:
    ran = said("live", "move", str(tmp_path), "--to", "east", "--bins", "0")
    assert ran.code == 4 and "is no group" in ran.err


def test_status_shows_the_workers_and_their_bins(played: PlayedBins) -> None:
    ran = run("status", played)
    assert not ran.code, ran.err
    assert "8 bins at 2 workers" in ran.out and "no bins are on their way" in ran.out
    bins = run("status", played, "--json").document["bins"]
    assert bins["assigned"] == [0] * 8
    west = next(part for part in bins["parts"] if part["worker"] == "west")
    assert west["keys"] > 0 and west["bins"] == 8


def marked(played: PlayedBins, mark: str) -> set[str]:
    """Return the workers of which the document of the status says so."""
    parts = run("status", played, "--json").document["bins"]["parts"]
    return {part["worker"] for part in parts if part[mark]}


def test_a_check_estimates_both_ends_and_says_where_smaller_steps_are_no_gain(
    played: PlayedBins,
) -> None:
    ran = run("move", played, "--to", "east", "--bins", "0,2", "--check")
    assert "fluid is no gain here" in ran.out
    ran = run("move", played, "--to", "east", "--bins", "0,2", "--check", "--json")
    at_once, fluid = ran.document["estimates"]
    assert (at_once["strategy"], fluid["strategy"]) == ("all-at-once", "fluid")
    assert at_once["waits_seconds"] >= fluid["waits_seconds"] > 0
    assert fluid["takes_seconds"] > at_once["takes_seconds"]


def test_warm_is_among_the_strategies_that_are_named(played: PlayedBins) -> None:
    ran = run("move", played, "--to", "east", "--bins", "0", "--strategy", "cold")
    assert ran.code == 2 and "optimised, or warm" in ran.err


def test_an_eviction_says_what_it_reads(played: PlayedBins) -> None:
    assert (
        "1 of 1: read what west of count_and_ask has committed" in run("evict", played, "west").err
    )


def test_status_says_who_may_be_dead_and_who_is_evicted(played: PlayedBins) -> None:
    files = played.ground.files
    last = files.ledger("count_and_ask", "east").last
    assert last is not None
    files.commit("count_and_ask", "east", replace(last, number=last.number + 1, at=last.at + 90))
    ran = run("status", played)
    assert "count_and_ask at west has committed nothing for" in ran.out
    assert f"stateshift live evict file://{played.location} west" in ran.out
    assert marked(played, "silent") == {"west"}
    assert not run("evict", played, "west").code
    ran = run("status", played)
    assert "count_and_ask at west is evicted: 8 bins there until" in ran.out
    assert marked(played, "evicted") == {"west"}


def test_status_names_hot_bins_and_what_helps(played: PlayedBins) -> None:
    assert run("status", played, "--json").document["bins"]["hot"] == []
    files = played.ground.files
    last = files.ledger("count_and_ask", "west").last
    assert last is not None
    counts = replace(last.counts, folded=1000)
    later = replace(last, number=last.number + 1, at=last.at + 1, counts=counts, busy={"4": 900})
    files.commit("count_and_ask", "west", later)
    ran = run("status", played)
    assert "bin 4 at west is hot, " in ran.out and "split them: stateshift live bins" in ran.out
    assert [each["bin"] for each in run("status", played, "--json").document["bins"]["hot"]] == [4]
    check = run("move", played, "--rebalance", "50%", "--by-rows", "--check", "--json").document
    assert 4 not in {bin for each in check["crossings"] for bin in each["bins"]}


def test_what_is_proposed_is_aborted(played: PlayedBins) -> None:
    assert run("abort", played).code == 4
    played.ground.propose([(1000, 0, 1)])
    assert "is proposed since" in run("status", played).out
    document = run("abort", played, "--json").document
    assert document == {"state": "aborted", "move": 0, "bins": [0]}
    decided = played.ground.files.decided(0)
    assert decided is not None and decided.outcome == "aborted"


def test_moves_are_paused_throttled_and_resumed(played: PlayedBins) -> None:
    assert "paused" in run("pause", played).out
    assert "moves are paused" in run("status", played).out
    assert run("resume", played, "--json").document["state"] == "running"
    document = run("throttle", played, "--bins", "1", "--json").document
    assert (document["state"], document["bins"]) == ("throttled", 1)
    done = moved(played, "--to", "east", "--bins", "0-2", "--json").document
    assert (done["state"], done["steps"]) == ("finished", 3)
    assert run("throttle", played, "--json").document["state"] == "running"


def test_a_program_moves_bins_as_the_command_does(played: PlayedBins) -> None:
    controller = live.Controller(played.location)
    with played.running():
        done = controller.move([0, 1], to="east", strategy="warm", manner=Manner(lead_seconds=0))
    assert (done.state, done.bins_moved) == ("finished", 2)
    assert controller.status().counts == {0: 6, 1: 2}


def test_the_history_tells_every_move_and_why_one_was_aborted(played: PlayedBins) -> None:
    run("move", played, "--to", "east", "--bins", "0", "--timeout", "0.1")
    moved(played, "--to", "east", "--bins", "0-2,5", "--strategy", "batched(2)")
    moved(played, "--to", "west", "--bins", "1")
    ran = run("history", played)
    assert not ran.code, ran.err
    assert "move 0 was aborted" in ran.out and "did not answer within 0.1 s" in ran.out
    moves = run("history", played, "--json").document["moves"]
    assert [each["move"] for each in moves] == list(range(len(moves)))
    assert (moves[0]["outcome"], moves[-1]["outcome"]) == ("aborted", "applied")
    applied = [each for each in moves if each["outcome"] == "applied"]  # each at its last try
    went = [each["went"][0] for each in applied]
    ends = [(one["source"], one["target"], len(one["bins"])) for one in went]
    assert ends == [("west", "east", 2), ("west", "east", 2), ("east", "west", 1)]
    assert sorted(went[0]["bins"] + went[1]["bins"]) == [0, 1, 2, 5]
    assert all(each["acknowledged"] == 2 for each in applied)


def test_the_history_tells_what_was_copied_ahead(played: PlayedBins) -> None:
    moved(played, "--to", "east", "--bins", "0-2", "--strategy", "warm")
    ahead, *_, move = run("history", played, "--json").document["moves"]
    assert (ahead["ahead"], ahead["went"]) == ([0, 1, 2], [])
    assert [one["bins"] for one in move["went"]] == [[0, 1, 2]]


def test_a_group_whose_bins_never_moved_has_no_history(played: PlayedBins) -> None:
    assert "nothing was changed yet" in run("history", played).out


def test_the_page_shows_the_bins_over_time_with_the_moves(
    played: PlayedBins, tmp_path: Path
) -> None:
    moved(played, "--to", "east", "--bins", "0-2")
    for _ in range(5):
        played.work()
    file = tmp_path / "page.html"
    ran = run("status", played, "--html", str(file))
    assert not ran.code, ran.err
    page = file.read_text()
    assert "count_and_ask at west" in page and "count_and_ask at east" in page
    assert "behind the furthest worker" in page and "a batch took" in page
    assert re.search(r"move \d+ 3 bins to east", page)  # of the line that is drawn in
    assert "No task was measured" not in page and "Chains" not in page
    assert "Tasks write down" not in page and "pictures of bins begin with them" in page

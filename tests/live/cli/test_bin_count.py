"""`stateshift live bins`: which bins are hot, and all of them split or merged. The workers are
played.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Said, said
from tests.live.cli.bins_group import PlayedBins


@pytest.fixture
def played(tmp_path: Path) -> PlayedBins:
    return PlayedBins(tmp_path)


def run(played: PlayedBins, *words: str) -> Said:
    return said("live", "bins", played.location, *words)


def test_without_a_number_it_shows_which_bins_are_hot_and_changes_nothing(
    played: PlayedBins,
) -> None:
    before = sorted(file.path for file in played.ground.storage.list())
    ran = run(played)
    assert not ran.code, ran.err
    assert "8 bins in" in ran.out and "so many will do" in ran.out
    document = run(played, "--json").document
    assert (document["state"], document["advised"]) == ("shown", 8)
    times = [each["times"] for each in document["hottest"]]
    assert times == sorted(times, reverse=True) and times[0] > 1
    assert sorted(file.path for file in played.ground.storage.list()) == before


def test_a_check_tells_nobody(played: PlayedBins) -> None:
    before = sorted(file.path for file in played.ground.storage.list())
    ran = run(played, "--to", "16", "--check")
    assert not ran.code and "split 8 bins into 16" in ran.out and "nothing was proposed" in ran.out
    assert run(played, "--to", "4", "--check", "--json").document["state"] == "checked"
    assert sorted(file.path for file in played.ground.storage.list()) == before


@pytest.mark.long
@pytest.mark.row("M-24")
def test_bins_are_split_and_merged_while_the_workers_run(played: PlayedBins) -> None:
    with played.running():
        ran = run(played, "--to", "32")
        assert not ran.code, ran.err
        assert "32 bins at 2 parts, in " in ran.out
        assert not said("live", "move", played.location, "--to", "east", "--bins", "31").code
        assert run(played, "--to", "16").code == 4
        assert not said("live", "move", played.location, "--to", "east", "--bins", "30").code
        document = run(played, "--to", "16", "--json").document
    assert (document["state"], document["parts_dealt"], document["move"]) == ("finished", 2, 3)
    assert played.at("east") == [15]
    assert "16 bins at 2 workers" in said("live", "status", played.location).out
    again = run(played, "--to", "16", "--json").document
    assert (again["state"], again["move"]) == ("finished", None)


def test_the_history_tells_of_every_number(played: PlayedBins) -> None:
    with played.running():
        run(played, "--to", "16")
    ran = said("live", "history", played.location)
    assert "all, redistributed" in ran.out
    (move,) = said("live", "history", played.location, "--json").document["moves"]
    assert (move["count"], move["went"], move["outcome"]) == (16, [], "applied")


def test_workers_that_do_not_answer_cost_a_timeout(played: PlayedBins) -> None:
    ran = run(played, "--to", "16", "--timeout", "0.1")
    assert ran.code == 7
    assert "there are 8 bins as before" in ran.err and "did not answer within 0.1 s" in ran.err
    document = run(played, "--to", "16", "--timeout", "0.1", "--json").document
    assert (document["state"], document["exit_code"]) == ("aborted", 7)


@pytest.mark.parametrize(
    ("words", "code", "fact"),
    [
        (("--to", "12"), 2, "12 bins are no power of two: take 8 or 16"),
        (("--to", "0"), 2, "0 bins are no power of two"),
        (("--to", "16", "--at", "1"), 4, "time 1 is past"),
    ],
)
def test_what_cannot_be_had_is_refused(
    played: PlayedBins, words: tuple[str, ...], code: int, fact: str
) -> None:
    ran = run(played, *words)
    assert (ran.code, fact in ran.err) == (code, True), ran.err
    assert played.ground.files.proposal(0) is None


def test_a_split_that_waits_for_its_time_is_seen(played: PlayedBins) -> None:
    with played.running():
        ran = run(played, "--to", "16", "--at", "100000", "--wait", "0.3")
    assert ran.code == 9 and "decided; 0 of 2 parts have redistributed their bins" in ran.out
    shown = said("live", "status", played.location).out
    assert "count_and_ask at east has 8 bins still, and will deal them anew" in shown

"""What `rebalance` shows of a run: as text, as a document, as a page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from stateshift.advise.rebalance.decision import Decision, decide
from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.outcome import Carried, CarriedState, Rebalance
from stateshift.advise.rebalance.situation import Policy
from stateshift.cli.views import rebalance_html, rebalance_text
from stateshift.cli.views.text import plain_text
from stateshift.documents.rebalance import RebalanceDocument
from stateshift.documents.shape import document_of
from tests.advise.rebalance.grounds import GB, job, situation
from tests.support.documents import misfits

POLICY = Policy(runs=1)
FOUR = {"orders": 6.0, "payments": 4.0, "audit": 1.0, "fraud": 1.0}


def decided(policy: Policy = POLICY, **pinned: bool) -> Decision:
    """Four jobs on one of two clusters of 16 and 8 workers."""
    jobs = [
        job(name, "west", load, pinned=pinned.get(name, False), bytes=int(load) * GB)
        for name, load in FOUR.items()
    ]
    return decide(situation({"west": 16, "east": 8}, jobs), policy, Memory())


def run(decision: Decision | None, state: CarriedState = "planned", **more: Any) -> Rebalance:
    """A run in which each move has come to this state."""
    moves = () if decision is None else decision.moves
    carried = tuple(
        Carried(
            number,
            move.jobs,
            move.source,
            move.target,
            state,
            None if state == "planned" else f"runs/{number:04}-{move.jobs[0]}",
            8.5 if state == "finished" else None,
            "the queue is full" if state == "failed" else "",
        )
        for number, move in enumerate(moves, 1)
    )
    return Rebalance(decision, carried, **more)


def text_of(rebalance: Rebalance, explain: bool = False) -> str:
    return plain_text(rebalance_text.blocks(rebalance, explain))


def checked(rebalance: Rebalance) -> Any:
    document = document_of(RebalanceDocument, rebalance)
    assert misfits("rebalance", document) == []
    return document


def page_of(rebalance: Rebalance) -> ElementTree.Element:
    text = rebalance_html.page(rebalance)
    assert "<script" not in text and "http" not in text, "nothing is loaded"
    body = text.removeprefix("<!DOCTYPE html>\n").replace('<meta charset="utf-8">', "")
    return ElementTree.fromstring(body.replace('initial-scale=1">', 'initial-scale=1"/>'))


def words_of(page: ElementTree.Element) -> str:
    return " ".join(" ".join(page.itertext()).split())


def test_a_dry_run_says_what_would_be_moved_and_how_to_do_it() -> None:
    text = text_of(run(decided()))
    assert text.startswith("1 move to make: --yes makes it\n")
    assert "west: its load is 75%, above 1.1 times the mean of 50%" in text
    (move,) = decided().moves
    cluster = next(line for line in text.splitlines() if line.startswith("  west"))
    assert cluster.split() == ["west", "16", "75%", "█" * 15, "50%", "█" * 10]
    assert f"{move.jobs[0]}  west  east" in text


def test_each_job_that_stays_is_there_with_its_reason_and_reasons_are_said_once() -> None:
    text = text_of(run(decided(orders=True, audit=True)))
    assert "  orders (west), audit (west): it is pinned\n" in text


def test_a_run_that_was_made_says_what_it_did_and_how_long_jobs_were_down() -> None:
    text = text_of(run(decided(), "finished"))
    assert text.startswith("1 move made\n")
    assert "8.5 s" in text and "10 s" in text, "measured, beside what was estimated"
    assert "its run is runs/0001-" in text


def test_a_move_that_failed_is_the_first_thing_that_is_said() -> None:
    text = text_of(run(decided(), "failed"))
    assert text.startswith("1 move to be finished or taken back first\n")
    assert "the queue is full" in text
    assert checked(run(decided(), "failed"))["moves"][0]["fact"] == "the queue is full"


def test_moves_that_the_run_did_not_come_to_are_planned() -> None:
    two = decided(replace(POLICY, moves_max=2, gain_min=0), payments=True)
    assert len(two.moves) > 1
    whole = run(two, "failed")
    document = checked(replace(whole, carried=whole.carried[:1]))
    assert [move["state"] for move in document["moves"]] == ["failed", "planned"]
    assert document["moves"][1]["number"] is None


def test_a_document_has_what_cron_jobs_ask_for() -> None:
    document = checked(run(decided(), "finished", file="decisions/0001.json", inputs={"at": 0}))
    (move,) = document["moves"]
    assert (move["from"], move["to"], move["state"]) == ("west", "east", "finished")
    assert move["was_down_seconds"] == 8.5 and move["downtime_seconds"] == 10
    assert move["gain"] >= 2 * move["cost"] > 0
    assert move["bytes"] == FOUR[move["job"]] * GB
    west, east = document["clusters"]
    assert (west["before_share"], east["before_share"]) == (0.75, 0)
    assert (west["after_share"], east["after_share"]) == (0.5, 0.5)
    assert {stay["job"] for stay in document["stay"]} == set(FOUR) - {move["job"]}
    assert document["triggers"] == [
        {
            "cluster": "west",
            "reason": "its load is 75%, above 1.1 times the mean of 50%",
            "runs": 1,
            "due": True,
        }
    ]


def test_a_run_beside_another_says_so_and_nothing_else() -> None:
    busy = run(None, busy="process 7, since 10:15")
    assert text_of(busy) == "another run is at work: process 7, since 10:15\n"
    assert checked(busy)["busy"] == "process 7, since 10:15"
    assert checked(busy)["reason"] is None
    assert "another run is at work: process 7" in words_of(page_of(busy))


def test_a_move_of_an_earlier_run_is_told_with_what_is_to_be_done() -> None:
    earlier = Carried(
        3, ("orders",), "west", "east", "unfinished", "runs/0003-orders", None, "resume it"
    )
    stopped = run(None, unfinished=(earlier,))
    assert "1 move to be finished or taken back first" in text_of(stopped)
    assert "runs/0003-orders" in text_of(stopped) and "resume it" in text_of(stopped)
    assert checked(stopped)["unfinished"][0]["workdir"] == "runs/0003-orders"
    assert "resume it" in words_of(page_of(stopped))
    done = run(decided(replace(POLICY, runs=2)), unfinished=(replace(earlier, state="finished"),))
    assert text_of(done).startswith("nothing to move\n")


def test_a_cluster_of_unknown_capacity_has_no_share_and_no_bar() -> None:
    decision = decided(replace(POLICY, runs=2))
    unknown = replace(decision, clusters=(replace(decision.clusters[0], capacity=None),))
    (cluster,) = checked(run(unknown))["clusters"]
    assert (cluster["capacity"], cluster["before_share"]) == (None, None)
    assert "cannot tell" in text_of(run(unknown))
    assert page_of(run(unknown)).find(".//svg") is None


def test_explained_the_numbers_that_decided_are_there() -> None:
    text = text_of(run(decided()), explain=True)
    assert "the mean load is 50.0% of the capacity" in text
    assert "west: its load is 75%, above 1.1 times the mean of 50%, in 1 run in a row" in text
    assert "no spread has less than 50% on the fullest cluster" in text
    assert "records that need not wait, cost" in text


def test_a_page_has_two_bars_for_each_cluster_and_says_what_they_are() -> None:
    page = page_of(run(decided(), "finished"))
    pictures = page.findall(".//svg")
    assert [picture.get("aria-label") for picture in pictures] == [
        "west: 75% before, 50% after",
        "east: 0% before, 50% after",
    ]
    widths = [[bar.get("width") for bar in picture.iter("rect")] for picture in pictures]
    assert widths == [["75%", "50%"], ["0%", "50%"]]
    assert "75% → 50%" in words_of(page)


def test_a_name_on_a_page_is_text() -> None:
    decision = decided()
    (move,) = decision.moves
    hostile = replace(decision, moves=(replace(move, jobs=("<b>bold</b>",)),))
    assert "<b>" not in rebalance_html.page(run(hostile))
    assert "<b>bold</b>" in words_of(page_of(run(hostile)))

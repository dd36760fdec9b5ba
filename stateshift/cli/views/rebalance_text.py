"""A run of `rebalance` for a person: clusters before and after, the moves, then who stays and why.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from stateshift.cli.views.rebalance_facts import (
    claim_of_quality,
    closed_clusters,
    contents,
    headline,
    mean_share,
    shares_after,
    shares_before,
    stays_by_reason,
)
from stateshift.cli.views.text import Block, Cell, Gap, Line, Row, Table, Tone, section
from stateshift.cli.views.units import bar, many, size, span
from stateshift.documents.rebalance import moves_of, share

if TYPE_CHECKING:
    from stateshift.advise.rebalance.decision import Decision, Loaded
    from stateshift.advise.rebalance.outcome import Carried, CarriedState, Rebalance
    from stateshift.documents.rebalance import MoveFacts

BAR: Final = 20
CLUSTER_HEADS: Final = ("cluster", ">capacity", ">before", "", ">after", "")
MOVE_HEADS: Final = (
    "jobs",
    "from",
    "to",
    ">size",
    ">estimated downtime",
    ">downtime",
    ">gain over cost",
    "",
)
EARLIER_HEADS: Final = ("jobs", "from", "to", ">downtime", "", "workdir")
# The most jobs that are named for one reason to stay.
NAMED_MAX: Final = 20
TONES: Final[Mapping[CarriedState, Tone]] = {
    "planned": "warn",
    "finished": "good",
    "failed": "bad",
    "unfinished": "bad",
}


def blocks(rebalance: Rebalance, explain: bool = False) -> Iterator[Block]:
    """Show a run; with `explain`, the numbers that decided."""
    words, tone = headline(rebalance)
    yield Line(words, tone)
    decision = rebalance.decision
    if decision is not None:
        yield Line(decision.reason)
    held = list(chain.from_iterable(map(contents, rebalance.drained)))
    yield from section("drained", *(Line(line, indent=2) for line in held))
    yield from section("cordoned", *(Line(line, indent=2) for line in closed_clusters(rebalance)))
    yield from section("moves of earlier runs", *_earlier(rebalance))
    if decision is not None:
        whole = max([1.0, *shares_before(decision), *shares_after(decision)])
        rows = tuple(_cluster_row(each, whole) for each in decision.clusters)
        yield from section("clusters", Table(CLUSTER_HEADS, rows))
        yield from section("moves", *_moves(rebalance, explain))
        yield from section("stay", *_stays(decision))
        if explain:
            yield from section("why", *_numbers(decision))
    yield from section("notes", *(Line(note, indent=2) for note in rebalance.notes))
    if rebalance.file is not None:
        yield Gap()
        yield Line(f"the decision and its inputs: {rebalance.file}", "dim")


def _earlier(rebalance: Rebalance) -> Iterator[Block]:
    if not rebalance.unfinished:
        return
    yield Table(EARLIER_HEADS, tuple(earlier_row(each) for each in rebalance.unfinished))
    yield from (Line(each.fact, indent=2) for each in rebalance.unfinished if each.fact)


def earlier_row(carried: Carried) -> Row:
    """Return a move of an earlier run as a row below EARLIER_HEADS."""
    return (
        ", ".join(carried.jobs),
        carried.source,
        carried.target,
        _downtime(carried.downtime_seconds),
        Cell(carried.state, TONES[carried.state]),
        carried.workdir or "-",
    )


def _cluster_row(cluster: Loaded, whole: float) -> Row:
    return (
        cluster.name,
        "cannot tell" if cluster.capacity is None else f"{cluster.capacity:g}",
        percentage(cluster.before, cluster),
        _bar(share(cluster.before, cluster), whole),
        percentage(cluster.after, cluster),
        _bar(share(cluster.after, cluster), whole),
    )


def percentage(load: float, cluster: Loaded) -> str:
    """Return a load in percent of a cluster's capacity; a dash where that is not known."""
    part = share(load, cluster)
    return "-" if part is None else f"{part:.0%}"


def _bar(part: float | None, whole: float) -> str:
    if not part:
        return " " * BAR
    return bar(0.0, part, whole, BAR).ljust(BAR)


def _moves(rebalance: Rebalance, explain: bool) -> Iterator[Block]:
    moves = moves_of(rebalance)
    if not moves:
        return
    yield Table(MOVE_HEADS, tuple(move_row(each) for each in moves))
    for each in moves:
        yield from (Line(line, indent=2) for line in whys(each))
        if explain:
            worth = each.move.worth
            gain = f"gain {worth.gain:,.0f} records that need not wait"
            yield Line(f"{gain}, cost {worth.cost:,.0f} records that wait for the move", indent=4)


def move_row(facts: MoveFacts) -> Row:
    """Return a move as a row below MOVE_HEADS."""
    move = facts.move
    return (
        facts.jobs,
        move.source,
        move.target,
        size(move.bytes),
        span(move.downtime_seconds),
        _downtime(facts.was_down_seconds),
        "∞" if move.worth.ratio == float("inf") else f"{move.worth.ratio:.1f}",
        Cell(facts.state, TONES[facts.state]),
    )


def whys(facts: MoveFacts) -> Iterator[str]:
    """Yield the reason of a move, and its outcome."""
    yield f"{facts.jobs}: {facts.move.reason}"
    for job, count in facts.move.parallelism.items():
        yield f"{job}: it is started with parallelism {count}"
    carried = facts.carried
    if carried is not None and carried.fact:
        yield f"{facts.jobs}: {carried.fact}"
    if carried is not None and carried.workdir is not None:
        yield f"{facts.jobs}: its run is {carried.workdir}"


def _downtime(seconds: float | None) -> str:
    return "-" if seconds is None else span(seconds)


def _stays(decision: Decision) -> Iterator[Block]:
    for reason, jobs in stays_by_reason(decision):
        named = [f"{job} ({cluster})" for job, cluster in jobs[:NAMED_MAX]]
        if len(jobs) > NAMED_MAX:
            named.append(f"and {many(len(jobs) - NAMED_MAX, 'more job')}")
        yield Line(f"{', '.join(named)}: {reason}", indent=2)


def _numbers(decision: Decision) -> Iterator[Line]:
    mean = mean_share(decision)
    if mean is not None:
        yield Line(f"the mean load is {mean:.1%} of the capacity", indent=2)
    for trigger in decision.triggers:
        often = f"in {many(trigger.runs, 'run')} in a row"
        due = "it is time to act" if trigger.is_due else "that is not yet often enough"
        yield Line(f"{trigger.cluster}: {trigger.reason}, {often}: {due}", indent=2)
    yield Line(claim_of_quality(decision), indent=2)

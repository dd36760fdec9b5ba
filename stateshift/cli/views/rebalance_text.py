"""A run of `rebalance` for a person: clusters before and after, the moves, then who stays and why.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from stateshift.cli.views.text import Block, Cell, Gap, Line, Row, TextTable, Tone, section
from stateshift.cli.views.units import bar, many, size, span
from stateshift.documents.rebalance import moves_of, share
from stateshift.terms import moment

if TYPE_CHECKING:
    from stateshift.advise.rebalance.decision import Decision, Loaded
    from stateshift.advise.rebalance.outcome import Carried, CarriedState, Drained, Rebalance
    from stateshift.documents.rebalance import MoveFacts

CANNOT_TELL: Final = "cannot tell: "
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
    if rebalance.unfinished:
        earlier = TextTable(EARLIER_HEADS, tuple(map(earlier_row, rebalance.unfinished)))
        facts = (Line(each.fact, indent=2) for each in rebalance.unfinished if each.fact)
        yield from section("moves of earlier runs", earlier, *facts)
    if decision is not None:
        whole = max([1.0, *shares_before(decision), *shares_after(decision)])
        rows: list[Row] = []
        for each in decision.clusters:
            capacity = "cannot tell" if each.capacity is None else f"{each.capacity:g}"
            before = percentage(each.before, each), _bar(share(each.before, each), whole)
            after = percentage(each.after, each), _bar(share(each.after, each), whole)
            rows.append((each.name, capacity, *before, *after))
        yield from section("clusters", TextTable(CLUSTER_HEADS, tuple(rows)))
        yield from section("moves", *_moves(rebalance, explain))
        yield from section("stay", *_stays(decision))
        if explain:
            yield from section("why", *_numbers(decision))
    yield from section("notes", *(Line(note, indent=2) for note in rebalance.notes))
    if rebalance.file is not None:
        yield Gap()
        yield Line(f"the decision and its inputs: {rebalance.file}", "dim")


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
    yield TextTable(MOVE_HEADS, tuple(move_row(each) for each in moves))
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
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for stay in decision.stays:
        by_reason.setdefault(stay.reason, []).append((stay.job, stay.cluster))
    for reason, jobs in by_reason.items():
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


# ---- facts that the page shows, too


def shares_before(decision: Decision) -> list[float]:
    """Return the loads before, as parts of the capacities that are known."""
    shares = (share(cluster.before, cluster) for cluster in decision.clusters)
    return [each for each in shares if each is not None]


def shares_after(decision: Decision) -> list[float]:
    """Return the loads after the moves, as parts of the capacities that are known."""
    shares = (share(cluster.after, cluster) for cluster in decision.clusters)
    return [each for each in shares if each is not None]


def mean_share(decision: Decision) -> float | None:
    """Return the load of all clusters together as a part of their capacity."""
    known = [cluster for cluster in decision.clusters if cluster.capacity]
    capacity = sum(cluster.capacity or 0.0 for cluster in known)
    return sum(cluster.before for cluster in known) / capacity if capacity else None


def headline(rebalance: Rebalance) -> tuple[str, Tone]:
    """Return the run on one line, and the tone that it is said in."""
    if rebalance.busy:
        return f"another run is at work: {rebalance.busy}", "warn"
    moves = moves_of(rebalance)
    if rebalance.drained and all(each.is_empty for each in rebalance.drained):
        return f"{_named(rebalance.drained)} empty", "good"
    begun = (*rebalance.unfinished, *rebalance.carried)
    failed = [each for each in begun if each.state in ("failed", "unfinished")]
    if failed:
        return f"{many(len(failed), 'move')} to be finished or taken back first", "bad"
    if rebalance.drained and all(each.state == "finished" for each in moves):
        holding = [each for each in rebalance.drained if not each.is_empty]
        return f"{_named(holding)} not empty", "bad"
    if not moves and rebalance.decision is not None and is_unknown(rebalance.decision):
        return "nothing is moved", "warn"
    if not moves:
        return "nothing to move", "good"
    if all(each.state == "finished" for each in moves):
        return f"{many(len(moves), 'move')} made", "good"
    them = "it" if len(moves) == 1 else "them"
    return f"{many(len(moves), 'move')} to make: --yes makes {them}", "warn"


def _named(drained: Sequence[Drained]) -> str:
    names = [each.cluster for each in drained]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def closed_clusters(rebalance: Rebalance) -> Iterator[str]:
    """Yield the clusters that nothing moves to, and the option that ends that."""
    for each in rebalance.cordoned:
        if each.since is None:
            yield f"{each.cluster} is cordoned by the spec: nothing moves there"
        else:
            since = moment(each.since)
            way = f"--uncordon {each.cluster} ends it"
            yield f"{each.cluster} is cordoned since {since}: nothing moves there; {way}"


def contents(drained: Drained) -> Iterator[str]:
    """Yield the contents of a cluster that was to be emptied."""
    if drained.is_empty:
        held = f"no job of the spec runs there; {drained.note}" if drained.note else "nothing runs"
        yield f"{drained.cluster} is empty: it was asked, and {held}"
    if drained.unknown:
        yield f"{drained.cluster} cannot be asked: {drained.unknown}"
    for job, reason in drained.jobs:
        yield f"{drained.cluster} still has {job}: {reason}"
    for other in drained.others:
        yield f"{drained.cluster} still has {other}, which the spec does not know"


def is_unknown(decision: Decision) -> bool:
    """Whether nothing could be decided, for what nobody could tell."""
    return decision.reason.startswith(CANNOT_TELL)


def claim_of_quality(decision: Decision) -> str:
    """Return the quality of the spread that was found, as a claim that can be checked."""
    bound = f"no spread has less than {decision.bound:.0%} on the fullest cluster"
    if decision.is_best:
        return f"{bound}, and no spread is better than this one"
    return bound

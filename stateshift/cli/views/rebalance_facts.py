"""The facts of a run of `rebalance` that all views share. Pure.

shares       a cluster's load as a part of its capacity, before and after
moves        each move of the decision, with how far it has come
headline     the run on one line
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from stateshift.cli.views.units import clock, many
from stateshift.documents.rebalance import moves_of, share

CANNOT_TELL = "cannot tell: "

if TYPE_CHECKING:
    from stateshift.advise.rebalance.decision import Decision
    from stateshift.advise.rebalance.outcome import Drained, Rebalance
    from stateshift.cli.views.text import Tone


def shares_before(decision: Decision) -> list[float]:
    """Return the loads before, as parts of the capacities that are known."""
    return _known(share(cluster.before, cluster) for cluster in decision.clusters)


def shares_after(decision: Decision) -> list[float]:
    """Return the loads after the moves, as parts of the capacities that are known."""
    return _known(share(cluster.after, cluster) for cluster in decision.clusters)


def _known(shares: Iterable[float | None]) -> list[float]:
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
            since = f"{clock(each.since)} UTC"
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


def stays_by_reason(decision: Decision) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each reason to stay, with the jobs and the clusters of those that it keeps."""
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for stay in decision.stays:
        by_reason.setdefault(stay.reason, []).append((stay.job, stay.cluster))
    yield from by_reason.items()

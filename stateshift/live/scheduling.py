"""When each chain of a change begins to use its new functions: Fries' choice, or an epoch.

    by batch    always consistent in one query: every task of a batch reads the same seal
    message     at once, also within a batch: where the dataflow shows that each target is a
                component of its own, so that no record can meet an old and a new version
    by column   a chain in another query, downstream of a target: each record says which version it
                met there (`stamp` and `follow` of live.chain)

Fries finds which targets have to change together (`dataflow.schedulers.fries`); operators have the
names of chains. Without a dataflow nothing is known of what lies between: then it is an epoch, and
targets in several queries need the column. Rows F-6 and F-16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stateshift.dataflow.schedulers import fries
from stateshift.errors import Complaint, PlanError, SpecError
from stateshift.live.protocol.chains import Declaration, When
from stateshift.specification.dataflow.operators import Dataflow

Scheduler = Literal["epoch", "fries", "naive"]


@dataclass(frozen=True, slots=True)
class Target:
    """A chain that changes, and the queries that run it."""

    declaration: Declaration
    queries: frozenset[str]

    @property
    def name(self) -> str:
        return self.declaration.name


@dataclass(frozen=True, slots=True)
class Choice:
    """Which scheduler it is in the end, and when each chain changes."""

    scheduler: Scheduler
    when: Mapping[str, When]
    reason: str


def choose(targets: Sequence[Target], dataflow: Dataflow | None, asked: Scheduler | None) -> Choice:
    """Return when each target changes, or refuse where it would not be consistent."""
    if asked == "naive":
        # For comparison alone: it breaks what the others keep.
        return Choice("naive", _all(targets, "message"), "asked for")
    if dataflow is not None:
        _refuse_unknown(targets, dataflow)
    if asked != "epoch" and dataflow is not None:
        hindered = _hindered(targets, dataflow)
        if hindered is None:
            reason = "the dataflow shows that no record meets two of them"
            return Choice("fries", _all(targets, "message"), reason)
        if asked == "fries":
            hint = "leave --scheduler out: it is by batch then"
            raise PlanError(f"no message may overtake data here: {hindered}", hint=hint)
    elif asked == "fries":
        raise PlanError(
            "a message may overtake data only where the dataflow is known",
            hint="add --dataflow FILE (see `stateshift dataflow --help`), or --scheduler epoch",
        )
    else:
        hindered = "no dataflow is given" if dataflow is None else "asked for"
    return Choice("epoch", _by_batch(targets, dataflow), hindered or "asked for")


def _all(targets: Sequence[Target], when: When) -> Mapping[str, When]:
    return {target.name: when for target in targets}


def _refuse_unknown(targets: Sequence[Target], dataflow: Dataflow) -> None:
    unknown = [target.name for target in targets if target.name not in dataflow.names]
    if unknown:
        known = ", ".join(dataflow.names)
        complaints = tuple(
            Complaint("--dataflow", f"there is no operator {name!r}", name) for name in unknown
        )
        raise SpecError(complaints, hint=f"operators have their chains' names; there are: {known}")


def _hindered(targets: Sequence[Target], dataflow: Dataflow) -> str | None:
    """Return why the targets need markers between them; None if each may change on its own."""
    schedule = fries(dataflow, [target.name for target in targets])
    for component in schedule.components:
        if len(component.operators) > 1:
            names = ", ".join(component.operators)
            return f"{names} have to change together"
    several = [target.name for target in targets if dataflow[target.name].kind != "one-to-one"]
    return f"{several[0]} is not one-to-one" if several else None


def _by_batch(targets: Sequence[Target], dataflow: Dataflow | None) -> Mapping[str, When]:
    """Return the targets by batch, and by column those whose records come from other queries'
    targets, or from where theirs come from.
    """
    when: dict[str, When] = {}
    for target in targets:
        others = _to_agree_with(target, targets, dataflow)
        for other in others:
            if not _agree(target, other):
                raise _unmarked(target, other)
        follow = target.declaration.follow
        follows = [other for other in others if follow in _columns(other)]
        when[target.name] = "column" if follow is not None and follows else "batch"
    return when


def _to_agree_with(
    target: Target, targets: Sequence[Target], dataflow: Dataflow | None
) -> tuple[Target, ...]:
    """Return the targets in other queries that have to change at one cut with a target: without a
    dataflow all of them.
    """
    others = [other for other in targets if _runs_elsewhere(other, target)]
    if dataflow is None:
        return tuple(others)
    together = _component_of(target, targets, dataflow)
    return tuple(other for other in others if other.name in together)


def _runs_elsewhere(other: Target, target: Target) -> bool:
    return other.name != target.name and not other.queries & target.queries


def _component_of(target: Target, targets: Sequence[Target], dataflow: Dataflow) -> frozenset[str]:
    for component in fries(dataflow, [each.name for each in targets]).components:
        if target.name in component.operators:
            return frozenset(component.operators)
    return frozenset((target.name,))


def _columns(target: Target) -> tuple[str | None, ...]:
    return target.declaration.stamp, target.declaration.follow


def _agree(one: Target, other: Target) -> bool:
    """Whether records say to both which version they have met: one stamps the column that the other
    one follows, or both follow one.
    """
    mine, theirs = one.declaration, other.declaration
    pairs = ((mine.stamp, theirs.follow), (theirs.stamp, mine.follow), (mine.follow, theirs.follow))
    return any(left is not None and left == right for left, right in pairs)


def _unmarked(one: Target, other: Target) -> PlanError:
    return PlanError(
        f"{one.name} and {other.name} run in different queries, and the records between them do "
        "not say which version they met",
        hint="declare the one upstream with stamp='version', the other with follow='version', and "
        "keep that column on the way; or change one after the other; or show with --dataflow FILE "
        "that no record meets both",
    )

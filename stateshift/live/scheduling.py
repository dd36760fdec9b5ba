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
    """Return the time of each target's change, or refuse where it would not be consistent."""
    if asked == "naive":
        # For comparison alone: it breaks what the others keep.
        return Choice("naive", _all(targets, "message"), "asked for")
    if dataflow is not None:
        known = ", ".join(dataflow.names)
        unknown = [target.name for target in targets if target.name not in dataflow.names]
        if unknown:
            complaints = [
                Complaint("--dataflow", f"there is no operator {name!r}", name) for name in unknown
            ]
            hint = f"operators have their chains' names; there are: {known}"
            raise SpecError(tuple(complaints), hint=hint)
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
    when = {target.name: _when(target, targets, dataflow) for target in targets}
    return Choice("epoch", when, hindered or "asked for")


def _all(targets: Sequence[Target], when: When) -> Mapping[str, When]:
    return {target.name: when for target in targets}


def _hindered(targets: Sequence[Target], dataflow: Dataflow) -> str | None:
    """Return the reason to put markers between the targets; None if each may change on its own."""
    schedule = fries(dataflow, [target.name for target in targets])
    for component in schedule.components:
        if len(component.operators) > 1:
            names = ", ".join(component.operators)
            return f"{names} have to change together"
    several = [target.name for target in targets if dataflow[target.name].kind != "one-to-one"]
    return f"{several[0]} is not one-to-one" if several else None


def _when(target: Target, targets: Sequence[Target], dataflow: Dataflow | None) -> When:
    """Return by column where records come from other queries' targets; else by batch."""
    follow = target.declaration.follow
    when: When = "batch"
    for other in _to_agree_with(target, targets, dataflow):
        mine, theirs = target.declaration, other.declaration
        # Records say to both which version they have met: one stamps the column that the other one
        # follows, or both follow one.
        pairs = (
            (mine.stamp, theirs.follow),
            (theirs.stamp, mine.follow),
            (mine.follow, theirs.follow),
        )
        if not any(left is not None and left == right for left, right in pairs):
            raise PlanError(
                f"{target.name} and {other.name} run in different queries, and the records between "
                "them do not say which version they met",
                hint="declare the one upstream with stamp='version', the other with "
                "follow='version', and keep that column on the way; or change one after the other; "
                "or show with --dataflow FILE that no record meets both",
            )
        if follow is not None and follow in (theirs.stamp, theirs.follow):
            when = "column"
    return when


def _to_agree_with(
    target: Target, targets: Sequence[Target], dataflow: Dataflow | None
) -> list[Target]:
    """Return the targets in other queries that change at one cut with this one."""
    others = []
    for other in targets:
        if other.name != target.name and not other.queries & target.queries:
            others.append(other)
    if dataflow is None:
        return others
    together: frozenset[str] = frozenset((target.name,))
    for component in fries(dataflow, [each.name for each in targets]).components:
        if target.name in component.operators:
            together = frozenset(component.operators)
    return [other for other in others if other.name in together]

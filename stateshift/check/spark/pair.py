"""A new query and the checkpoint's: the operators that both have. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stateshift.check.spark.query import CapturedQuery, Operator, StoredQuery
from stateshift.formats.spark.operator_metadata import AGGREGATION, REAL_TIME_AGGREGATION


@dataclass(frozen=True, slots=True)
class Pair:
    """The new query, the checkpoint's, and the old code's where that was given.

    is_behind  whether the new query's file sink lacks the newest batch
    """

    new: CapturedQuery
    stored: StoredQuery
    before: CapturedQuery | None = None
    is_behind: bool = False

    @property
    def shared(self) -> Iterator[tuple[Operator, Operator]]:
        """Yield the operators that both have under one id and name: the old, the new."""
        old = {operator.id: operator for operator in self.stored.operators}
        for operator in self.new.operators:
            if operator.id in old and is_same_kind(old[operator.id], operator):
                yield old[operator.id], operator

    def before_of(self, operator: Operator) -> Operator | None:
        """Return the operator of the old code; None where nobody has given that."""
        own = () if self.before is None else self.before.operators
        return next((each for each in own if each.id == operator.id), None)


def is_same_kind(old: Operator, new: Operator) -> bool:
    """Whether both are of one kind; by their stores where Spark 3 wrote no name."""
    if old.name is None or new.name is None:
        return set(old.stores) == set(new.stores)
    return old.name == new.name or {old.name, new.name} == {AGGREGATION, REAL_TIME_AGGREGATION}

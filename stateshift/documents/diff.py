"""What all views of a comparison say, computed once from its differences. Pure.

DiffFacts    two images compared, with
  outcome      equal, different, or why they cannot be compared
  operators    the counts of each operator: the sums, and each store
  counted      how many entries differ, of all stores
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stateshift.engines.views import Counts, Differences


class Outcome(Enum):
    """What can be said of two images."""

    EQUAL = auto()
    DIFFERENT = auto()
    EQUAL_AS_FAR = auto()  # something could not be compared; all else is equal
    UNKNOWN = auto()  # nothing could be compared


@dataclass(frozen=True, slots=True)
class OperatorCounts:
    """How many entries of one operator differ, and each of its stores."""

    id: str
    stores: tuple[Counts, ...]

    @property
    def added(self) -> int:
        """How many entries only B has."""
        return sum(store.added for store in self.stores)

    @property
    def removed(self) -> int:
        """How many entries only A has."""
        return sum(store.removed for store in self.stores)

    @property
    def changed(self) -> int:
        """How many entries have another value in B."""
        return sum(store.changed for store in self.stores)

    @property
    def same(self) -> int:
        """How many entries are the same."""
        return sum(store.same for store in self.stores)


@dataclass(frozen=True, slots=True)
class DiffFacts:
    """Two images compared, and what is computed of it for all views."""

    differences: Differences
    outcome: Outcome
    operators: tuple[OperatorCounts, ...]

    @property
    def unequal_stores(self) -> tuple[Counts, ...]:
        """The stores whose entries differ."""
        return tuple(store for store in self.differences.stores if not store.equal)

    @property
    def counted(self) -> int:
        """How many entries differ."""
        return sum(each.added + each.removed + each.changed for each in self.operators)

    @property
    def more(self) -> bool:
        """Whether more entries differ than are shown."""
        return self.counted > len(self.differences.shown)


def diff_facts(differences: Differences) -> DiffFacts:
    """Return what the views say of two images."""
    by_operator: dict[str, list[Counts]] = {}
    for store in differences.stores:
        by_operator.setdefault(store.operator, []).append(store)
    operators = [OperatorCounts(name, tuple(stores)) for name, stores in by_operator.items()]
    return DiffFacts(differences, outcome_of(differences), tuple(operators))


def outcome_of(differences: Differences) -> Outcome:
    """Return what can be said of two images."""
    if differences.different:
        return Outcome.DIFFERENT
    if not differences.incomparable:
        return Outcome.EQUAL
    return Outcome.EQUAL_AS_FAR if differences.stores else Outcome.UNKNOWN

"""Two images compared: the facts that all views share, and their document. Pure.

DiffFacts    two images compared, with
  outcome      equal, different, or why they cannot be compared
  operators    the counts of each operator: the sums, and each store
  counted      how many entries differ, of all stores
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypedDict

from stateshift.documents.shape import At
from stateshift.report import Compared

if TYPE_CHECKING:
    from stateshift.engines.views import Counts, Differences


class Outcome(Enum):
    """The outcome of a comparison."""

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
class IncomparableStore:
    """A store that could not be compared."""

    schema_name: ClassVar = "Incomparable"
    operator: Annotated[str, "the operator's id"]
    store: Annotated[str, "the store's name"]
    message: Annotated[str, "why not"]


@dataclass(frozen=True, slots=True)
class DiffFacts:
    """Two images compared, and what is computed of it for all views."""

    differences: Differences
    outcome: Outcome
    operators: tuple[OperatorCounts, ...]

    @property
    def equal(self) -> bool | None:
        """Whether all entries are; None where all that could be compared is equal."""
        different = self.differences.different
        return None if different is None else not different

    @property
    def same(self) -> Compared:
        """The numbers of what is the same."""
        counts = self.differences.same
        return Compared(
            counts.get("entries", 0), counts.get("files", 0), counts.get("key_groups", 0)
        )

    @property
    def incomparable(self) -> tuple[IncomparableStore, ...]:
        """The stores that could not be compared."""
        return tuple(IncomparableStore(*each) for each in self.differences.incomparable)

    @property
    def reason(self) -> str | None:
        """The reasons why stores could not be compared."""
        reasons = [f"{each.operator}, {each.store}: {each.message}" for each in self.incomparable]
        return "; ".join(reasons) or None

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
    """Return the facts of two images that were compared."""
    by_operator: dict[str, list[Counts]] = {}
    for store in differences.stores:
        by_operator.setdefault(store.operator, []).append(store)
    operators = [OperatorCounts(name, tuple(stores)) for name, stores in by_operator.items()]
    return DiffFacts(differences, outcome_of(differences), tuple(operators))


def outcome_of(differences: Differences) -> Outcome:
    """Return the outcome of a comparison."""
    if differences.different:
        return Outcome.DIFFERENT
    if not differences.incomparable:
        return Outcome.EQUAL
    return Outcome.EQUAL_AS_FAR if differences.stores else Outcome.UNKNOWN


# ---- documents -----------------------------------------------------------------------------------


class StoreDifferencesDocument(TypedDict):
    """The differences of one store."""

    name: Annotated[str, "the store's name", At("store")]
    unit: Annotated[str, "what is counted: entries, files, key_groups or uncounted"]
    added: Annotated[int, "what only B has"]
    removed: Annotated[int, "what only A has"]
    changed: Annotated[int, "what both have, with other values"]
    same: Annotated[int, "what is the same"]


class OperatorDifferencesDocument(TypedDict):
    """The differences of one operator, over all its stores."""

    id: Annotated[str, "the operator's id"]
    added: Annotated[int, "what only B has"]
    removed: Annotated[int, "what only A has"]
    changed: Annotated[int, "what both have, with other values"]
    same: Annotated[int, "what is the same"]
    stores: Annotated[list[StoreDifferencesDocument], "each store"]


class DifferenceDocument(TypedDict):
    """One entry that differs."""

    operator: Annotated[str, "the operator's id"]
    store: Annotated[str, "the store's name"]
    change: Annotated[Literal["added", "removed", "changed"], "how it differs"]
    key: Annotated[object, "its key, by its own columns where they are known"]
    before: Annotated[object, "A's value; null where it was added"]
    after: Annotated[object, "B's value; null where it was removed"]


class DiffDocument(TypedDict):
    """How two images differ."""

    equal: Annotated[bool | None, "null where all that could be compared is equal"]
    same: Annotated[Compared, "how much is the same"]
    reason: Annotated[str | None, "what could not be compared, in words"]
    epochs: Annotated[list[int | None], "of A, and of B", At("differences.epochs")]
    operators: Annotated[list[OperatorDifferencesDocument], "each operator"]
    incomparable: Annotated[list[IncomparableStore], "what could not be compared"]
    differences: Annotated[
        list[DifferenceDocument], "some of the differences (--show)", At("differences.shown")
    ]

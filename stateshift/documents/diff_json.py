"""The JSON document of `diff`: values in, typed dictionaries out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

if TYPE_CHECKING:
    from stateshift.documents.diff import DiffFacts, OperatorCounts
    from stateshift.engines.views import Counts, Difference


class ComparedDocument(TypedDict):
    """What was compared and is the same on both sides, each in its own unit."""

    entries: Annotated[int, "entries"]
    files: Annotated[int, "files that were compared whole"]
    key_groups: Annotated[int, "key groups that were compared whole"]


class StoreDifferencesDocument(TypedDict):
    """The differences of one store."""

    name: Annotated[str, "the store's name"]
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


class IncomparableDocument(TypedDict):
    """A store that could not be compared."""

    operator: Annotated[str, "the operator's id"]
    store: Annotated[str, "the store's name"]
    message: Annotated[str, "why not"]


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
    same: Annotated[ComparedDocument, "how much is the same"]
    reason: Annotated[str | None, "what could not be compared, in words"]
    epochs: Annotated[list[int | None], "of A, and of B"]
    operators: Annotated[list[OperatorDifferencesDocument], "each operator"]
    incomparable: Annotated[list[IncomparableDocument], "what could not be compared"]
    differences: Annotated[list[DifferenceDocument], "some of the differences (--show)"]


def differences(facts: DiffFacts) -> DiffDocument:
    """Return the counts by operator and store, and the differences that were asked for."""
    compared_images = facts.differences
    different = compared_images.different
    incomparable = [incomparable_store(*each) for each in compared_images.incomparable]
    return {
        "equal": None if different is None else not different,
        "same": compared(compared_images.same),
        "reason": "; ".join(reason(each) for each in incomparable) or None,
        "epochs": list(compared_images.epochs),
        "operators": [operator_differences(counts) for counts in facts.operators],
        "incomparable": incomparable,
        "differences": [difference(shown) for shown in compared_images.shown],
    }


def compared(counts: Mapping[str, int]) -> ComparedDocument:
    """Return what was compared and is the same, with a zero where nothing was."""
    return {
        "entries": counts.get("entries", 0),
        "files": counts.get("files", 0),
        "key_groups": counts.get("key_groups", 0),
    }


def incomparable_store(operator: str, store: str, message: str) -> IncomparableDocument:
    """Return a store that could not be compared."""
    return {"operator": operator, "store": store, "message": message}


def reason(store: IncomparableDocument) -> str:
    """Return why a store could not be compared, in words."""
    return f"{store['operator']}, {store['store']}: {store['message']}"


def operator_differences(counts: OperatorCounts) -> OperatorDifferencesDocument:
    """Return the counts of one operator: the sums, and each store."""
    return {
        "id": counts.id,
        "added": counts.added,
        "removed": counts.removed,
        "changed": counts.changed,
        "same": counts.same,
        "stores": [store_differences(store) for store in counts.stores],
    }


def store_differences(store: Counts) -> StoreDifferencesDocument:
    """Return the counts of one store."""
    return {
        "name": store.store,
        "unit": store.unit,
        "added": store.added,
        "removed": store.removed,
        "changed": store.changed,
        "same": store.same,
    }


def difference(shown: Difference) -> DifferenceDocument:
    """Return one entry that differs."""
    return {
        "operator": shown.operator,
        "store": shown.store,
        "change": shown.change,
        "key": shown.key,
        "before": shown.before,
        "after": shown.after,
    }

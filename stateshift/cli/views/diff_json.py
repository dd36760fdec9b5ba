"""The JSON document of `diff`: values in, typed dictionaries out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

if TYPE_CHECKING:
    from stateshift.engines.views import Counts, Difference
    from stateshift.look import Differences


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
    key: Annotated[Any, "its key, by its own columns where they are known"]
    before: Annotated[Any, "A's value; null where it was added"]
    after: Annotated[Any, "B's value; null where it was removed"]


class DiffDocument(TypedDict):
    """How two images differ."""

    equal: Annotated[bool | None, "null where all that could be compared is equal"]
    same: Annotated[ComparedDocument, "how much is the same"]
    reason: Annotated[str | None, "what could not be compared, in words"]
    epochs: Annotated[list[int | None], "of A, and of B"]
    operators: Annotated[list[OperatorDifferencesDocument], "each operator"]
    incomparable: Annotated[list[IncomparableDocument], "what could not be compared"]
    differences: Annotated[list[DifferenceDocument], "some of the differences (--show)"]


def differences(found: Differences) -> DiffDocument:
    """Return the counts by operator and store, and the differences that were asked for."""
    names = dict.fromkeys(store.operator for store in found.stores)
    reasons = [f"{operator}, {store}: {why}" for operator, store, why in found.incomparable]
    return {
        "equal": None if found.different is None else not found.different,
        "same": compared(found.same),
        "reason": "; ".join(reasons) or None,
        "epochs": list(found.epochs),
        "operators": [operator_differences(found.stores, name) for name in names],
        "incomparable": [
            {"operator": operator, "store": store, "message": why}
            for operator, store, why in found.incomparable
        ],
        "differences": [difference(shown) for shown in found.shown],
    }


def compared(counts: Mapping[str, int]) -> ComparedDocument:
    """Return what was compared and is the same, with a zero where nothing was."""
    return {
        "entries": counts.get("entries", 0),
        "files": counts.get("files", 0),
        "key_groups": counts.get("key_groups", 0),
    }


def operator_differences(stores: Sequence[Counts], name: str) -> OperatorDifferencesDocument:
    """Return the counts of one operator: the sums, and each store."""
    own = [store for store in stores if store.operator == name]
    return {
        "id": name,
        "added": sum(store.added for store in own),
        "removed": sum(store.removed for store in own),
        "changed": sum(store.changed for store in own),
        "same": sum(store.same for store in own),
        "stores": [store_differences(store) for store in own],
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

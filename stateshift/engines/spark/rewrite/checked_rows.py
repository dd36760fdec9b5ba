"""Rows that are checked while they are read to be rewritten, so that a look beforehand
need not read them. Pure.

    rules_of(request)   "<operator>/<store>" -> RowRule, of these stores

They are those of operators that have one store, of plain rows: aggregations and session windows.
Whether the stores of a join agree shows only where all of them are read together, and rows of other
operators are read by more than their schema. And they are the large ones: a small state is looked
at in no time, and a look says what is wrong before anything is written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from stateshift.engines.spark.entries.keys import KeyRule
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.rewrite.request import Request
from stateshift.engines.spark.rewrite.stores import StoreState
from stateshift.formats.spark.offset_conf import is_strict
from stateshift.formats.spark.types import decode_struct

# The rules of a store's files.
BYTES_MIN = 64 * 1024 * 1024

_KINDS = ("stateStoreSave", "sessionWindowStateStoreSaveExec")


@dataclass(frozen=True, slots=True)
class RowRule:
    """How rows of a store are read, and in how many shards they are. They are `strict` where all
    columns of a key decide its shard. A plain value: it stands in the options of transforms.
    """

    key: KeyRule
    value: str
    shards: int
    strict: bool

    def view(self, store: str) -> StoreView:
        return replace(StoreView.of_rule(store, self.key), value=decode_struct(self.value))


def rules_of(request: Request) -> dict[str, RowRule]:
    """Return the rules of all stores whose rows are checked while they are rewritten."""
    if request.joining is not None or request.other_provider:
        return {}
    operators = {operator.id: operator for operator in request.image.operators}
    stores_of_operator = Counter(store.operator for store in request.stores)
    rules: dict[str, RowRule] = {}
    for store in request.stores:
        operator = operators[store.operator]
        is_alone = stores_of_operator[store.operator] == 1
        if operator.name in _KINDS and is_alone and request.size(store.shards) >= BYTES_MIN:
            rules |= _rules(request, store, operator.shards)
    return rules


def _rules(request: Request, store: StoreState, shards: int) -> dict[str, RowRule]:
    """Return the rules of a store, or of its column families; none where not all are known."""
    schemas = spark_image(request.image).schemas
    strict = is_strict(request.image.settings)
    rules: dict[str, RowRule] = {}
    for name, key in store.named_rules.items():
        schema = schemas[name]
        if schema["avro"] or schema["lists"]:
            return {}
        rules[name] = RowRule(key, schema["value"], shards, strict)
    return rules

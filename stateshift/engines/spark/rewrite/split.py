"""Which entries belong to a part of a split state. Pure.

    {"shards": [0, 1]}                                     those of these shards
    {"column": "country", "values": ["de"], "rules": {"<operator>/<store>": KeyRule}}
                                                           those whose key has one of these values
                                                           in that column

A part is a plain value: it stands in the options of a transform, and, as JSON, among the settings
that a comparison reads the source by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stateshift.engines.spark.entries.keys import KeyRule, nameable
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.rewrite.stores import of_stores
from stateshift.errors import FormatError
from stateshift.plain import JsonObject, from_plain

if TYPE_CHECKING:
    from stateshift.formats.blocks import Block

# The entries of one store's block that belong to the part.
Kept = Callable[[str, "Block"], "Block"]


def belongs(part: JsonObject, operator: str, shard: int) -> Kept:
    """Return the test of one shard's entries that belong to the part."""
    if "shards" in part:
        return _all if shard in part["shards"] else _nothing
    column, values = part["column"], frozenset(part["values"])
    plain_rules = of_stores(part["rules"], operator)
    rules = {store: from_plain(KeyRule, rule) for store, rule in plain_rules.items()}

    def kept(store: str, block: Block) -> Block:
        at = nameable(rules[store], column) if store in rules else None
        if at is None:
            fact = f"entries of the store {store}, whose keys have no column {column}"
            raise FormatError(fact)
        return _with(block, StoreView.of_rule(store, rules[store]), at, values)

    return kept


def _all(store: str, block: Block) -> Block:
    return block


def _nothing(store: str, block: Block) -> Block:
    import numpy as np

    return block.take(np.zeros(0, np.int64))


def _with(block: Block, view: StoreView, at: int, values: frozenset[str]) -> Block:
    import numpy as np  # loaded with Arrow, for which no plan should wait

    from stateshift.engines.spark.entries.columnar import texts_of

    return block.take(np.flatnonzero([text in values for text in texts_of(view, at, block.keys)]))


def shards_of(by: int, part: int, partitions: int) -> list[int]:
    """Return the shards of part `part` of `by`: a run of them, as long as the others' but for
    one.
    """
    return list(range(part * partitions // by, (part + 1) * partitions // by))

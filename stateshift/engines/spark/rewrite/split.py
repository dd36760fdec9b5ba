"""Which entries belong to a part of a split state. Pure.

    {"shards": [0, 1]}                                     those of these shards
    {"column": "country", "values": ["de"], "rules": {"<operator>/<store>": KeyRule}}
                                                           those whose key has one of these values
                                                           in that column

A part is a plain value: it stands in the options of a transform, and, as JSON, among the settings
that a comparison reads the source by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stateshift.engines.spark.entries.keys import KeyRule, nameable
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.errors import FormatError
from stateshift.plain import from_plain

if TYPE_CHECKING:
    from stateshift.formats.blocks import Block

# What belongs to the part, of one store's block.
Kept = Callable[[str, "Block"], "Block"]


def belongs(part: Mapping[str, Any], operator: str, shard: int) -> Kept:
    """What to keep of one shard's entries."""
    if "shards" in part:
        inside = shard in part["shards"]
        return lambda store, block: block if inside else block.take(_none())
    values, own = frozenset(part["values"]), f"{operator}/"
    ours = {name: rule for name, rule in part["rules"].items() if name.startswith(own)}
    rules = {name.removeprefix(own): from_plain(KeyRule, rule) for name, rule in ours.items()}

    def kept(store: str, block: Block) -> Block:
        at = nameable(rules[store], part["column"]) if store in rules else None
        if at is None:
            raise FormatError(
                f"entries of the store {store}, whose keys have no column {part['column']}"
            )
        return _with(block, StoreView.of_rule(store, rules[store]), at, values)

    return kept


def _with(block: Block, view: StoreView, at: int, values: frozenset[str]) -> Block:
    import numpy as np  # loaded with Arrow, for which no plan should wait

    from stateshift.engines.spark.entries.columnar import texts_of

    return block.take(np.flatnonzero([text in values for text in texts_of(view, at, block.keys)]))


def _none() -> Any:
    import numpy as np

    return np.zeros(0, np.int64)


def shards_of(by: int, part: int, partitions: int) -> list[int]:
    """The shards of part `part` of `by`: a run of them, as long as the others' but for one."""
    return list(range(part * partitions // by, (part + 1) * partitions // by))

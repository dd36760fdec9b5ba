"""Which entries belong to a part of a split state. Pure.

    {"shards": [0, 1]}                                     those of these shards
    {"column": "country", "values": ["de"], "rules": {"<operator>/<store>": KeyRule}}
                                                           those whose key has one of these values in that column

A part is a plain value: it stands in the options of a transform, and, as JSON, among the settings that a comparison
reads the source by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stateshift.engines.spark.keys import KeyRule, key_column
from stateshift.errors import FormatError
from stateshift.plain import from_plain

Kept = Callable[[str, bytes], bool]


def belongs(part: Mapping[str, Any], operator: str, shard: int) -> Kept:
    """The predicate over (store, key) of one shard's entries."""
    if "shards" in part:
        inside = shard in part["shards"]
        return lambda store, key: inside
    values, own = frozenset(part["values"]), f"{operator}/"
    columns = {
        name.removeprefix(own): key_column(from_plain(KeyRule, rule), part["column"])
        for name, rule in part["rules"].items()
        if name.startswith(own)
    }

    def kept(store: str, key: bytes) -> bool:
        column = columns.get(store)
        if column is None:
            raise FormatError(f"entries of the store {store}, whose keys have no column {part['column']}")
        return column(key) in values

    return kept


def shards_of(by: int, part: int, partitions: int) -> list[int]:
    """The shards of part `part` of `by`: a run of them, as long as the others' but for one."""
    return list(range(part * partitions // by, (part + 1) * partitions // by))

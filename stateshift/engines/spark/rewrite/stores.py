"""The stores of an image's operators, how their keys are placed, and which of their entries belong
to a part of a split state. Pure.

    {"shards": [0, 1]}                                     those of these shards
    {"column": "country", "values": ["de"], "rules": {"<operator>/<store>": KeyRule}}
                                                           those whose key has one of these values
                                                           in that column
    {"where": "...", ...}                                  those of which it is not true (`pruning`)

A part is a plain value: it stands in the options of a transform, and, as JSON, among the settings
that a comparison reads the source by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from stateshift.engines.spark import chains
from stateshift.engines.spark.entries.keys import KeyRule, key_rule, nameable
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.image import spark_image
from stateshift.errors import FormatError
from stateshift.formats.spark.types import decode_struct
from stateshift.plain import JsonObject, from_plain
from stateshift.survey import Image, ShardFiles

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreState:
    """An operator's store over all shards; `rules` is None for the reason in `unknown`."""

    operator: str
    store: str
    shards: tuple[ShardFiles, ...]
    rules: Mapping[str, KeyRule] | None
    single: bool
    unknown: str | None = None

    @property
    def families(self) -> bool:
        return any("/" in name for name in self.rules or {})

    def holds(self, place: str) -> bool:
        """Whether this is its place, <operator>/<store>, or that of one of its column families."""
        return f"{place}/".startswith(f"{self.operator}/{self.store}/")

    @property
    def named_rules(self) -> dict[str, KeyRule]:
        """The rules by "<operator>/<store>"; none where they are not known."""
        return {f"{self.operator}/{name}": rule for name, rule in (self.rules or {}).items()}


@dataclass(frozen=True, slots=True)
class RowRule:
    """How a store's rows are read, in options; `strict` where all key columns decide the shard."""

    key: KeyRule
    value: str
    shards: int
    strict: bool

    def view(self, store: str) -> StoreView:
        return replace(StoreView.of_rule(store, self.key), value=decode_struct(self.value))


def stores_of(image: Image, framed: bool) -> tuple[StoreState, ...]:
    """Return the stores of the image, each with its rules for keys."""
    operators = {operator.id: operator for operator in image.operators}
    groups: dict[tuple[str, str], list[ShardFiles]] = {}
    for shard in image.shards:
        groups.setdefault((shard.operator, shard.store), []).append(shard)
    stores = []
    for (operator, store), shards in groups.items():
        own = of_stores(spark_image(image).schemas, operator)
        schemas = {
            name: schema for name, schema in own.items() if f"{name}/".startswith(f"{store}/")
        }
        rules: dict[str, KeyRule] = {}
        unknown = None if schemas else "no schema tells its key"
        try:
            title = operators[operator].name
            rules = {name: key_rule(title, name, own, framed) for name, own in schemas.items()}
        except FormatError as error:
            unknown = error.fact
        has_single_shard = operators[operator].shards == 1 and partitions_of(image) != 1
        # Keys of which no column decides the shard are all in shard 0.
        is_unplaced = bool(rules) and not any(rule.placed for rule in rules.values())
        stores.append(
            StoreState(
                operator=operator,
                store=store,
                shards=tuple(shards),
                rules=rules or None,
                single=has_single_shard or is_unplaced,
                unknown=unknown,
            )
        )
    return tuple(stores)


def of_stores(by_store: Mapping[str, T], operator: str) -> dict[str, T]:
    """Return the items of an operator's stores: "<operator>/<store>" -> it, by the store."""
    start = f"{operator}/"
    own = {}
    for name, value in by_store.items():
        if name.startswith(start):
            own[name.removeprefix(start)] = value
    return own


def partitions_of(image: Image) -> int | None:
    """Return the number of state partitions of the query; None where its logs do not say."""
    return chains.partitions_of(image.settings)


def provider_of(image: Image) -> str | None:
    """Return the provider of the image's state; None where it has none, or nothing says."""
    return image.operators[0].provider if image.operators else None


if TYPE_CHECKING:
    from stateshift.formats.blocks import RowBlock

# The entries of one store's block that belong to the part.
Kept = Callable[[str, "RowBlock"], "RowBlock"]


def belongs(part: JsonObject, operator: str, shard: int) -> Kept:
    """Return the test of one shard's entries that belong to the part."""
    if "shards" in part:
        is_kept = shard in part["shards"]
        return lambda store, block: block if is_kept else _taken(block, [False] * len(block))
    column, values = part["column"], frozenset(part["values"])
    plain_rules = of_stores(part["rules"], operator)
    rules = {store: from_plain(KeyRule, rule) for store, rule in plain_rules.items()}

    def kept(store: str, block: RowBlock) -> RowBlock:
        at = nameable(rules[store], column) if store in rules else None
        if at is None:
            fact = f"entries of the store {store}, whose keys have no column {column}"
            raise FormatError(fact)
        from stateshift.engines.spark.entries.columnar import texts_of

        texts = texts_of(StoreView.of_rule(store, rules[store]), at, block.keys)
        return _taken(block, [text in values for text in texts])

    return kept


def _taken(block: RowBlock, flags: list[bool]) -> RowBlock:
    import numpy as np  # loaded with Arrow, for which no plan should wait

    return block.take(np.flatnonzero(flags))


def shards_of(by: int, part: int, partitions: int) -> list[int]:
    """Return the shards of part `part` of `by`: even runs, but for one shard."""
    return list(range(part * partitions // by, (part + 1) * partitions // by))

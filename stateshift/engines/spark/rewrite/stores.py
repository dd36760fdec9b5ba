"""The stores of an image's operators, and how their keys are placed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from stateshift.engines.spark import chains
from stateshift.engines.spark.entries.keys import KeyRule, Schema, key_rule
from stateshift.engines.spark.image import spark_image
from stateshift.errors import FormatError
from stateshift.survey import Image, ShardFiles

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreState:
    """One store of an operator, over all its shards, and how its keys are placed; None where that
    is not known, for the reason in `unknown`.
    """

    operator: str
    store: str
    shards: tuple[ShardFiles, ...]
    rules: Mapping[str, KeyRule] | None
    single: bool
    unknown: str | None = None

    @property
    def families(self) -> bool:
        return any("/" in name for name in self.rules or {})


def stores_of(image: Image, framed: bool) -> tuple[StoreState, ...]:
    """Return the stores of the image, each with the rules for its keys (and those of its column
    families).
    """
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
        rules, unknown = _rules(operators[operator].name, schemas, framed)
        has_single_shard = operators[operator].shards == 1 and partitions_of(image) != 1
        stores.append(
            StoreState(
                operator=operator,
                store=store,
                shards=tuple(shards),
                rules=rules or None,
                single=has_single_shard or _is_unplaced(rules),
                unknown=unknown,
            )
        )
    return tuple(stores)


def _is_unplaced(rules: Mapping[str, KeyRule]) -> bool:
    """Whether no column of its keys decides the shard: all of them are in shard 0."""
    return bool(rules) and not any(rule.placed for rule in rules.values())


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


def _rules(
    operator: str | None, schemas: Mapping[str, Schema], framed: bool
) -> tuple[dict[str, KeyRule], str | None]:
    try:
        rules = {name: key_rule(operator, name, schema, framed) for name, schema in schemas.items()}
    except FormatError as error:
        return {}, error.fact
    return rules, None if rules else "no schema tells its key"

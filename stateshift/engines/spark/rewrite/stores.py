"""The stores of an image's operators, and how their keys are placed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stateshift.engines.spark import chains
from stateshift.engines.spark.entries.keys import KeyRule, key_rule
from stateshift.engines.spark.image import spark_image
from stateshift.errors import FormatError
from stateshift.survey import Image, ShardFiles


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
    """The stores of the image, each with the rules for its keys (and those of its column
    families).
    """
    schemas = spark_image(image).schemas
    counts = {operator.id: operator.shards for operator in image.operators}
    names = {operator.id: operator.name for operator in image.operators}
    groups: dict[tuple[str, str], list[ShardFiles]] = {}
    for shard in image.shards:
        groups.setdefault((shard.operator, shard.store), []).append(shard)
    found = []
    for (operator, store), shards in groups.items():
        whole = f"{operator}/{store}"
        own = {}
        for n, s in schemas.items():
            if n == whole or n.startswith(whole + "/"):
                own[n[len(operator) + 1 :]] = s
        rules, unknown = _rules(names.get(operator), own, framed)
        single = counts[operator] == 1 and partitions_of(image) != 1
        single = single or (bool(rules) and not any(rule.placed for rule in rules.values()))
        found.append(StoreState(operator, store, tuple(shards), rules or None, single, unknown))
    return tuple(found)


def partitions_of(image: Image) -> int | None:
    return chains.partitions_of(image.settings)


def provider_of(image: Image) -> str | None:
    return image.operators[0].provider if image.operators else None


def _rules(
    operator: str | None, schemas: Mapping[str, Mapping[str, Any]], framed: bool
) -> tuple[dict[str, KeyRule], str | None]:
    try:
        rules = {name: key_rule(operator, name, schema, framed) for name, schema in schemas.items()}
    except FormatError as error:
        return {}, error.fact
    return rules, None if rules else "no schema tells its key"

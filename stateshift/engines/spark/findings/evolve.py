"""The obstacles to making a state's rows those of a changed query: refused by name, with the way
out. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.rewrite.evolution import Evolution, evolution_of
from stateshift.engines.spark.rewrite.move import StateChange
from stateshift.engines.spark.rewrite.stores import StoreState, partitions_of
from stateshift.formats.spark.offset_conf import encoding_of
from stateshift.formats.spark.row_change import Unfit
from stateshift.specification.transform import Evolve
from stateshift.survey import Finding, Image

# Spark's own column families are bound to each other: a row more in one of them is one too few in
# another. Their names begin, or end, like this.
OWN_BEGINNING, OWN_ENDINGS = "$", ("-keyToNumValues", "-tsWithKey")


def of_evolution(
    change: StateChange, image: Image, name: str, stores: tuple[StoreState, ...], look: str
) -> Iterator[Finding]:
    """Refuse what cannot evolve. `look` is the command that shows the columns."""
    if not change.evolve:
        return
    if change.split or change.merge:
        yield Finding(
            "refuse",
            f"{name}: `evolve` beside a split or a merge",
            hint="one after the other: two jobs",
        )
    encoding = encoding_of(image.settings)
    if encoding != "unsaferow":
        fact = f"{name} encodes its rows as {encoding}, whose schemas Spark itself can evolve"
        yield Finding("refuse", fact, hint="leave `evolve` out")
        return
    for asked in change.evolve:
        if asked.operator in change.dropped_operators:
            fact = f"{name}: operator {asked.operator} is dropped, and its rows cannot evolve"
            yield Finding("refuse", fact, hint="leave `evolve` or `drop` out")
        else:
            yield from _of_store(asked, image, name, stores, look)


def _of_store(
    asked: Evolve, image: Image, name: str, stores: tuple[StoreState, ...], look: str
) -> Iterator[Finding]:
    schemas = spark_image(image).schemas
    schema = schemas.get(asked.place)
    if schema is None:
        known = ", ".join(sorted(schemas)) or "none"
        yield Finding(
            "refuse",
            f"{name}: no schema describes the columns of operator {asked.operator}, "
            f"store {asked.store}",
            hint=f"the stores with a schema are, as <operator>/<store>: {known}",
        )
        return
    where = f"{name}: operator {asked.operator}, store {asked.store}"
    nullable_only = Evolve(
        asked.operator, asked.store, nullable=asked.nullable, nullable_key=asked.nullable_key
    )
    family = asked.place.rpartition("/")[2]
    is_own = family.startswith(OWN_BEGINNING) or family.endswith(OWN_ENDINGS)
    if asked != nullable_only and is_own:
        fact = f"{where} is kept by Spark for itself: its columns are no query's"
        yield Finding("refuse", fact, hint="change the store that holds the rows")
        return
    try:
        evolution = evolution_of(asked, schema, "")
    except Unfit as error:
        yield Finding("refuse", f"{where}: {error}", hint=f"{look}   # shows the columns")
        return
    if evolution.rekeyed or evolution.key_change.get("rename"):
        store = next(store for store in stores if store.holds(asked.place))
        yield from _of_key(evolution, where, image, store)
    dropped = evolution.value_change.get("drop")
    if dropped:
        yield Finding("warn", f"{where}: what is in {', '.join(dropped)} is left behind")


def _of_key(evolution: Evolution, where: str, image: Image, store: StoreState) -> Iterator[Finding]:
    """Refuse keys that belong to several stores, or are not a single row: those stay."""
    own_shards = [shard for shard in image.shards if shard.operator == store.operator]
    is_alone = len(own_shards) == len(store.shards) and not store.families
    if not is_alone or not _is_one_row(store, evolution):
        yield Finding(
            "refuse",
            f"{where}: its key is kept in several places, or not as one row, and cannot "
            "become another",
            hint="widen the column behind the stateful operator, or let this operator start "
            "empty (`drop`)",
        )
    elif partitions_of(image) is None:
        fact = f"{where}: the offset log does not say how many partitions there are"
        yield Finding("refuse", fact, hint="let a newer Spark run one batch of it")


def _is_one_row(store: StoreState, evolution: Evolution) -> bool:
    """Whether a key is one row, and all of its columns decide its shard."""
    rule = next(iter((store.rules or {}).values()), None)
    if rule is None or rule.encoder.kind not in ("plain", "row"):
        return False
    fields = json.loads(evolution.key)["fields"]
    return rule.placed == tuple((number,) for number in range(len(fields)))

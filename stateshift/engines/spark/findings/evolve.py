"""What keeps a state's rows from becoming those of a changed query: refused by name, with the
way out. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from stateshift.engines.spark.entries.settings import ENCODING
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.rewrite.evolution import Evolution, evolution_of, wanted
from stateshift.engines.spark.rewrite.stores import StoreState, partitions_of
from stateshift.engines.spark.rewrite.wishes import Wishes
from stateshift.formats.spark.row_change import Unfit
from stateshift.survey import Finding, Image

# Spark's own column families are bound to each other: a row more in one of them is one too few in
# another.
OWN = ("$", "-keyToNumValues", "-tsWithKey")


def of_evolution(
    wishes: Wishes, image: Image, name: str, stores: tuple[StoreState, ...], look: str
) -> Iterator[Finding]:
    """`look` is the command that shows the columns."""
    if not wishes.evolve:
        return
    if wishes.split or wishes.merge:
        yield Finding(
            "refuse",
            f"{name}: `evolve` beside a split or a merge",
            hint="one after the other: two jobs",
        )
    encoding = image.settings.get(ENCODING, "unsaferow")
    if encoding != "unsaferow":
        yield Finding(
            "refuse",
            f"{name} encodes its rows as {encoding}, whose schemas Spark itself can evolve",
            hint="leave `evolve` out",
        )
        return
    for place, change, schema in wanted(wishes, image):
        if schema is None:
            known = ", ".join(sorted(spark_image(image).schemas)) or "none"
            yield Finding(
                "refuse",
                f"{name}: no schema tells the columns of operator {change['operator']}, "
                f"store {change.get('store', 'default')}",
                hint=f"told are, as <operator>/<store>: {known}",
            )
            continue
        yield from _of_one(place, change, schema, image, name, stores, look)


def _of_one(
    place: str,
    change: Mapping[str, Any],
    schema: Mapping[str, Any],
    image: Image,
    name: str,
    stores: tuple[StoreState, ...],
    look: str,
) -> Iterator[Finding]:
    where = f"{name}: operator {change['operator']}, store {change.get('store', 'default')}"
    family = place.rpartition("/")[2]
    only_names = not change.keys() - {
        "kind",
        "operator",
        "store",
        "nullable",
        "nullable_key",
    }  # no row changes
    if not only_names and (family.startswith(OWN[0]) or family.endswith(OWN[1:])):
        yield Finding(
            "refuse",
            f"{where} is kept by Spark for itself: its columns are no query's",
            hint="change the store that holds the rows",
        )
        return
    try:
        evolution = evolution_of(change, schema, "")
    except Unfit as error:
        yield Finding("refuse", f"{where}: {error}", hint=f"{look}   # shows the columns")
        return
    if evolution.rekeyed or evolution.key_change.get("rename"):
        store = next(s for s in stores if f"{place}/".startswith(f"{s.operator}/{s.store}/"))
        yield from _of_key(evolution, where, image, store)
    if evolution.value_change.get("drop"):
        told = ", ".join(evolution.value_change["drop"])
        yield Finding("warn", f"{where}: what is in {told} is left behind")


def _of_key(evolution: Evolution, where: str, image: Image, store: StoreState) -> Iterator[Finding]:
    """Keys of several stores that belong together, and keys that are put together otherwise than
    as one row, stay.
    """
    alone = len([shard for shard in image.shards if shard.operator == store.operator]) == len(
        store.shards
    )
    rule = next(iter((store.rules or {}).values()), None)
    columns = tuple((number,) for number in range(len(json.loads(evolution.key)["fields"])))
    whole = rule is not None and rule.encoder.kind in ("plain", "row") and rule.placed == columns
    if store.families or not alone or not whole:
        yield Finding(
            "refuse",
            (
                f"{where}: its key is kept in several places, or not as one row, and cannot "
                "become another"
            ),
            hint=(
                "widen the column behind the stateful operator, or let this operator start "
                "empty (`drop`)"
            ),
        )
    elif partitions_of(image) is None:
        yield Finding(
            "refuse",
            f"{where}: the offset log does not say how many partitions there are",
            hint="let a newer Spark run one batch of it",
        )

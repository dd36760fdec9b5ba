"""The schemas of an image's stores, as far as a change of the state needs them. Reads only.

    "<operator>/<store>" or "<operator>/<store>/<column family>"  ->  {"key": StructType JSON,
    "value": the same,
                                                                       "encoder": the key encoder's JSON, or None,
                                                                       "prefix": the key columns looked up together,
                                                                       "lists": whether values are lists of rows,
                                                                       "avro": whether rows are Avro's}

One file below shard 0 describes a store; one named by the operator's newest metadata describes all
column families of a store (`formats.spark.schema`, v3). What has no schema is left out: whoever
needs it refuses it by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stateshift.engines.spark.entries.settings import is_avro
from stateshift.engines.spark.entries.store_views import keeps_lists
from stateshift.engines.spark.small_files import Reading
from stateshift.formats.spark import operator_metadata, schema
from stateshift.formats.spark.names import DEFAULT_STORE

Schemas = dict[str, dict[str, Any]]


def schemas_of(
    reading: Reading,
    stores: Mapping[str, tuple[str, ...]],
    files: Mapping[str, list[str]],
    newest: Mapping[str, str],
    settings: Mapping[str, str],
) -> Schemas:
    """`stores` and `files` (metadata and schemas) by operator; `newest` is its metadata that
    applies.
    """
    found: Schemas = {}
    for operator, names in stores.items():
        path = newest.get(operator)
        told = reading.decoded(path, operator_metadata.decode_operator_metadata) if path else None
        infos = {info.name: info for info in told.stores} if told else {}
        for name in names:
            info = infos.get(name)
            place = _path(operator, name, info, files.get(operator, []))
            decoded = reading.decoded(place, schema.decode_schema) if place else None
            if decoded is None:
                continue
            for one in decoded.stores:
                family = f"/{one.name}" if decoded.version == 3 else ""
                found[f"{operator}/{name}{family}"] = {
                    "key": one.key,
                    "value": one.value,
                    "encoder": one.encoder or None,
                    "lists": decoded.version == 3 and keeps_lists(one.name, told),
                    "avro": is_avro(settings, decoded.version == 3),
                    "prefix": info.prefix_columns if info else 0,
                }
    return found


def _path(
    operator: str, store: str, info: operator_metadata.StoreInfo | None, files: list[str]
) -> str | None:
    plain = f"state/{operator}/0/{'' if store == DEFAULT_STORE else store + '/'}_metadata/schema"
    named = [path.rsplit("/", 1)[-1] for path in info.schema_paths] if info else []
    places = [f"state/{operator}/_stateSchema/{store}/{name}" for name in reversed(named)]
    return next((path for path in (*places, plain) if path in files), None)

"""The schemas of an image's stores, as far as a change of the state needs them. Reads only.

    "<operator>/<store>" or "<operator>/<store>/<column family>"  ->  a StoreSchema

One file below shard 0 describes a store; one named by the operator's newest metadata describes all
column families of a store (`formats.spark.schema`, v3). A store without a schema is left out:
whoever needs it refuses it by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from stateshift.engines.spark.image import StoreSchema
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.query_files import folder_of
from stateshift.formats.spark import operator_metadata, schema
from stateshift.formats.spark.offset_conf import is_avro
from stateshift.formats.spark.operator_metadata import OperatorMetadata, StoreInfo, keeps_lists


def schemas_of(
    reading: Reading,
    stores: Mapping[str, tuple[str, ...]],
    files: Mapping[str, list[str]],
    newest: Mapping[str, str],
    settings: Mapping[str, str],
) -> dict[str, StoreSchema]:
    """Return the schema of every store and column family that has one. `stores` and `files`
    (metadata and schemas) are by operator; `newest` is its metadata that applies.
    """
    schemas: dict[str, StoreSchema] = {}
    for operator, names in stores.items():
        metadata = _metadata(reading, newest.get(operator))
        for name in names:
            path = _schema_path(operator, name, _info(metadata, name), files.get(operator, []))
            decoded = None if path is None else reading.decoded(path, schema.decode_schema)
            if decoded is None:
                continue
            of_store = _of_store(name, decoded, metadata, settings)
            schemas.update((f"{operator}/{place}", each) for place, each in of_store.items())
    return schemas


def _of_store(
    name: str,
    decoded: schema.SchemaFile,
    metadata: OperatorMetadata | None,
    settings: Mapping[str, str],
) -> dict[str, StoreSchema]:
    """Return the schema of a store, or of each of its column families."""
    info = _info(metadata, name)
    has_families = decoded.version == 3
    schemas: dict[str, StoreSchema] = {}
    for described in decoded.stores:
        place = f"{name}/{described.name}" if has_families else name
        schemas[place] = {
            "key": described.key,
            "value": described.value,
            "encoder": described.encoder or None,
            "lists": has_families and keeps_lists(described.name, metadata),
            "avro": is_avro(settings, has_families),
            "prefix": 0 if info is None else info.prefix_columns,
        }
    return schemas


def _metadata(reading: Reading, path: str | None) -> OperatorMetadata | None:
    if path is None:
        return None
    return reading.decoded(path, operator_metadata.decode_operator_metadata)


def _info(metadata: OperatorMetadata | None, store: str) -> StoreInfo | None:
    """Return the entry of a store in the operator's metadata."""
    stores = () if metadata is None else metadata.stores
    return next((info for info in stores if info.name == store), None)


def _schema_path(operator: str, store: str, info: StoreInfo | None, files: list[str]) -> str | None:
    """Return the newest schema that the metadata names, else the one below shard 0."""
    named = () if info is None else info.schema_paths
    candidates = []
    for path in reversed(named):
        name = path.rpartition("/")[2]
        candidates.append(f"state/{operator}/_stateSchema/{store}/{name}")
    candidates.append(f"{folder_of(operator, 0, store)}/_metadata/schema")
    return next((path for path in candidates if path in files), None)

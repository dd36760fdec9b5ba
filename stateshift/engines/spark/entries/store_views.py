"""How the entries of an image are read: per store its columns, its encoders, and which columns
place a key. Reads only.

    Views.of(operator, store) -> StoreView  the store as entries name it: `default`,
                                            `default/<column family>`

Schemas lie beside the state (`_metadata/schema` of shard 0, or `_stateSchema` for column families),
prefixes and lists in the operator's metadata. What both leave open (Spark 3.x has no metadata) the
names tell: Spark's operators have always called their stores and columns the same
(SymmetricHashJoinStateManager, StreamingSessionWindowStateManager).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from stateshift.engines.spark.entries.avro_encoders import avro_rows_of
from stateshift.engines.spark.entries.dedup_values import dedup_value
from stateshift.engines.spark.entries.keys import is_collated, key_encoder, placed_by
from stateshift.engines.spark.entries.settings import delimiter, is_avro
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.small_files import SMALL
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import operator_metadata
from stateshift.formats.spark.names import CheckpointPath, classify
from stateshift.formats.spark.schema import StoreSchema, decode_schema
from stateshift.formats.spark.types import Atomic, StructType, decode_struct
from stateshift.storage.protocol import Storage
from stateshift.survey import Image

ROCKSDB, HDFS_BACKED = "rocksdb", "hdfs-backed"

_JOIN_LISTS = ("-keyWithTsToValues", "-tsWithKey")

T = TypeVar("T")


class Views:
    """The views of one image. Stores that no schema describes have one, too: it knows nothing."""

    def __init__(self, views: Mapping[tuple[str, str], StoreView]) -> None:
        self._views = dict(views)

    def of(self, operator: str, store: str) -> StoreView:
        found = self._views.get((operator, store))
        if found is None:  # an operator without virtual column families may still name its one
            outer, _, family = store.partition("/")
            whole = self._views.get((operator, outer)) if family == "default" else None
            found = replace(whole, store=store) if whole else StoreView(operator, store)
            self._views[operator, store] = found
        return found

    def names(self, operator: str, store: str) -> tuple[str, ...]:
        """What entries of a store on disk call their stores: it, or its column families."""
        names = []
        for op, name in self._views:
            if op == operator and name.partition("/")[0] == store:
                names.append(name)
        return tuple(names)

    def all(self) -> tuple[StoreView, ...]:
        return tuple(self._views.values())


def views_of(storage: Storage, image: Image) -> Views:
    """From the schemas and metadata that a restart at the image's epoch reads."""
    start = len(image.path) + 1 if image.path else 0
    files = {path: classify(path[start:]) for path in image.needed}
    found: dict[tuple[str, str], StoreView] = {}
    for operator in image.operators:
        own = {path: place for path, place in files.items() if place.operator == operator.id}
        metadata = _metadata(storage, own)
        for store in operator.stores:
            schemas = _schemas(storage, own, store.name)
            avro = is_avro(image.settings, any(family for _, family in schemas))
            written = _written(storage, own, store.name, metadata) if avro else {}
            for schema, family in schemas:
                name = f"{store.name}/{schema.name}" if family else store.name
                empty = StoreView(operator.id, name, delimiter=delimiter(image.settings))
                view = _view(empty, schema, family, operator.provider, metadata, operator.name)
                view = _of_avro(view, schema, written) if avro else view
                value = dedup_value(storage, image, view, operator.name)
                found[operator.id, name] = replace(view, value=value)
            if not any(
                key[0] == operator.id and key[1].split("/")[0] == store.name for key in found
            ):
                found[operator.id, store.name] = StoreView(operator.id, store.name)
    return Views(found)


def _view(
    empty: StoreView,
    schema: StoreSchema,
    family: bool,
    provider: str | None,
    metadata: operator_metadata.OperatorMetadata | None,
    operator: str | None,
) -> StoreView:
    try:
        key, value = decode_struct(schema.key), decode_struct(schema.value)
        value = value if family else _with_wide_timeout(value, operator)
        prefix = (
            max((store.prefix_columns for store in metadata.stores), default=0) if metadata else 0
        )
        encoder = key_encoder(key, schema.encoder, prefix, provider == ROCKSDB)
    except FormatError:
        return empty
    if provider not in (ROCKSDB, HDFS_BACKED):
        return empty
    name = schema.name if family else empty.store
    placed = None if is_collated(schema.key) else placed_by(operator, name, key)
    many = family and keeps_lists(name, metadata)
    return replace(empty, key=key, value=value, encoder=encoder, many=many, placed=placed)


def _of_avro(
    view: StoreView, schema: StoreSchema, written: Mapping[tuple[str, int], str]
) -> StoreView:
    """The same store, its rows Avro's: values by the schema that each of them names."""
    if view.key is None or view.value is None:
        return view
    older = {number: text for (family, number), text in written.items() if family == schema.name}
    try:
        values = {number: decode_struct(text) for number, text in older.items()} | {
            schema.value_id: view.value
        }
        encoder = replace(view.encoder, avro=True)
        return replace(
            view, encoder=encoder, avro=avro_rows_of(view.key, encoder, view.value, values)
        )
    except FormatError:
        return StoreView(view.operator, view.store, delimiter=view.delimiter)


def _with_wide_timeout(value: StructType, operator: str | None) -> StructType:
    """State format 1 of flatMapGroupsWithState calls its last column an integer, and keeps a long
    there (FlatMapGroupsWithStateExecHelper, StateManagerImplV1).
    """
    if operator not in (None, "flatMapGroupsWithState") or value.names[-1:] != (
        "timeoutTimestamp",
    ):
        return value
    return replace(value, types=(*value.types[:-1], Atomic("long")))


def keeps_lists(store: str, metadata: operator_metadata.OperatorMetadata | None) -> bool:
    """Whether the values of a column family are lists."""
    if store.endswith(_JOIN_LISTS):
        return True
    variables = metadata.properties.get("stateVariables") if metadata else None
    return any(
        isinstance(one, dict)
        and one.get("stateName") == store
        and "List" in str(one.get("stateVariableType"))
        for one in (variables if isinstance(variables, list) else ())
    )


def _metadata(
    storage: Storage, files: Mapping[str, CheckpointPath]
) -> operator_metadata.OperatorMetadata | None:
    """The newest that applies: that of version 2 is per batch."""
    own = [
        (place.version if place.version is not None else -1, path)
        for path, place in files.items()
        if place.area == "state-metadata"
    ]
    return (
        _decoded(storage, max(own)[1], operator_metadata.decode_operator_metadata) if own else None
    )


def _schemas(
    storage: Storage, files: Mapping[str, CheckpointPath], store: str
) -> list[tuple[StoreSchema, bool]]:
    """The store's schema, or one for each of its column families."""
    own = [
        (place.version if place.version is not None else -1, path)
        for path, place in files.items()
        if place.area == "state-schema" and place.store == store
    ]
    for version, path in sorted(own, reverse=True):
        found = _decoded(storage, path, decode_schema)
        if found is not None:
            return [(one, version >= 0) for one in found.stores[: None if version >= 0 else 1]]
    return []


def _written(
    storage: Storage,
    files: Mapping[str, CheckpointPath],
    store: str,
    metadata: operator_metadata.OperatorMetadata | None,
) -> dict[tuple[str, int], str]:
    """Column family, number of a schema of its values -> that schema. Files that the metadata does
    not name are of batches that were begun again.
    """
    told = set()
    for one in metadata.stores if metadata else ():
        for path in one.schema_paths:
            told.add(path.rpartition("/")[2])
    own = [
        (place.version, path)
        for path, place in files.items()
        if place.area == "state-schema"
        and place.store == store
        and place.version is not None
        and (not told or path.rpartition("/")[2] in told)
    ]
    decoded = (_decoded(storage, path, decode_schema) for _, path in sorted(own))
    return {(one.name, one.value_id): one.value for file in decoded if file for one in file.stores}


def _decoded(storage: Storage, path: str, decode: Callable[[bytes], T]) -> T | None:
    """A job starts without these files, too: who wants to know that one is damaged asks
    `verify`.
    """
    try:
        return decode(storage.read(path, SMALL))
    except (FormatError, MissingFile):
        return None

"""How the entries of an image are read: per store its columns, its encoders, and which columns
place a key. Reads only.

    Views.of(operator, store) -> StoreView  the store as entries name it: `default`,
                                            `default/<column family>`

Schemas lie beside the state (`_metadata/schema` of shard 0, or `_stateSchema` for column families),
prefixes and lists in the operator's metadata. The names tell everything that both leave open (Spark
3.x has no metadata): Spark's operators have always called their stores and columns the same
(SymmetricHashJoinStateManager, StreamingSessionWindowStateManager).

The columns of dropDuplicates' values are found by looking at the state where the schema is wrong
(see `store_view`). Operator metadata (4.0 and later) says whether an operator is dropDuplicates.
Without it, the state shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, TypeVar

from stateshift.engines.spark.entries.encoders import avro_rows_of
from stateshift.engines.spark.entries.keys import is_collated, key_encoder, placing_columns
from stateshift.engines.spark.entries.store_view import ONE_NULL, VALUE, StoreView, lists_the_input
from stateshift.engines.spark.layout import inside
from stateshift.engines.spark.small_files import SMALL
from stateshift.errors import FormatError, MissingFile
from stateshift.formats import bounds
from stateshift.formats.blocks import RowBlock
from stateshift.formats.rocksdb.sst_blocks import decode_sst_blocks
from stateshift.formats.spark import operator_metadata
from stateshift.formats.spark.names import DEFAULT_STORE, Area, CheckpointPath, classify
from stateshift.formats.spark.offset_conf import delimiter, is_avro
from stateshift.formats.spark.operator_metadata import OperatorMetadata, keeps_lists
from stateshift.formats.spark.schema import StoreSchema, decode_schema
from stateshift.formats.spark.state_blocks import (
    decode_changelog_blocks,
    decode_delta_blocks,
    decode_snapshot_blocks,
)
from stateshift.formats.spark.types import Atomic, StructType, decode_struct
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Operator

ROCKSDB, HDFS_BACKED = "rocksdb", "hdfs-backed"

T = TypeVar("T")
UNNUMBERED = -1  # a file of which there is one for all batches


class Described(NamedTuple):
    """The schema of a store, or of one of its column families."""

    schema: StoreSchema
    is_family: bool


class Views:
    """The views of one image. Stores that no schema describes have one, too: it knows nothing."""

    def __init__(self, views: Mapping[tuple[str, str], StoreView]) -> None:
        self._views = dict(views)

    def of(self, operator: str, store: str) -> StoreView:
        view = self._views.get((operator, store))
        if view is None:
            view = StoreView(operator, store)
            # An operator without virtual column families may still name its one.
            outer, _, family = store.partition("/")
            whole = self._views.get((operator, outer))
            if family == "default" and whole is not None:
                view = replace(whole, store=store)
            self._views[operator, store] = view
        return view

    def names(self, operator: str, store: str) -> tuple[str, ...]:
        own = [name for owner, name in self._views if owner == operator]
        return tuple(name for name in own if name.partition("/")[0] == store)

    def all(self) -> tuple[StoreView, ...]:
        return tuple(self._views.values())


@dataclass(frozen=True, slots=True)
class _OperatorFiles:
    """One operator's metadata and schemas; a damaged one is taken for missing, as by a job."""

    storage: Storage
    files: Mapping[str, CheckpointPath]

    def metadata(self) -> OperatorMetadata | None:
        """Return the newest that applies: that of version 2 is per batch."""
        versions = self._versions("state-metadata")
        if not versions:
            return None
        _, path = versions[-1]
        return self._decoded(path, operator_metadata.decode_operator_metadata)

    def schemas(self, store: str) -> list[Described]:
        """Return the store's schema, or one for each of its column families."""
        for version, path in reversed(self._versions("state-schema", store)):
            file = self._decoded(path, decode_schema)
            if file is not None and version == UNNUMBERED:
                return [Described(file.stores[0], is_family=False)]
            if file is not None:
                return [Described(schema, is_family=True) for schema in file.stores]
        return []

    def written(self, store: str, metadata: OperatorMetadata | None) -> dict[tuple[str, int], str]:
        """Return column family, number of a schema of its values -> that schema."""
        named: set[str] = set()
        for info in metadata.stores if metadata else ():
            named.update(path.rpartition("/")[2] for path in info.schema_paths)
        written = {}
        for version, path in self._versions("state-schema", store):
            # Those that the metadata does not name are of batches that were begun again.
            is_current = not named or path.rpartition("/")[2] in named
            file = None
            if is_current and version != UNNUMBERED:
                file = self._decoded(path, decode_schema)
            for schema in file.stores if file else ():
                written[schema.name, schema.value_id] = schema.value
        return written

    def _versions(self, area: Area, store: str | None = None) -> list[tuple[int, str]]:
        """Return the files of an area, those with the lowest version first."""
        versions = []
        for path, place in self.files.items():
            if place.area == area and place.store == store:
                versions.append((UNNUMBERED if place.version is None else place.version, path))
        return sorted(versions)

    def _decoded(self, path: str, decode: Callable[[bytes], T]) -> T | None:
        try:
            return decode(self.storage.read(path, SMALL))
        except (FormatError, MissingFile):
            return None


def views_of(storage: Storage, image: Image) -> Views:
    """Return the views by the schemas and metadata that a restart at the image's epoch reads."""
    files = {path: classify(inside(image, path)) for path in image.needed}
    views: dict[tuple[str, str], StoreView] = {}
    for operator in image.operators:
        own = {path: place for path, place in files.items() if place.operator == operator.id}
        operator_files = _OperatorFiles(storage, own)
        metadata = operator_files.metadata()
        for store in operator.stores:
            for view in _store_views(image, operator, store.name, operator_files, metadata):
                value = dedup_value(storage, image, view, operator.name)
                views[view.operator, view.store] = replace(view, value=value)
    return Views(views)


def _store_views(
    image: Image,
    operator: Operator,
    store: str,
    files: _OperatorFiles,
    metadata: OperatorMetadata | None,
) -> Iterator[StoreView]:
    schemas = files.schemas(store)
    if not schemas:
        yield StoreView(operator.id, store)
    avro = is_avro(image.settings, any(described.is_family for described in schemas))
    written = files.written(store, metadata) if avro else {}
    for described in schemas:
        name = f"{store}/{described.schema.name}" if described.is_family else store
        empty = StoreView(operator.id, name, delimiter=delimiter(image.settings))
        view = _view(empty, described, operator, metadata)
        yield _of_avro(view, described.schema, written) if avro else view


def _view(
    empty: StoreView, described: Described, operator: Operator, metadata: OperatorMetadata | None
) -> StoreView:
    schema, is_family = described
    name = schema.name if is_family else empty.store
    if metadata is None:
        prefix_columns = 0
    else:
        prefix_columns = max((store.prefix_columns for store in metadata.stores), default=0)
    prefix, framed = prefix_columns, operator.provider == ROCKSDB
    try:
        key, value = decode_struct(schema.key), decode_struct(schema.value)
        if not is_family:
            value = _with_wide_timeout(value, operator.name)
        encoder = key_encoder(key, schema.encoder, prefix, framed)
    except FormatError:
        return empty
    if operator.provider not in (ROCKSDB, HDFS_BACKED):
        return empty
    placed = None if is_collated(schema.key) else placing_columns(operator.name, name, key)
    return replace(
        empty,
        key=key,
        value=value,
        encoder=encoder,
        many=is_family and keeps_lists(name, metadata),
        placed=placed,
    )


def _of_avro(
    view: StoreView, schema: StoreSchema, written: Mapping[tuple[str, int], str]
) -> StoreView:
    """Return the same store, its rows Avro's: values by the schema that each of them names."""
    if view.key is None or view.value is None:
        return view
    older = {number: text for (family, number), text in written.items() if family == schema.name}
    encoder = replace(view.encoder, avro=True)
    try:
        values = {number: decode_struct(text) for number, text in older.items()}
        values[schema.value_id] = view.value
        avro = avro_rows_of(view.key, encoder, view.value, values)
    except FormatError:
        return StoreView(view.operator, view.store, delimiter=view.delimiter)
    return replace(view, encoder=encoder, avro=avro)


def _with_wide_timeout(value: StructType, operator: str | None) -> StructType:
    """Return a value whose last column is a long, where it is a timeout: state format 1 of
    flatMapGroupsWithState calls it an integer, and keeps a long there
    (FlatMapGroupsWithStateExecHelper, StateManagerImplV1).
    """
    if operator not in (None, "flatMapGroupsWithState"):
        return value
    if value.names[-1:] != ("timeoutTimestamp",):
        return value
    return replace(value, types=(*value.types[:-1], Atomic("long")))


OPERATOR = "dedupe"


def dedup_value(
    storage: Storage, image: Image, view: StoreView, operator: str | None
) -> StructType | None:
    """Return the schema's columns of values; one void column in a store of dropDuplicates."""
    if view.key is None or view.value is None or view.avro is not None:
        return view.value
    if operator == OPERATOR:
        return VALUE
    if operator is not None or view.store != DEFAULT_STORE:
        return view.value
    if not lists_the_input(view.key, view.value):
        return view.value
    return VALUE if _holds_nulls(storage, image, view) else view.value


def _holds_nulls(storage: Storage, image: Image, view: StoreView) -> bool:
    """Whether the first value that can be read is the one null. All values are, or none."""
    one_null = ONE_NULL if view.encoder.kind == "plain" else b"\0" + ONE_NULL
    own = [shard.files for shard in image.shards if shard.operator == view.operator]
    for path in chain.from_iterable(own):
        value = _first_value(storage, path)
        if value is not None:
            return value == one_null
    return False


def _first_value(storage: Storage, path: str) -> bytes | None:
    """Return the first value in a file; None where there is none, or it cannot be read."""
    decode = _DECODERS.get(path.rpartition(".")[2])
    if decode is None:
        return None
    try:
        for block in decode(storage.chunks(path)):
            values = block.values.drop_null()
            if len(values):
                return bytes(values[0].as_py())
    except (FormatError, MissingFile):
        pass
    return None


# The decoders of the records of a file, by the ending of its name; a zip has none.
_DECODERS: Mapping[str, Callable[[Iterator[bytes]], Iterator[RowBlock]]] = {
    "delta": decode_delta_blocks,
    "snapshot": decode_snapshot_blocks,
    "changelog": lambda chunks: decode_changelog_blocks(chunks)[1],
    "sst": lambda chunks: (
        block for block, _ in decode_sst_blocks(bounds.gather(chunks, "an SST"))
    ),
}

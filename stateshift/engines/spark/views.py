"""How the entries of an image are read: per store its columns, its encoders, and which columns place a key. Reads only.

    Views.of(operator, store) -> StoreView        the store as entries name it: `default`, `default/<column family>`

      StoreView   key, value     the columns, None where no schema tells them
                  encoder, many  how keys, and whether values as lists, are put together
                  placed         the columns that decide the shard, as paths into the key; () is shard 0 alone,
                                 None where it is not known

Schemas lie beside the state (`_metadata/schema` of shard 0, or `_stateSchema` for column families), prefixes and lists
in the operator's metadata. What both leave open (Spark 3.x has no metadata) the names tell: Spark's operators have
always called their stores and columns the same (SymmetricHashJoinStateManager, StreamingSessionWindowStateManager).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from stateshift.engines.spark.encoders import PLAIN, Encoder, Row, bare, decode_key, decode_list, encoder_of
from stateshift.engines.spark.reading import SMALL
from stateshift.engines.spark.rows import named
from stateshift.engines.spark.settings import delimiter
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import operator_metadata
from stateshift.formats.spark.names import CheckpointPath, classify
from stateshift.formats.spark.schema import StoreSchema, decode_schema
from stateshift.formats.spark.types import Atomic, DataType, StructType, decode_struct
from stateshift.formats.spark.unsafe_row import decode_row
from stateshift.storage.protocol import Storage
from stateshift.survey import Image

ROCKSDB, HDFS_BACKED = "rocksdb", "hdfs-backed"
ENCODING = "spark.sql.streaming.stateStore.encodingFormat"

# One column of a key, or one inside of it.
Path = tuple[int, ...]

_JOIN_LISTS = ("-keyWithTsToValues", "-tsWithKey")
_JOIN_SUFFIXED = ("-keyWithIndexToValue", *_JOIN_LISTS)
_BY_WHOLE_KEY = frozenset(
    ("stateStoreSave", "dedupe", "dedupeWithinWatermark", "symmetricHashJoin", "globalLimit", "flatMapGroupsWithState",
     "applyInPandasWithState", "sessionWindowStateStoreSaveExec")
)  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreView:
    """One store (or column family) of one operator, and how its bytes are read."""

    operator: str
    store: str
    key: StructType | None = None
    value: StructType | None = None
    encoder: Encoder = PLAIN
    many: bool = False
    delimiter: bytes = b""
    placed: tuple[Path, ...] | None = None

    @property
    def known(self) -> bool:
        return self.key is not None and self.value is not None

    def decode_key(self, content: bytes) -> Row:
        assert self.key is not None, "asked before whether the columns are known"
        return decode_key(content, self.key, self.encoder)

    def decode_value(self, content: bytes) -> Row | list[Row]:
        """The value's columns, a list of such where the store keeps lists."""
        assert self.value is not None, "asked before whether the columns are known"
        if self.many:
            return decode_list(content, self.value, self.delimiter)
        return decode_row(content if self.encoder.kind == "plain" else bare(content), self.value)

    def show_key(self, content: bytes) -> Any:
        """Plain JSON by column names; hexadecimal where nothing tells how to read it."""
        try:
            return self.named_key(self.decode_key(content)) if self.key is not None else _hex(content)
        except FormatError:
            return _hex(content)

    def show_value(self, content: bytes) -> Any:
        try:
            return self.named_value(self.decode_value(content)) if self.value is not None else _hex(content)
        except FormatError:
            return _hex(content)

    def named_key(self, key: Row) -> Any:
        """A decoded key as plain JSON, by the names of its columns."""
        assert self.key is not None, "asked before whether the columns are known"
        return named(key, self.key)

    def named_value(self, value: Row | list[Row]) -> Any:
        assert self.value is not None, "asked before whether the columns are known"
        if isinstance(value, list):
            return [named(row, self.value) for row in value]
        return named(value, self.value)

    def placing(self, key: Row) -> tuple[list[Any], list[DataType]]:
        """The values, and their types, that a key's shard is computed from."""
        assert self.key is not None and self.placed is not None, "asked before whether the placement is known"
        values, types = [], []
        for path in self.placed:
            value, kind = key, self.key
            for at in path:
                value, kind = value[at], kind.types[at]  # type: ignore[assignment]
            values.append(value)
            types.append(kind)
        return values, types  # type: ignore[return-value]


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
        return tuple(name for op, name in self._views if op == operator and name.partition("/")[0] == store)

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
            for schema, family in _schemas(storage, own, store.name):
                name = f"{store.name}/{schema.name}" if family else store.name
                empty = StoreView(operator.id, name, delimiter=delimiter(image.settings))
                avro = image.settings.get(ENCODING) == "avro" and family
                view = empty if avro else _view(empty, schema, family, operator.provider, metadata, operator.name)
                found[operator.id, name] = view
            if not any(key[0] == operator.id and key[1].split("/")[0] == store.name for key in found):
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
        encoder = _encoder(schema, key, provider, metadata)
    except FormatError:
        return empty
    if provider not in (ROCKSDB, HDFS_BACKED):
        return empty
    name = schema.name if family else empty.store
    placed = None if _collated(schema.key) else _placed(operator, name, key)
    many = family and keeps_lists(name, metadata)
    return replace(empty, key=key, value=value, encoder=encoder, many=many, placed=placed)


def _with_wide_timeout(value: StructType, operator: str | None) -> StructType:
    """State format 1 of flatMapGroupsWithState calls its last column an integer, and keeps a long there
    (FlatMapGroupsWithStateExecHelper, StateManagerImplV1)."""
    if operator not in (None, "flatMapGroupsWithState") or value.names[-1:] != ("timeoutTimestamp",):
        return value
    return replace(value, types=(*value.types[:-1], Atomic("long")))


def _encoder(
    schema: StoreSchema, key: StructType, provider: str | None, metadata: operator_metadata.OperatorMetadata | None
) -> Encoder:
    if provider != ROCKSDB:
        return PLAIN
    if schema.encoder:
        return encoder_of(schema.encoder)
    prefix = max((store.prefix_columns for store in metadata.stores), default=0) if metadata else 0
    if not prefix and _is_session(key):
        prefix = len(key.types) - 1
    return Encoder("prefix", tuple(range(prefix))) if 0 < prefix < len(key.types) else Encoder("row")


def _is_session(key: StructType) -> bool:
    """Session windows are kept by key and the start of the session, which is found by a scan over the key."""
    return len(key.names) > 1 and key.names[-1] == "sessionStartTime"


def keeps_lists(store: str, metadata: operator_metadata.OperatorMetadata | None) -> bool:
    """Whether the values of a column family are lists."""
    if store.endswith(_JOIN_LISTS):
        return True
    variables = metadata.properties.get("stateVariables") if metadata else None
    return any(
        isinstance(one, dict) and one.get("stateName") == store and "List" in str(one.get("stateVariableType"))
        for one in (variables if isinstance(variables, list) else ())
    )


def _placed(operator: str | None, store: str, key: StructType) -> tuple[Path, ...] | None:
    """Which columns decide the shard: those by which the operator's input is distributed."""
    count = len(key.types)
    if all(kind == Atomic("void") for kind in key.types):
        return ()
    if store.endswith(_JOIN_SUFFIXED) or _is_session(key):
        return tuple((at,) for at in range(count - 1))
    if operator is not None and operator.startswith("transformWithState"):
        return _placed_by_group(key)
    if operator is None or operator in _BY_WHOLE_KEY:
        return tuple((at,) for at in range(count))
    return None


def _placed_by_group(key: StructType) -> tuple[Path, ...]:
    """transformWithState: the grouping key, which maps, timers and times to live keep inside of a composite one."""
    if "key" in key.names and len(key.names) > 1:
        return ((key.names.index("key"),),)
    if "elementKey" in key.names:
        at = key.names.index("elementKey")
        inner = key.types[at]
        composite = isinstance(inner, StructType) and inner.names == ("key", "userKey")
        return ((at, 0),) if composite else ((at,),)
    return tuple((at,) for at in range(len(key.types)))


def _collated(schema: str) -> bool:
    """Collated strings are placed by their collation's own key, which only the ICU library can compute."""
    return "__COLLATIONS" in schema or "string collate" in schema


def _metadata(storage: Storage, files: Mapping[str, CheckpointPath]) -> operator_metadata.OperatorMetadata | None:
    """The newest that applies: that of version 2 is per batch."""
    own = [(place.version if place.version is not None else -1, path) for path, place in files.items()
           if place.area == "state-metadata"]  # fmt: skip
    return _decoded(storage, max(own)[1], operator_metadata.decode_operator_metadata) if own else None


def _schemas(
    storage: Storage, files: Mapping[str, CheckpointPath], store: str
) -> list[tuple[StoreSchema, bool]]:
    """The store's schema, or one for each of its column families."""
    own = [(place.version if place.version is not None else -1, path) for path, place in files.items()
           if place.area == "state-schema" and place.store == store]  # fmt: skip
    for version, path in sorted(own, reverse=True):
        found = _decoded(storage, path, decode_schema)
        if found is not None:
            return [(one, version >= 0) for one in found.stores[: None if version >= 0 else 1]]
    return []


def _decoded(storage: Storage, path: str, decode: Callable[[bytes], T]) -> T | None:
    """A job starts without these files, too: who wants to know that one is damaged asks `verify`."""
    try:
        return decode(storage.read(path, SMALL))
    except (FormatError, MissingFile):
        return None


def _hex(content: bytes) -> dict[str, str]:
    return {"hex": content.hex()}

"""How a store's keys are encoded, and which of their columns decide the shard. Pure.

    KeyRule   schema     StructType JSON of the key's columns
              encoder    how they are put together to a key (see `encoders`)
              placed     the columns that decide, as paths into the key; () is shard 0 alone

    operator                            columns that decide
    session window                      all but the last, which is the session's start
    join, keyWithIndexToValue           all but the last, which is the index
    join, keyWithTsToValues, tsWithKey  all but the last, which is the time
    transformWithState                  the grouping key: all columns, or the one called `key`; of
                                        an `elementKey` that is an item of a map, its `key`
    without a key                       none
    anything else of Spark's            all

A rule is a plain value: it stands in the options of transforms, which know no schema files.

Source: Spark, StatefulOperatorPartitioning, StreamingSessionWindowStateManager,
SymmetricHashJoinStateManager, StateStoreColumnFamilySchemaUtils; 3.3 to 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stateshift.engines.spark.entries.encoders import PLAIN, ROW, Encoder, encoder_of
from stateshift.errors import FormatError
from stateshift.formats.spark.operator_metadata import AGGREGATION, REAL_TIME_AGGREGATION
from stateshift.formats.spark.types import Atomic, StructType, decode_struct
from stateshift.plain import JsonObject

# One column of a key, or one inside of it.
Path = tuple[int, ...]
# A store's schema as a survey has it, in plain JSON.
Schema = JsonObject

SESSION_START = "sessionStartTime"
NAMEABLE = ("string", "byte", "short", "integer", "long", "boolean")

_SUFFIXED = ("-keyWithIndexToValue", "-keyWithTsToValues", "-tsWithKey")
_BY_WHOLE_KEY = frozenset(
    (
        AGGREGATION,
        REAL_TIME_AGGREGATION,
        "dedupe",
        "dedupeWithinWatermark",
        "symmetricHashJoin",
        "globalLimit",
        "flatMapGroupsWithState",
        "applyInPandasWithState",
        "sessionWindowStateStoreSaveExec",
    )
)


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How a key is placed: its schema, its encoder, and the columns that decide."""

    schema: str
    encoder: Encoder
    placed: tuple[Path, ...]


def key_rule(operator: str | None, store: str, schema: Schema, framed: bool) -> KeyRule:
    """Return the rule of a store or column family by its schema; FormatError where unknown."""
    text, spec, prefix = schema["key"], schema["encoder"], schema["prefix"]
    if is_collated(text):
        fact = f"the key of {store} holds collated strings, whose placement is not known"
        raise FormatError(fact)
    key = decode_struct(text)
    if spec and not framed:
        raise FormatError(f"the keys of {store} are encoded as only RocksDB has them")
    encoder = replace(key_encoder(key, spec, prefix, framed), avro=bool(schema.get("avro")))
    placed = placing_columns(operator, store, key, prefix)
    if placed is None:
        fact = f"{operator} is not an operator of Spark's: how it places its keys is not known"
        raise FormatError(fact)
    return KeyRule(text, encoder, placed)


def key_encoder(key: StructType, spec: str | None, prefix: int, framed: bool) -> Encoder:
    """Return the encoder of keys: as a schema file of version 3 says in JSON for each store, else
    the operator's metadata, else the names that Spark's operators have always given their columns.
    """
    if not framed:
        return PLAIN
    if spec:
        return encoder_of(spec)
    leading = prefix
    if not prefix and is_session(key):
        leading = len(key.types) - 1  # all but its start
    return Encoder("prefix", tuple(range(leading))) if 0 < leading < len(key.types) else ROW


def placing_columns(
    operator: str | None, store: str, key: StructType, prefix: int = 0
) -> tuple[Path, ...] | None:
    """Return the columns that distribute the operator's input; None where they are not known."""
    count = len(key.types)
    if set(key.types) <= {Atomic("void")}:
        return ()
    if store.endswith(_SUFFIXED) or is_session(key):
        return _first(count - 1)
    if operator is None or operator in _BY_WHOLE_KEY:
        return _first(prefix or count)
    return _by_group(key) if operator.startswith("transformWithState") else None


def nameable(rule: KeyRule, column: str) -> int | None:
    """Return the key's column of this name, if it decides and a person can name its values."""
    schema = decode_struct(rule.schema)
    for path in rule.placed:
        number = path[0]
        if len(path) == 1 and schema.names[number] == column:
            kind = schema.types[number]
            return number if isinstance(kind, Atomic) and kind.name in NAMEABLE else None
    return None


def is_session(key: StructType) -> bool:
    """Whether a key is a session window's: a key, then the session's start."""
    return len(key.names) > 1 and key.names[-1] == SESSION_START


def is_collated(schema: str) -> bool:
    """Whether there are collated strings, which only the ICU library can place."""
    return "__COLLATIONS" in schema or "string collate" in schema


def _first(count: int) -> tuple[Path, ...]:
    return tuple((at,) for at in range(count))


def _by_group(key: StructType) -> tuple[Path, ...]:
    """Return the grouping key of transformWithState, which may be inside a composite one."""
    if "key" in key.names and len(key.names) > 1:
        return ((key.names.index("key"),),)
    if "elementKey" not in key.names:
        return _first(len(key.types))
    at = key.names.index("elementKey")
    inner = key.types[at]
    is_composite = isinstance(inner, StructType) and inner.names == ("key", "userKey")
    return ((at, 0),) if is_composite else ((at,),)

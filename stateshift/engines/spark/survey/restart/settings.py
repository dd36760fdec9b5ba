"""Whether the settings of the offset log are those that the state was written with. A restart goes
by the log, whatever the session says.

    provider          the endings of the files that a restart reads
    join format       1, 2: four stores, whose rows of 2 end with `matched`; 3, 4: column families.
                      With 3 and 4 exchanged Spark starts, and sees none of the state
    aggregation       of format 1 the values begin with the columns of the key, of 2 they do not
    groups            of format 2 the values begin with `groupState`
    encoding          Avro is for transformWithState; elsewhere RocksDB fails, and the HDFS-backed
                      provider does not ask
    RocksDB's format  0 to 6 open: it is that of the tables to come
    codec             one that Spark has, where changes are written to files of their own
    a planned batch   has the settings of the batch before: Spark goes by the last one planned

State without a schema or a name (Spark 3.x names no operators) is left alone where the rest is not
certain. Source: Spark, OffsetSeqMetadata.setSessionConf, SymmetricHashJoinStateManager,
StreamingAggregationStateManager, FlatMapGroupsWithStateExecHelper; each seen with 4.3.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from stateshift.engines.spark.image import StoreSchema
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.operators import PROVIDER, PROVIDERS
from stateshift.engines.spark.versions import NEWEST, ROCKSDB_FORMAT_MAX
from stateshift.errors import FormatError
from stateshift.formats.spark.offset_conf import (
    AGGREGATION_FORMAT,
    CODEC,
    ENCODING,
    GROUPS_FORMAT,
    JOIN_FORMAT,
    ROCKSDB_FORMAT,
    encoding_of,
    is_codec,
    state_format_in,
)
from stateshift.formats.spark.offsets import PARTITIONS, OffsetEntry
from stateshift.formats.spark.operator_metadata import AGGREGATION, REAL_TIME_AGGREGATION
from stateshift.formats.spark.types import StructType, decode_struct
from stateshift.survey import Operator, ShardFiles

_ENDINGS = {"hdfs-backed": ("delta", "snapshot"), "rocksdb": ("zip", "changelog", "sst")}
_GROUPS = ("flatMapGroupsWithState", "applyInPandasWithState")
_GROUP_STATE = "groupState"
# Settings by which state is read: of one query all of its batches have the same.
_OF_STATE = (PROVIDER, CODEC, ENCODING, JOIN_FORMAT, AGGREGATION_FORMAT, GROUPS_FORMAT, PARTITIONS)


@dataclass(frozen=True, slots=True)
class StateFacts:
    """An image's state, `schemas` by "<operator>/<store>[/<family>]"; `changes` has files."""

    operators: Sequence[Operator]
    shards: Sequence[ShardFiles]
    schemas: Mapping[str, StoreSchema]
    changes: bool


def refuse_unfit(
    reading: Reading, path: str, settings: Mapping[str, str], state: StateFacts
) -> None:
    """Refuse settings of the offset log at `path` that the state was not written with."""
    if not settings or not state.operators:
        return
    for fault in (*_faults(settings, state), *_faults_of_formats(settings, state)):
        hint = f"restore {reading.path(path)} from a copy of the checkpoint"
        reading.refuse(f"{reading.path(path)} {fault}", path, hint=hint)


def refuse_changed(
    reading: Reading, path: str, settings: Mapping[str, str], planned: OffsetEntry
) -> None:
    """Refuse a planned batch, whose log is at `path`, under other settings than the one before."""
    for key in _OF_STATE:
        before, after = settings.get(key), planned.conf.get(key)
        if before is not None and after is not None and before != after:
            reading.refuse(
                f"{reading.path(path)} says {key}={after[:80]}, and the batch before has "
                f"{before[:80]}: Spark reads the state by the newer log, and the state is by the "
                "older",
                path,
                hint=f"move {reading.path(path)} away: the job then plans that batch again",
            )


def _faults(settings: Mapping[str, str], state: StateFacts) -> Iterator[str]:
    """Yield the settings with which Spark could not read the files."""
    provider = PROVIDERS.get(settings.get(PROVIDER, "").rpartition(".")[2])
    files = chain.from_iterable(shard.files for shard in state.shards)
    endings = {path.rpartition(".")[2] for path in files}
    foreign = sorted(endings.difference(_ENDINGS.get(provider or "", endings)))
    if foreign:
        yield f"says that {settings[PROVIDER]} keeps the state, which has no .{foreign[0]} files"
    if state.changes and not is_codec(settings.get(CODEC, "lz4")):
        yield f"says that state is compressed with {settings[CODEC][:80]!r}, which no Spark has"
    if provider != "rocksdb":
        return
    if state_format_in(settings, ROCKSDB_FORMAT) > ROCKSDB_FORMAT_MAX:
        yield (
            f"says {ROCKSDB_FORMAT}={settings[ROCKSDB_FORMAT]}, and the RocksDB of Spark up to "
            f"{NEWEST} opens 0 to {ROCKSDB_FORMAT_MAX}"
        )
    # Operators with column families may keep Avro.
    has_families = any(place.count("/") == 2 for place in state.schemas)
    if encoding_of(settings) == "avro" and state.schemas and not has_families:
        yield f"says {ENCODING}={settings[ENCODING]}, and the state's rows are UnsafeRows"


def _faults_of_formats(settings: Mapping[str, str], state: StateFacts) -> Iterator[str]:
    """Yield the operators that have state of another format than the settings say."""
    for operator in state.operators:
        schemas = {}  # by the last part of a store's name
        for place, schema in state.schemas.items():
            if place.partition("/")[0] == operator.id:
                schemas[place.rpartition("/")[2]] = schema
        formats = {
            JOIN_FORMAT: _join_format(operator, schemas),
            AGGREGATION_FORMAT: _aggregation_format(operator, schemas),
            GROUPS_FORMAT: _groups_format(operator, schemas),
        }
        for setting, written in formats.items():
            named = state_format_in(settings, setting)
            if written in (None, named):
                continue
            says = f"says {setting}={named}" if setting in settings else f"has no {setting}"
            yield (
                f"{says}, and the state of operator {operator.id} has format {written}: Spark "
                "refuses to start, or does not see that state"
            )


def _join_format(operator: Operator, schemas: Mapping[str, StoreSchema]) -> int | None:
    """Return the format of a join's state; None where the operator is none, or nothing tells."""
    if "left-keyWithTsToValues" in schemas:
        return 4
    schema = schemas.get("left-keyWithIndexToValue")
    if schema is None:
        return None
    has_own_store = any(store.name == "left-keyWithIndexToValue" for store in operator.stores)
    if not has_own_store:
        return 3
    columns = _columns(schema["value"])
    if columns is None:
        return None
    return 2 if columns.names[-1:] == ("matched",) else 1


def _aggregation_format(operator: Operator, schemas: Mapping[str, StoreSchema]) -> int | None:
    """Return an aggregation's format; None for others, and where equal names hide it."""
    schema = schemas.get("default")
    if operator.name not in (AGGREGATION, REAL_TIME_AGGREGATION) or schema is None:
        return None
    key, value = _columns(schema["key"]), _columns(schema["value"])
    if key is None or value is None or not key.names:
        return None
    width = len(key.names)
    if value.names[:width] != key.names or value.types[:width] != key.types:
        return 2
    is_structured = any(isinstance(kind, StructType) for kind in key.types)
    return 1 if is_structured else None


def _groups_format(operator: Operator, schemas: Mapping[str, StoreSchema]) -> int | None:
    """Return the format of the state of groups; None where the operator is of another kind."""
    schema = schemas.get("default")
    if operator.name not in (*_GROUPS, None) or schema is None:
        return None
    columns = _columns(schema["value"])
    if columns is None:
        return None
    if columns.names[:1] == (_GROUP_STATE,) and isinstance(columns.types[0], StructType):
        return 2
    return None if operator.name is None else 1


def _columns(text: str) -> StructType | None:
    try:
        return decode_struct(text)
    except FormatError:
        return None

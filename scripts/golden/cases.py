"""The golden cases: which query with which settings, from which Spark on, and what of its state
Spark's reader shows. See make.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pyspark
import queries as q
from pyspark.sql import DataFrame, SparkSession

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

PREFIX = "spark.sql.streaming."
STATE = f"{PREFIX}stateStore."
ROCKSDB = {
    f"{STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
}
CHANGELOG = {**ROCKSDB, f"{STATE}rocksdb.changelogCheckpointing.enabled": "true"}
LATEST = CHANGELOG if VERSION >= (3, 5) else ROCKSDB
FEW_ZIPS = {f"{STATE}minDeltasForSnapshot": "10"}  # where there are changelogs instead
AVRO = {f"{STATE}encodingFormat": "avro"}
FORMAT_2 = {f"{STATE}checkpointFormatVersion": "2"}
CHECKSUM = {f"{STATE}rowChecksum.enabled": "true"}
GROUPS = f"{PREFIX}flatMapGroupsWithState.stateFormatVersion"
JOIN, AGGREGATION = f"{PREFIX}join.stateFormatVersion", f"{PREFIX}aggregation.stateFormatVersion"

MONTHS = (
    "struct(CAST(EXTRACT(YEAR FROM key.months) * 12 + EXTRACT(MONTH FROM key.months) AS "
    "INT) AS months, key.span)"
)
# Python has no calendar intervals: (months, days, microseconds).
CALENDAR = """struct(IF(value.first IS NULL, NULL, struct(
  CAST(EXTRACT(YEAR FROM value.first) * 12 + EXTRACT(MONTH FROM value.first) AS INT) AS months,
  CAST(EXTRACT(DAY FROM value.first) AS INT) AS days,
  CAST((EXTRACT(HOUR FROM value.first) * 3600 + EXTRACT(MINUTE FROM value.first) * 60
    + EXTRACT(SECOND FROM value.first)) * 1000000 AS BIGINT) AS microseconds)) AS first, value.valueSet, value.count)"""
DEFAULT = [("0", "default")]
# Spark 3.3.0 and before lists all input columns as those of a dropDuplicates' values, which are one
# null (SPARK-39650).
OLD_DEDUP = ("3.2.1", "3.3.0")
NO_CHECK = {f"{STATE}formatValidation.enabled": "false"}
JOIN_STORES = [
    ("0", f"{side}-{store}")
    for side in ("left", "right")
    for store in ("keyToNumValues", "keyWithIndexToValue")
]
JOIN_4_STORES = [("0", f"{side}-keyWithTsToValues") for side in ("left", "right")]
VARIABLES = {"count": "value", "seen": "list", "largest": "map"}

TYPES = """b BOOLEAN, i8 BYTE, i16 SHORT, i32 INT, i64 LONG, f32 FLOAT, f64 DOUBLE, d DATE, t TIMESTAMP,
  n TIMESTAMP_NTZ, small DECIMAL(10,2), large DECIMAL(30,5), s STRING, raw BINARY,
  list ARRAY<STRING>, nested STRUCT<x: INT, y: STRING>, shorts ARRAY<SHORT>"""
if VERSION < (3, 4):
    TYPES = TYPES.replace("n TIMESTAMP_NTZ, ", "")


@dataclass(frozen=True)
class Case:
    """`since` is the first Spark that has it, `until` the last, `not_with` those that are spared a
    large image; `stops` a query that has no end of its own, after so many commits; `only` are whole
    versions, which have no other cases; `then` goes on from there with the last of the input; `key`
    and `value` are those of the reader, as far as Python has their types.
    """

    query: Callable[[SparkSession, DataFrame], DataFrame]
    conf: Mapping[str, str] = field(default_factory=dict)
    stores: list[tuple[str, str]] = field(default_factory=lambda: DEFAULT)
    since: tuple[int, int] = (3, 3)
    mode: str = "append"
    stops: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)
    until: tuple[int, int] = (9, 9)
    not_with: tuple[tuple[int, int], ...] = ()
    then: Callable[[SparkSession, DataFrame], DataFrame] | None = None
    key: str = "key"
    value: str = "value"
    only: tuple[str, ...] = ()

    def fits(self, version: tuple[int, ...]) -> bool:
        if self.only or pyspark.__version__ in OLD_DEDUP:
            return pyspark.__version__ in self.only
        return self.since <= version <= self.until and version not in self.not_with


MIDDLE = ((4, 1), (4, 2))  # versions whose other cases show as much
# With the newest version these have more shards and batches: the others are kept small.
LARGE = frozenset(
    (
        "window-hdfs",
        "window-rocksdb",
        "window-rocksdb-changelog",
        "window-rocksdb-format2",
        "join-hdfs",
        "join-hdfs-checksum",
        "join-rocksdb-v3",
        "join-rocksdb-v4",
        "join-rocksdb-v3-checksum",
        "join-rocksdb-v4-checksum",
        "dedup-zstd",
        "dedup-snappy",
        "dedup-lzf",
        "dedup-checksum",
        "dedup-rocksdb-checksum",
        "types",
        "collected",
        "files",
    )
)
TIMED_AVRO = Case(
    q.tws_event,
    {**CHANGELOG, **FEW_ZIPS, **AVRO},
    [],
    (4, 0),
    "update",
    0,
    {**VARIABLES, "": "timers"},
    not_with=MIDDLE,
)
CASES = {
    **{
        f"dedup-old-{name}": Case(
            query,
            {**conf, **NO_CHECK},
            since=(3, 2),
            value="struct(CAST(NULL AS STRING) AS n)",
            only=OLD_DEDUP,
        )
        for name, (query, conf) in {
            "hdfs": (q.deduplicated, {}),
            "rocksdb": (q.deduplicated, ROCKSDB),
            "reordered": (q.deduplicated_reordered, {}),
            "all": (q.deduplicated_whole, ROCKSDB),
            "one": (q.deduplicated_words, {}),
            "types": (q.deduplicated_types, {}),
        }.items()
    },
    "window-hdfs": Case(q.windowed),
    "window-hdfs-v1": Case(q.windowed, {AGGREGATION: "1"}, not_with=((4, 1),)),
    "window-rocksdb": Case(q.windowed, ROCKSDB, not_with=MIDDLE),
    "window-rocksdb-changelog": Case(q.windowed, CHANGELOG, since=(3, 5)),
    "window-rocksdb-format2": Case(
        q.windowed, {**CHANGELOG, **FORMAT_2}, since=(4, 0), not_with=MIDDLE
    ),
    "join-hdfs": Case(q.joined, {}, JOIN_STORES),
    "join-hdfs-v1": Case(q.matched, {JOIN: "1"}, JOIN_STORES, until=(4, 0)),
    "join-rocksdb": Case(q.evicting, {**LATEST, **FEW_ZIPS}, JOIN_STORES, not_with=((3, 4),)),
    "join-hdfs-checksum": Case(q.evicting, CHECKSUM, JOIN_STORES, (4, 3)),
    "join-rocksdb-v3": Case(q.joined, {**CHANGELOG, JOIN: "3"}, JOIN_STORES, (4, 1)),
    "join-rocksdb-v4": Case(q.joined, {**CHANGELOG, JOIN: "4"}, JOIN_4_STORES, (4, 3)),
    "join-rocksdb-v3-checksum": Case(
        q.evicting, {**CHANGELOG, **CHECKSUM, JOIN: "3"}, JOIN_STORES, (4, 3)
    ),
    "join-rocksdb-v4-checksum": Case(
        q.evicting, {**CHANGELOG, **CHECKSUM, JOIN: "4"}, JOIN_4_STORES, (4, 3)
    ),
    "session-hdfs": Case(q.sessions),
    "session-rocksdb": Case(q.sessions, {**LATEST, **FEW_ZIPS}),
    "dedup-zstd": Case(q.deduplicated, {f"{STATE}compression.codec": "zstd"}),
    "dedup-snappy": Case(
        q.deduplicated, {f"{STATE}compression.codec": "snappy"}, not_with=((4, 1),)
    ),
    "dedup-lzf": Case(q.deduplicated, {f"{STATE}compression.codec": "lzf"}, not_with=((4, 1),)),
    "dedup-checksum": Case(q.deduplicated, CHECKSUM, since=(4, 3)),
    "dedup-rocksdb-checksum": Case(q.deduplicated, {**CHANGELOG, **CHECKSUM}, since=(4, 3)),
    "dedup-offsets2": Case(
        q.deduplicated,
        {
            f"{PREFIX}offsetLog.formatVersion": "2",
            f"{PREFIX}queryEvolution.enableSourceEvolution": "true",
        },
        since=(4, 2),
    ),
    "within-hdfs": Case(q.deduplicated_within, since=(3, 5)),
    "pandas-hdfs": Case(q.pandas_state, since=(3, 4), mode="update"),
    "pandas-rocksdb": Case(
        q.pandas_state, LATEST, since=(3, 5), mode="update", not_with=((4, 0), *MIDDLE)
    ),
    "within-rocksdb": Case(q.deduplicated_within, LATEST, since=(3, 5), not_with=((4, 0), *MIDDLE)),
    "groups-hdfs": Case(q.grouped),
    # Its schema calls the timeout an integer, and its rows hold a long: Spark's reader takes that
    # for damage unless it is told not to look, and then shows the lower half.
    "groups-hdfs-v1": Case(
        q.grouped,
        {GROUPS: "1", f"{STATE}formatValidation.enabled": "false"},
        not_with=((3, 4), (4, 0), *MIDDLE),
    ),
    "groups-rocksdb": Case(
        q.grouped_one_by_one, LATEST, mode="update", stops=3, not_with=((3, 4), *MIDDLE)
    ),
    "limit-rocksdb": Case(q.limited, LATEST),
    "total-hdfs": Case(q.total, mode="update"),
    "total-rocksdb": Case(q.total, LATEST, mode="update", not_with=((3, 3),)),
    "chained-rocksdb": Case(
        q.chained,
        {**CHANGELOG, **FEW_ZIPS},
        [(str(number), "default") for number in range(3)],
        (4, 0),
    ),
    "tws-timers": Case(
        q.tws_event, CHANGELOG, [], (4, 0), "update", 0, {**VARIABLES, "": "timers"}
    ),
    "tws-ttl": Case(q.tws_ttl, {**CHANGELOG, **FEW_ZIPS}, [], (4, 0), "update", 3, VARIABLES),
    "tws-format2": Case(
        q.tws_event,
        {**CHANGELOG, **FORMAT_2, **FEW_ZIPS},
        [],
        (4, 1),
        "update",
        0,
        {**VARIABLES, "": "timers"},
    ),
    "tws-rows": Case(
        q.tws_rows, CHANGELOG, [], (4, 1), "update", 0, {**VARIABLES, "": "timers"}, not_with=MIDDLE
    ),
    "tws-avro": TIMED_AVRO,
    "tws-avro-ttl": Case(
        q.tws_ttl,
        {**CHANGELOG, **FEW_ZIPS, **AVRO},
        [],
        (4, 0),
        "update",
        3,
        VARIABLES,
        not_with=MIDDLE,
    ),
    "tws-avro-evolved": replace(TIMED_AVRO, then=q.tws_evolved),
    "tws-avro-types": Case(
        q.tws_types,
        {**CHANGELOG, **AVRO},
        [],
        (4, 1),
        "update",
        0,
        {"last": "value", "every": "list", "by": "map"},
        not_with=MIDDLE,
    ),
    "tws-merge1": Case(
        q.tws_event,
        {**CHANGELOG, f"{STATE}rocksdb.mergeOperatorVersion": "1"},
        [],
        (4, 2),
        "update",
        0,
        VARIABLES,
        not_with=((4, 2),),
    ),
    "memory": Case(q.windowed, {}, not_with=((3, 3), (3, 4), (4, 0), *MIDDLE)),
    "micro-rate": Case(q.micro_rates, mode="update", stops=3, not_with=((3, 4), (4, 0), *MIDDLE)),
    "custom": Case(q.numbered, since=(4, 0), mode="update", stops=3, not_with=MIDDLE),
    "kafka": Case(q.from_kafka, mode="update", stops=3, since=(3, 5)),
    "calendar": Case(
        q.calendars, mode="update", not_with=((3, 3), (3, 4), (4, 0), *MIDDLE), value=CALENDAR
    ),
    "rate": Case(q.rates, mode="update", stops=2),
    "types": Case(q.all_types),
    "collected": Case(q.collected, mode="update"),
    "exotic": Case(q.exotic, since=(4, 0), mode="update", key=MONTHS),
    "files": Case(q.copied, {}, []),
    "files-commits3": Case(
        q.copied,
        {f"{PREFIX}queryEvolution.enableSinkEvolution": "true", **FORMAT_2},
        [],
        since=(4, 3),
    ),
}


def size(name: str) -> tuple[int, int]:
    """Shards and batches."""
    return (3, 5) if VERSION >= (4, 3) and name in LARGE else (2, 3)

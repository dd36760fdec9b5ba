"""The settings in an offset log entry: those by which a query's rows are read, and what Spark takes
for a value. A restart sets each in the session, which parses it by its type, and fails on another
word.

    boolean    true or false, in any case, with blanks around it
    integer    digits with a sign, of 32 bits
    policy     min or max, in any case

Source: Spark, OffsetSeqMetadata.setSessionConf and relevantSQLConfs, ConfigHelpers.toBoolean and
toNumber; 3.2 to 4.3. Settings that are not listed here are not checked: Spark ignores those that it
does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_INT_MAX: Final = 1 << 31
_SQL: Final = "spark.sql."
_STREAMING: Final = f"{_SQL}streaming."

CODEC: Final = f"{_STREAMING}stateStore.compression.codec"
ROW_CHECKSUM: Final = f"{_STREAMING}stateStore.rowChecksum.enabled"
ENCODING: Final = f"{_STREAMING}stateStore.encodingFormat"
ENCODINGS: Final = ("unsaferow", "avro")
MERGE_OPERATOR: Final = f"{_STREAMING}stateStore.rocksdb.mergeOperatorVersion"

BOOLEANS: Final = frozenset(
    (
        f"{_SQL}dropDuplicates.deterministicKeyOrder.enabled",
        f"{_SQL}function.protobufExtensions.enabled",
        f"{_SQL}optimizer.pruneFiltersCanPruneStreamingSubplan",
        f"{_STREAMING}queryEvolution.enableSourceEvolution",
        ROW_CHECKSUM,
        f"{_STREAMING}statefulOperator.alwaysNullableOutput.enabled",
        f"{_STREAMING}statefulOperator.useStrictDistribution",
    )
)
INTEGERS: Final = frozenset(
    (
        f"{_SQL}shuffle.partitions",
        f"{_STREAMING}aggregation.stateFormatVersion",
        f"{_STREAMING}flatMapGroupsWithState.stateFormatVersion",
        f"{_STREAMING}join.stateFormatVersion",
        f"{_STREAMING}stateStore.rocksdb.formatVersion",
        MERGE_OPERATOR,
    )
)
POLICIES: Final = frozenset((f"{_STREAMING}multipleWatermarkPolicy",))


def is_avro(conf: Mapping[str, str], families: bool) -> bool:
    """Whether rows are Avro's: transformWithState alone may have them, whose schema files name
    column families (of version 3); with every other stateful operator Spark refuses the setting
    (UnsupportedOperationChecker).
    """
    return families and conf.get(ENCODING, "unsaferow") == "avro"


def delimiter(conf: Mapping[str, str]) -> bytes:
    """Return what RocksDB puts between merged values. Absent means version 1 (RocksDBConf)."""
    return b"" if conf.get(MERGE_OPERATOR, "1") == "2" else b","


def fault_of_conf(conf: Mapping[str, str]) -> str | None:
    """Return which setting Spark would refuse, and why; None where it takes all."""
    for key, value in conf.items():
        wanted = _wanted(key, value.strip())
        if wanted is not None:
            return f"{key} is {value!r}, which is {wanted}"
    return None


def _wanted(key: str, word: str) -> str | None:
    """Return what a value of this setting should be and is not; None where Spark takes it."""
    if key in BOOLEANS:
        return None if word.lower() in ("true", "false") else "neither true nor false"
    if key in INTEGERS:
        return None if _is_int(word) else "no whole number"
    if key in POLICIES:
        return None if word.lower() in ("min", "max") else "neither min nor max"
    return None


def _is_int(word: str) -> bool:
    digits = word[1:] if word[:1] in ("+", "-") else word
    return digits.isdecimal() and len(digits) <= 10 and -_INT_MAX <= int(word) < _INT_MAX

"""The settings in an offset log entry: those by which a query's rows are read, and the values that
Spark takes. A restart sets each in the session, which parses it by its type, and fails on another
word.

    boolean    true or false, in any case, with blanks around it
    integer    digits with a sign, of 32 bits, with blanks around them; of some only a few
    word       one of a few, in any case
    codec      a short name in any case, or the name of its class

Source: Spark, OffsetSeqMetadata.setSessionConf, relevantSQLConfs and relevantSQLConfDefaultValues,
ConfigHelpers.toBoolean and toNumber, CompressionCodec.createCodec; 3.2 to 4.3. Settings that are
not listed here are not checked: Spark ignores those that it does not know.
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
ROCKSDB_FORMAT: Final = f"{_STREAMING}stateStore.rocksdb.formatVersion"
JOIN_FORMAT: Final = f"{_STREAMING}join.stateFormatVersion"
AGGREGATION_FORMAT: Final = f"{_STREAMING}aggregation.stateFormatVersion"
GROUPS_FORMAT: Final = f"{_STREAMING}flatMapGroupsWithState.stateFormatVersion"
STRICT: Final = f"{_STREAMING}statefulOperator.useStrictDistribution"
_POLICY: Final = f"{_STREAMING}multipleWatermarkPolicy"

BOOLEANS: Final = frozenset(
    (
        f"{_SQL}dropDuplicates.deterministicKeyOrder.enabled",
        f"{_SQL}function.protobufExtensions.enabled",
        f"{_SQL}optimizer.pruneFiltersCanPruneStreamingSubplan",
        f"{_STREAMING}queryEvolution.enableSourceEvolution",
        ROW_CHECKSUM,
        f"{_STREAMING}statefulOperator.alwaysNullableOutput.enabled",
        STRICT,
    )
)
INTEGERS: Final = frozenset(
    (
        f"{_SQL}shuffle.partitions",
        AGGREGATION_FORMAT,
        GROUPS_FORMAT,
        JOIN_FORMAT,
        ROCKSDB_FORMAT,
        MERGE_OPERATOR,
    )
)
POLICIES: Final = frozenset((_POLICY,))

# The values that Spark up to 4.3 takes of some settings.
_NUMBERS: Final[Mapping[str, range]] = {
    AGGREGATION_FORMAT: range(1, 3),
    GROUPS_FORMAT: range(1, 3),
    JOIN_FORMAT: range(1, 5),
    MERGE_OPERATOR: range(1, 3),
}
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {_POLICY: ("min", "max"), ENCODING: ENCODINGS}

_CODEC_CLASSES: Final[Mapping[str, str]] = {
    "org.apache.spark.io.LZ4CompressionCodec": "lz4",
    "org.apache.spark.io.LZFCompressionCodec": "lzf",
    "org.apache.spark.io.SnappyCompressionCodec": "snappy",
    "org.apache.spark.io.ZStdCompressionCodec": "zstd",
}


def is_avro(conf: Mapping[str, str], families: bool) -> bool:
    """Whether rows are Avro's: of transformWithState only (UnsupportedOperationChecker)."""
    return families and encoding_of(conf) == "avro"


def encoding_of(conf: Mapping[str, str]) -> str:
    """Return the encoding of rows."""
    return conf.get(ENCODING, "unsaferow").lower()


def codec_in(conf: Mapping[str, str]) -> str:
    """Return the short name of the codec of state files; another's as the log calls it."""
    name = conf.get(CODEC, "lz4")
    short_name = _CODEC_CLASSES.get(name, name.lower())
    return short_name if short_name in _CODEC_CLASSES.values() else name


def is_codec(name: str) -> bool:
    """Whether Spark may know a codec of that name: its own, or a class of somebody's."""
    return "." in name or codec_in({CODEC: name}) in _CODEC_CLASSES.values()


def state_format_in(conf: Mapping[str, str], setting: str) -> int:
    """Return the state format in a setting. A missing one stands for 1, the oldest."""
    return int(conf.get(setting, "1"))


def delimiter(conf: Mapping[str, str]) -> bytes:
    """Return RocksDB's bytes between merged values. Absent means version 1 (RocksDBConf)."""
    return b"" if state_format_in(conf, MERGE_OPERATOR) == 2 else b","


def has_row_checksums(conf: Mapping[str, str]) -> bool:
    """Whether rows carry checksums (4.3)."""
    return _is_true(conf, ROW_CHECKSUM)


def is_strict(conf: Mapping[str, str]) -> bool:
    """Whether all of a key's columns decide its shard (since 3.3)."""
    return _is_true(conf, STRICT)


def _is_true(conf: Mapping[str, str], key: str) -> bool:
    return conf.get(key, "false").strip().lower() == "true"


def fault_of_conf(conf: Mapping[str, str]) -> str | None:
    """Return the setting that Spark would refuse, and the reason; None if it takes all."""
    for key, value in conf.items():
        wanted = _wanted(key, value)
        if wanted is not None:
            return f"{key} is {value[:40]!r}, which is {wanted}"
    return None


def _wanted(key: str, value: str) -> str | None:
    """Return the expectation that a value of this setting misses; None if it is met."""
    if key in BOOLEANS:
        return None if value.strip().lower() in ("true", "false") else "neither true nor false"
    if key in INTEGERS:
        word = value.strip()
        if not is_integer(word):
            return "no whole number"
        if key == ROCKSDB_FORMAT and int(word) < 0:
            return "less than 0"
        if key in _NUMBERS and int(word) not in _NUMBERS[key]:
            return "none that Spark up to 4.3 takes"
        return None
    if key in _WORDS and value.lower() not in _WORDS[key]:
        return f"neither {' nor '.join(_WORDS[key])}"
    return None


def is_integer(word: str) -> bool:
    """Whether Java's Integer.parseInt takes the word."""
    digits = word[1:] if word[:1] in ("+", "-") else word
    return digits.isdecimal() and len(digits) <= 10 and -_INT_MAX <= int(word) < _INT_MAX

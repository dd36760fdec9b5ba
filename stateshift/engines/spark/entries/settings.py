"""The settings of a query by which its rows are read, as the offset log keeps them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

CODEC = "spark.sql.streaming.stateStore.compression.codec"
ROW_CHECKSUM = "spark.sql.streaming.stateStore.rowChecksum.enabled"
ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
ENCODINGS = ("unsaferow", "avro")
MERGE_OPERATOR = "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion"


def is_avro(settings: Mapping[str, str], families: bool) -> bool:
    """Whether rows are Avro's: transformWithState alone may have them, whose schema files name
    column families (of version 3); with every other stateful operator Spark refuses the setting
    (UnsupportedOperationChecker).
    """
    return families and settings.get(ENCODING, "unsaferow") == "avro"


def delimiter(settings: Mapping[str, str]) -> bytes:
    """Return what RocksDB puts between merged values. Absent means version 1 (RocksDBConf)."""
    return b"" if settings.get(MERGE_OPERATOR, "1") == "2" else b","

"""Writers of files that the product only reads: a test makes what an engine would have written.

Beside the product's decoders stand only the encoders that a migration uses.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from stateshift.formats.spark.compression import compress
from stateshift.formats.spark.crc import HadoopChecksums, SparkChecksum
from stateshift.formats.spark.metadata import QueryMetadata
from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.state_files import DELETE, MERGE, PUT, Changelog, StateRecord
from stateshift.formats.spark.text import encode_object
from stateshift.formats.spark.types import DataType

END = b"\x00"
_INT = struct.Struct(">i")


# ------------------------------------------------------------------------------------ checksums


def encode_hadoop_crc(checksums: HadoopChecksums) -> bytes:
    """Return Hadoop's checksum file: `.<name>.crc`."""
    count = len(checksums.values)
    return b"crc\x00" + struct.pack(f">i{count}I", checksums.bytes_per_chunk, *checksums.values)


def hadoop_checksums(content: bytes, bytes_per_chunk: int = 512) -> HadoopChecksums:
    """Return the checksums of a file with this content."""
    starts = range(0, len(content), bytes_per_chunk)
    values = tuple(zlib.crc32(content[start : start + bytes_per_chunk]) for start in starts)
    return HadoopChecksums(bytes_per_chunk, values)


def encode_spark_crc(checksum: SparkChecksum) -> bytes:
    """Return Spark's checksum file: `<name>.crc`."""
    return checksum.text.encode("utf-8")


# ------------------------------------------------------------------------------------ logs


def encode_source_log(entries: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield a file source's or sink's log of these entries, as Spark writes one."""
    yield b"v1"
    for fields in entries:
        yield b"\n" + encode_object(dict(fields)).encode("utf-8")


def encode_initial_offset(text: str, kind: Literal["kafka", "rate"]) -> bytes:
    """Return the initial offset that a source keeps in `sources/<i>/0`."""
    prefix = b"\x00" if kind == "kafka" else b""
    return prefix + b"v1\n" + text.encode("utf-8")


def with_id(metadata: QueryMetadata, identity: str) -> QueryMetadata:
    """Return the same metadata for another query."""
    start = len(metadata.text) - len(metadata.text.lstrip())
    plain, _ = json.JSONDecoder().raw_decode(metadata.text, start)
    return QueryMetadata(identity, encode_object({**plain, "id": identity}), identity)


# ------------------------------------------------------------------------------------ state


def encode_changelog(
    changelog: Changelog, records: Iterable[StateRecord], codec: str = "lz4"
) -> Iterator[bytes]:
    """Yield an `N.changelog` with this header and exactly these records."""
    body = _typed(records) if changelog.column_families else _plain(records)
    content = _header(changelog) + b"".join(body)
    return compress(iter([content]), codec)


def _header(changelog: Changelog) -> bytes:
    if changelog.version == 1:
        return b""
    beginning = b"\x00\x02v%d" % changelog.version
    if changelog.version == 2:
        return beginning
    lineage = [{"version": v, "checkpointUniqueId": uuid} for v, uuid in changelog.lineage]
    text = json.dumps(lineage, separators=(",", ":")).encode()
    return beginning + len(text).to_bytes(2, "big") + text


def _plain(records: Iterable[StateRecord]) -> Iterator[bytes]:
    for key, value, merge in records:
        assert not merge, "a format without column families has no merge"
        yield _INT.pack(len(key)) + key + _sized(value)
    yield _INT.pack(-1)


def _typed(records: Iterable[StateRecord]) -> Iterator[bytes]:
    for key, value, merge in records:
        kind = DELETE if value is None else MERGE if merge else PUT
        yield bytes((kind,)) + _INT.pack(len(key)) + key + _sized(value)
    yield END


def _sized(value: bytes | None) -> bytes:
    return _INT.pack(-1) if value is None else _INT.pack(len(value)) + value


def partition_of(values: Sequence[Any], types: Sequence[DataType], partitions: int) -> int:
    """Return the partition of the key with these columns."""
    return signed_hash(values, types) % partitions

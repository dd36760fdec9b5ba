"""The two kinds of checksum files beside others.

    .<name>.crc  Hadoop's: "crc\\0" | i32BE bytes per chunk (512) | u32BE CRC32 per chunk: zlib's,
                 not CRC32C
    <name>.crc   Spark's (4.1+):
                 {"algorithm":"CRC32C","value":<i32>,"mainFileSize":<long>,"timestampMs":...,
                 "creator":{...}}, of the whole file as it is stored

Source: Hadoop, ChecksumFileSystem and ChecksumFs (only local disks have them; both sum with
DataChecksum.Type.CRC32, seen in files of Spark 4.3); Spark, ChecksumCheckpointFileManager. A stale
one makes an intact file unreadable: neither is ever copied beside changed bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from stateshift.errors import FormatError
from stateshift.formats.crc32c import crc32c
from stateshift.formats.spark.text import decode_object, decode_text, encode_object, number_of

_HADOOP_MAGIC = b"crc\x00"
_CHUNK_MAX = 1 << 24  # Hadoop's own is 512; a chunk is held in memory
_HADOOP, _SPARK = "a Hadoop checksum file", "a Spark checksum file"


@dataclass(frozen=True, slots=True)
class HadoopChecksums:
    """One CRC32 per chunk of the file."""

    bytes_per_chunk: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SparkChecksum:
    """One CRC32C of the whole file. `text` is the JSON as it was."""

    value: int
    size: int
    text: str


def hadoop_checksums(content: bytes, bytes_per_chunk: int) -> list[int]:
    """Return Hadoop's checksums of some chunks; the last one may be shorter."""
    starts = range(0, len(content), bytes_per_chunk)
    return [zlib.crc32(content[start : start + bytes_per_chunk]) for start in starts]


def decode_hadoop_crc(content: bytes) -> HadoopChecksums:
    """Read `.<name>.crc`: "crc" 00 | i32BE bytes per chunk | u32BE CRC32 per chunk."""
    magic, values = content[:4], len(content) // 4 - 2
    if not _HADOOP_MAGIC.startswith(magic):
        raise FormatError(f"{_HADOOP} does not begin with crc", None, 0)
    if values < 0 or len(content) % 4:
        raise FormatError(f"{_HADOOP} is truncated", None, len(content))
    (chunk,) = struct.unpack_from(">i", content, 4)
    if not 0 < chunk <= _CHUNK_MAX:
        raise FormatError(f"{_HADOOP} claims chunks of {chunk} bytes", None, 4)
    return HadoopChecksums(chunk, struct.unpack_from(f">{values}I", content, 8))


def decode_spark_crc(content: bytes) -> SparkChecksum:
    """Read `<name>.crc`, JSON with the file's size and its CRC32C, which Spark writes signed."""
    text = decode_text(content, _SPARK)
    plain = decode_object(text, _SPARK)
    algorithm = plain.get("algorithm")
    if algorithm != "CRC32C":
        raise FormatError(f"{_SPARK} is of the algorithm {algorithm!r}, not CRC32C", None, 0)
    if plain.get("value") is None or plain.get("mainFileSize") is None:
        raise FormatError(f"{_SPARK} holds no value or no size", None, 0)
    value = number_of(plain, "value", _SPARK, 0)
    return SparkChecksum(value & 0xFFFFFFFF, number_of(plain, "mainFileSize", _SPARK, 0), text)


def spark_checksum(chunks: Iterable[bytes], timestamp_ms: int) -> SparkChecksum:
    """Return the content of Spark's sidecar of a file with this content."""
    value = size = 0
    for chunk in chunks:
        value = crc32c(chunk, value)
        size += len(chunk)
    signed = value - (1 << 32) if value >> 31 else value
    plain = {
        "algorithm": "CRC32C",
        "value": signed,
        "mainFileSize": size,
        "timestampMs": timestamp_ms,
        "creator": {"executorId": "stateshift", "taskInfo": ""},
    }
    return SparkChecksum(value, size, encode_object(plain))

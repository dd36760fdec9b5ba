"""Row checksums (4.3, `rowChecksum.enabled`) of many records: checked, and taken off.

    off_rows     HDFS-backed records    put: i32LE crc32c(key, row) | row
                                        delete: i32LE crc32c(key) | key
    off_deletes  a changelog's deletes  i32LE crc32c(key) | key; its puts and merges keep theirs
    off_values   RocksDB's values       (i32LE crc32c(key, payload) | i32LE size | payload)*,
                                        between merged values the merge operator's delimiter

Each row has its own, so they are computed row by row; it is C that does it.

State files are held against the checksum beside them, as Spark holds them:

    x, x.crc  Spark 4.1 and later refuse x where x.crc does not fit (ChecksumCheckpointFileManager)

A file that is read from its beginning to its end is checked. The tables of RocksDB have no such
checksum, and those of their blocks within.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from stateshift.errors import FormatError, MissingFile
from stateshift.formats.blocks import RowBlock, binary
from stateshift.formats.crc32c import crc32c
from stateshift.formats.spans import missing
from stateshift.formats.spark.crc import SparkChecksum, decode_spark_crc
from stateshift.formats.spark.state_files import StateRecord, check_row, without_row_checksum
from stateshift.storage.protocol import Storage
from stateshift.survey import Survey
from stateshift.world import ReadFrom

_HEAD = 8  # bytes of a checksum and a size


def off_rows(block: RowBlock) -> RowBlock:
    """Return the entries of a block without their row checksums."""
    bare = [without_row_checksum(StateRecord(key, value)) for key, value in block.records()]
    keys = binary([record.key for record in bare])
    values = binary([record.value for record in bare])
    return RowBlock(keys, values, block.merges)


def off_deletes(block: RowBlock) -> RowBlock:
    """Return a block whose deleted keys are without their checksums."""
    deleted = np.flatnonzero(missing(block.values))
    if not len(deleted):
        return block
    checked = block.keys.take(pa.array(deleted)).to_pylist()
    bare = binary([without_delete_checksum(key) for key in checked])
    places = np.arange(len(block))
    places[deleted] = len(block) + np.arange(len(deleted))
    keys = pa.concat_arrays([block.keys, bare]).take(pa.array(places))
    return RowBlock(keys, block.values, block.merges)


def off_values(block: RowBlock, between: bytes) -> RowBlock:
    """Return a block whose values, several in one each, are without their checksums."""
    bare = [without_value_checksums(key, value or b"", between) for key, value in block.records()]
    return RowBlock(block.keys, binary(bare), block.merges)


def without_delete_checksum(key: bytes) -> bytes:
    """Return a deleted key without its checksum."""
    return without_row_checksum(StateRecord(key, None)).key


def without_value_checksums(key: bytes, value: bytes, between: bytes) -> bytes:
    """Return one value without its checksums."""
    payloads, position = [], 0
    while True:
        start = position + _HEAD
        expected = int.from_bytes(value[position : position + 4], "little")
        size = int.from_bytes(value[position + 4 : start], "little")
        payload = value[start : start + size]
        if start > len(value) or len(payload) != size:
            raise FormatError("a value is shorter than its checksum says")
        check_row(payload, key, expected)
        payloads.append(payload)
        position += _HEAD + len(payload)
        if position == len(value):
            return between.join(payloads)
        position += len(between)


CHECKSUM_MAX = 1 << 16


def checked_chunks(storage: Storage, survey: Survey) -> ReadFrom:
    """Return the reader of a file, which fails at its end where its checksum does not fit."""
    sidecars = frozenset(file.path for file in survey.files if file.path.endswith(".crc"))

    def chunks(path: str, offset: int = 0) -> Iterator[bytes]:
        sidecar = f"{path}.crc"
        wanted = _wanted(storage, sidecar) if sidecar in sidecars and not offset else None
        if wanted is None:
            return storage.chunks(path, offset)
        return _held_against(storage.chunks(path), wanted, path)

    return chunks


def _wanted(storage: Storage, path: str) -> SparkChecksum | None:
    """Return a checksum; None where it has gone meanwhile, which Spark does not mind."""
    try:
        return decode_spark_crc(storage.read(path, CHECKSUM_MAX))
    except MissingFile:
        return None
    except FormatError as error:
        raise error.at(path) from error


def _held_against(chunks: Iterator[bytes], wanted: SparkChecksum, path: str) -> Iterator[bytes]:
    value = size = 0
    for chunk in chunks:
        value = crc32c(chunk, value)
        size += len(chunk)
        yield chunk
    if (value, size) != (wanted.value, wanted.size):
        fact = "the checksum beside it does not fit: Spark refuses to read it"
        hint = f"if the file is intact otherwise, remove {path}.crc: Spark reads it without"
        raise FormatError(fact, path, hint=hint)

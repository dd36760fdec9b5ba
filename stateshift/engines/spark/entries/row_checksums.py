"""Row checksums (4.3, `rowChecksum.enabled`) of many records: checked, and taken off.

    off_rows     HDFS-backed records    put: i32LE crc32c(key, row) | row
                                        delete: i32LE crc32c(key) | key
    off_deletes  a changelog's deletes  i32LE crc32c(key) | key; its puts and merges keep theirs
    off_values   RocksDB's values       (i32LE crc32c(key, payload) | i32LE size | payload)*,
                                        between merged values the merge operator's delimiter

Each row has its own, so they are computed row by row; it is C that does it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stateshift.errors import FormatError
from stateshift.formats.blocks import Block, binary
from stateshift.formats.spans import missing
from stateshift.formats.spark.state_files import Record, check_row, without_row_checksum

_HEAD = 8  # bytes of a checksum and a size


def off_rows(block: Block) -> Block:
    """Return the entries of a block without their row checksums."""
    bare = [without_row_checksum(Record(key, value)) for key, value in block.records()]
    keys = binary([record.key for record in bare])
    values = binary([record.value for record in bare])
    return Block(keys, values, block.merges)


def off_deletes(block: Block) -> Block:
    """Return a block whose deleted keys are without their checksums."""
    deleted = np.flatnonzero(missing(block.values))
    if not len(deleted):
        return block
    checked = block.keys.take(pa.array(deleted)).to_pylist()
    bare = binary([without_delete_checksum(key) for key in checked])
    places = np.arange(len(block))
    places[deleted] = len(block) + np.arange(len(deleted))
    keys = pa.concat_arrays([block.keys, bare]).take(pa.array(places))
    return Block(keys, block.values, block.merges)


def off_values(block: Block, between: bytes) -> Block:
    """Return a block whose values, several in one each, are without their checksums."""
    bare = [without_value_checksums(key, value or b"", between) for key, value in block.records()]
    return Block(block.keys, binary(bare), block.merges)


def without_delete_checksum(key: bytes) -> bytes:
    """Return a deleted key without its checksum."""
    return without_row_checksum(Record(key, None)).key


def without_value_checksums(key: bytes, value: bytes, between: bytes) -> bytes:
    """Return one value without its checksums."""
    payloads, position = [], 0
    while True:
        payload = _payload(value, position, key)
        payloads.append(payload)
        position += _HEAD + len(payload)
        if position == len(value):
            return between.join(payloads)
        position += len(between)


def _payload(value: bytes, position: int, key: bytes) -> bytes:
    """Return the payload whose checksum and size stand here."""
    start = position + _HEAD
    expected = int.from_bytes(value[position : position + 4], "little")
    size = int.from_bytes(value[position + 4 : start], "little")
    payload = value[start : start + size]
    if start > len(value) or len(payload) != size:
        raise FormatError("a value is shorter than its checksum says")
    check_row(payload, key, expected)
    return payload

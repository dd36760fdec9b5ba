"""State as HDFS-backed snapshots hold it, and row checksums put on, for whole blocks; the layouts
are drawn in `state_files`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stateshift.formats.binaries import edges, joined, lengths, of_width
from stateshift.formats.blocks import Binary, Block, Ints, binary
from stateshift.formats.crc32c import crc32c
from stateshift.formats.spark.compression import compress

_END = (-1).to_bytes(4, "big", signed=True)


def encode_snapshot(blocks: Iterable[Block], codec: str) -> Iterator[bytes]:
    """Yield an `N.snapshot` of exactly these puts."""
    return compress(_records(blocks), codec)


def checked_rows(block: Block) -> Block:
    """Put on the checksums of HDFS-backed stores: i32LE crc32c(key, row) | row."""
    return Block(block.keys, joined(_checksums(block), block.values))


def checked_values(block: Block) -> Block:
    """Put on the checksums of RocksDB: i32LE crc32c(key, payload) | i32LE size | payload, the key
    with its family's id.
    """
    sizes = of_width(lengths(block.values).astype("<u4").view("u1").reshape(-1, 4))
    return Block(block.keys, joined(_checksums(block), sizes, block.values))


def _checksums(block: Block) -> Binary:
    """Return i32LE crc32c(key, value) of each record."""
    checksums = []
    for key, value in block.records():
        checksum = crc32c(value or b"", crc32c(key))
        checksums.append(checksum.to_bytes(4, "little"))
    return binary(checksums)


def _records(blocks: Iterable[Block]) -> Iterator[bytes]:
    for block in blocks:
        if len(block):
            key_sizes, value_sizes = _size(lengths(block.keys)), _size(lengths(block.values))
            whole = joined(key_sizes, block.keys, value_sizes, block.values)
            starts, content = edges(whole)
            yield bytes(content[starts[0] : starts[-1]])
    yield _END


def _size(sizes: Ints) -> Binary:
    return of_width(sizes.astype(">i4").view("u1").reshape(-1, 4))

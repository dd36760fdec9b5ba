"""SSTs taken apart and put together without regard to what they should be: how a mutation gets
behind checksums.

    made(blocks, check, compression)  a table of these data blocks, whatever is in them, with a
                                      sound index and footer
    with_checksums(content)           the same table, every block that can be found with the
                                      checksum it has now
    data_blocks(content)              the decompressed data blocks of a sound table

Nothing of `formats.rocksdb.table` is used: a bug in it must not hide itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam
import xxhash

from stateshift.formats.crc32c import crc32c, masked_crc32c

MAGIC = 0x88E241B785F4CFF7
FOOTER = 53
DELTA = b"rocksdb.index.value.is.delta.encoded"


def made(blocks: list[bytes], check: int, compression: int) -> bytes:
    out, index = bytearray(), []
    for number, block in enumerate(blocks):
        index.append((number.to_bytes(4, "big") + bytes(8), _put(out, block, check, compression)))
    properties = _put(out, entries([(DELTA, b"\x01")]), check, 0)
    metaindex = _put(out, entries([(b"rocksdb.properties", properties)]), check, 0)
    place = _put(out, entries(index, sizes=False), check, 0)
    footer = (bytes((check,)) + metaindex + place).ljust(FOOTER - 12, b"\0")
    return bytes(out) + footer + struct.pack("<IQ", 5, MAGIC)


def with_index(content: bytes, index: bytes) -> bytes:
    """The same table with another index, put where the footer was."""
    footer = content[-FOOTER:]
    metaindex = footer[1 : 1 + _size_of_handle(footer[1:])]
    out = bytearray(content[:-FOOTER])
    place = _put(out, index, footer[0], 0)
    return bytes(out) + (footer[:1] + metaindex + place).ljust(FOOTER - 12, b"\0") + footer[-12:]


def _size_of_handle(data: bytes) -> int:
    _, position = varint(data, 0)
    return varint(data, position)[1]


def with_checksums(content: bytes) -> bytes:
    """Lenient: what does not lead to a block is left as it is."""
    out = bytearray(content)
    if len(out) < FOOTER:
        return content
    out[-8:] = struct.pack("<Q", MAGIC)
    check, (metaindex, index) = out[-FOOTER], _handles(bytes(out[-FOOTER + 1 : -12]))[:2]
    _mend(out, metaindex, check)
    _mend(out, index, check)
    for _, value in _read(_plain(out, metaindex)):
        _mend(out, *_handles(value)[:1], check) if _handles(value) else None
    for handle in _targets(_plain(out, index)):
        _mend(out, handle, check)
    return bytes(out)


def data_blocks(content: bytes) -> list[bytes]:
    index = _handles(content[-FOOTER + 1 : -12])[1]
    return [
        _plain(bytearray(content), handle) for handle in _targets(_plain(bytearray(content), index))
    ]


def _targets(block: bytes) -> Iterator[tuple[int, int]]:
    """Of an index of either kind, the first few handles: a delta-encoded one says no sizes, so its
    values are read where the keys end.
    """
    end, position, last = _end(block), 0, (0, 0)
    for _ in range(64):
        if position >= end:
            return
        shared, position = varint(block, position)
        unshared, position = varint(block, position)
        position += unshared
        if shared == 0:
            offset, position = varint(block, position)
            size, position = varint(block, position)
        else:
            zigzag, position = varint(block, position)
            offset, size = last[0] + last[1] + 5, last[1] + (zigzag >> 1 ^ -(zigzag & 1))
        last = offset, max(size, 0)
        yield last


def _put(out: bytearray, block: bytes, check: int, compression: int) -> bytes:
    data = _compressed(block, compression)
    handle = put_varint(len(out)) + put_varint(len(data))
    out += data + bytes((compression,)) + struct.pack("<I", checksum(data, compression, check))
    return handle


def _compressed(block: bytes, kind: int) -> bytes:
    match kind:
        case 1:
            return bytes(cramjam.snappy.compress_raw(block))
        case 4 | 5:
            return put_varint(len(block)) + bytes(
                cramjam.lz4.compress_block(block, store_size=False)
            )
        case 7:
            return put_varint(len(block)) + bytes(cramjam.zstd.compress(block))
    return block


def _plain(content: bytearray, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    data, kind = (
        bytes(content[offset : offset + size]),
        content[offset + size] if offset + size < len(content) else 0,
    )
    try:
        if kind == 1:
            return bytes(cramjam.snappy.decompress_raw(data)) if len(data) < 1 << 16 else b""
        if kind in (4, 5):
            raw, start = varint(data, 0)
            return (
                bytes(cramjam.lz4.decompress_block(data[start:], output_len=raw))
                if 0 < raw < 1 << 20
                else b""
            )
        return data if kind == 0 else b""
    except cramjam.DecompressionError:
        return b""


def _mend(out: bytearray, handle: tuple[int, int], check: int) -> None:
    offset, size = handle
    if offset + size + 5 <= len(out):
        data = bytes(out[offset : offset + size])
        struct.pack_into("<I", out, offset + size + 1, checksum(data, out[offset + size], check))


def checksum(data: bytes, last: int, check: int) -> int:
    match check:
        case 1:
            return masked_crc32c(bytes((last,)), crc32c(data))
        case 2:
            return xxhash.xxh32_intdigest(data + bytes((last,)))
        case 3:
            return xxhash.xxh64_intdigest(data + bytes((last,))) & 0xFFFFFFFF
        case 4:
            return (xxhash.xxh3_64_intdigest(data) ^ last * 0x6B9083D9) & 0xFFFFFFFF
    return 0


def entries(items: list[tuple[bytes, bytes]], sizes: bool = True) -> bytes:
    """A block that shares no keys: every entry is a restart."""
    out, restarts = bytearray(), []
    for key, value in items:
        restarts.append(len(out))
        out += (
            put_varint(0)
            + put_varint(len(key))
            + (put_varint(len(value)) if sizes else b"")
            + key
            + value
        )
    return bytes(out) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def _read(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    end, position, key = _end(block), 0, b""
    while position < end:
        shared, position = varint(block, position)
        unshared, position = varint(block, position)
        size, position = varint(block, position)
        key = key[:shared] + block[position : position + unshared]
        yield key, block[position + unshared : position + unshared + size]
        position += unshared + size


def _end(block: bytes) -> int:
    return len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")


def _handles(data: bytes) -> list[tuple[int, int]]:
    found, position = [], 0
    for _ in range(2):
        offset, position = varint(data, position)
        size, position = varint(data, position)
        found.append((offset, size))
    return found


def varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        value |= (data[position] & 0x7F) << shift
        position += 1
        if data[position - 1] < 0x80:
            break
        shift += 7
    return value, max(position, 1)


def put_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))

"""Snappy's framing format, as Flink compresses state: chunks, each with its length and a checksum
of its content.

    chunk    u8 type, u24 length (little-endian), that many bytes
    ff       "sNaPpY": a stream begins
    00       u32 masked CRC32C of the content, then that as raw snappy, at most 64 KiB of it
    01       u32 masked CRC32C of the content, then that as it is
    80 - fe  skipped

Flink does not look at the checksums (SnappyStreamCompressionDecorator); we do.
github.com/google/snappy, framing_format.txt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stateshift.errors import FormatError
from stateshift.formats import bounds

IDENTIFIER: Final = b"\xff\x06\x00\x00sNaPpY"
_HEAD, _CHECKSUM = 4, 4
_IDENTIFIER, _COMPRESSED, _PLAIN, _SKIPPED_FROM = 0xFF, 0x00, 0x01, 0x80
_VARINT_MAX: Final = 5
_PIECE_MAX: Final = 1 << 16
_BODY_MAX: Final = 1 << 17  # 64 KiB that do not compress, with what snappy adds and the checksum


def decompress(content: bytes, what: str) -> bytes:
    """Return the content of streams in a row."""
    import cramjam

    if not content.startswith(IDENTIFIER):
        raise FormatError(f"{what}: no snappy stream begins here", None, 0)
    size = 0
    for at, type_ in _chunks(content, what):
        size += _size(type_, content[at + _HEAD : at + _HEAD + _CHECKSUM + _VARINT_MAX])
    bounds.require_whole(size, f"{what}, decompressed,")
    try:
        return bytes(cramjam.snappy.decompress(content))
    except cramjam.DecompressionError as error:
        raise FormatError(f"{what}: the snappy stream is damaged ({error})", None, 0) from error


def _size(type_: int, begins: bytes) -> int:
    """Return a chunk's claim of its content's size; the decompressor refuses more than 64 KiB."""
    if type_ != _COMPRESSED:
        return 0  # no more than there is
    size = 0
    for place, byte in enumerate(begins[_CHECKSUM:]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return min(size, _PIECE_MAX)


def chunks(content: bytes, what: str) -> bytes:
    """Return the content of the chunks inside a stream; b"" if there are none."""
    return decompress(IDENTIFIER + content, what)


def streams(content: bytes, what: str) -> Iterator[tuple[int, bytes]]:
    """Yield each stream with its offset."""
    begins = [at for at, type_ in _chunks(content, what) if type_ == _IDENTIFIER]
    if content and begins[:1] != [0]:
        raise FormatError(f"{what}: no snappy stream begins here", None, 0)
    for start, end in zip(begins, (*begins[1:], len(content)), strict=True):
        yield start, content[start:end]


def _chunks(content: bytes, what: str) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(content):
        type_, length = content[at], int.from_bytes(content[at + 1 : at + _HEAD], "little")
        end = at + _HEAD + length
        if at + _HEAD > len(content) or end > len(content):
            raise FormatError(f"{what}: a snappy chunk of {length} bytes is truncated", None, at)
        fault = _fault(type_, content[at:end])
        if fault is not None:
            raise FormatError(f"{what}: {fault}", None, at)
        yield at, type_
        at = end


def _fault(type_: int, chunk: bytes) -> str | None:
    if type_ == _IDENTIFIER:
        return None if chunk == IDENTIFIER else "a snappy stream of another kind"
    if type_ >= _SKIPPED_FROM:
        return None
    if type_ not in (_COMPRESSED, _PLAIN):
        return f"unknown type {type_:#04x} of a snappy chunk"
    length = len(chunk) - _HEAD
    return None if _CHECKSUM <= length <= _BODY_MAX else f"a snappy chunk of {length} bytes"

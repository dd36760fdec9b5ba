"""The four framings Spark compresses state files with, told apart by their first bytes; streaming
both ways.

    lz4     ("LZ4Block" | token u8 | stored length i32LE | raw length i32LE | XXH32 i32LE | data)*
            ended by a block of raw length 0. token: 0x10 stored, 0x20 compressed,
            | log2(largest block) - 10. XXH32 of the raw bytes, seed 0x9747B28C, & 0x0FFFFFFF.
            lz4-java, LZ4BlockOutputStream; the default.
    zstd    frames as RFC 8878 has them, written through zstd-jni:
              magic 28 B5 2F FD | descriptor u8 | [window u8] [dictionary id 0-4] [size 0-8]
              blocks: u24LE = last | type << 1 | size << 3, then `size` bytes (1 for type 1, which
              repeats one byte)
              [checksum u32LE]
    snappy  82 "SNAPPY" 00 | version i32BE | compatible i32BE | (length i32BE | raw snappy)*
            snappy-java, SnappyOutputStream
    lzf     ("ZV" | 0 | length u16BE | data) or ("ZV" | 1 | stored u16BE | raw u16BE | data)
            ning compress, LZFChunk. Compressed data are instructions on the bytes so far:
              000LLLLL            L + 1 literal bytes follow
              LLLHHHHH loooooooo  copy L + 2 bytes from H * 256 + o + 1 back; L = 7 means that 7 +
                                  the next byte counts

Source of the choice: Spark, CompressionCodec; the name is in the offset log's conf, but the bytes
decide. Streams of one kind may follow each other. Offsets in errors are those of the compressed
bytes. A block that claims to be larger than its frame allows is refused before anything is
allocated for it. A zstd frame's structure is followed here, which is what gives truncations their
offset; the content goes through Arrow's streaming decompressor, which holds a window and no more.

Blocks have the sizes that Spark writes; any are read. Only stored chunks of lzf are written: its
compressor exists in no Python library that is kept, nobody chooses lzf for size, and our files are
replaced by Spark's own within a few batches.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Literal

import cramjam
import xxhash

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.rocksdb.block import decompress_snappy
from stateshift.formats.stream import Stream, regroup

Codec = Literal["lz4", "zstd", "snappy", "lzf"]
CODECS: tuple[Codec, ...] = ("lz4", "zstd", "snappy", "lzf")

_BLOCK = 32 * 1024  # spark.io.compression.lz4.blockSize, spark.io.compression.snappy.blockSize
_CHUNK = 65_535  # of lzf

_LZ4, _SNAPPY, _LZF = b"LZ4Block", b"\x82SNAPPY\x00", b"ZV"
_LZ4_HEADER = struct.Struct("<8sBiiI")
_STORED, _COMPRESSED = 0x10, 0x20
_LEVEL = 5  # log2(32 KiB) - 10
_LZ4_END = _LZ4_HEADER.pack(_LZ4, _STORED | _LEVEL, 0, 0, 0)
_SNAPPY_HEADER = _SNAPPY + struct.pack(">ii", 1, 1)

_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_PIECE = 256 * 1024
_ZSTD_LEVEL = 1  # spark.io.compression.zstd.level
# A frame can say 128 KiB in four bytes, and so on for ever: what goes beyond so much in all, and so
# often its own size, is no state. Real state is a few hundred times as long as its zstd at most,
# for its keys differ.
_EXPANDED_MAX, _EXPANSION_MAX = 256 * 1024 * 1024, 4096
_WINDOW_MAX = 1 << 27  # what zstd accepts without an option
_BLOCK_MAX = 128 * 1024
_REPEATED, _PACKED, _RESERVED = 1, 2, 3  # kinds of blocks

_MAGIC: dict[Codec, bytes] = {"lz4": _LZ4, "zstd": _ZSTD, "snappy": _SNAPPY, "lzf": _LZF}


def codec_of(beginning: bytes) -> Codec | None:
    """Return the codec of a file that begins with these bytes (eight are enough)."""
    for codec, magic in _MAGIC.items():
        if beginning.startswith(magic):
            return codec
    return None


def decompress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the raw bytes, a block at a time."""
    stream = Stream(chunks, "a compressed file")
    beginning = stream.peek(8)
    codec = codec_of(beginning)
    if codec is not None:
        yield from _DECOMPRESS[codec](stream)
        return
    if any(magic.startswith(beginning) for magic in _MAGIC.values()):  # nothing begins everything
        raise FormatError("a compressed file ends early", None, len(beginning))
    raise FormatError("not compressed by any codec of Spark's (lz4, zstd, snappy, lzf)", None, 0)


def compress(chunks: Iterable[bytes], codec: str) -> Iterator[bytes]:
    """Yield the chunks as Spark reads them by this codec. Same chunks give same bytes."""
    if codec not in CODECS:
        raise FormatError(f"unknown codec {codec!r}; known are {', '.join(CODECS)}")
    yield from _COMPRESS[codec](chunks)


# ---- lz4


def _decompress_lz4(stream: Stream) -> Iterator[bytes]:
    ended = False
    while not ended or not stream.at_end():
        block = _decode_lz4_block(stream)
        ended = not block
        if block:
            yield block


def _compress_lz4(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for raw in regroup(chunks, _BLOCK):
        data, method = bytes(cramjam.lz4.compress_block(raw, store_size=False)), _COMPRESSED
        if len(data) >= len(raw):
            data, method = raw, _STORED
        yield _LZ4_HEADER.pack(_LZ4, method | _LEVEL, len(data), len(raw), _checksum(raw)) + data
    yield _LZ4_END


def _decode_lz4_block(stream: Stream) -> bytes:
    """Return one block's raw bytes; empty for the end mark."""
    start = stream.offset
    magic, token, stored, raw, checksum = _LZ4_HEADER.unpack(stream.take(_LZ4_HEADER.size))
    if magic != _LZ4:
        raise FormatError("an lz4 block does not begin with LZ4Block", None, start)
    method = token & 0xF0
    if method not in (_STORED, _COMPRESSED):
        raise FormatError(f"an lz4 block has the unknown method {method:#x}", None, start + 8)
    if raw == 0:
        if stored or checksum:
            raise FormatError("an lz4 end mark is not empty", None, start + 9)
        return b""
    largest = 1 << (10 + (token & 0x0F))
    if not 0 < raw <= largest:
        fact = f"an lz4 block claims {raw} bytes where {largest} are the most"
        raise FormatError(fact, None, start + 13)
    # An incompressible block is stored as it is.
    sizes = range(raw, raw + 1) if method == _STORED else range(1, raw + raw // 255 + 17)
    if stored not in sizes:
        fact = f"an lz4 block of {raw} bytes claims to be stored in {stored}"
        raise FormatError(fact, None, start + 9)
    data = stream.take(stored)
    if method == _COMPRESSED:
        data = _expand_lz4(data, raw, start)
    if _checksum(data) != checksum:
        raise FormatError("an lz4 block's checksum does not fit its content", None, start)
    return data


def _expand_lz4(data: bytes, raw: int, start: int) -> bytes:
    if raw > 255 * len(data) + 64:  # no lz4 block expands further: do not allocate for a lie
        raise FormatError(f"an lz4 block of {len(data)} bytes cannot hold {raw}", None, start + 13)
    try:
        content = bytes(cramjam.lz4.decompress_block(data, output_len=raw))
    except cramjam.DecompressionError as error:
        raise FormatError("an lz4 block is damaged", None, start) from error
    if len(content) != raw:
        fact = f"an lz4 block claims {raw} bytes and holds {len(content)}"
        raise FormatError(fact, None, start + 13)
    return content


def _checksum(data: bytes) -> int:
    return xxhash.xxh32_intdigest(data, 0x9747B28C) & 0x0FFFFFFF


# ---- zstd


def _decompress_zstd(stream: Stream) -> Iterator[bytes]:
    """Yield 256 KiB at most at a time; refuse 256 MiB and 4,096 times the compressed size."""
    import pyarrow  # a third of a second to load, and only zstd needs it

    start = stream.offset
    source = pyarrow.PythonFile(_Source(_frames(stream)), mode="r")
    produced = 0
    # `read` would leak what it was about to return whenever it raises (pyarrow 26).
    buffer = bytearray(_ZSTD_PIECE)
    try:
        with contextlib.closing(pyarrow.CompressedInputStream(source, "zstd")) as raw:
            while count := raw.readinto(buffer):
                produced += count
                if produced > _EXPANDED_MAX + _EXPANSION_MAX * (stream.offset - start):
                    fact = f"a zstd stream goes on beyond {produced} bytes from next to none"
                    raise FormatError(fact, None, start)
                yield bytes(buffer[:count])
    except OSError as error:
        raise FormatError(f"a zstd frame is damaged: {error}", None, start) from error


def _compress_zstd(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield one frame of level 1, a piece of it for every 256 KiB of raw bytes."""
    compressor = cramjam.zstd.Compressor(_ZSTD_LEVEL)
    held = 0
    for chunk in chunks:
        compressor.compress(chunk)
        held += len(chunk)
        if held >= _ZSTD_PIECE:
            yield bytes(compressor.flush())
            held = 0
    yield bytes(compressor.finish())


def _frames(stream: Stream) -> Iterator[bytes]:
    """Yield the same bytes, piece by piece, each frame's structure checked on the way."""
    while not stream.at_end():
        header, trailer = _zstd_header(stream)
        yield header
        last = False
        while not last:
            start = stream.offset
            head = stream.take(3)
            number = int.from_bytes(head, "little")
            is_last, kind, size = bool(number & 1), number >> 1 & 3, number >> 3
            if kind == _RESERVED or (kind == _PACKED and size > _BLOCK_MAX):
                raise FormatError(
                    "a zstd frame holds a block of a reserved kind or size", None, start
                )
            stored = 1 if kind == _REPEATED else size
            block, last = head + stream.take(stored), is_last
            yield block
        yield stream.take(trailer)


def _zstd_header(stream: Stream) -> tuple[bytes, int]:
    """Return the frame's header, and how many bytes of checksum stand at its end."""
    start = stream.offset
    magic = stream.take(4)
    if magic != _ZSTD:
        raise FormatError("not a zstd frame", None, start)
    descriptor = stream.take(1)
    flags = descriptor[0]
    trailer = 4 if flags & 4 else 0
    dictionary_size = (0, 1, 2, 4)[flags & 3]
    content_size = (0, 2, 4, 8)[flags >> 6]
    if flags >> 5 & 1:
        rest = stream.take(dictionary_size + max(content_size, 1))
        if int.from_bytes(rest[dictionary_size:], "little") > _WINDOW_MAX:
            raise FormatError("a zstd frame claims one segment beyond 128 MiB", None, start + 5)
        return magic + descriptor + rest, trailer
    rest = stream.take(1 + dictionary_size + content_size)
    if 1 << (10 + (rest[0] >> 3)) > _WINDOW_MAX:
        raise FormatError("a zstd frame claims a window beyond 128 MiB", None, start + 5)
    return magic + descriptor + rest, trailer


class _Source:
    closed = False

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = b""

    def read(self, size: int = -1) -> bytes:
        while not self._held:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._held = piece
        if size < 0:
            size = len(self._held)
        piece, self._held = self._held[:size], self._held[size:]
        return piece

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self._pieces = iter(())


# ---- snappy


def _decompress_snappy(stream: Stream) -> Iterator[bytes]:
    _read_snappy_header(stream)
    while not stream.at_end():
        if stream.peek(1) == _SNAPPY[:1]:  # another stream follows; as a length it is negative
            _read_snappy_header(stream)
            continue
        start = stream.offset
        (length,) = struct.unpack(">i", stream.take(4))
        if length < 0:
            raise FormatError(f"a snappy block claims {length} bytes", None, start)
        yield decompress_snappy(stream.take(length), start + 4)


def _compress_snappy(chunks: Iterable[bytes]) -> Iterator[bytes]:
    yield _SNAPPY_HEADER
    for raw in regroup(chunks, _BLOCK):
        data = bytes(cramjam.snappy.compress_raw(raw))
        yield struct.pack(">i", len(data)) + data


def _read_snappy_header(stream: Stream) -> None:
    start = stream.offset
    if stream.take(len(_SNAPPY)) != _SNAPPY:
        raise FormatError("a snappy stream does not begin with its magic", None, start)
    version, compatible = struct.unpack(">ii", stream.take(8))
    if compatible > 1 or version < 1:
        fact = f"a snappy stream of version {version} (for {compatible})"
        raise UnknownVersion(fact, None, start + 8)


# ---- lzf


def _decompress_lzf(stream: Stream) -> Iterator[bytes]:
    while not stream.at_end():
        start = stream.offset
        magic, kind, length = struct.unpack(">2sBH", stream.take(5))
        if magic != _LZF or kind > 1:
            raise FormatError("not a chunk of lzf", None, start)
        if kind == 0:
            yield stream.take(length)
        else:
            (raw,) = struct.unpack(">H", stream.take(2))
            yield _expand_lzf(stream.take(length), raw, start + 7)


def _compress_lzf(chunks: Iterable[bytes]) -> Iterator[bytes]:
    pieces = regroup(chunks, _CHUNK)
    first = next(pieces, b"")  # an empty file has one chunk, too
    for raw in chain((first,), pieces):
        yield struct.pack(">2sBH", _LZF, 0, len(raw)) + raw


def _expand_lzf(data: bytes, raw: int, start: int) -> bytes:
    out = bytearray()
    position, end = 0, len(data)
    try:
        while position < end and len(out) <= raw:
            control = data[position]
            position += 1
            if control < 32:
                literal = data[position : position + control + 1]
                if len(literal) <= control:
                    raise IndexError
                out += literal
                position += len(literal)
                continue
            length = control >> 5
            if length == 7:
                length += data[position]
                position += 1
            back = ((control & 31) << 8 | data[position]) + 1
            position += 1
            _copy(out, back, length + 2)
    except IndexError as error:
        raise FormatError("a chunk of lzf is damaged", None, start + min(position, end)) from error
    if len(out) != raw or position != end:
        raise FormatError(f"a chunk of lzf claims {raw} bytes and holds {len(out)}", None, start)
    return bytes(out)


def _copy(out: bytearray, back: int, length: int) -> None:
    """Append `length` bytes from `back` before the end; they may overlap the new ones."""
    start = len(out) - back
    if start < 0:
        raise IndexError
    if back >= length:
        out += out[start : start + length]
    else:
        piece = bytes(out[start:])
        out += (piece * (length // back + 1))[:length]


_DECOMPRESS: dict[Codec, Callable[[Stream], Iterator[bytes]]] = {
    "lz4": _decompress_lz4,
    "zstd": _decompress_zstd,
    "snappy": _decompress_snappy,
    "lzf": _decompress_lzf,
}
_COMPRESS: dict[Codec, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    "lz4": _compress_lz4,
    "zstd": _compress_zstd,
    "snappy": _compress_snappy,
    "lzf": _compress_lzf,
}

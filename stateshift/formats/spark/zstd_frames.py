"""zstd frames (RFC 8878), as Spark's ZStdCompressionCodec writes them through zstd-jni.

    magic 28 B5 2F FD | descriptor u8 | [window u8] [dictionary id 0-4] [content size 0-8]
    blocks: u24LE = last | type << 1 | size << 3, then `size` bytes (1 for type 1, which repeats
            one byte)
    [checksum u32LE]

The frame's structure is followed here, which is what gives truncations their offset; the content
goes through Arrow's streaming decompressor, which holds a window and no more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import cramjam

from stateshift.errors import FormatError
from stateshift.formats.stream import Stream

MAGIC = b"\x28\xb5\x2f\xfd"

_PIECE = 256 * 1024
_LEVEL = 1  # spark.io.compression.zstd.level
# A frame can say 128 KiB in four bytes, and so on for ever: what goes beyond so much in all, and so
# often its own size, is no state. Real state is a few hundred times as long as its zstd at most,
# for its keys differ.
_EXPANDED_MAX, _EXPANSION_MAX = 256 * 1024 * 1024, 4096
_WINDOW_MAX = 1 << 27  # what zstd accepts without an option
_BLOCK_MAX = 128 * 1024
_REPEATED, _COMPRESSED, _RESERVED = 1, 2, 3  # kinds of blocks


def decompress(stream: Stream) -> Iterator[bytes]:
    """Yield 256 KiB at most at a time; refuse 256 MiB and 4,096 times the compressed size."""
    import pyarrow  # a third of a second to load, and only zstd needs it

    start = stream.offset
    source = pyarrow.PythonFile(_Source(_frames(stream)), mode="r")
    produced = 0
    # `read` would leak what it was about to return whenever it raises (pyarrow 26).
    buffer = bytearray(_PIECE)
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


def compress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield one frame of level 1, a piece of it for every 256 KiB of raw bytes."""
    compressor = cramjam.zstd.Compressor(_LEVEL)
    held = 0
    for chunk in chunks:
        compressor.compress(chunk)
        held += len(chunk)
        if held >= _PIECE:
            yield bytes(compressor.flush())
            held = 0
    yield bytes(compressor.finish())


def _frames(stream: Stream) -> Iterator[bytes]:
    """Yield the same bytes, piece by piece, each frame's structure checked on the way."""
    while not stream.at_end():
        header, trailer = _header(stream)
        yield header
        last = False
        while not last:
            block, last = _block(stream)
            yield block
        yield stream.take(trailer)


def _block(stream: Stream) -> tuple[bytes, bool]:
    """Return a block with its header, and whether it is the frame's last."""
    start = stream.offset
    head = stream.take(3)
    number = int.from_bytes(head, "little")
    is_last, kind, size = bool(number & 1), number >> 1 & 3, number >> 3
    if kind == _RESERVED or (kind == _COMPRESSED and size > _BLOCK_MAX):
        raise FormatError("a zstd frame holds a block of a reserved kind or size", None, start)
    stored = 1 if kind == _REPEATED else size
    return head + stream.take(stored), is_last


def _header(stream: Stream) -> tuple[bytes, int]:
    """Return the frame's header, and how many bytes of checksum stand at its end."""
    start = stream.offset
    magic = stream.take(4)
    if magic != MAGIC:
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
    """The frames as a file that Arrow reads from."""

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

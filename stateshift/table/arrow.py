"""An Arrow file that leaves in pieces, read as it comes.

An Arrow file is eight bytes of magic and padding, then a stream of record batches with an end mark,
then a footer (Apache Arrow, "IPC File Format"): behind the magic it is read as a stream.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa

MAGIC = b"ARROW1\0\0"


def record_batches(chunks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an Arrow file that comes in chunks."""
    with _reader(chunks) as reader:
        yield from reader


def table_of(chunks: Iterator[bytes]) -> pa.Table:
    """Return an Arrow file that comes in chunks as one table."""
    with _reader(chunks) as reader:
        return reader.read_all()


def _reader(chunks: Iterator[bytes]) -> pa.RecordBatchReader:
    stream = Chunks(chunks)
    magic = stream.read(len(MAGIC))
    assert magic == MAGIC, "we write Arrow files ourselves"
    return pa.ipc.open_stream(pa.PythonFile(stream, mode="r"))


class Chunks(io.RawIOBase):
    """Chunks as a file that is read once, from its beginning to its end."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return true."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        parts: list[bytes] = []
        left = size
        while left != 0:
            if not self._rest:
                chunk = next(self._chunks, None)
                if chunk is None:
                    break
                self._rest = memoryview(chunk)
                continue
            part = self._rest if left < 0 else self._rest[:left]
            self._rest = self._rest[len(part) :]
            left -= len(part) if left > 0 else 0
            parts.append(bytes(part))
        return b"".join(parts)

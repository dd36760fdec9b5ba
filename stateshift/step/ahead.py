"""Large files are read ahead, while the piece before is still being written: else each of two
networks, or directions of one, is idle while the other is used.

All files of a process that are read ahead share PIECES_MAX pieces, so that many at once take no
more memory than a few. One that gets none of them is read piece by piece, as it is written.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, Full, Queue

# Smaller ones are read whole before anything of them is sent.
FROM_BYTES = 8 * 1024 * 1024

PIECES = 4  # of one file
PIECES_MAX = 24  # of all: at 4 MiB each some 100 MiB

_SECONDS_BETWEEN = 0.05

_free = threading.BoundedSemaphore(PIECES_MAX)


def ahead(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same chunks. An error is raised after those that came before it."""
    reader = _Reader(chunks)
    try:
        threading.Thread(
            target=copy_context().run, args=(reader.run,), name="ahead", daemon=True
        ).start()
    except RuntimeError:  # no more threads: then as if there were nothing to gain
        yield from chunks
        return
    try:
        yield from reader.read()
    finally:
        reader.close()


class _Reader:
    """A thread that fills a queue, at last with None or an error. Each chunk holds one of the
    pieces, but for the first after one that was taken: no reader waits for other files.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._queue: Queue[tuple[bytes | BaseException | None, bool]] = Queue(PIECES)
        self._closed = threading.Event()

    def run(self) -> None:
        last: BaseException | None = None
        try:
            while (piece := self._piece()) is not None:
                chunk = None
                try:
                    chunk = next(self._chunks, None)
                finally:
                    if chunk is None:
                        _give_back(piece)
                if chunk is None:
                    break
                self._put(chunk, piece)
            if isinstance(self._chunks, Generator):
                self._chunks.close()
        except BaseException as error:
            last = error
        self._put(last, False)
        del last  # its traceback holds this frame
        if self._closed.is_set():
            self._empty()

    def read(self) -> Iterator[bytes]:
        while True:
            chunk, piece = self._queue.get()
            _give_back(piece)
            if isinstance(chunk, BaseException):
                try:
                    raise chunk
                finally:
                    del chunk
            if chunk is None:
                return
            yield chunk

    def close(self) -> None:
        """End the thread, without waiting for the piece that it reads: nobody wants that."""
        self._closed.set()
        self._empty()

    def _empty(self) -> None:
        with suppress(Empty):
            while True:
                _give_back(self._queue.get_nowait()[1])

    def _piece(self) -> bool | None:
        """Whether the next chunk holds a piece; None once nobody wants it."""
        while not self._closed.is_set():
            if self._queue.empty():
                return False
            if _free.acquire(timeout=_SECONDS_BETWEEN):
                return True
        return None

    def _put(self, chunk: bytes | BaseException | None, piece: bool) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put((chunk, piece), timeout=_SECONDS_BETWEEN)
                return
            except Full:
                continue
        _give_back(piece)


def _give_back(piece: bool) -> None:
    if piece:
        _free.release()

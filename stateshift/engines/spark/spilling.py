"""Records dealt onto piles on disk, for what may be larger than memory.

    with Piles(count, schema) as piles:
        piles.deal(batch, numbers)     each record of the batch onto the pile of its number
        piles.each()                   pile by pile, its batches in the order in which they were dealt

The files are temporary and have no name where the system can do that (everywhere but on Windows), so that nothing is
left of them whatever ends the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any

import numpy as np
import pyarrow as pa

from stateshift.errors import StorageError
from stateshift.formats.blocks import Ints


class Piles:
    """As many piles as are asked for; they are gone when the `with` ends."""

    def __init__(self, count: int, schema: Any) -> None:
        self._count, self._schema = count, schema
        self._files: dict[int, IO[bytes]] = {}
        self._writers: dict[int, Any] = {}

    def deal(self, batch: Any, numbers: Ints) -> None:
        """Records of one pile keep their order."""
        order = np.argsort(numbers.astype(np.uint16), kind="stable")
        counts = np.bincount(numbers, minlength=self._count)
        dealt, start = batch.take(pa.array(order)), 0
        with _told():
            for number in np.flatnonzero(counts).tolist():
                count = int(counts[number])
                self._writer(number).write_batch(dealt.slice(start, count))
                start += count

    def each(self) -> Iterator[Iterator[Any]]:
        """A pile is forgotten when the next one is asked for; empty ones are left out."""
        for number in sorted(self._files):
            file = self._files[number]
            with _told():
                self._writers[number].close()
                file.seek(0)
            yield iter(pa.ipc.open_stream(file))
            file.close()

    def _writer(self, number: int) -> Any:
        if number not in self._files:
            self._files[number] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the `with` ends
            self._writers[number] = pa.ipc.new_stream(self._files[number], self._schema)
        return self._writers[number]

    def __enter__(self) -> Piles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"temporary files in {tempfile.gettempdir()} cannot be written: {error.strerror or error}",
            location=tempfile.gettempdir(),
            hint="name a directory with more room in TMPDIR",
        ) from error

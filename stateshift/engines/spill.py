"""Records dealt onto piles on disk, for what may be larger than memory.

    Dealt           batches held in memory, and dealt onto piles once they are too many
    pile_of         which of PILES piles each key belongs on
    with Piles(count, schema) as piles:
        piles.deal(batch, numbers)     each record of the batch onto the pile of its number
        piles.each()                   (number, batches) pile by pile, the batches in the order in
                                       which they were dealt

The files are temporary and have no name where the system can do that (everywhere but on Windows),
so that nothing is left of them whatever ends the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import pyarrow as pa

from stateshift.errors import StorageError
from stateshift.formats.blocks import Binary, Ints
from stateshift.formats.spans import hash64

# Of keys and values, as they are written.
BYTES_MAX = 128 * 1024 * 1024

# Few enough that several steps at once do not run out of open files. A pile of a pile has a 256th
# of the records; what is too large even after five times are records of few keys.
PILES, LEVELS = 16, 5


def pile_of(keys: Binary, level: int) -> Ints:
    """Which pile each key belongs on: at each level by other bits of its hash."""
    bits = PILES.bit_length() - 1
    turned = hash64(keys) >> np.uint64(64 - bits * (level + 1))
    return (turned & np.uint64(PILES - 1)).astype(np.int64)


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

    def each(self) -> Iterator[tuple[int, Iterator[Any]]]:
        """A pile is forgotten when the next one is asked for; empty ones are left out."""
        for number in sorted(self._files):
            file = self._files[number]
            with _told():
                self._writers[number].close()
                file.seek(0)
            yield number, iter(pa.ipc.open_stream(file))
            file.close()

    def _writer(self, number: int) -> Any:
        if number not in self._files:
            self._files[number] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the `with` ends
            self._writers[number] = pa.ipc.new_stream(self._files[number], self._schema)
        return self._writers[number]

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Piles:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Dealt:
    """Batches that come one by one and are given back together, pile by pile: one, as long as all
    of them come to no more than `bytes_max`, and then as many as there are.
    """

    def __init__(self, count: int, schema: Any, bytes_max: int) -> None:
        self._count, self._schema, self._bytes_max = count, schema, bytes_max
        self._held: list[tuple[Any, Ints]] = []
        self._size = 0
        self._piles: Piles | None = None

    def add(self, batch: Any, numbers: Ints) -> None:
        self._held.append((batch, numbers))
        self._size += batch.nbytes
        if self._size > self._bytes_max:
            self._piles = self._piles or Piles(self._count, self._schema)
            for own, places in self._held:
                self._piles.deal(own, places)
            self._held, self._size = [], 0

    def each(self) -> Iterator[Any]:
        """Tables."""
        if self._piles is None:
            yield pa.Table.from_batches((batch for batch, _ in self._held), self._schema)
            return
        with self._piles as piles:
            for own, places in self._held:
                piles.deal(own, places)
            for _, batches in piles.each():
                yield pa.Table.from_batches(batches, self._schema)

    def close(self) -> None:
        if self._piles is not None:
            self._piles.close()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            (
                f"temporary files in {tempfile.gettempdir()} cannot be written: "
                f"{error.strerror or error}"
            ),
            location=tempfile.gettempdir(),
            hint="name a directory with more room in TMPDIR",
        ) from error

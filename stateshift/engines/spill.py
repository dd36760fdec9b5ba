"""Records dealt onto piles on disk, for what may be larger than memory.

    in_memory       items in lists that fit into memory: all in one, or pile by pile
    Dealt           batches held in memory, and dealt onto piles once they are too many
    pile_of         which of PILES piles each key belongs on, by its hash
    with Piles(count, schema) as piles:
        piles.deal(batch, numbers)     each record of the batch onto the pile of its number
        piles.each()                   (number, batches) pile by pile, the batches in the order in
                                       which they were dealt

The files are temporary and have no name where the system can do that (everywhere but on Windows),
so that nothing is left of them whatever ends the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import IO, Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from stateshift.errors import StorageError
from stateshift.formats.blocks import Ints
from stateshift.formats.spans import Words

# Keys and values, as they are written.
BYTES_MAX = 80 * 1024 * 1024

# Arrow has no types that mypy --strict could tell apart here.
RecordBatch = Any  # a pyarrow.RecordBatch
Table = Any  # a pyarrow.Table
Schema = Any  # a pyarrow.Schema
Writer = Any  # a pyarrow.RecordBatchStreamWriter

# Few enough that several steps at once do not run out of open files. A pile of a pile has a 256th
# of the records; what is too large even after five times are records of few keys.
PILES, LEVELS = 16, 5


class Sized(Protocol):
    """The records in memory, and their bytes."""

    @property
    def size(self) -> int: ...


Held = TypeVar("Held", bound=Sized)


@dataclass(frozen=True, slots=True)
class Dealing(Generic[Held]):
    """How items are put onto piles by the hashes of their keys, and read from there."""

    schema: Schema
    hashes_of: Callable[[Held], Words]
    batch_of: Callable[[Held], RecordBatch]
    items_of: Callable[[RecordBatch], Iterable[Held]]


def in_memory(
    items: Iterable[Held], dealing: Dealing[Held], bytes_max: float, level: int = 0
) -> Iterator[list[Held]]:
    """Yield lists of items of about `bytes_max`, all of one key in one list. They were dealt onto
    piles `level` times already. A list may be emptied to free its items early.
    """
    coming = iter(items)
    held: list[Held] = []
    size, size_max = 0, bytes_max if level < LEVELS else inf
    for item in coming:
        held.append(item)
        size += item.size
        if size > size_max:
            break
    else:
        yield held
        return
    with Piles(PILES, dealing.schema) as piles:
        for item in chain(hand_out(held), coming):
            piles.deal(dealing.batch_of(item), pile_of(dealing.hashes_of(item), level))
        for _, pile in piles.each():
            dealt = chain.from_iterable(map(dealing.items_of, pile))
            yield from in_memory(dealt, dealing, bytes_max, level + 1)


def hand_out(held: list[Held]) -> Iterator[Held]:
    """Yield one after the other, each forgotten when it is handed out."""
    held.reverse()
    while held:
        yield held.pop()


def pile_of(hashes: Words, level: int) -> Ints:
    """Return the pile on which each key belongs: at each level by other bits of its hash."""
    bits = PILES.bit_length() - 1
    turned = hashes >> np.uint64(64 - bits * (level + 1))
    return (turned & np.uint64(PILES - 1)).astype(np.int64)


@dataclass(eq=False)
class Piles:
    """As many piles as are asked for; they are gone when the `with` ends."""

    _count: int
    _schema: Schema
    _files: dict[int, IO[bytes]] = field(default_factory=dict, init=False)
    _writers: dict[int, Writer] = field(default_factory=dict, init=False)

    def deal(self, batch: RecordBatch, numbers: Ints) -> None:
        """Write each record onto the pile of its number; those of one pile keep their order."""
        order = np.argsort(numbers.astype(np.uint16), kind="stable")
        counts = np.bincount(numbers, minlength=self._count)
        dealt, start = batch.take(pa.array(order)), 0
        with storage_errors():
            for number in np.flatnonzero(counts).tolist():
                if number not in self._files:
                    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the `with` ends
                    self._files[number] = file
                    self._writers[number] = pa.ipc.new_stream(file, self._schema)
                count = int(counts[number])
                self._writers[number].write_batch(dealt.slice(start, count))
                start += count

    def each(self) -> Iterator[tuple[int, Iterator[RecordBatch]]]:
        """Yield pile by pile, no empty ones; one is forgotten when the next is asked for."""
        for number in sorted(self._files):
            file = self._files[number]
            with storage_errors():
                self._writers[number].close()
                file.seek(0)
            yield number, iter(pa.ipc.open_stream(file))
            file.close()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Piles:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def put_aside(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Write batches to a temporary file now; yield them later. The file goes with the iterator."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - read until the iterator is forgotten
    with storage_errors():
        writer = None
        for batch in batches:
            writer = writer or pa.ipc.new_stream(file, batch.schema)
            writer.write_batch(batch)
        assert writer is not None, "there is something to put aside"
        writer.close()
        file.seek(0)
    return _read_back(file)


def _read_back(file: IO[bytes]) -> Iterator[RecordBatch]:
    with file:
        yield from pa.ipc.open_stream(file)


@dataclass(eq=False)
class Dealt:
    """Batches given back together: as one up to `bytes_max`, and else pile by pile."""

    _count: int
    _schema: Schema
    _bytes_max: int
    _held: list[tuple[RecordBatch, Ints]] = field(default_factory=list, init=False)
    _size: int = field(default=0, init=False)
    _piles: Piles | None = field(default=None, init=False)

    def add(self, batch: RecordBatch, numbers: Ints) -> None:
        self._held.append((batch, numbers))
        self._size += batch.nbytes
        if self._size > self._bytes_max:
            self._piles = self._piles or Piles(self._count, self._schema)
            for held, places in self._held:
                self._piles.deal(held, places)
            self._held, self._size = [], 0

    def each(self) -> Iterator[Table]:
        """Yield a table for each pile."""
        if self._piles is None:
            yield pa.Table.from_batches((batch for batch, _ in self._held), self._schema)
            return
        with self._piles as piles:
            for held, places in self._held:
                piles.deal(held, places)
            for _, batches in piles.each():
                yield pa.Table.from_batches(batches, self._schema)

    def close(self) -> None:
        if self._piles is not None:
            self._piles.close()


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raise what goes wrong with a temporary file as a StorageError that names its directory."""
    try:
        yield
    except OSError as error:
        directory = tempfile.gettempdir()
        fact = f"temporary files in {directory} cannot be written: {error.strerror or error}"
        hint = "name a directory with more free space in TMPDIR"
        raise StorageError(fact, location=directory, hint=hint) from error

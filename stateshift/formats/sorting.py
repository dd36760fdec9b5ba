"""Records in any order, any number of them, given back in the order of their keys, within a bounded
memory.

    piles = SortedPiles(scratch)
    piles.add(3, block) ...            to one of several piles
    piles.pile(3).blocks(after, upto)  those of it, ascending; records of one key behind each other

    piles.put_aside()                  all of it lies in the scratch file
    index_of({3: piles.pile(3)})       says where
    open_piles(index, file)            the piles again, also in another process that has the file

All piles in memory, and the sorting of the largest of them, take BYTES_MAX. Beyond that every
pile's records are sorted and put aside, in chunks of CHUNK_BYTES, in one scratch file; giving them
back merges these runs a chunk of each at a time. The scratch file is handed in as a function that
opens it: in memory by default, on disk where state is really moved.

Runs are merged so: of the chunks in memory, the smallest last key among runs that go on is a bound
below which nothing more can come, so everything up to it is taken from each run at once, and sorted
together.
"""

from __future__ import annotations

import io
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from stateshift.errors import StorageError
from stateshift.formats.blocks import RowBlock, count_upto, in_order, part, whole

BYTES_MAX = 40 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
SAMPLES = 4

# Opens a file without a name, which is gone when it is closed.
Scratch = Callable[[], BinaryIO]


class ScratchPlace(NamedTuple):
    """The offset of a block in a scratch file, and its size there, in bytes."""

    at: int
    size: int


class StoredBlock(NamedTuple):
    """A way back to a block. `place` is None if it is in memory."""

    load: Callable[[], RowBlock]
    place: ScratchPlace | None = None


_SCHEMA = pa.schema([("keys", pa.large_binary()), ("values", pa.large_binary())])


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records in order. `samples` are keys at even distances, the last of all at the end."""

    first: bytes
    samples: tuple[bytes, ...]
    records: int
    size: int
    stored: StoredBlock

    @property
    def last(self) -> bytes:
        return self.samples[-1]


Run = tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class SortedPile:
    """Sorted runs, each of chunks."""

    runs: tuple[Run, ...]

    @property
    def records(self) -> int:
        return sum(chunk.records for chunk in chain.from_iterable(self.runs))

    def bounds(self, count: int) -> list[bytes]:
        samples = []
        for chunk in chain.from_iterable(self.runs):
            share = chunk.size / len(chunk.samples)
            samples += [(key, share) for key in chunk.samples]
        return cuts(samples, count)

    def blocks(self, after: bytes | None = None, upto: bytes | None = None) -> Iterator[RowBlock]:
        """Yield the records in order; `after` a key and up to another, if these are given."""

        def overlaps(chunk: Chunk) -> bool:
            if after is not None and chunk.last <= after:
                return False
            return upto is None or chunk.first <= upto

        cursors = [_RunCursor(filter(overlaps, run), after, upto) for run in self.runs]
        while cursors := [cursor for cursor in cursors if cursor.fill()]:
            lasts = [cursor.last() for cursor in cursors]
            bound = min((last for last in lasts if last is not None), default=None)
            taken = [cursor.taken(bound) for cursor in cursors]
            yield in_order(whole([block for block in taken if len(block)]))


def cuts(samples: Iterable[tuple[bytes, float]], count: int, early: float = 0.0) -> list[bytes]:
    """Return `count` - 1 sample keys that cut into equal parts, `early` by a share of a part."""
    ordered = sorted(samples)
    if not ordered:
        return [b""] * (count - 1)
    seen = list(accumulate(size for _, size in ordered))

    def parts_before(size: float) -> int:
        return int(size * count / seen[-1] + early)

    ends = (bisect_left(seen, number, key=parts_before) for number in range(1, count))
    return [ordered[min(end, len(ordered) - 1)][0] for end in ends]


@dataclass(eq=False)
class SortedPiles:
    """Records on their way to several piles."""

    scratch: Scratch = io.BytesIO
    bytes_max: int = BYTES_MAX
    _held: dict[int, list[RowBlock]] = field(default_factory=dict, init=False)
    _sizes: Counter[int] = field(default_factory=Counter[int], init=False)
    _runs: dict[int, list[Run]] = field(default_factory=dict, init=False)
    _file: _File | None = field(default=None, init=False)

    def add(self, number: int, block: RowBlock) -> None:
        if not len(block):
            return
        self._held.setdefault(number, []).append(block)
        self._sizes[number] += block.size
        if self._sizes.total() + max(self._sizes.values()) >= self.bytes_max:
            self.put_aside()

    def put_aside(self) -> None:
        """Have all records so far in the scratch file."""
        self._file = self._file or _File(self.scratch())
        self._put_aside(self._file.store)

    def pile(self, number: int) -> SortedPile:
        if self._held:
            self._put_aside(lambda block: StoredBlock(lambda: block))
        return SortedPile(tuple(self._runs.get(number, ())))

    def _put_aside(self, keep: Callable[[RowBlock], StoredBlock]) -> None:
        for number in sorted(self._held):
            block = in_order(whole(self._held.pop(number)))
            step = -(-len(block) // max(1, block.size // CHUNK_BYTES))
            run = []
            for start in range(0, len(block), step):
                piece = part(block, start, min(start + step, len(block)))
                run.append(_chunk(piece, keep(piece)))
            self._runs.setdefault(number, []).append(tuple(run))
        self._sizes.clear()


@dataclass(eq=False)
class _File:
    """A scratch file that blocks are written behind each other in."""

    _file: BinaryIO
    _end: int = field(default=0, init=False)

    def store(self, block: RowBlock) -> StoredBlock:
        content = pa.record_batch([block.keys, block.values], schema=_SCHEMA).serialize()
        place = ScratchPlace(self._end, len(content))
        put_aside(self._file, place.at, content)
        self._end += place.size
        return self.at(place)

    def at(self, place: ScratchPlace) -> StoredBlock:

        def load() -> RowBlock:
            self._file.seek(place.at)
            batch = pa.ipc.read_record_batch(pa.py_buffer(self._file.read(place.size)), _SCHEMA)
            return RowBlock(batch.column(0), batch.column(1))

        return StoredBlock(load, place)


def index_of(piles: Mapping[int, SortedPile]) -> bytes:
    """Return the index of piles that were put aside."""

    def plain_chunk(chunk: Chunk) -> list[object]:
        assert chunk.stored.place is not None, "it was put aside"
        samples = [key.hex() for key in chunk.samples]
        return [chunk.first.hex(), samples, chunk.records, chunk.size, *chunk.stored.place]

    plain = {}
    for number, pile in piles.items():
        plain[number] = [list(map(plain_chunk, run)) for run in pile.runs]
    return json.dumps(plain).encode()


def open_piles(index: bytes, file: BinaryIO) -> dict[int, SortedPile]:
    """Return piles that were put aside in a scratch file."""
    scratch = _File(file)

    def chunk_of(plain: list[Any]) -> Chunk:
        first, samples, records, size, *place = plain
        keys = tuple(map(bytes.fromhex, samples))
        stored = scratch.at(ScratchPlace(*place))
        return Chunk(bytes.fromhex(first), keys, records, size, stored)

    piles = {}
    for number, plain_runs in json.loads(index).items():
        runs = [tuple(map(chunk_of, run)) for run in plain_runs]
        piles[int(number)] = SortedPile(tuple(runs))
    return piles


def put_aside(file: BinaryIO, place: int, content: bytes | memoryview) -> None:
    """Write to a place of a scratch file; the error of a full disk has a hint."""
    try:
        file.seek(place)
        file.write(content)
    except OSError as error:
        fact = f"state that is sorted cannot be put aside: {error.strerror or error}"
        hint = (
            "TMPDIR names a place with free space for it, twice to four times the size of "
            "the state's files"
        )
        raise StorageError(fact, hint=hint) from error


@dataclass(slots=True)
class _RunCursor:
    """The progress of a run's merge: the chunk in memory, and those that follow."""

    chunks: Iterator[Chunk]
    after: bytes | None
    upto: bytes | None
    held: RowBlock | None = None
    following: Chunk | None = field(init=False)

    def __post_init__(self) -> None:
        self.following = next(self.chunks, None)

    def fill(self) -> bool:
        while not self._holds_any() and self.following is not None:
            block, self.following = self.following.stored.load(), next(self.chunks, None)
            end = len(block) if self.upto is None else count_upto(block.keys, self.upto)
            start = 0 if self.after is None else count_upto(block.keys, self.after)
            self.held = part(block, min(start, end), end)
        return self._holds_any()

    def _holds_any(self) -> bool:
        return self.held is not None and len(self.held) > 0

    def last(self) -> bytes | None:
        assert self.held is not None, "filled before"
        return bytes(self.held.keys[-1].as_py()) if self.following is not None else None

    def taken(self, bound: bytes | None) -> RowBlock:
        assert self.held is not None, "filled before"
        held, count = self.held, len(self.held)
        if bound is not None:
            count = count_upto(held.keys, bound)
        self.held = part(held, count, len(held))
        return part(held, 0, count)


def _chunk(block: RowBlock, stored: StoredBlock) -> Chunk:
    count = len(block)
    samples = tuple(block.keys[-(-count * n // SAMPLES) - 1].as_py() for n in range(1, SAMPLES + 1))
    return Chunk(block.keys[0].as_py(), samples, count, block.size, stored)

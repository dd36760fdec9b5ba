"""Entries redistributed into other key groups, as columns: for another max parallelism.

    dealt_sections(files, becomes, scratch) -> Sections

Some megabytes of entries at a time, each key is hashed, the group that it was in is checked, and
its entry is copied behind those of its new group and state, entries of one length at once. The
result is a run. In the end each new section is put together from all runs, so memory does not grow
with the state.

    run    rows of i64 group << 16 | state, size, where its last entry's key begins; then the
           entries of the first row, of the second, ...

Runs are held in memory up to HELD_BYTES, and beyond that in a scratch file. Keys that `key_hashes`
does not read are left to `keys`, key by key. This module imports pyarrow: see `blocks`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, groupby
from typing import Any, BinaryIO, Final

import numpy as np

from stateshift.engines.flink.entries.keys import hash_of, key_start
from stateshift.engines.flink.rewrite.keyed_files import KeyedFile, refuse_other_hash
from stateshift.engines.flink.rewrite.sections import Sections
from stateshift.formats import bounds
from stateshift.formats.blocks import Ints
from stateshift.formats.flink.key_groups import prefix_bytes
from stateshift.formats.flink.key_hashes import hash_codes, murmur_of_each
from stateshift.formats.flink.keyed_columns import Columns, Part, columns_of
from stateshift.formats.flink.keyed_state import END_OF_GROUP, FLAG
from stateshift.formats.sorting import Scratch, put_aside

# Bytes of entries that are dealt together.
BATCH_BYTES = 8 * 1024 * 1024
HELD_BYTES = 64 * 1024 * 1024
_ROWS_AT_ONCE: Final = 512
_ROW_BYTES: Final = 3 * 8
_STATE_BITS: Final = 16

# Group and state, the run's number, where the entries stand, their size, and where in them the last
# one's key begins.
_Row = tuple[int, int, int, int, int]


def dealt_sections(
    files: list[KeyedFile], becomes: int, scratch: Scratch, batch_bytes: int = BATCH_BYTES
) -> Sections:
    """Return the entries of all files, by the key groups that they belong to from now on."""
    runs = _Runs(scratch)
    size_max = min(batch_bytes, bounds.piece())
    for _, alike in groupby(files, key=lambda file: (file.head, file.states)):
        first = next(alike)
        for columns in _columns(first, chain((first,), alike), size_max):
            if len(columns):
                runs.add(_Dealing(first, columns, becomes))
    sections = Sections(files[0].head, scratch)
    for group, rows in groupby(runs.rows(), key=lambda row: row[0] >> _STATE_BITS):
        sections.add(group, runs.section(rows))
    return sections


def _columns(first: KeyedFile, files: Iterable[KeyedFile], size_max: int) -> Iterator[Columns]:
    """Yield the entries of files with one header, that of the first."""
    prefix, states = prefix_bytes(first.was), len(first.known_header.states)
    held: list[Part] = []
    size = 0
    rest = Part(0, b"")
    for piece in chain.from_iterable(file.parts(size_max) for file in files):
        part = Part(piece.group, piece.content, None, piece.ends)
        if not piece.begins:
            part = Part(piece.group, rest.content + piece.content, rest.state, piece.ends)
        held.append(part)
        size += len(part.content)
        if size >= size_max or not part.ends:
            columns = columns_of(held, prefix, states)
            yield columns
            held, size, rest = [], 0, columns.rest or rest
    if held:
        yield columns_of(held, prefix, states)


class _Dealing:
    """Some entries, in the order of their new groups and states; what is of one group and state
    stays in its order.
    """

    def __init__(self, file: KeyedFile, columns: Columns, becomes: int) -> None:
        self._file, self._columns = file, columns
        self._was_prefix, self._prefix = prefix_bytes(file.was), prefix_bytes(becomes)
        groups, states = self._groups(becomes), columns.states
        if file.states:
            states = np.array(file.states)[states]
        # By groups, of one group by states. Both have 16 bits at most: such numbers are sorted
        # without a comparison.
        if states.any():
            by_state = np.argsort(states.astype(np.uint16), kind="stable")
            order = by_state[np.argsort(groups[by_state].astype(np.uint16), kind="stable")]
        else:
            order = np.argsort(groups.astype(np.uint16), kind="stable")
        self._order = order
        self._buckets = groups[order] << _STATE_BITS | states[order]
        self._keys = columns.key_sizes[order] - self._was_prefix
        # All of an entry that stands behind its group's number.
        self._behind = self._keys + 4 + columns.value_sizes[order]
        self._ends = np.cumsum(self._behind + 4 + self._prefix)

    def rows(self) -> Ints:
        """Return for each group and state its number, the size of its entries, and where in them
        the key of the last one begins.
        """
        lasts = np.append(np.flatnonzero(np.diff(self._buckets)), len(self._buckets) - 1)
        ends = self._ends[lasts]
        begins = np.append(0, ends[:-1])
        keys = ends - self._behind[lasts] - self._prefix - begins
        return np.stack((self._buckets[lasts], ends - begins, keys), axis=1)

    def entries(self) -> Any:
        """Return the entries behind each other, their keys without flags."""
        made = np.empty(int(self._ends[-1]), np.uint8)
        begins = self._ends - self._behind - 4 - self._prefix
        np.ndarray((len(made) - 3,), ">u4", made, strides=(1,))[begins] = self._keys + self._prefix
        groups = self._buckets >> _STATE_BITS
        for place in range(self._prefix):
            made[begins + 4 + place] = groups >> 8 * (self._prefix - 1 - place)
        sources = self._columns.places[self._order] + 4 + self._was_prefix
        _copy(self._columns.content, sources, made, begins + 4 + self._prefix, self._behind)
        return made

    def _groups(self, becomes: int) -> Ints:
        """Return the new key group of each entry; refuse those that were not in their own."""
        columns, header = self._columns, self._file.known_header
        assert header.key is not None, "asked before: why_not"
        starts = np.array([key_start(header, state) for state in range(len(header.states))])
        keys = columns.places + 4 + self._was_prefix
        ends = columns.places + 4 + columns.key_sizes
        codes, odd = hash_codes(header.key, columns.content, keys + starts[columns.states], ends)
        for row in np.flatnonzero(odd).tolist():
            key = columns.content[keys[row] : max(keys[row], ends[row])].tobytes()
            codes[row] = hash_of(header, int(columns.states[row]), key)
        mixed = murmur_of_each(codes)
        wrong = mixed % self._file.was != columns.groups
        if wrong.any():
            refuse_other_hash(int(columns.groups[np.argmax(wrong)]))
        return mixed % becomes


def _copy(source: Any, sources: Ints, made: Any, places: Ints, sizes: Ints) -> None:
    """Copy bytes from places to places, those of one size at once."""
    order = np.argsort(sizes, kind="stable")
    in_order = sizes[order]
    edges = np.flatnonzero(np.diff(in_order)) + 1
    for rows in np.split(order, edges):
        size = int(sizes[rows[0]])
        read = np.ndarray((len(source) - size + 1,), f"V{size}", source, strides=(1,))
        write = np.ndarray((len(made) - size + 1,), f"V{size}", made, strides=(1,))
        write[places[rows]] = read[sources[rows]]


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of records: the place of its rows, their number, and the place of its entries."""

    table: int
    rows: int
    entries: int


class _Runs:
    """All runs, in the order in which their entries were read."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch: Scratch | None = scratch
        self._file: BinaryIO = BytesIO()
        self._end = 0
        self._runs: list[_Run] = []

    def add(self, dealing: _Dealing) -> None:
        rows, entries = dealing.rows(), dealing.entries()
        table = self._end
        self._write(rows.astype("<i8").tobytes())
        self._runs.append(_Run(table, len(rows), self._end))
        self._write(entries.data)

    def rows(self) -> Iterator[_Row]:
        """Yield all rows, by groups and states, of one group and state by their runs."""
        return heapq.merge(*(self._rows_of(number) for number in range(len(self._runs))))

    def section(self, rows: Iterable[_Row]) -> Iterator[bytes | bytearray]:
        """Yield the section of a group from its rows."""
        own = list(rows)
        yield _state_of(own[0]).to_bytes(2, "big")
        for row, following in zip(own, (*own[1:], None), strict=True):
            bucket, _, at, size, last_key = row
            content = bytearray(self._read(at, size))
            if following is not None and following[0] == bucket:
                yield content
                continue
            content[last_key] |= FLAG
            yield content
            state = END_OF_GROUP if following is None else _state_of(following)
            yield state.to_bytes(2, "big")

    def _rows_of(self, number: int) -> Iterator[_Row]:
        run = self._runs[number]
        at = run.entries
        for first in range(0, run.rows, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, run.rows - first)
            raw = self._read(run.table + first * _ROW_BYTES, count * _ROW_BYTES)
            for bucket, size, last_key in np.frombuffer(raw, "<i8").reshape(-1, 3).tolist():
                yield bucket, number, at, size, last_key
                at += size

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        return self._file.read(size)

    def _write(self, content: bytes | memoryview) -> None:
        size = len(content)
        if self._scratch is not None and self._end + size > HELD_BYTES:
            on_disk = self._scratch()
            put_aside(on_disk, 0, self._read(0, self._end))
            self._file, self._scratch = on_disk, None
        put_aside(self._file, self._end, content)
        self._end += size


def _state_of(row: _Row) -> int:
    return row[0] & END_OF_GROUP

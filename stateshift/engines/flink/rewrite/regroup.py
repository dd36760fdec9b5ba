"""Entries sorted by the key groups that they belong to from now on: those of one image, for another
max parallelism, or those of several.

    dealt_sections(files, becomes, scratch)    of one image, as columns
    united_sections(files, becomes, scratch)   of several, one by one: no key is in two of them, or
                                               the first that is gets refused

Of one image, some megabytes of entries at a time, each key is hashed, the group that it was in is
checked, and its entry is copied behind those of its new group and state, entries of one length at
once. The result is a run. In the end each new section is put together from all runs, so memory does
not grow with the state.

    run    rows of i64 group << 16 | state, size, where its last entry's key begins; then the
           entries of the first row, of the second, ...

Runs are held in memory up to HELD_BYTES, and beyond that in a scratch file. Keys that `key_hashes`
does not read are left to `keys`, key by key. Entries of several images are sorted in a scratch file
beyond some size (see `formats.sorting`). This module imports pyarrow: see `blocks`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, groupby, islice
from struct import Struct
from typing import Any, BinaryIO, Final

import numpy as np

from stateshift.engines.flink.entries.image import uncompress
from stateshift.engines.flink.rewrite.keyed_files import KeyedFile, Sections, refuse_other_hash
from stateshift.errors import FormatError, Incompatible
from stateshift.formats import bounds
from stateshift.formats.blocks import Ints, block_of
from stateshift.formats.flink.key_groups import (
    hash_of,
    key_group,
    key_of,
    key_start,
    key_text,
    prefix_bytes,
)
from stateshift.formats.flink.key_hashes import hash_codes, murmur_of_each
from stateshift.formats.flink.keyed_columns import Columns, columns_in
from stateshift.formats.flink.keyed_state import (
    END_OF_GROUP,
    FLAG,
    encode_section,
    entries,
)
from stateshift.formats.sorting import Scratch, SortedPiles, put_aside

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
        prefix, states = prefix_bytes(first.was), len(first.known_header.states)
        pieces = chain.from_iterable(file.parts(size_max) for file in chain((first,), alike))
        for columns in columns_in(pieces, prefix, states, size_max):
            if len(columns):
                runs.add(_Dealing(first, columns, becomes))
    sections = Sections(files[0].head, scratch)
    for group, rows in groupby(runs.rows(), key=lambda row: row[0] >> _STATE_BITS):
        sections.add(group, runs.section(rows))
    return sections


def hashes_of(file: KeyedFile) -> Iterator[Ints]:
    """Yield the hashes of a file's keys, batch by batch, as `hashes_in` checks them."""
    size = min(BATCH_BYTES, bounds.piece())
    states = len(file.known_header.states)
    for columns in columns_in(file.parts(size), prefix_bytes(file.was), states, size):
        yield hashes_in(file, columns)


def hashes_in(file: KeyedFile, columns: Columns) -> Ints:
    """Return the hash of each entry's key, of which its key group follows; refuse keys that were
    not in their own.
    """
    header, prefix = file.known_header, prefix_bytes(file.was)
    assert header.key is not None, "asked before: why_not"
    starts = np.array([key_start(header, state) for state in range(len(header.states))])
    keys = columns.places + 4 + prefix
    ends = columns.places + 4 + columns.key_sizes
    begins = keys + starts[columns.states]
    if file.hash_keys is not None:
        if (begins > ends).any():
            raise FormatError("a key ends before it begins", None, None)
        codes = file.hash_keys(columns.content, begins, ends)
    else:
        codes, odd = hash_codes(header.key, columns.content, begins, ends)
        for row in np.flatnonzero(odd).tolist():
            key = columns.content[keys[row] : max(keys[row], ends[row])].tobytes()
            codes[row] = hash_of(header, int(columns.states[row]), key)
    mixed = murmur_of_each(codes)
    wrong = mixed % file.was != columns.groups
    if wrong.any():
        by_classes = None if file.hash_keys is None else f"{wrong.sum():,} of {len(wrong):,}"
        refuse_other_hash(int(columns.groups[np.argmax(wrong)]), by_classes)
    return mixed


class _Dealing:
    """Entries in the order of their new groups and states, the old order within one."""

    def __init__(self, file: KeyedFile, columns: Columns, becomes: int) -> None:
        self._columns = columns
        self._was_prefix, self._prefix = prefix_bytes(file.was), prefix_bytes(becomes)
        groups, states = hashes_in(file, columns) % becomes, columns.states
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
        """Return each group's and state's number, entries' size, and its last key's offset."""
        lasts = np.append(np.flatnonzero(np.diff(self._buckets)), len(self._buckets) - 1)
        ends = self._ends[lasts]
        begins = np.append(0, ends[:-1])
        keys = ends - self._behind[lasts] - self._prefix - begins
        return np.stack((self._buckets[lasts], ends - begins, keys), axis=1)

    def entries(self) -> Any:
        made = np.empty(int(self._ends[-1]), np.uint8)
        begins = self._ends - self._behind - 4 - self._prefix
        np.ndarray((len(made) - 3,), ">u4", made, strides=(1,))[begins] = self._keys + self._prefix
        groups = self._buckets >> _STATE_BITS
        for place in range(self._prefix):
            made[begins + 4 + place] = groups >> 8 * (self._prefix - 1 - place)
        sources = self._columns.places[self._order] + 4 + self._was_prefix
        _copy(self._columns.content, sources, made, begins + 4 + self._prefix, self._behind)
        return made


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
        own = list(rows)
        yield (own[0][0] & END_OF_GROUP).to_bytes(2, "big")
        for row, following in zip(own, (*own[1:], None), strict=True):
            bucket, _, at, size, last_key = row
            content = bytearray(self._read(at, size))
            if following is not None and following[0] == bucket:
                yield content
                continue
            content[last_key] |= FLAG
            yield content
            state = END_OF_GROUP if following is None else (following[0] & END_OF_GROUP)
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


# ---- several images


def united_sections(files: list[KeyedFile], becomes: int, scratch: Scratch) -> Sections:
    """Return the entries of all files, by the key groups that they belong to from now on."""
    sections = Sections(files[0].head, scratch)
    images = {file.image for file in files}
    prefix = prefix_bytes(becomes)
    for group, entries_of_group in _by_group(files, becomes, scratch):
        if len(images) > 1:
            _refuse_in_two(entries_of_group)
        number = group.to_bytes(prefix, "big")
        section = encode_section(
            [(entry.number, number + entry.key, entry.value) for entry in entries_of_group]
        )
        sections.add(group, (section,))
    return sections


@dataclass(frozen=True, slots=True)
class _Entry:
    """`state` as its file numbers it, `number` as the new one does; the key without its group."""

    file: KeyedFile
    state: int
    number: int
    key: bytes
    value: bytes


# Group, number, and the entry's own number: an order of its own is kept.
_SORTED_BY = Struct(">HHQ")
_BEHIND = Struct(">HHI")  # the file's number, the state in it, the size of the key that follows
_AT_ONCE = 1 << 15


def _by_group(
    files: list[KeyedFile], becomes: int, scratch: Scratch
) -> Iterator[tuple[int, list[_Entry]]]:
    piles = SortedPiles(scratch)
    records = _records(files, becomes)
    while batch := list(islice(records, _AT_ONCE)):
        piles.add(0, block_of(batch))
    rows = chain.from_iterable(block.records() for block in piles.pile(0).blocks())
    for group, own in groupby(rows, key=lambda row: int(_SORTED_BY.unpack_from(row[0])[0])):
        yield group, [_entry(files, key, packed or b"") for key, packed in own]


def _records(files: list[KeyedFile], becomes: int) -> Iterator[tuple[bytes, bytes]]:
    count = 0
    for index, file in enumerate(files):
        for group, content in file.sections():
            entries_of_group = list(_entries(file, content, group))
            groups = [group] * len(entries_of_group)
            if file.was != becomes:
                groups = _new_groups(file, group, entries_of_group, becomes)
            for (state, key, raw), new_group in zip(entries_of_group, groups, strict=True):
                behind = _BEHIND.pack(index, state, len(key))
                sorted_by = _SORTED_BY.pack(new_group, file.renumbered(state), count)
                yield sorted_by, b"".join((behind, key, raw))
                count += 1


def _new_groups(
    file: KeyedFile, group: int, entries_of_group: list[tuple[int, bytes, bytes]], becomes: int
) -> list[int]:
    """Return the new key groups of the entries of one group; refuse keys that were not in it."""
    header = file.known_header
    if file.hash_keys is None:
        codes = [hash_of(header, state, key) for state, key, _ in entries_of_group]
    else:
        keys = [key[key_start(header, state) :] for state, key, _ in entries_of_group]
        edges = np.cumsum([0, *map(len, keys)])
        content = np.frombuffer(b"".join(keys), np.uint8)
        codes = file.hash_keys(content, edges[:-1], edges[1:]).tolist()
    wrong = sum(key_group(code, file.was) != group for code in codes)
    if wrong:
        by_classes = None if file.hash_keys is None else f"{wrong:,} of {len(codes):,}"
        refuse_other_hash(group, by_classes)
    return [key_group(code, becomes) for code in codes]


def _entry(files: list[KeyedFile], sorted_by: bytes, packed: bytes) -> _Entry:
    _, number, _ = _SORTED_BY.unpack(sorted_by)
    index, state, size = _BEHIND.unpack_from(packed)
    key_end = _BEHIND.size + size
    return _Entry(files[index], state, number, packed[_BEHIND.size : key_end], packed[key_end:])


def _entries(file: KeyedFile, content: bytes, group: int) -> Iterator[tuple[int, bytes, bytes]]:
    header = file.known_header
    plain = uncompress(content) if header.compressed else content
    prefix = prefix_bytes(file.was)
    for state, key, raw in entries(plain, prefix, group, len(header.states)):
        yield state, key[prefix:], raw


def _refuse_in_two(entries_of_group: list[_Entry]) -> None:
    """Refuse a key that is in two images; where keys cannot be read, an entry that is."""
    owners: dict[tuple[int | None, bytes], int] = {}
    for entry in entries_of_group:
        owner = owners.setdefault(_key_of(entry), entry.file.image)
        if owner != entry.file.image:
            number, key = _key_of(entry)
            shown = key_text(entry.file.known_header, key) if number is None else key.hex()
            raise Incompatible(
                f"key {shown} is in two images: whose state counts is not known",
                hint='drop the operator from one of them (a drop may be "of" one image); or let '
                "the jobs have keys of their own",
            )


def _key_of(entry: _Entry) -> tuple[int | None, bytes]:
    key = key_of(entry.file.known_header, entry.state, entry.key)
    return (entry.number, entry.key) if key is None else (None, key)

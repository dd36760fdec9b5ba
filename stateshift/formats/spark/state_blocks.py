"""State of one version, as blocks: `state_files` for a million records at once.

Every record says how long it is: only its predecessor knows where it starts. Walking that chain
is what Python is slow at, so many stretches of it are walked at once, in lockstep: at places far
from each other, something that looks like a record is taken for one, and the chain is followed from
all of them. A stretch counts only if the one before it ends exactly where it starts; the first one
starts at a record. A wrong guess costs time and nothing else.

Records are checked as `state_files` does it, which also reads everything but plain records: the
end, and damage, with the same error at the same offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from stateshift.formats.blocks import (
    Binary,
    Flags,
    Ints,
    RowBlock,
    binary,
    cut,
    edges,
    join_columns,
    lengths,
    of_width,
)
from stateshift.formats.crc32c import crc32c
from stateshift.formats.spark.compression import compress, decompress
from stateshift.formats.spark.state_files import (
    DELETE,
    DELTA,
    MERGE,
    PUT,
    SNAPSHOT,
    WHAT,
    Changelog,
    Layout,
    StateRecord,
    decode_header,
    records,
)
from stateshift.formats.stream import Stream

# Decompressed bytes that are decoded at once: enough for many stretches, and few for the
# processor's cache.
PIECE = 8 * 1024 * 1024
SMALL = 64 * 1024  # below it one stretch is faster
TINY = 4 * 1024  # below it reading record by record is

_NONE = np.zeros(0, np.int64)
_LANES, _SAMPLE = 1024, 256
_INT = struct.Struct(">i")


def decode_delta_blocks(chunks: Iterable[bytes]) -> Iterator[RowBlock]:
    """Yield the changes of a compressed `N.delta`, in order; the last of a key counts."""
    return _blocks(Stream(decompress(chunks), WHAT), DELTA)


def decode_snapshot_blocks(chunks: Iterable[bytes]) -> Iterator[RowBlock]:
    """Yield the entries of a compressed `N.snapshot`: nothing but puts."""
    return _blocks(Stream(decompress(chunks), WHAT), SNAPSHOT)


def decode_changelog_blocks(chunks: Iterable[bytes]) -> tuple[Changelog, Iterator[RowBlock]]:
    """Return the kind of a compressed `N.changelog`, and its records."""
    stream = Stream(decompress(chunks), WHAT)
    header = decode_header(stream)
    return header, _blocks(stream, header.layout)


def encode_snapshot(blocks: Iterable[RowBlock], codec: str) -> Iterator[bytes]:
    """Yield an `N.snapshot` of exactly these puts."""

    def records() -> Iterator[bytes]:
        for block in blocks:
            if len(block):
                key_sizes, value_sizes = _sizes(block.keys), _sizes(block.values)
                rows = join_columns(key_sizes, block.keys, value_sizes, block.values)
                starts, content = edges(rows)
                yield bytes(content[starts[0] : starts[-1]])
        yield _INT.pack(-1)

    return compress(records(), codec)


def add_row_checksums(block: RowBlock) -> RowBlock:
    """Put on the checksums of HDFS-backed stores: i32LE crc32c(key, row) | row."""
    return RowBlock(block.keys, join_columns(_checksums(block), block.values))


def add_value_checksums(block: RowBlock) -> RowBlock:
    """Put on RocksDB's checksums: i32LE crc32c(key with id, payload) | i32LE size | payload."""
    sizes = of_width(lengths(block.values).astype("<u4").view("u1").reshape(-1, 4))
    return RowBlock(block.keys, join_columns(_checksums(block), sizes, block.values))


def _checksums(block: RowBlock) -> Binary:
    checksums = []
    for key, value in block.records():
        checksum = crc32c(value or b"", crc32c(key))
        checksums.append(checksum.to_bytes(4, "little"))
    return binary(checksums)


def _sizes(column: Binary) -> Binary:
    return of_width(lengths(column).astype(">i4").view("u1").reshape(-1, 4))


def _blocks(stream: Stream, layout: Layout) -> Iterator[RowBlock]:
    while len(content := stream.peek(PIECE)) > TINY:
        starts, end = _Chain(content, layout).walked()
        if len(starts):
            ints = _ints(content)
            keys = starts + layout.typed + 4
            middles = keys + ints[keys - 4]
            sizes = ints[middles].astype(np.int64)
            values = middles + 4
            deleted = sizes < 0
            missing = deleted if deleted.any() else None
            merges = None
            if layout.typed:
                merges = np.frombuffer(content, np.uint8)[starts] == MERGE
                merges = merges if merges.any() else None
            yield RowBlock(
                cut(content, keys, middles),
                cut(content, values, values + np.maximum(sizes, 0), missing),
                merges,
            )
            stream.take(end)
            continue
        # The end, something wrong, or a record that is longer than a piece.
        first = list(islice(records(stream, layout), 1))
        if not first:
            return
        yield _listed(first)
    # Little is left, and that is all of it.
    rest = list(records(stream, layout))
    if rest:
        yield _listed(rest)


def _listed(records: list[StateRecord]) -> RowBlock:
    keys = binary([record.key for record in records])
    values = binary([record.value for record in records])
    merges = np.array([record.merge for record in records], bool)
    return RowBlock(keys, values, merges if merges.any() else None)


def _ints(content: bytes) -> Ints:
    return np.ndarray((len(content) - 3,), ">i4", content, strides=(1,))


def _at(numbers: Ints, places: Ints) -> Ints:
    return numbers[np.clip(places, 0, len(numbers) - 1)].astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Chain:
    """The records that lie in `content` one behind the other, from its first byte on."""

    content: bytes
    layout: Layout

    def walked(self) -> tuple[Ints, int]:
        if len(self.content) <= SMALL:
            return self._alone(len(self.content))
        alone, position = self._alone(_SAMPLE)
        if len(alone) < _SAMPLE:
            return alone, position
        begins = self._begins(alone, position)
        lanes, places, stops = self._followed(begins)
        good, more, position = self._joined(begins, stops)
        starts = np.concatenate((alone, places[good[lanes]], np.array(more, np.int64)))
        return np.sort(starts), position

    def _alone(self, most: int) -> tuple[Ints, int]:
        """Return the beginnings of first records, `most` of them, one by one, and the last end."""
        begins: list[int] = []
        position, end = 0, self._end(0)
        while end is not None and len(begins) < most:
            begins.append(position)
            position, end = end, self._end(end)
        return np.array(begins, np.int64), position

    def _end(self, position: int) -> int | None:
        """Return the end of the record that starts here; None if it is not whole and plain."""
        content = self.content
        key = position + self.layout.typed + 4
        last = len(content) - 4
        if key > last:
            return None
        middle = key + _INT.unpack_from(content, key - 4)[0]
        if not key <= middle <= last:
            return None
        size = _INT.unpack_from(content, middle)[0]
        if not self._is_plain(position, size):
            return None
        end = middle + 4 + max(size, 0)
        return end if end <= len(content) else None

    def _is_plain(self, position: int, size: int) -> bool:
        """Whether the record's type, where it has one, fits the size of its value."""
        if size == -1 and not self.layout.deletes:
            return False
        if not self.layout.typed:
            return size >= -1
        kinds = (DELETE,) if size == -1 else (PUT, MERGE)
        return size >= -1 and self.content[position] in kinds

    def _begins(self, sample: Ints, position: int) -> Ints:
        """Return the beginnings of stretches: here, and wherever bytes look like the sample's."""
        steps = np.diff(sample)
        window = 2 * int(steps.max())
        apart = max(8 * window, len(self.content) // _LANES)
        looked = np.arange(position + apart, len(self.content) - 2 * window, apart)
        if not len(looked):
            return np.array([position])
        places = (looked[:, None] + np.arange(window)).ravel()
        likely = np.flatnonzero(self._like(sample, places))
        ends, right = self._next(places[likely])
        again = np.where(right, ends, 0)
        likely = likely[right & ((again > len(self.content) - window) | self._like(sample, again))]
        _, first = np.unique(likely // window, return_index=True)
        return np.concatenate(([position], places[likely[first]]))

    def _like(self, sample: Ints, places: Ints) -> Flags:
        """Return the places with sizes of key and value, and a type, of the sample's."""
        keys, values = self._sizes(sample)
        alike = np.isin(_at(_ints(self.content), places + self.layout.typed), keys)
        candidates = np.flatnonzero(alike)
        alike[candidates] = np.isin(self._sizes(places[candidates])[1], values)
        if self.layout.typed:
            kinds = np.frombuffer(self.content, np.uint8)
            alike &= np.isin(_at(kinds, places), kinds[sample])
        return alike

    def _sizes(self, places: Ints) -> tuple[Ints, Ints]:
        ints = _ints(self.content)
        keys = _at(ints, places + self.layout.typed)
        return keys, _at(ints, places + self.layout.typed + 4 + keys)

    def _next(self, places: Ints) -> tuple[Ints, Flags]:
        ints, last = _ints(self.content), len(self.content) - 4
        keys = places + self.layout.typed + 4
        right = keys <= last
        middles = keys + ints[np.minimum(keys, last) - 4]
        right &= (middles >= keys) & (middles <= last)
        sizes = ints[np.where(right, middles, 0)].astype(np.int64)
        right &= sizes >= (-1 if self.layout.deletes else 0)
        if self.layout.typed:
            kinds = np.frombuffer(self.content, np.uint8)[np.minimum(places, last)]
            right &= np.where(sizes < 0, kinds == DELETE, (kinds == PUT) | (kinds == MERGE))
        ends = middles + 4 + np.maximum(sizes, 0)
        return ends, right & (ends <= len(self.content))

    def _followed(self, begins: Ints) -> tuple[Ints, Ints, Ints]:
        """Follow stretches to the next one's beginning: (stretch, place) of records, and ends."""
        limits = np.append(begins[1:], len(self.content))
        stops, here, at = begins.copy(), np.arange(len(begins)), begins
        lanes, places = [], []
        while len(here):
            ends, right = self._next(at)
            if not right.all():
                here, at, ends = here[right], at[right], ends[right]
            lanes.append(here)
            places.append(at)
            stops[here] = ends
            more = ends < limits[here]
            here, at = here[more], ends[more]
        return np.concatenate(lanes), np.concatenate(places), stops

    def _joined(self, begins: Ints, stops: Ints) -> tuple[Flags, list[int], int]:
        """Return the stretches that count, their records, and the end of all."""
        good = np.zeros(len(begins), bool)
        more: list[int] = []
        position = int(begins[0])
        for lane, (begin, stop) in enumerate(zip(begins.tolist(), stops.tolist(), strict=True)):
            while position < begin:
                end = self._end(position)
                if end is None:
                    return good, more, position
                more.append(position)
                position = end
            if position == begin:
                good[lane], position = True, stop
        return good, more, position

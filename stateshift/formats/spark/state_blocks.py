"""State of one version, as blocks: `state_files` for a million records at once.

    decode_delta_blocks, decode_snapshot_blocks, decode_changelog_blocks      chunks -> Block ...

Every record says how long it is, so where one starts only its predecessor knows. Walking that chain
is what Python is slow at, so many stretches of it are walked at once, in lockstep: at places far
from each other, something that looks like a record is taken for one, and the chain is followed from
all of them. A stretch counts only if the one before it ends exactly where it starts; the first one
starts at a record. So a guess that was wrong costs time and nothing else.

What a block holds was checked as `state_files` does it, which also reads whatever is not a plain
record: the end, and everything that is wrong, with the same error at the same offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from stateshift.formats.blocks import Block, Flags, Ints, binary, cut
from stateshift.formats.spark.compression import decompress
from stateshift.formats.spark.state_files import (
    DELETE,
    DELTA,
    MERGE,
    PUT,
    SNAPSHOT,
    WHAT,
    Changelog,
    Layout,
    Record,
    decode_header,
    records,
)
from stateshift.formats.stream import Stream

# So many decompressed bytes are decoded at once: enough for many stretches, and few for the
# processor's cache.
PIECE = 8 * 1024 * 1024

# Below so many bytes, one stretch is faster.
SMALL = 64 * 1024

# Below so many, reading record by record is.
TINY = 4 * 1024

_NONE = np.zeros(0, np.int64)
_LANES, _SAMPLE = 1024, 256
_INT = struct.Struct(">i")


def decode_delta_blocks(chunks: Iterable[bytes]) -> Iterator[Block]:
    """Yield the changes of a compressed `N.delta`, in order; later ones of a key override earlier
    ones.
    """
    return _blocks(Stream(decompress(chunks), WHAT), DELTA)


def decode_snapshot_blocks(chunks: Iterable[bytes]) -> Iterator[Block]:
    """Yield the entries of a compressed `N.snapshot`: nothing but puts."""
    return _blocks(Stream(decompress(chunks), WHAT), SNAPSHOT)


def decode_changelog_blocks(chunks: Iterable[bytes]) -> tuple[Changelog, Iterator[Block]]:
    """Return what a compressed `N.changelog` is, and its records."""
    stream = Stream(decompress(chunks), WHAT)
    header = decode_header(stream)
    return header, _blocks(stream, header.layout)


def _blocks(stream: Stream, layout: Layout) -> Iterator[Block]:
    while len(content := stream.peek(PIECE)) > TINY:
        starts, end = _Chain(content, layout).walked()
        if len(starts):
            yield _block(content, starts, layout)
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


def _listed(records: list[Record]) -> Block:
    keys = binary([record.key for record in records])
    values = binary([record.value for record in records])
    merges = np.array([record.merge for record in records], bool)
    return Block(keys, values, merges if merges.any() else None)


def _block(content: bytes, starts: Ints, layout: Layout) -> Block:
    """Return the records that start there; all of them are whole."""
    ints = _ints(content)
    keys = starts + layout.typed + 4
    middles = keys + ints[keys - 4]
    sizes = ints[middles].astype(np.int64)
    values = middles + 4
    deleted = sizes < 0
    missing = deleted if deleted.any() else None
    return Block(
        cut(content, keys, middles),
        cut(content, values, values + np.maximum(sizes, 0), missing),
        _merges(content, starts) if layout.typed else None,
    )


def _merges(content: bytes, starts: Ints) -> Flags | None:
    """Return which of the records are merged; None where none is."""
    merges = np.frombuffer(content, np.uint8)[starts] == MERGE
    return merges if merges.any() else None


def _ints(content: bytes) -> Ints:
    """Return the number that begins at each byte."""
    return np.ndarray((len(content) - 3,), ">i4", content, strides=(1,))


def _at(numbers: Ints, places: Ints) -> Ints:
    """Return the numbers at these places, whatever they are at others."""
    return numbers[np.clip(places, 0, len(numbers) - 1)].astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Chain:
    """The records that lie in `content` one behind the other, from its first byte on."""

    content: bytes
    layout: Layout

    def walked(self) -> tuple[Ints, int]:
        """Return where the whole and plain records start, and where the last one ends."""
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
        """Return where the first records begin, `most` of them, one by one, and where the last of
        them ends.
        """
        begins: list[int] = []
        position, end = 0, self._end(0)
        while end is not None and len(begins) < most:
            begins.append(position)
            position, end = end, self._end(end)
        return np.array(begins, np.int64), position

    def _end(self, position: int) -> int | None:
        """Return where the record ends that starts here; None where none does that is whole and
        plain.
        """
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
        """Return where stretches begin: here, and wherever else something looks as the records of
        the sample do.
        """
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
        """Return where the sizes of key and value, and a type, are such as the sample has."""
        keys, values = self._sizes(sample)
        alike = np.isin(_at(_ints(self.content), places + self.layout.typed), keys)
        candidates = np.flatnonzero(alike)
        alike[candidates] = np.isin(self._sizes(places[candidates])[1], values)
        if self.layout.typed:
            kinds = np.frombuffer(self.content, np.uint8)
            alike &= np.isin(_at(kinds, places), kinds[sample])
        return alike

    def _sizes(self, places: Ints) -> tuple[Ints, Ints]:
        """Return the sizes of key and value that stand there."""
        ints = _ints(self.content)
        keys = _at(ints, places + self.layout.typed)
        return keys, _at(ints, places + self.layout.typed + 4 + keys)

    def _next(self, places: Ints) -> tuple[Ints, Flags]:
        """Return `_end` of all places: where they end, and whether they do."""
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
        """Follow every stretch up to the next one's beginning: return (stretch, place) of the
        records, and where it stopped.
        """
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
        """Return which stretches count, the records between them, and where the last of all
        ends.
        """
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

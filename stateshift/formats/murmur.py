"""Murmur3 (x64, 128 bits, seed 0) of many rows at once, and their sum: what mmh3 gives one by one.

Rows whose keys have one width, and whose values have one, are laid into a matrix and hashed column
by column, some thousands at a time, which the processor's cache holds. Rows of a shape that few
have, long rows, and blocks of very many shapes are hashed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import mmh3
import numpy as np
import pyarrow as pa

from stateshift.formats.blocks import Binary, Ints, binary, join_columns, lengths
from stateshift.formats.spans import Content, Spans, Words, items_at, spans

FEW = 2048  # rows of a shape; fewer are hashed by themselves: a matrix costs more
LONG = 256  # bytes of a row
STRIP = 8192  # rows
# A look at so many rows of a block tells whether it has too many shapes.
SEEN, SHAPES_MAX = 512, 4

_BLOCK = 16  # bytes that Murmur3 takes at once
_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_FIVE = np.uint64(5)
_N1 = np.uint64(0x52DCE729)
_N2 = np.uint64(0x38495AB5)
_F1 = np.uint64(0xFF51AFD7ED558CCD)
_F2 = np.uint64(0xC4CEB9FE1A85EC53)
_33 = np.uint64(33)
_HALF, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)

Head = Callable[[int], bytes]


def sum128(head: Head, keys: Binary, values: Binary) -> int:
    """Return the sum modulo 2^128 of each row's digest, of head(key's size) | key | value."""
    rows = _Rows(head, spans(keys), spans(values))
    total = 0
    others = []
    for shape in _shapes(rows):
        if len(shape.places) < FEW or shape.size > LONG:
            others.append(shape.places)
        else:
            total += rows.together(shape)
    if others:
        places = np.concatenate(others)
        if len(places) < len(keys):
            keys, values = keys.take(pa.array(places)), values.take(pa.array(places))
        total += _one_by_one(head, keys, values)
    return total % (1 << 128)


class _Shape(NamedTuple):
    """The rows whose keys, and whose values, have one width."""

    places: Ints
    key: int
    value: int

    @property
    def size(self) -> int:
        return self.key + self.value


def _shapes(rows: _Rows) -> Iterator[_Shape]:
    """Yield the rows by their shapes; where there are many, all of them as a long one."""
    keys, values = rows.keys.sizes, rows.values.sizes
    count = len(keys)
    if not count:
        return
    widest = int(values.max())
    numbers = keys * (widest + 1) + values
    if (numbers == numbers[0]).all():
        yield _Shape(np.arange(count), int(keys[0]), int(values[0]))
        return
    if len(np.unique(numbers[:: max(1, count // SEEN)])) > SHAPES_MAX:
        yield _Shape(np.arange(count), LONG, LONG)
        return
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    for places in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        yield _Shape(places, int(keys[places[0]]), int(values[places[0]]))


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    head: Head
    keys: Spans
    values: Spans

    def together(self, shape: _Shape) -> int:
        head = np.frombuffer(self.head(shape.key), np.uint8)
        middle = len(head) + shape.key
        size = middle + shape.value
        padded = np.zeros((STRIP, -(-size // _BLOCK) * _BLOCK), np.uint8)
        padded[:, : len(head)] = head
        total = 0
        for start in range(0, len(shape.places), STRIP):
            places = shape.places[start : start + STRIP]
            strip = padded[: len(places)]
            strip[:, len(head) : middle] = _cut(self.keys, places, shape.key)
            strip[:, middle:size] = _cut(self.values, places, shape.value)
            words = np.ascontiguousarray(strip.view("<u8").T)
            low = np.zeros(words.shape[1], np.uint64)
            high = np.zeros(words.shape[1], np.uint64)
            scratch = np.empty_like(low)
            for block in range(len(words) // 2):
                first, second = words[2 * block], words[2 * block + 1]
                is_whole = (block + 1) * _BLOCK <= size
                first *= _C1
                _turn(first, 31, scratch)
                first *= _C2
                low ^= first
                if is_whole:
                    _stir(low, 27, high, _N1, scratch)
                second *= _C2
                _turn(second, 33, scratch)
                second *= _C1
                high ^= second
                if is_whole:
                    _stir(high, 31, low, _N2, scratch)
            low ^= np.uint64(size)
            high ^= np.uint64(size)
            low += high
            high += low
            low, high = _finished(low), _finished(high)
            low += high
            high += low
            total += _summed((low, high))
        return total


def _one_by_one(head: Head, keys: Binary, values: Binary) -> int:
    sizes, places = np.unique(lengths(keys), return_inverse=True)
    heads = binary([head(size) for size in sizes.tolist()]).take(pa.array(places))
    digests = b"".join(map(mmh3.mmh3_x64_128_digest, join_columns(heads, keys, values).to_pylist()))
    low, high = np.frombuffer(digests, "<u8").reshape(-1, 2).transpose()
    return _summed((low, high))


def _cut(column: Spans, places: Ints, width: int) -> Content:
    if not width:
        return np.zeros((len(places), 0), np.uint8)
    first, last = int(column.starts[places[0]]), int(column.ends[places[-1]])
    if last - first == width * len(places):  # they lie behind each other
        return column.content[first:last].reshape(-1, width)
    items = items_at(column.content, column.starts[places], width)
    return items.view(np.uint8).reshape(-1, width)


def _summed(digests: tuple[Words, Words]) -> int:
    """Return the sum of digests, each a low and a high half, added below 64 bits."""
    low, high = digests
    total = 0
    for shift, half in ((0, low), (64, high)):
        total += int((half & _HALF).sum()) << shift
        total += int((half >> _32).sum()) << shift + 32
    return total


def _turn(words: Words, bits: int, scratch: Words) -> None:
    np.right_shift(words, np.uint64(64 - bits), out=scratch)
    np.left_shift(words, np.uint64(bits), out=words)
    words |= scratch


def _stir(half: Words, bits: int, other: Words, number: np.uint64, scratch: Words) -> None:
    _turn(half, bits, scratch)
    half += other
    half *= _FIVE
    half += number


def _finished(words: Words) -> Words:
    words = (words ^ words >> _33) * _F1
    words = (words ^ words >> _33) * _F2
    return words ^ words >> _33

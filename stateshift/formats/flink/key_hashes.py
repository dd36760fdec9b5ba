"""Hash codes of many keys at once: what `key_groups` gives for each. Pure.

Keys lie in `content` from each start on, at most to its end, with eight bytes behind the last one.
Their serializer is one of strings, whole numbers, tuples of them, or rows of SQL. A tuple is its
fields behind each other, so each column is read where the one before it ended.

A string's hash is the sum of u[i] * 31 ** (n - 1 - i) over its n UTF-16 units, modulo 2 ** 32. It
is summed up word by word, of eight units each: where all are ASCII, a unit is a byte. Strings that
are not ASCII are read unit by unit, all of them in lockstep.

`odd` are keys that are not read here: those that end behind the entry's end, or have a number of
more than three bytes in a string; and all of any other serializer. Their codes mean nothing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from stateshift.formats.blocks import Flags, Ints
from stateshift.formats.flink.key_groups import ROW_DATA, ROW_SEED
from stateshift.formats.flink.serializers import Serializer
from stateshift.formats.spans import Content, first_bytes, words

Codes = Any  # a numpy array of uint32

_STRIP: Final = 1 << 13  # strings that are hashed together: they stay in the processor's cache
_WORD: Final = 8
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_THIRTY_ONE: Final = np.uint32(31)
_SIZES: Final = {"LongSerializer": 8, "IntSerializer": 4, "ShortSerializer": 2, "ByteSerializer": 1}
_SIGNED: Final = {4: np.int32, 2: np.int16, 1: np.int8}


def is_hashed(serializer: Serializer) -> bool:
    """Whether `hash_codes` reads keys of a serializer."""
    return serializer.name == ROW_DATA or _is_of_columns(serializer)


def _is_of_columns(serializer: Serializer) -> bool:
    if serializer.name == "TupleSerializer":
        return all(map(_is_of_columns, serializer.inner))
    return serializer.name == "StringSerializer" or serializer.name in _SIZES


def hash_codes(
    serializer: Serializer, content: Content, starts: Ints, ends: Ints
) -> tuple[Codes, Flags]:
    """Return the hash codes of keys, and which of them are not read here."""
    if not is_hashed(serializer):
        return np.zeros(len(starts), np.uint32), np.ones(len(starts), bool)
    cursor = _KeyCursor(content, starts, ends)
    codes = cursor.codes(serializer)
    return codes, cursor.odd


def murmur_of_each(codes: Codes) -> Ints:
    """Return `key_groups.murmur` of each."""
    mixed = _finished(_mixed(np.zeros_like(codes), codes) ^ np.uint32(4))
    signed = np.abs(mixed.view(np.int32).astype(np.int64))
    signed[signed == 1 << 31] = 0
    return signed


def _mixed(codes: Codes, words: Codes) -> Codes:
    codes = codes ^ _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(codes, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(codes: Codes) -> Codes:
    codes = (codes ^ codes >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    codes = (codes ^ codes >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return codes ^ codes >> np.uint32(16)


def _rotated(codes: Codes, count: int) -> Codes:
    return codes << np.uint32(count) | codes >> np.uint32(32 - count)


class _KeyCursor:
    """The next place to read in each key, and the odd ones, which stay where they are."""

    def __init__(self, content: Content, starts: Ints, ends: Ints) -> None:
        self._content, self._ends = content, ends
        self._at = starts
        self.odd: Flags = np.zeros(len(starts), bool)
        self._move(starts)

    def codes(self, serializer: Serializer) -> Codes:
        """Return the hash codes of the values there, and go on behind them."""
        match serializer.name:
            case "TupleSerializer":
                codes = np.zeros(len(self._at), np.uint32)
                for inner in serializer.inner:
                    codes = codes * _THIRTY_ONE + self.codes(inner)
                return codes
            case "StringSerializer":
                return self._strings()
            case name if name == ROW_DATA:
                return self._rows()
            case name:
                size = _SIZES[name]
                big_endian = words(self._content, self._at).byteswap()
                self._move(self._at + size)
                if size == _WORD:
                    return (big_endian ^ big_endian >> np.uint64(32)).astype(np.uint32)
                numbers = (big_endian >> np.uint64(64 - 8 * size)).astype(np.uint32)
                return numbers.astype(_SIGNED[size]).astype(np.int32).view(np.uint32)

    def _move(self, to: Ints) -> None:
        beyond = to > self._ends
        self.odd |= beyond
        self._at = np.where(beyond, self._ends, to)

    def _rows(self) -> Codes:
        """Return Murmur3 of rows of SQL, all of them in lockstep, word by word."""
        sizes = (words(self._content, self._at).byteswap() >> np.uint64(32)).astype(np.int64)
        self.odd |= sizes % 4 > 0
        self._move(self._at + 4)
        begins = self._at
        self._move(begins + sizes)
        sizes[self.odd] = 0
        codes = np.full(len(begins), ROW_SEED, np.uint32)
        for at in range(0, int(sizes.max(initial=0)), 4):
            rows = np.flatnonzero(sizes > at)
            codes[rows] = _mixed(
                codes[rows], words(self._content, begins[rows] + at).astype(np.uint32)
            )
        return _finished(codes ^ sizes.astype(np.uint32))

    def _strings(self) -> Codes:
        """Return the hash codes of strings; of null, whose length is written as 0, it is 0."""
        numbers, after, long = varints_at(self._content, self._at)
        sizes = np.maximum(numbers - 1, 0)
        self.odd |= long
        sizes[self.odd] = 0
        self._move(after)
        begins = self._at
        self._move(begins + sizes)  # at least: no unit has less than a byte
        sizes[self.odd] = 0
        codes, plain = _ascii_hashes(self._content, begins, sizes)
        rows = np.flatnonzero(~plain)
        if len(rows):
            ends, odd = self._ends[rows], self.odd[rows]
            codes[rows], to = _unit_hashes(self._content, begins[rows], sizes[rows], ends)
            odd |= to < 0
            self.odd[rows] = odd
            self._at[rows] = np.where(odd, ends, to)
        return codes


def varints_at(content: Content, at: Ints) -> tuple[Ints, Ints, Flags]:
    """Return numbers of up to three bytes, where each ends, and which are longer than that."""
    first = content[at].astype(np.int64)
    goes_on = first > 0x7F
    if not goes_on.any():
        return first, at + 1, goes_on
    second, third = content[at + 1].astype(np.int64), content[at + 2].astype(np.int64)
    is_third = goes_on & (second > 0x7F)
    numbers = first & 0x7F
    numbers |= np.where(goes_on, second & 0x7F, 0) << 7
    numbers |= np.where(is_third, third & 0x7F, 0) << 14
    return numbers, at + 1 + goes_on + is_third, is_third & (third > 0x7F)


def _ascii_hashes(content: Content, begins: Ints, sizes: Ints) -> tuple[Codes, Flags]:
    """Return the hash codes of strings whose units are a byte each, and which ones are such."""
    codes = np.zeros(len(begins), np.uint32)
    plain = np.ones(len(begins), bool)
    # 31 ** -7 and so on: the last word of a string is hashed as if it were full.
    powers = np.full(_WORD + int(sizes.max(initial=0)), 31, np.uint32)
    powers[0] = pow(31, 1 - _WORD, 1 << 32)
    powers = np.cumprod(powers, dtype=np.uint32)
    for start in range(0, len(begins), _STRIP):
        strip = slice(start, start + _STRIP)
        codes[strip], plain[strip] = _strip_hashes(content, begins[strip], sizes[strip], powers)
    return codes, plain


def _strip_hashes(
    content: Content, begins: Ints, sizes: Ints, powers: Codes
) -> tuple[Codes, Flags]:
    codes = np.zeros(len(begins), np.uint32)
    plain = np.ones(len(begins), bool)
    rows = np.flatnonzero(sizes)
    at, left = begins[rows], sizes[rows]
    while len(rows):
        word = words(content, at)
        if left.min() < _WORD:
            word = first_bytes(word, left)
        plain[rows] &= word & _HIGH_BITS == 0
        codes[rows] += _word_hashes(word) * powers[left - 1]
        goes_on = left > _WORD
        if not goes_on.all():
            rows, at, left = rows[goes_on], at[goes_on], left[goes_on]
        at, left = at + _WORD, left - _WORD
    return codes, plain


def _word_hashes(word: Any) -> Codes:
    """Return the hash codes of words of eight units: of two, of four, and then of all."""
    pairs = (word & _PAIRS) * np.uint64(31) + (word >> np.uint64(8) & _PAIRS)
    fours = (pairs & _FOURS) * np.uint64(31**2) + (pairs >> np.uint64(16) & _FOURS)
    high = (fours >> np.uint64(32)).astype(np.uint32)
    return fours.astype(np.uint32) * np.uint32(31**4) + high


def _unit_hashes(content: Content, begins: Ints, sizes: Ints, ends: Ints) -> tuple[Codes, Ints]:
    """Return hash codes of strings of any characters, and their ends; -1 if unreadable."""
    codes = np.zeros(len(begins), np.uint32)
    to = np.full(len(begins), -1)
    for start in range(0, len(begins), _STRIP):
        rows = np.arange(start, min(start + _STRIP, len(begins)))
        at, left = begins[rows], sizes[rows]
        while len(rows):
            units, at, long = varints_at(content, at)
            codes[rows] = codes[rows] * _THIRTY_ONE + units.astype(np.uint32)
            read = ~long & (units <= 0xFFFF) & (at <= ends[rows])
            done = read & (left == 1)
            to[rows[done]] = at[done]
            goes_on = read & (left > 1)
            rows, at, left = rows[goes_on], at[goes_on], left[goes_on] - 1
    return codes, to

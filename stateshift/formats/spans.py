"""Arrow's byte strings as numpy sees them: one content, and the start and end of each item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mmh3
import numpy as np

from stateshift.formats.blocks import Binary, Flags, Ints

# Longer items are hashed one by one.
LONG = 1024

Words = Any  # a numpy array of uint64
Content = Any  # a numpy array of uint8

_PRIME = np.uint64(0x9E3779B97F4A7C15)
_STRIP = 8192  # items that are computed on at once: they stay in the processor's cache


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Item i is content[starts[i]:ends[i]]; of a null item both are the same."""

    content: Content
    starts: Ints
    ends: Ints

    @property
    def sizes(self) -> Ints:
        return self.ends - self.starts


def spans(items: Binary) -> Spans:
    """Return a column's bytes, and the beginning and end of each of its values in them."""
    _, offsets, content = items.buffers()
    if not len(items):
        return Spans(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
    edges = np.frombuffer(offsets, np.int64)[items.offset : items.offset + len(items) + 1]
    is_empty = content is None or not content.size
    held = np.zeros(0, np.uint8) if is_empty else np.frombuffer(content, np.uint8)
    return Spans(held, edges[:-1], edges[1:])


def missing(items: Binary) -> Flags:
    """Return the flags of items that are null."""
    if not items.null_count:
        return np.zeros(len(items), bool)
    return items.is_null().to_numpy(zero_copy_only=False)


def words(content: Content, places: Ints) -> Words:
    """Return the eight bytes at each place as one little-endian number, zeros behind the end."""
    if len(content) < 8:
        content = np.concatenate((content, np.zeros(8 - len(content), np.uint8)))
    last = len(content) - 8
    beyond = places > last
    if not beyond.any():
        return items_at(content, places, 8).view("<u8")
    picked = items_at(content, np.minimum(places, last), 8).view("<u8")
    gone = np.minimum(places[beyond] - last, 8).astype(np.uint64)
    shifted = picked[beyond] >> (np.minimum(gone, 7) * np.uint64(8))
    picked[beyond] = np.where(gone < 8, shifted, np.uint64(0))
    return picked


def items_at(content: bytes | Content, places: Ints, size: int) -> Any:
    """Return so many bytes from each place on as one item each, all within the content."""
    # Numpy copies bytes that are no number faster than numbers that are not aligned.
    every = np.ndarray((len(content) - size + 1,), f"V{size}", content, strides=(1,))
    return every[places]


def word_rows(content: bytes | Content, places: Ints, count: int) -> Words:
    """Return `count` words from each place on, all of which lie in the content, as rows."""
    return items_at(content, places, 8 * count).view("<u8").reshape(-1, count)


def numbers_at(items: Binary, place: int) -> Words:
    """Return eight bytes of each item as a number ordered as they are, zeros after its end."""
    held = spans(items)
    rest = np.maximum(held.sizes - place, 0)
    little = words(held.content, np.minimum(held.starts + place, held.ends))
    return first_bytes(little, rest).byteswap()


def hash64(items: Binary) -> Words:
    """Return a number for each item, quickly: to deal them out by, and to find equal ones."""
    whole = spans(items)
    hashed = np.empty(len(items), np.uint64)
    for start in range(0, len(hashed), _STRIP):
        strip = slice(start, start + _STRIP)
        hashed[strip] = _hashed(whole.content, whole.starts[strip], whole.sizes[strip])
    return hashed


def hash128(items: Binary) -> Words:
    """Return mmh3.hash64 (Murmur3 x64, 128 bits) of each item: rows of a low and a high half."""
    digests = b"".join(map(mmh3.mmh3_x64_128_digest, items.to_pylist()))
    return np.frombuffer(digests, "<u8").reshape(-1, 2)


def _hashed(content: Content, starts: Ints, sizes: Ints) -> Words:
    hashed = sizes.astype(np.uint64) * _PRIME
    most, least = int(sizes.max(initial=0)), int(sizes.min(initial=LONG + 1))
    if most > LONG:
        for at in np.flatnonzero(sizes > LONG).tolist():
            item = content[starts[at] : starts[at] + sizes[at]].tobytes()
            hashed[at], _ = mmh3.hash64(item, signed=False)
        sizes = np.where(sizes > LONG, 0, sizes)
        most, least = int(sizes.max()), 0
    whole = least // 8
    if whole and len(starts):
        for word in word_rows(content, starts, whole).T:
            hashed = _mixed(hashed, word)
    for position in range(8 * whole, most, 8):
        here = slice(None) if position < least else np.flatnonzero(sizes > position)
        word = first_bytes(words(content, starts[here] + position), sizes[here] - position)
        hashed[here] = _mixed(hashed[here], word)
    return hashed ^ hashed >> np.uint64(29)


def _mixed(hashed: Words, word: Words) -> Words:
    mixed = (hashed ^ word) * _PRIME
    return mixed ^ mixed >> np.uint64(32)


def first_bytes(words: Words, count: Ints) -> Words:
    """Return words of which only the first `count` bytes count."""
    # A shift by all 64 bits is not defined.
    kept = (np.uint64(1) << np.minimum(count, 7).astype(np.uint64) * np.uint64(8)) - np.uint64(1)
    return np.where(count >= 8, words, words & kept)

"""Arrow's byte strings as numpy sees them: one content, and where each item starts and ends in it.

spans(items)         Spans(content, starts, ends), without copying a byte
words(content, at)   the eight bytes at every place, as numbers; zeros beyond the end
hash64(items)        a number for each item, quickly: to deal items out by, and to find equal ones
hash128(items)       a digest for each item
"""

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
# What is computed on at once stays in the processor's cache.
_STRIP = 8192


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
    _, offsets, content = items.buffers()
    if not len(items):
        return Spans(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
    edges = np.frombuffer(offsets, np.int64)[items.offset : items.offset + len(items) + 1]
    held = (
        np.frombuffer(content, np.uint8)
        if content is not None and content.size
        else np.zeros(0, np.uint8)
    )
    return Spans(held, edges[:-1], edges[1:])


def missing(items: Binary) -> Flags:
    """Which items are null."""
    if not items.null_count:
        return np.zeros(len(items), bool)
    return items.is_null().to_numpy(zero_copy_only=False)


def words(content: Content, places: Ints) -> Words:
    if len(content) < 8:
        content = np.concatenate((content, np.zeros(8 - len(content), np.uint8)))
    last = len(content) - 8
    every = np.ndarray((last + 1,), "<u8", content, strides=(1,))
    beyond = places > last
    if not beyond.any():
        return every[places]
    found = every[np.minimum(places, last)]
    gone = np.minimum(places[beyond] - last, 8).astype(np.uint64)
    found[beyond] = np.where(
        gone < 8, found[beyond] >> (np.minimum(gone, 7) * np.uint64(8)), np.uint64(0)
    )
    return found


def hash64(items: Binary) -> Words:
    """A number for each item, the same for the same bytes; who takes equal numbers for equal
    items has to look.
    """
    found = spans(items)
    hashed = np.empty(len(items), np.uint64)
    for start in range(0, len(hashed), _STRIP):
        strip = slice(start, start + _STRIP)
        hashed[strip] = _hashed(found.content, found.starts[strip], found.sizes[strip])
    return hashed


def hash128(items: Binary) -> Words:
    """Murmur3 (x64, 128 bits, seed 0) of each item, as rows of a low and a high half: what
    mmh3.hash64 gives.
    """
    digests = b"".join(map(mmh3.mmh3_x64_128_digest, items.to_pylist()))
    return np.frombuffer(digests, "<u8").reshape(-1, 2)


def _hashed(content: Content, starts: Ints, sizes: Ints) -> Words:
    found = sizes.astype(np.uint64) * _PRIME
    most, least = (int(sizes.max()), int(sizes.min())) if len(sizes) else (0, 0)
    if most > LONG:
        for at in np.flatnonzero(sizes > LONG).tolist():
            found[at] = mmh3.hash64(
                content[starts[at] : starts[at] + sizes[at]].tobytes(), signed=False
            )[0]
        sizes = np.where(sizes > LONG, 0, sizes)
        most, least = int(sizes.max()), 0
    for position in range(0, most, 8):
        if position + 8 <= least:
            found = _mixed(found, words(content, starts + position))
        else:
            here = np.flatnonzero(sizes > position)
            word = _some(words(content, starts[here] + position), sizes[here] - position)
            found[here] = _mixed(found[here], word)
    return found ^ found >> np.uint64(29)


def _mixed(found: Words, word: Words) -> Words:
    found = (found ^ word) * _PRIME
    return found ^ found >> np.uint64(32)


def _some(found: Words, count: Ints) -> Words:
    """Words of which only the first `count` bytes count."""
    # A shift by all 64 bits is not defined.
    kept = (np.uint64(1) << np.minimum(count, 7).astype(np.uint64) * np.uint64(8)) - np.uint64(1)
    return np.where(count >= 8, found, found & kept)

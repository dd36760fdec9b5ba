"""Two sides compared by sums first, so that only what differs is ever looked at: what `diff` hands
to a fleet.

    fold  every entry into one of BUCKETS by its key: per store and bucket a count, a sum of 128-bit
          hashes, bytes
    pick  the entries of those buckets whose sums differ between the sides

The sum of a bucket is over all shards of a side, wherever its keys lie: numbers of shards make no
difference. Equal sums are equal entries, as in CompareImages. Little is picked where little
differs: with an entry goes its bucket.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from stateshift.engines.spark.entries.sides import Formed
from stateshift.formats.binaries import join_columns, lengths, numerals
from stateshift.formats.blocks import Binary, Block, Ints
from stateshift.formats.spans import hash64, hash128

BUCKETS = 1024
_MODULUS = 1 << 128

# Store -> bucket -> count, sum, bytes
Sums = tuple[int, int, int]
Folded = dict[str, dict[int, Sums]]


def fold(entries: Iterable[Formed]) -> Folded:
    """Return the sums of the entries, by store and bucket."""
    return added({store: _sums(block)} for store, block in entries if len(block))


def added(folded: Iterable[Folded]) -> Folded:
    """Return the sums of all parts of one side."""
    whole: Folded = {}
    for part in folded:
        for store, buckets in part.items():
            into = whole.setdefault(store, {})
            for bucket, sums in buckets.items():
                one = into.get(bucket, (0, 0, 0))
                total = (one[1] + sums[1]) % _MODULUS
                into[bucket] = one[0] + sums[0], total, one[2] + sums[2]
    return whole


def pick(entries: Iterable[Formed], wanted: Mapping[str, Collection[int]]) -> Iterator[Formed]:
    """Yield the entries of some buckets."""
    for store, block in entries:
        places = np.flatnonzero(np.isin(buckets_of(block.keys), list(wanted.get(store, ()))))
        if len(places):
            yield store, block.take(places)


def buckets_of(keys: Binary) -> Ints:
    """Return the bucket of each key."""
    return (hash64(keys) % np.uint64(BUCKETS)).astype(np.int64)


def differing(left: Folded, right: Folded) -> tuple[dict[str, set[int]], dict[str, int]]:
    """Return the buckets that differ, by store; and how many entries the others hold on both
    sides.
    """
    different: dict[str, set[int]] = {}
    same: dict[str, int] = {}
    for store in dict.fromkeys((*left, *right)):
        buckets, others = left.get(store, {}), right.get(store, {})
        equal = dict(buckets.items() & others.items())
        different[store] = buckets.keys() ^ equal.keys() | others.keys() ^ equal.keys()
        same[store] = sum(count for count, _, _ in equal.values())
    return different, same


def _sums(block: Block) -> dict[int, Sums]:
    """Return the sums of a block that is not empty. Hashes are added up in quarters, so that their
    sums stay below 64 bits.
    """
    keys, values = lengths(block.keys), lengths(block.values)
    buckets = buckets_of(block.keys)
    order = np.argsort(buckets, kind="stable")
    numbers, starts, counts = np.unique(buckets[order], return_index=True, return_counts=True)
    halves = hash128(join_columns(numerals(keys), b" ", block.keys, block.values))[order]
    quarters = []
    for half in halves.transpose():
        for shift in (0, 32):
            quarters.append(half >> shift & 0xFFFFFFFF)
    totals = [np.add.reduceat(quarter, starts).tolist() for quarter in quarters]
    sizes = np.add.reduceat((keys + values)[order], starts).tolist()
    sums = zip(counts.tolist(), map(_whole_sum, *totals), sizes, strict=True)
    return dict(zip(numbers.tolist(), sums, strict=True))


def _whole_sum(*quarters: int) -> int:
    """Return the sum of hashes whose quarters have these sums, the lowest first."""
    return sum(quarter << 32 * place for place, quarter in enumerate(quarters)) % _MODULUS

"""Two sides compared by sums first, so that only what differs is ever looked at: what `diff` hands to a fleet.

    fold    every entry into one of BUCKETS by its key: per store and bucket a count, a sum of 128-bit hashes, bytes
    pick    the entries of those buckets whose sums differ between the sides

The sum of a bucket is over all shards of a side, wherever its keys lie: numbers of shards make no difference. Equal
sums are equal entries, as in CompareImages. Where little differs, little is picked: one entry brings its bucket along.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import mmh3

from stateshift.engines.spark.sides import Formed, Sides
from stateshift.survey import ShardFiles

BUCKETS = 1024
_MODULUS = 1 << 128

# Store -> bucket -> count, sum, bytes
Folded = dict[str, dict[int, tuple[int, int, int]]]


def fold(entries: Iterable[Formed]) -> Folded:
    folded: Folded = {}
    for store, key, value in entries:
        low, high = mmh3.hash64(b"%d %d " % (len(key), len(value)) + key + value, signed=False)
        buckets, bucket = folded.setdefault(store, {}), bucket_of(key)
        count, total, size = buckets.get(bucket, (0, 0, 0))
        buckets[bucket] = count + 1, (total + (high << 64 | low)) % _MODULUS, size + len(key) + len(value)
    return folded


def added(folded: Iterable[Folded]) -> Folded:
    """The sums of all parts of one side."""
    whole: Folded = {}
    for one in folded:
        for store, buckets in one.items():
            into = whole.setdefault(store, {})
            for bucket, (count, total, size) in buckets.items():
                before = into.get(bucket, (0, 0, 0))
                into[bucket] = before[0] + count, (before[1] + total) % _MODULUS, before[2] + size
    return whole


def pick(
    sides: Sides, side: int, shards: Iterable[ShardFiles], wanted: Mapping[str, Collection[int]]
) -> Iterator[Formed]:
    """The entries of some buckets."""
    for store, key, value in sides.formed(side, shards):
        if bucket_of(key) in wanted.get(store, ()):
            yield store, key, value


def bucket_of(key: bytes) -> int:
    return mmh3.hash(key, signed=False) % BUCKETS


def differing(left: Folded, right: Folded) -> tuple[dict[str, set[int]], dict[str, int]]:
    """The buckets that differ, by store; and how many entries the others hold on both sides."""
    different: dict[str, set[int]] = {}
    same: dict[str, int] = {}
    for store in dict.fromkeys((*left, *right)):
        here, there = left.get(store, {}), right.get(store, {})
        different[store] = {b for b in here.keys() | there.keys() if here.get(b) != there.get(b)}
        same[store] = sum(count for b, (count, _, _) in here.items() if b not in different[store])
    return different, same

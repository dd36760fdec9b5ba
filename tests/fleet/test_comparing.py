"""diff by a fleet: whatever differs between two images, it says what is said without one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import mmh3
import pytest

from stateshift import look
from stateshift.engines.spark.entries.sides import (
    BUCKETS,
    Folded,
    add_sums,
    buckets_of,
    differing,
    fold,
)
from stateshift.fleet import Crew, comparing
from stateshift.formats.blocks import binary, block_of
from stateshift.formats.spark.state_files import StateRecord, encode_delta
from stateshift.testing.memory_storage import MemoryDisk
from stateshift.world import World
from tests.look.golden_images import HERE, NEWEST, contents, write
from tests.support.checkpoints import Checkpoint, put
from tests.support.fleet import MemoryCarrier
from tests.support.ground import Ground

THERE = "file:///there/orders"


def carrier_on(disk: MemoryDisk) -> MemoryCarrier:
    def world_of(order: Mapping[str, Any]) -> World:
        return replace(Ground(disk=disk).world, run=order["run"])

    return MemoryCarrier(world_of)


def told(found: look.Differences) -> Any:
    """Everything that is said, but for the order of what is shown."""
    shown = sorted(
        json.dumps([d.operator, d.store, d.change, d.key, d.before, d.after]) for d in found.shown
    )
    return found.equal, found.stores, sorted(found.incomparable), shown, found.epochs


def both(disk: MemoryDisk, show: int = 1000) -> tuple[Any, Any, MemoryCarrier]:
    carrier = carrier_on(disk)
    alone = look.diff(HERE, THERE, disk.open, show)
    in_parts = Crew(carrier_on(disk), part_bytes_min=1)
    assert told(look.diff(HERE, THERE, disk.open, show, in_parts)) == told(alone)
    return told(alone), told(look.diff(HERE, THERE, disk.open, show, Crew(carrier))), carrier


@pytest.mark.parametrize("name", sorted(NEWEST))
def test_an_image_equals_itself_and_nothing_is_picked(name: str) -> None:
    disk = MemoryDisk()
    for place in (HERE, THERE):
        write(disk.open(place), contents(NEWEST[name]))
    alone, together, carrier = both(disk)
    assert together == alone
    assert together[0]
    assert not [label for label in carrier.carried if label.startswith("pick")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("window-hdfs", "window-rocksdb"),
        ("window-rocksdb", "window-rocksdb-changelog"),
        ("join-hdfs", "join-rocksdb"),
        ("join-rocksdb-v3", "join-rocksdb-v4"),
        ("session-hdfs", "session-rocksdb"),
        ("total-hdfs", "window-hdfs"),
        ("dedup-lzf", "dedup-zstd"),
        ("window-hdfs", "rate"),
    ],
)
def test_images_of_other_providers_and_kinds_are_compared_as_without_a_fleet(
    one: str, other: str
) -> None:
    disk = MemoryDisk()
    write(disk.open(HERE), contents(NEWEST[one]))
    write(disk.open(THERE), contents(NEWEST[other]))
    alone, together, _ = both(disk)
    assert together == alone


def records(keys: Iterable[int], shard: int, value: int = 1) -> bytes:
    found = [
        StateRecord(b"key-%04d-%04d" % (shard, key) + bytes(3), value.to_bytes(8, "little"))
        for key in keys
    ]
    return b"".join(encode_delta(found))


@pytest.mark.long
def test_whatever_is_added_removed_or_changed_a_fleet_counts_the_same(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        disk = MemoryDisk()
        for place in (HERE, THERE):
            Checkpoint(batches=1, shards=3).write(disk.open(place))
            for shard in range(3):
                keys = [key for key in range(200) if chance.random() < 0.99]
                put(
                    disk.open(place),
                    f"state/0/{shard}/1.delta",
                    records(keys, shard, chance.choice((1, 1, 2))),
                )
        alone, together, _ = both(disk)
        assert together == alone


def test_keys_that_lie_in_other_shards_are_no_difference() -> None:
    disk = MemoryDisk()
    Checkpoint(batches=1, shards=2).write(disk.open(HERE))
    Checkpoint(batches=1, shards=3).write(disk.open(THERE))
    for place, shards in ((HERE, 2), (THERE, 3)):
        for shard in range(shards):
            put(disk.open(place), f"state/0/{shard}/1.delta", records(range(shard, 120, shards), 7))
    alone, together, carrier = both(disk)
    assert together == alone and together[0]
    assert not [label for label in carrier.carried if label.startswith("pick")]


def test_only_buckets_that_differ_are_picked() -> None:
    disk = MemoryDisk()
    for place, last in ((HERE, 2000), (THERE, 2001)):
        Checkpoint(batches=1, shards=1).write(disk.open(place))
        put(disk.open(place), "state/0/0/1.delta", records(range(last), 0))
    _, together, carrier = both(disk)
    assert [(store.added, store.removed, store.changed, store.same) for store in together[1]] == [
        (1, 0, 0, 2000)
    ]
    wanted = [json.loads(o)["wanted"] for o in carrier.orders if json.loads(o)["ask"] == "pick"]
    assert wanted
    assert all(sum(map(len, one.values())) == 1 for one in wanted)


def test_a_large_difference_comes_in_answers_of_bounded_size() -> None:
    folded = {"default": {bucket: (1, bucket, comparing.PICKED_MAX // 3) for bucket in range(10)}}
    asked = list(comparing._wanted(folded, {"default": set(range(9))}))
    assert [one["default"] for one in asked] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def formed(pairs: Iterable[tuple[bytes, bytes]]) -> Folded:
    return fold([("a", block_of(list(pairs)))])


def test_sums_do_not_depend_on_order_or_shards_and_tell_duplicates() -> None:
    pairs = [(b"k%d" % n, b"v") for n in range(5000)]
    assert add_sums([formed(pairs[:20]), formed(pairs[20:])]) == formed(reversed(pairs))
    first = int(buckets_of(binary([b"k0"]))[0])
    different, same = differing(formed(pairs), formed([*pairs, pairs[0], pairs[0]]))
    assert different == {"a": {first}}
    assert same == {"a": int((buckets_of(binary([key for key, _ in pairs])) != first).sum())}
    assert all(0 <= bucket < BUCKETS for bucket in formed(pairs)["a"])


def test_a_sum_is_that_of_every_entrys_hash_and_size() -> None:
    pairs = [(b"k%d" % n, b"v" * n) for n in range(300)]
    wanted: dict[int, tuple[int, int, int]] = {}
    for (key, value), bucket in zip(
        pairs, buckets_of(binary([key for key, _ in pairs])).tolist(), strict=True
    ):
        low, high = mmh3.hash64(b"%d " % len(key) + key + value, signed=False)
        count, total, size = wanted.get(bucket, (0, 0, 0))
        wanted[bucket] = (
            count + 1,
            (total + (high << 64 | low)) % (1 << 128),
            size + len(key) + len(value),
        )
    assert formed(pairs) == {"a": wanted}


def test_key_and_value_are_kept_apart() -> None:
    one, other = formed([(b"kv", b"w")]), formed([(b"k", b"vw")])
    assert {sums for buckets in one.values() for sums in buckets.values()} != {
        sums for buckets in other.values() for sums in buckets.values()
    }

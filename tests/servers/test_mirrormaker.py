"""Real Spark jobs that read on in the copy that a real MirrorMaker 2 makes, between two clusters of
Kafka. Offsets differ: transactions and compaction have left gaps.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.support import environment, stateshift, wait_until
from tests.servers.shop import Shop, sums
from tests.support.servers import Servers, Unavailable, downloads, group, start

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.row("W-5"),
]
SHOWN_ON = "Spark, Kafka"

TOPIC, COPY = "orders", "a.orders"
READ, ALL, LATE = 100, 140, 160
RUNS = 20
SECONDS_MAX = 240
Offsets = dict[str, int]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    try:
        downloads.jars("kafka-spark-4.3")
        downloads.jars("mirrormaker")
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    with group(tmp_path_factory.mktemp("mirror"), "kafka", "kafka-2") as servers:
        yield servers
        servers.down("mirrormaker")


def set_policy(shop: Shop, **settings: str) -> None:
    """Set how the old topic is cleaned."""
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

    named = {key.replace("_", "."): value for key, value in settings.items()}
    admin = KafkaAdminClient(bootstrap_servers=shop.brokers)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, shop.topic, named)])
    admin.close()


def numbers_in(shop: Shop) -> list[int]:
    """The numbers that a topic has now, in no order."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=shop.brokers, enable_auto_commit=False)
    if consumer.partitions_for_topic(shop.topic) != {0, 1}:  # it is not there yet
        consumer.close()
        return []
    partitions = [TopicPartition(shop.topic, number) for number in (0, 1)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(partitions)
    numbers: list[int] = []
    while any(consumer.position(each) < ends[each] for each in partitions):
        for batch in consumer.poll(timeout_ms=500).values():
            numbers += [int(record.value) for record in batch]
    consumer.close()
    return numbers


def until(done: Callable[[], bool], otherwise: str) -> None:
    wait_until(done, otherwise, SECONDS_MAX, logs=Path(__file__).parent)  # which has none


def newest(checkpoint: Path) -> str:
    names = [name for name in os.listdir(checkpoint / "offsets") if name.isdecimal()]
    return (checkpoint / "offsets" / max(names, key=int)).read_text().splitlines()[-1]


def place_of(checkpoint: Path) -> dict[str, Offsets]:
    return dict(json.loads(newest(checkpoint)))


@dataclass
class Kills:
    """Random moments within the time of a command, and how far it was by then."""

    dice: random.Random
    seconds: float
    before: int = 0
    after: int = 0


def there_and_back(here: Shop, there: Shop, source: Path, number: int, kills: Kills) -> Path:
    """Let a job read on in the copy, then here again; each command is killed at a random moment,
    and resumed. Return its last checkpoint.
    """
    copied, back = (here.folder / f"{number}-{name}" for name in ("there", "back"))
    ways = ((here, there, source, copied, "mirrormaker"), (there, here, copied, back, "records"))
    for old, new, from_place, to_place, by in ways:
        workdir = here.folder / f"run-{to_place.name}"
        words = (*old.words(from_place, to_place, new), "--by", by, "--workdir", workdir)
        command = [sys.executable, "-m", "stateshift", *map(str, words)]
        process = subprocess.Popen(
            command,
            env={**environment(), **here.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(kills.seconds * kills.dice.uniform(0.4, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (workdir / "journal").exists():
            kills.after += 1
            stateshift("resume", workdir, cwd=here.folder, env=here.env)
        else:  # nothing was written down yet
            kills.before += 1
            assert not (to_place / "offsets").exists()
            stateshift(*words, cwd=here.folder, env=here.env)
    return back


@dataclass(frozen=True)
class Mirrored:
    """A job that has read a part of a topic, and both sides of the mirror."""

    servers: Servers
    here: Shop
    there: Shop
    source: Path


@pytest.fixture(scope="module")
def mirrored(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Mirrored:
    folder, exports = tmp_path_factory.mktemp("mirrored"), servers.exports()
    here = Shop(exports["STATESHIFT_KAFKA"], folder, TOPIC)
    there = Shop(exports["STATESHIFT_KAFKA_2"], folder, COPY)
    here.make(TOPIC, 2)
    here.feed(TOPIC, range(READ), in_transactions=True)
    source = folder / "source"
    (read,) = here.run((source, TOPIC))
    assert read == sums(*range(READ))

    # What was read is compacted to one record a key; what comes next has gaps, too.
    settings = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.001"}
    set_policy(here, cleanup_policy="compact", **settings)
    here.feed(TOPIC, range(READ, READ + 2), in_transactions=True)  # in a segment of their own
    until(lambda: len(numbers_in(here)) < READ / 2, "the topic is not compacted")
    set_policy(here, cleanup_policy="delete", segment_ms="604800000")
    here.feed(TOPIC, range(READ + 2, ALL), in_transactions=True)
    left = sorted(numbers_in(here))
    assert left[-(ALL - READ) :] == list(range(READ, ALL)), "what the job has not read is there"
    start(servers, "mirrormaker")
    until(lambda: set(left) <= set(numbers_in(there)), "the mirror does not copy")
    return Mirrored(servers, here, there, source)


def test_a_job_reads_on_in_a_mirror(mirrored: Mirrored, tmp_path: Path) -> None:
    here, there, source = mirrored.here, mirrored.there, mirrored.source
    targets = {by: tmp_path / f"by-{by}" for by in ("mirrormaker", "records", "timestamp")}
    for by, target in targets.items():
        sources = here.reposition(source, target, there, "--by", by).json["sources"]
        assert {(each["again"], each["skipped"]) for each in sources} == {(0, 0)}
    assert place_of(targets["mirrormaker"])[COPY] != place_of(source)[TOPIC], "they differ"
    for ended in there.run(*((target, COPY) for target in targets.values())):
        assert ended == sums(*range(ALL))


@pytest.mark.timeout(3600)
def test_killed_anywhere_it_goes_there_and_back(mirrored: Mirrored) -> None:
    here, there, source = mirrored.here, mirrored.there, mirrored.source
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # shown where the test fails
    dice = random.Random(seed)
    began = time.monotonic()
    here.reposition(source, here.folder / "whole", there, "--by", "mirrormaker")
    seconds = time.monotonic() - began
    kills = Kills(dice, seconds)
    ends = [there_and_back(here, there, source, number, kills) for number in range(RUNS)]
    print(f"killed before the journal, after: {kills.before}, {kills.after}")
    assert kills.after > RUNS / 2
    for number, ended in enumerate(here.run(*((end, TOPIC) for end in ends))):
        assert ended == sums(*range(ALL)), f"run {number} of seed {seed}"


def test_a_mirror_that_lags_and_records_that_are_gone(mirrored: Mirrored, tmp_path: Path) -> None:
    here, there, source = mirrored.here, mirrored.there, mirrored.source
    mirrored.servers.kill("mirrormaker", "mirror")
    here.feed(TOPIC, range(ALL, LATE), in_transactions=True)
    (read,) = here.run((source, TOPIC))
    assert read == sums(*range(LATE))
    target = tmp_path / "late"
    by_mirror = ("--by", "mirrormaker")
    refused = here.reposition(source, target, there, *by_mirror, "--timeout", "2s", code=4)
    assert f"the mirror lags, and {(LATE - ALL) // 2} records" in refused.out
    assert not target.exists()
    start(mirrored.servers, "mirrormaker")
    here.reposition(source, target, there, *by_mirror, "--timeout", "4min")
    here.feed(TOPIC, range(LATE, LATE + 10))  # without a new record no batch tells its sums
    until(lambda: LATE + 9 in numbers_in(there), "the mirror does not copy")
    assert there.run((target, COPY)) == [sums(*range(LATE + 10))]

    # What the job has read is gone from the old topic: the syncs are all there is.
    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=here.brokers)
    admin.delete_records({TopicPartition(TOPIC, number): -1 for number in (0, 1)})
    admin.close()
    told = here.reposition(source, tmp_path / "gone", there, *by_mirror, code=None)
    again = sum(each["again"] for each in told.json["sources"])
    print(f"by its syncs alone: up to {again} records again")
    if again:
        assert told.code == 4 and f"{again} record" in told.out
    accepted = ("--accept-again", str(again))
    here.reposition(source, tmp_path / "accepted", there, *by_mirror, *accepted)

"""Bins go round between three real Spark applications with a real Kafka before them, their group on
a real S3 or HDFS, and everything happens to them: workers and whoever moves bins are killed, moves
throttled, paused and aborted, functions replaced. For four minutes; for thirty with
STATESHIFT_LIVE_SOAK=1800. What comes out is what one worker alone would have put out of the
same records, each row at the worker that had its bin, and the folder stays small.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

from stateshift.live.bins.times import Moment
from stateshift.live.bins.upkeep import SLACK
from stateshift.live.protocol.configuration import bin_of
from tests.acceptance.live_operators import BALLAST, BINS, LATER, visits_of_partitions
from tests.acceptance.living_bins import put_out_alone, running
from tests.servers.live_soak_job import NAMES, PER_BATCH_MAX
from tests.servers.living_soak import PARTITIONS, Soak
from tests.support import s3
from tests.support.open_loop import TIES
from tests.support.servers import Unavailable, downloads, group

SECONDS = float(os.environ.get("STATESHIFT_LIVE_SOAK", "240"))
SECONDS_MAX = 3 * SECONDS + 3600
RATE, KEYS = 150, 4000
PAUSE_SECONDS_MAX = 5.0
KEY_BYTES = BALLAST + 50  # of a key's state, as it is kept
RECORD_BYTES = KEY_BYTES + 100  # that a record adds to what its batch writes
# However small the state is, for each worker: two batches whose files wait for the second look, and
# one that is written; its commits, and what it has before it rewrites files, and while it does
PENDING = 3 * PER_BATCH_MAX * RECORD_BYTES
ALLOWANCE = len(NAMES) * (PENDING + 4 * SLACK)

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS_MAX),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with group(tmp_path_factory.mktemp("kafka"), "kafka") as servers:
        yield servers.exports()["STATESHIFT_KAFKA"]


@pytest.fixture(params=["s3", "hdfs"])
def place(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    name = {"s3": "s3-real", "hdfs": "hdfs-a"}[request.param]
    with group(tmp_path_factory.mktemp(request.param), name) as servers:
        if request.param == "hdfs":
            monkeypatch.setenv("HADOOP_CONF_DIR", servers.exports()["HADOOP_CONF_DIR"])
            monkeypatch.setenv("HDFSCLI_CONFIG", os.devnull)
            yield "hdfs://hdfs-a/soak"
            return
        with s3.exported(servers, s3.REAL) as environment:
            for key, value in environment.items():
                monkeypatch.setenv(key, value)
            yield f"s3a://{s3.BUCKET}/soak"


@pytest.fixture
def soak(place: str, kafka: str, tmp_path: Path, seed: int) -> Iterator[Soak]:
    try:
        jars = sorted(downloads.jars("kafka-spark-4.3").glob("*.jar"))
    except Unavailable as reason:
        pytest.skip(f"Kafka's connector cannot be had: {reason}")
    made = Soak(
        folder=tmp_path,
        names=NAMES,
        rate=RATE,
        keys=KEYS,
        place=place,
        kafka=kafka,
        jars=":".join(map(str, jars)),
        dice=random.Random(seed),
    )
    made.make_topic()
    with running(made) as soak:
        yield soak


def test_what_comes_out_is_what_one_worker_alone_would_have_put_out(soak: Soak) -> None:
    feeder = threading.Thread(target=soak.feed)
    feeder.start()
    try:
        soak.wait(soak.has_begun, "the first rows are not read")
        began = time.monotonic()
        while time.monotonic() < began + SECONDS or not soak.is_thorough:
            soak.act()
            time.sleep(soak.dice.uniform(0.5, PAUSE_SECONDS_MAX))
            soak.look()
        soak.settle()
    finally:
        soak.ends.set()
        feeder.join()
    records = soak.records()
    frontier = end_of(records)
    soak.until_read(frontier)
    soak.end()
    applied = sum(outcome == "applied" for _, outcome in soak.moves)
    print(
        f"{records.num_rows} records, {dict(soak.did)}; {applied} of {len(soak.moves)} steps "
        f"applied; at most {soak.most_bytes} bytes, most of them in {soak.largest.most_common(3)}",
        flush=True,
    )
    put_out = list(soak.put_out())
    unmarked = sorted((*row[:-1], -1) for _, row in put_out)
    assert unmarked == put_out_alone(visits_of_partitions, records, frontier)
    versions = {row[-1] for _, row in put_out}
    assert versions <= {-1, 0, *soak.versions()} and max(versions) > 0
    assert_put_out_where_they_were(soak, put_out)
    assert soak.most_bytes < 3 * KEYS * KEY_BYTES + ALLOWANCE, soak.largest.most_common(5)


def end_of(records) -> Moment:
    """The frontier behind all rows but the last ones, of which more might come."""
    lasts = []
    for partition in range(PARTITIONS):
        mine = [row for row in records.to_pylist() if row["partition"] == partition]
        lasts.append((mine[-1]["at"], mine[-1]["number"], 0))
    return min(lasts)


def assert_put_out_where_they_were(soak: Soak, put_out) -> None:
    """A row is put out by the worker that had its bin at the row's time."""
    ends = [time_of(row[0]) for _, row in put_out]
    owners = soak.owners(max(ends) + 1)
    for worker, (number, key, *_) in put_out:
        hashed = xxhash.xxh64_intdigest(key.to_bytes(8, "little", signed=True), seed=42)
        owner = NAMES[owners[bin_of(hashed, BINS)][time_of(number)]]
        assert worker == owner, (number, key)


def time_of(number: int) -> int:
    """The logical time at which a row is put out: of one that is seen again, later than its own."""
    return number // TIES if number >= 0 else -number // 3 + LATER

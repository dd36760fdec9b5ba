"""A real Spark goes on in real-time mode, over a real Kafka, from the checkpoint of a job in
micro-batches. Each record that its batches have read is once in its state.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import ROOT, _run, end_jobs, kill_jobs, stateshift, wait_until
from tests.servers.real_time_batches import committed, newest
from tests.servers.shop import SECONDS_MAX, Shop, sums
from tests.support.servers import Servers, Unavailable, downloads, group, spark

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.row("W-7")]
JOB = Path(__file__).with_name("real_time_job.py")
TOPIC, SINK = "orders", "-out"
V1_REFUSED = "[STREAMING_REAL_TIME_MODE.CHECKPOINT_FORMAT_V1_NOT_SUPPORTED]"
READ, ALL = 60, 100  # records that are read in micro-batches, and in all


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    try:
        downloads.jars("kafka-spark-4.3")
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    with group(tmp_path_factory.mktemp("real-time"), "kafka") as servers:
        yield servers


@pytest.fixture
def shop(servers: Servers, tmp_path: Path) -> Shop:
    shop = Shop(servers.exports()["STATESHIFT_KAFKA"], tmp_path, f"{TOPIC}-{tmp_path.name}")
    shop.make(shop.topic, 2)
    shop.make(shop.topic + SINK, 2)
    return shop


def arguments(shop: Shop, *queries: dict[str, Any]) -> list[str]:
    file = shop.folder / "queries.json"
    sink = shop.topic + SINK
    file.write_text(json.dumps([{"topic": shop.topic, "sink": sink, **query} for query in queries]))
    return [shop.brokers, str(file)]


def words(shop: Shop, *queries: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command by which a Spark runs these queries, and its environment."""
    path = spark.class_path(spark.installed_home(), downloads.jars("kafka-spark-4.3"))
    submit = f"--conf spark.driver.extraClassPath={path} pyspark-shell"
    command = [sys.executable, str(JOB), *arguments(shop, *queries)]
    return command, {"PYSPARK_SUBMIT_ARGS": submit}


def run(shop: Shop, *queries: dict[str, Any]) -> str:
    """What Spark says of those that fail."""
    command, env = words(shop, *queries)
    return _run(command, shop.folder, 0, env, SECONDS_MAX).out


def real_time(checkpoint: Path, until: int = ALL, **keys: Any) -> dict[str, Any]:
    return {"mode": "real-time", "checkpoint": str(checkpoint), "until": until, **keys}


def totals(checkpoint: Path) -> dict[str, list[int]]:
    """What the state holds: count and sum by key."""
    lines = stateshift("export", checkpoint, "--to", "-", cwd=checkpoint.parent).out.splitlines()
    held = {}
    for line in map(json.loads, lines):
        held[line["key"]["key"]] = list(line["value"].values())
    return held


def converted(shop: Shop, kind: str, *flags: str) -> Path:
    """The checkpoint of a job in micro-batches that has read some, made one for real-time mode."""
    source, target = shop.folder / kind, shop.folder / f"{kind}-in-real-time"
    shop.feed(shop.topic, range(READ))
    first = {"mode": "micro-batch", "checkpoint": str(source), "kind": kind}
    refused = run(shop, first, real_time(source, kind=kind))
    assert refused.startswith(f"{kind}: ") and V1_REFUSED in refused
    convert = ("--checkpoint-format", "v2", *flags, "--fork", "--yes")
    stateshift("convert", source, "--to", target, *convert, cwd=shop.folder)
    shop.feed(shop.topic, range(READ, ALL))
    return target


def test_a_job_goes_on_in_real_time_mode_with_its_state(shop: Shop) -> None:
    """From a state of the default provider, which real-time mode does not have."""
    target = converted(shop, "sums", "--provider", "rocksdb")
    assert run(shop, real_time(target)) == ""
    assert totals(target) == sums(*range(ALL))
    (image,) = stateshift("inspect", target, "--json", cwd=shop.folder).json["images"]
    assert 4 < image["real_time_seconds"] < 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "flags"), [("distinct", ("--provider", "rocksdb")), ("plain", ())]
)
def test_so_do_a_deduplication_and_a_job_without_state(
    shop: Shop, kind: str, flags: tuple[str, ...]
) -> None:
    target = converted(shop, kind, *flags)
    assert run(shop, real_time(target, kind=kind)) == ""
    stateshift("verify", target, "--deep", cwd=shop.folder)
    entries = stateshift("export", target, "--to", "-", cwd=shop.folder).out.splitlines()
    assert len(entries) == (ALL if kind == "distinct" else 0)


def spec(shop: Shop, name: str, **keys: Any) -> Path:
    path = spark.class_path(spark.installed_home(), downloads.jars("kafka-spark-4.3"))
    cluster = {
        "kind": "spark_submit",
        "master": "local[8]",
        "conf": {"spark.driver.extraClassPath": path, "spark.ui.enabled": "false"},
        "state_dir": str(shop.folder / "jobs"),
    }
    submit = {"application": str(JOB), "arguments": arguments(shop, {"mode": "real-time"})}
    job = {
        "name": "totals",
        "checkpoint_location": str(shop.folder / "here"),
        "target_cluster": "local",
        "submit": submit,
        **keys,
    }
    plain = {
        "version": 1,
        "engine": "spark",
        "restart": "remote_location" in keys,
        "clusters": {"local": cluster},
        "jobs": [job],
    }
    file = shop.folder / f"{name}.json"
    file.write_text(json.dumps(plain))
    return file


def written(shop: Shop) -> int:
    """How many records are in the job's sink: it writes one for each that it reads."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=shop.brokers)
    partitions = [TopicPartition(shop.topic + SINK, number) for number in range(2)]
    ends = consumer.end_offsets(partitions)
    consumer.close()
    return sum(ends.values())


@pytest.mark.slow
def test_it_is_killed_in_a_batch_and_stopped_at_the_end_of_one_and_goes_on_elsewhere(
    shop: Shop,
) -> None:
    here, there, fed = shop.folder / "here", shop.folder / "there", 0

    def feed(count: int) -> None:
        nonlocal fed
        shop.feed(shop.topic, range(fed, fed + count))
        fed += count

    def counted(checkpoint: Path) -> None:
        logs = shop.folder / "jobs"
        wait_until(lambda: committed(checkpoint) == fed, "not all are counted", SECONDS_MAX, logs)

    def apply(file: Path) -> None:
        stateshift("apply", file, "--yes", cwd=ROOT, env=shop.env)

    try:
        feed(60)
        apply(spec(shop, "first"))
        counted(here)
        wait_until(lambda: newest(here) >= 1, "one batch alone", 60, shop.folder / "jobs")
        feed(20)
        wait_until(lambda: written(shop) == fed, "nothing is written", 60, shop.folder / "jobs")
        kill_jobs(shop.folder / "jobs")
        # As if it had been killed between the two logs of its last batch, too: Spark does not run
        # that plan again, as it does in micro-batches.
        for name in (f"{newest(here)}", f".{newest(here)}.crc"):
            (here / "commits" / name).unlink(missing_ok=True)
        assert committed(here) < fed
        feed(20)
        apply(spec(shop, "again"))
        counted(here)
        assert totals(here) == sums(*range(fed))
        before = written(shop) - fed
        feed(20)
        keys = {"mode": "warm", "remote_location": str(there), "source_cluster": "local"}
        apply(spec(shop, "move", **keys, waive=["paths-stay"]))
        feed(20)
        counted(there)
        assert totals(there) == sums(*range(fed))
        assert written(shop) - fed == before, "the move had nothing written twice"
    finally:
        end_jobs(shop.folder, ("here", "there"))

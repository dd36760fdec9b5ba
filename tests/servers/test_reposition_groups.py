"""A real consumer group reads on where the job does: `stateshift reposition --commit GROUP`. The
checkpoint is written by hand, so that no engine has to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.storage.opening import open_storage
from tests.acceptance.support import stateshift
from tests.servers.shop import FIRST_MS, Shop
from tests.support.checkpoints import Checkpoint
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.row("W-5")]
SHOWN_ON = "Kafka"

GROUP, OLD, NEW = "shop", "topic", "moved"
READ, ALL, SHIFT = 20, 40, 7  # what the checkpoint says was read; records; others before them


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("groups"), "kafka") as servers:
        yield servers


def consumer(shop: Shop) -> Any:
    from kafka import KafkaConsumer

    return KafkaConsumer(
        NEW, bootstrap_servers=shop.brokers, group_id=GROUP, enable_auto_commit=False
    )


def first_record(consuming: Any) -> str:
    for _ in range(60):
        for batch in consuming.poll(timeout_ms=1000).values():
            return str(batch[0].value.decode())
    raise AssertionError("the group reads nothing")


def committed(shop: Shop) -> dict[int, tuple[int, str]]:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=shop.brokers)
    held = admin.list_group_offsets(GROUP)[GROUP]
    admin.close()
    return {place.partition: (each.offset, each.metadata) for place, each in held.items()}


def fill(shop: Shop) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=shop.brokers)
    for topic, first in ((OLD, 0), (NEW, -SHIFT)):
        shop.make(topic, 1 if topic == OLD else 2)
        for number in range(first, ALL):
            when = FIRST_MS + 1000 * number
            producer.send(topic, b"%d" % number, key=b"k", partition=0, timestamp_ms=when)
    producer.close()


def test_a_group_goes_on_with_the_record_that_the_job_reads_next(
    servers: Servers, tmp_path: Path
) -> None:
    from kafka import TopicPartition
    from kafka.structs import OffsetAndMetadata

    shop = Shop(servers.exports()["STATESHIFT_KAFKA"], tmp_path, OLD)
    fill(shop)
    source, target, workdir = (tmp_path / name for name in ("source", "target", "run"))
    Checkpoint().write(open_storage(str(source)))
    words: list[str | Path] = list(shop.words(source, target, Shop(shop.brokers, tmp_path, NEW)))
    words.remove("--fork")
    words += ["--by", "records", "--commit", GROUP, "--workdir", workdir]

    reading = consumer(shop)
    reading.poll(timeout_ms=20_000)
    reading.commit({TopicPartition(NEW, 0): OffsetAndMetadata(3, "by hand", -1)})
    refused = stateshift(*words, cwd=tmp_path, code=4, env=shop.env)
    assert f"the group {GROUP} at {shop.brokers} has members (it is Stable)" in refused.out
    assert not target.exists()
    assert committed(shop) == {0: (3, "by hand")}
    reading.close()

    there = {0: (READ + SHIFT, ""), 1: (0, "")}
    stateshift(*words, cwd=tmp_path, env=shop.env)
    assert committed(shop) == there
    stateshift("rollback", workdir, "--yes", cwd=tmp_path, env=shop.env)
    assert committed(shop) == {0: (3, "by hand")}

    words[words.index(workdir)] = workdir = tmp_path / "again"
    stateshift(*words, cwd=tmp_path, env=shop.env)
    reading = consumer(shop)
    assert first_record(reading) == str(READ)
    kept = stateshift("rollback", workdir, "--yes", cwd=tmp_path, env=shop.env)
    assert f"the group {GROUP} at {shop.brokers} keeps the offsets of this run" in kept.out
    reading.close()
    assert committed(shop) == there

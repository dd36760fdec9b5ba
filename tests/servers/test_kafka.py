"""A real broker takes records and gives them back, also after it crashed; a plan asks it for a
checkpoint's offsets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from stateshift.errors import PlanError, TransientStorageError
from stateshift.migration import propose
from stateshift.migration.adapters import real_adapters
from stateshift.sources.kafka import open_topics, records, spans
from stateshift.storage.opening import open_storage
from stateshift.survey import Finding
from stateshift.workdir import Workdir
from tests.support.checkpoints import Checkpoint
from tests.support.ground import spec_of
from tests.support.servers import Servers, group, in_their_python

pytestmark = pytest.mark.servers
SHOWN_ON = "Kafka"
ASKING = Path(__file__).with_name("asking_kafka.py")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("kafka"), "kafka") as servers:
        yield servers


def asked(servers: Servers, verb: str) -> Any:
    return json.loads(in_their_python(ASKING, servers.exports()["STATESHIFT_KAFKA"], verb))


@pytest.mark.slow
def test_what_was_written_is_read_also_after_a_crash(servers: Servers) -> None:
    assert asked(servers, "write") == [0, 1, 2]
    assert asked(servers, "read") == ["0", "1", "2"]
    address = servers.exports()["STATESHIFT_KAFKA"]
    servers.kill("kafka", "broker")
    assert servers.state("kafka").word == "crashed"
    assert servers.up("kafka").word == "up"
    assert servers.exports()["STATESHIFT_KAFKA"] == address
    assert asked(servers, "read") == ["0", "1", "2"]


def fill(address: str, topic: str, records: int, partitions: int = 1) -> Any:
    """A topic with so many records in partition 0; the client by which more can be done to it."""
    from kafka import KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    producer = KafkaProducer(bootstrap_servers=address)
    for number in range(records):
        producer.send(topic, str(number).encode(), partition=0).get(60)
    producer.close()
    return admin


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_are_read_whatever_they_are_compressed_with(
    servers: Servers, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka import KafkaProducer

    address, topic = servers.exports()["STATESHIFT_KAFKA"], f"in-{codec}"
    fill(address, topic, 0)
    producer = KafkaProducer(bootstrap_servers=address, compression_type=codec, linger_ms=50)
    for number in range(100):
        producer.send(topic, b"the value %d" % number)
    producer.close()
    with open_topics(address, None) as topics:
        read = topics.read(topic, {0: (10, 100)})[0]
    assert [record.offset for record in read] == list(range(10, 100))
    assert read[0].value == sha256(b"the value 10").hexdigest()
    if codec == "gzip":
        return  # Python's own
    monkeypatch.setattr(f"kafka.codec.has_{codec}", lambda: False)
    with pytest.raises(PlanError, match=f"cannot be read.*{codec}") as caught:
        records(address, None, {topic: {0: 10}})
    assert "stateshift[kafka]" in (caught.value.hint or "")


@pytest.mark.slow
def test_a_topic_is_asked_for_its_span_and_is_not_made_by_that(servers: Servers) -> None:
    from kafka import TopicPartition

    address = servers.exports()["STATESHIFT_KAFKA"]
    admin = fill(address, "spans", 10, partitions=2)
    assert spans(address, None, ["spans", "no-such-topic"]) == {
        "spans": {0: (0, 10), 1: (0, 0)},
        "no-such-topic": {},
    }
    admin.delete_records({TopicPartition("spans", 0): 4})
    assert spans(address, None, ["spans"]) == {"spans": {0: (4, 10), 1: (0, 0)}}
    assert "no-such-topic" not in admin.list_topics()


@pytest.mark.row("W-5")
def test_windows_of_a_topic_are_read_again_and_again_on_one_connection(servers: Servers) -> None:
    """What is left of a partition's records once its window has been read stands in nobody's way:
    partition 0 is done with long before the other one.
    """
    from kafka import KafkaProducer

    address = servers.exports()["STATESHIFT_KAFKA"]
    fill(address, "windows", 0, partitions=2)
    producer = KafkaProducer(bootstrap_servers=address, linger_ms=100)
    for number in range(4_000):
        producer.send("windows", str(number).encode(), partition=number % 2)
    producer.close()
    with open_topics(address, None) as topics:
        for start in range(5):
            read = topics.read("windows", {0: (start, start + 10), 1: (start, 1_900)})
            for number, end in ((0, start + 10), (1, 1_900)):
                assert [each.offset for each in read[number]] == list(range(start, end))


@pytest.mark.row("IS-14")
@pytest.mark.row("W-4")
def test_a_plan_tells_whether_the_broker_still_has_the_offsets_of_the_checkpoint(
    servers: Servers, tmp_path: Path
) -> None:
    from kafka import TopicPartition

    Checkpoint().write(
        open_storage(str(tmp_path / "source"))
    )  # the next batch reads `topic`/0 from 20
    address = servers.exports()["STATESHIFT_KAFKA"]
    places = {"source": str(tmp_path / "source"), "target": str(tmp_path / "target")}
    spec = spec_of(**places, kafka={"bootstrap_servers": address})

    def about_it() -> Finding:
        proposal = propose(spec, real_adapters(), Workdir(tmp_path / "plan"))
        told = [one for plan in proposal.plans for one in plan.findings]
        (finding,) = [one for one in told if one.message.startswith((address, "topic/0"))]
        return finding

    assert about_it().message == f"{address} has no topic topic, from which the job reads"
    admin = fill(address, "topic", 25)
    assert (about_it().level, "still has every offset" in about_it().message) == ("note", True)
    admin.delete_records({TopicPartition("topic", 0): 22})
    lost = about_it()
    assert (lost.level, lost.waive) == ("refuse", "lost-offsets")
    assert "topic/0 begins at offset 22: 2 records from 20 on are gone" in lost.message
    assert not (tmp_path / "target").exists()


@pytest.mark.slow
def test_a_topic_that_was_made_anew_is_known_by_its_records(
    servers: Servers, tmp_path: Path
) -> None:
    """A second topic of another name stands for the same one at another broker: both are read as
    a plan reads them.
    """
    from kafka import KafkaProducer

    address = servers.exports()["STATESHIFT_KAFKA"]
    fill(address, "as-it-was", 25, partitions=2)
    fill(address, "made-anew", 0)
    producer = KafkaProducer(bootstrap_servers=address)
    for number in range(7, 40):
        producer.send("made-anew", str(number).encode(), key=b"k").get(60)
    producer.close()
    read = records(
        address,
        None,
        {"as-it-was": {0: 20, 1: 0, 7: 3}, "made-anew": {0: 20}, "no-such-topic": {0: 1}},
    )
    ours, others = read["as-it-was"][0], read["made-anew"][0]
    assert (
        [record.offset for record in ours]
        == [record.offset for record in others]
        == [17, 18, 19, 20]
    )
    assert ours[0].value == sha256(b"17").hexdigest()
    assert others[0].value == sha256(b"24").hexdigest()
    assert (ours[0].key, others[0].key) == (None, sha256(b"k").hexdigest())
    assert all(
        abs(time.time() - (record.timestamp or 0) / 1000) < 600 for record in (*ours, *others)
    )
    assert read["as-it-was"][1] == ()
    assert 7 not in read["as-it-was"]
    assert read["no-such-topic"] == {}
    same = records(address, None, {"as-it-was": {0: 25}})["as-it-was"][0]
    assert [record.offset for record in same] == [22, 23, 24]


@pytest.mark.slow
def test_what_is_no_kafka_is_told_as_that_in_a_bounded_time(tmp_path: Path) -> None:
    with pytest.raises(TransientStorageError, match="does not answer as Kafka does") as raised:
        spans("127.0.0.1:1", None, ["orders"], connect_ms=500)
    assert "127.0.0.1:1" in raised.value.fact

"""Make the golden savepoints of jobs that read Kafka, with Flink's real connectors.

    ./scripts/golden-flink kafka [VERSION...]

    tests/golden/kafka/<version>-source/        KafkaSource, a KafkaSink that writes exactly
                                                      once, and a FileSource amid its files
                             <version>-source-later/  the same job, after more records
                             <version>-consumer/      FlinkKafkaConsumer (Flink 1.x)
        image/      the savepoint, as Flink left it
        told.json   {"flink", "connector", "image": where _metadata is, "uids": {UID: NAME},
                     "ends": {TOPIC: {PARTITION: what the broker says is its end}}}

orders/2 is empty: its split has no offset yet. Every record of the others is read.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from tests.support.flink import Cluster, cluster_of
from tests.support.flink_kafka import CONNECTORS, connector_jars, job_jar, started
from tests.support.servers import group

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "kafka"
WORK = Path("/tmp/golden-flink-kafka")
TOPICS = {"orders": 3, "late.orders_2": 1}
FIRST = {("orders", 0): 5, ("orders", 1): 3, ("late.orders_2", 0): 2}
LATER = {("orders", 0): 4, ("orders", 1): 0, ("late.orders_2", 0): 1}
# Of each file 4,000 lines, at a millisecond each: a savepoint finds some of them unread.
LINES, LINE_MS = 4_000, 5
Records = Mapping[tuple[str, int], int]


def main(versions: Sequence[str]) -> None:
    for version in versions or tuple(CONNECTORS):
        shutil.rmtree(WORK, ignore_errors=True)
        with group(WORK / "servers", "kafka", "flink-a", STATESHIFT_FLINK_VERSION_A=version) as up:
            brokers = up.exports()["STATESHIFT_KAFKA"]
            make_all(cluster_of(up, "flink-a"), brokers, version)
    shutil.rmtree(WORK)


def make_all(cluster: Cluster, brokers: str, version: str) -> None:
    connector, _ = CONNECTORS[version]
    jar = job_jar(cluster.lib, connector_jars(version), WORK)
    admin = KafkaAdminClient(bootstrap_servers=brokers)
    topics = {**TOPICS, "copies": 1}
    admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()])
    admin.close()
    write(brokers, FIRST)
    files = WORK / "files"
    files.mkdir()
    for name in ("a.txt", "b.txt"):
        (files / name).write_text("a line\n" * LINES)
    told = {"flink": version, "connector": connector}
    words = {"brokers": brokers, "topics": ",".join(TOPICS), "checkpoint-ms": 600_000}

    job = started(cluster, jar, "jobs.FromKafka", {**words, "files": files, "line-ms": LINE_MS})
    uids = {"orders-source": "orders", "copies-sink": "copies", "files-source": "files"}
    time.sleep(8)
    place = cluster.saved(job, WORK / "saved")
    keep(f"{version}-source", place, {**told, "uids": uids, "ends": ends(brokers)})
    write(brokers, LATER)
    time.sleep(5)
    place = cluster.saved(job, WORK / "saved")
    keep(f"{version}-source-later", place, {**told, "uids": uids, "ends": ends(brokers)})
    cluster.cancelled(job)
    if version.startswith("1."):
        job = started(cluster, jar, "jobs.FromKafkaBefore", words)
        time.sleep(8)
        place = cluster.saved(job, WORK / "saved")
        uids = {"orders-source": "orders"}
        keep(f"{version}-consumer", place, {**told, "uids": uids, "ends": ends(brokers)})


def write(brokers: str, records: Records) -> None:
    producer = KafkaProducer(bootstrap_servers=brokers)
    for (topic, partition), count in records.items():
        for number in range(count):
            producer.send(topic, b"order %d" % number, partition=partition)
    producer.close()


def ends(brokers: str) -> dict[str, dict[str, int]]:
    consumer = KafkaConsumer(bootstrap_servers=brokers)
    read: dict[str, dict[str, int]] = {}
    for topic, count in TOPICS.items():
        places = [TopicPartition(topic, number) for number in range(count)]
        offsets = consumer.end_offsets(places)
        read[topic] = {str(place.partition): offsets[place] for place in places}
    consumer.close()
    return read


def keep(name: str, place: Path, told: dict[str, Any]) -> None:
    folder = GOLDEN / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place, folder / "image" / place.name)
    told["image"] = f"image/{place.name}"
    (folder / "told.json").write_text(json.dumps(told) + "\n")
    print(f"{name}: {sum(file.stat().st_size for file in folder.rglob('*'))} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

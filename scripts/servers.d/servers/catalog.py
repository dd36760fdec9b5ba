"""Which servers there are. A name without its last part means all of a kind: `hdfs` is hdfs-a and hdfs-b."""

from __future__ import annotations

from servers.hdfs import Hdfs
from servers.kafka import Kafka
from servers.livy import Livy
from servers.s3 import Moto, SeaweedFS
from servers.server import Server
from servers.spark import Spark

CATALOG: dict[str, Server] = {
    server.name: server
    for server in (
        Hdfs("hdfs-a", ("nn1",)),
        Hdfs("hdfs-b", ("nn1", "nn2")),
        Moto(),
        SeaweedFS(),
        Spark("spark-a"),
        Spark("spark-b"),
        Kafka(),
        Livy(),
    )
}
NAMES = tuple(CATALOG)


def named(word: str) -> tuple[str, ...]:
    """The servers that a word means; none if it means none."""
    return (word,) if word in CATALOG else tuple(name for name in NAMES if name.startswith(f"{word}-"))

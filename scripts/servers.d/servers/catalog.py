"""Which servers there are. A name without its last part means all of a kind: `hdfs` is hdfs-a and
hdfs-b. What stands apart has to be named in full: `flink` is flink-a and flink-b, flink-1.20 is a
Flink of another version, flink-sql takes SQL for any of its version, and yarn-ha is a YARN of two
ResourceManagers, yarn-kerberos one with a KDC. `UNNAMED` are those that no name at all means: what
is built here is left out.
"""

from __future__ import annotations

from servers.flink import Flink
from servers.flink_sql import FlinkSql
from servers.hdfs import Hdfs
from servers.kafka import Kafka, MirrorMaker
from servers.kubernetes import Kubernetes
from servers.livy import Livy
from servers.s3 import Moto, SeaweedFS
from servers.server import Server
from servers.spark import Spark
from servers.yarn import Yarn

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
        Kafka("kafka-2", "c3RhdGVzaGlmdC0wMDAwMg"),
        MirrorMaker(),
        Livy(),
        Flink("flink-a", "2.3.0"),
        Flink("flink-b", "2.3.0"),
        Flink("flink-1.20", "1.20.5", apart=True),
        FlinkSql("flink-sql", "2.3.0", "2.3.0"),
        FlinkSql("flink-sql-1.20", "1.20.5", "1.20.3"),
        Yarn("yarn", ("rm1",)),
        Yarn("yarn-ha", ("rm1", "rm2"), apart=True),
        Yarn("yarn-kerberos", ("rm1",), apart=True, secure=True, built=True),
        Kubernetes(),
    )
}
NAMES = tuple(CATALOG)
UNNAMED = tuple(name for name, server in CATALOG.items() if not server.built)


def named(word: str) -> tuple[str, ...]:
    """The servers that a word means; none if it means none."""
    if word in CATALOG:
        return (word,)
    return tuple(
        name for name, server in CATALOG.items() if name.startswith(f"{word}-") and not server.apart
    )

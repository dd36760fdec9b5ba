"""A real Kafka broker for the golden cases, on this machine, for as long as it takes: fetched by
Maven, in KRaft mode.

available()    whether Maven has a connector for this Spark's minor version
jars()         the connector, for Spark's class path; fetched when it is first asked for
stream(spark)  starts the broker, gives it two topics of events, and reads both as a stream
"""

from __future__ import annotations

import atexit
import socket
import subprocess
import time
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

PLACE = Path("/tmp/stateshift-golden/broker")
# By Spark's minor version: Scala's, the connector's, and that of the client it was built with.
CONNECTORS = {"3.5": ("2.12", "3.5.7", "3.4.1")}
SERVER = ["org.apache.kafka:kafka_2.13:3.9.1"]
TOPICS = {"orders": 3, "late.orders_2": 1}  # with their partitions
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller}
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}
advertised.listeners=PLAINTEXT://localhost:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
"""


def available() -> bool:
    return _minor() in CONNECTORS


def jars() -> list[str]:
    scala, version, client = CONNECTORS[_minor()]
    names = ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10")
    artifacts = [f"org.apache.spark:{name}_{scala}:{version}" for name in names]
    artifacts += [
        f"org.apache.kafka:kafka-clients:{client}",
        "org.apache.commons:commons-pool2:2.12.0",
    ]
    return _fetched(PLACE / f"connector-{version}", artifacts, alone=True)


def stream(spark: SparkSession) -> DataFrame:
    servers = _broker()
    _publish(spark, servers)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", ",".join(TOPICS)).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", 20).load()


def _minor() -> str:
    return ".".join(pyspark.__version__.split(".")[:2])


def _fetched(place: Path, artifacts: list[str], alone: bool = False) -> list[str]:
    """The artifacts' jars; `alone` without what they depend on (Spark's own poms name
    repositories of their own).
    """
    if not place.is_dir():
        exclusion = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        dependencies = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
            f"{exclusion if alone else ''}</dependency>"
            for group, name, version in (artifact.split(":") for artifact in artifacts)
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        pom = place.with_suffix(".xml")
        pom.write_text(
            "<project "
            'xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>golden'
            "</groupId><artifactId>golden</artifactId><version>1</version><dependencies>"
            f"{dependencies}</dependencies></project>"
        )
        goal = [
            "dependency:copy-dependencies",
            f"-DoutputDirectory={place}",
            "-DincludeScope=runtime",
        ]
        subprocess.run(["mvn", "-q", "-f", str(pom), *goal], check=True)
    return [str(path) for path in sorted(place.glob("*.jar"))]


def _broker() -> str:
    """Where the broker listens; it ends with this process."""
    ports = _free(), _free()
    properties = PLACE / "server.properties"
    data = PLACE / f"data-{ports[0]}"
    properties.write_text(PROPERTIES.format(port=ports[0], controller=ports[1], data=data))
    java = ["java", "-Xmx512m", "-cp", ":".join(_fetched(PLACE / "server", SERVER))]
    subprocess.run(
        [
            *java,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            "AAAAAAAAAAAAAAAAAAAAAQ",
            "-c",
            str(properties),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with (PLACE / "server.log").open("w") as log:
        server = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
    atexit.register(server.kill)
    until = time.monotonic() + 60
    while not _answers(ports[0]):
        if server.poll() is not None or time.monotonic() > until:
            raise RuntimeError(
                f"the broker does not answer: {(PLACE / 'server.log').read_text()[-2000:]}"
            )
        time.sleep(0.3)
    return f"localhost:{ports[0]}"


def _publish(spark: SparkSession, servers: str) -> None:
    """Sixty events, a quarter of them in the smaller topic, through the JVM that Spark runs in."""
    jvm = spark._jvm
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(
        jvm.java.util.Map.of("bootstrap.servers", servers)
    )
    topics = jvm.java.util.ArrayList()
    for name, partitions in TOPICS.items():
        topics.add(jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, 1))
    admin.createTopics(topics).all().get()
    admin.close()
    first, second = TOPICS
    events = [
        (second if n % 4 == 0 else first, f"w{n * n % 6}".encode(), f"{n}".encode())
        for n in range(60)
    ]
    frame = spark.createDataFrame(events, "topic STRING, key BINARY, value BINARY").coalesce(1)
    frame.write.format("kafka").option("kafka.bootstrap.servers", servers).save()


def _free() -> int:
    with socket.socket() as held:
        held.bind(("localhost", 0))
        return int(held.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex(("localhost", port)) == 0

"""Kafka: one broker that is its own controller (KRaft), as `kafka.tools.StorageTool` formats it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from servers import asking, downloads
from servers.hadoop import finish, java
from servers.place import Place, Role
from servers.ports import HOST
from servers.server import Server, Stage

HEAP_MIB = 320
CLUSTER_ID = "c3RhdGVzaGlmdC0wMDAwMQ"  # sixteen bytes, in base64 for URLs
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{broker},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=2
"""
LOG4J = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True)
class Kafka(Server):
    name: str = "kafka"

    @property
    def ports(self) -> tuple[str, ...]:
        return ("broker", "controller")

    def fetch(self) -> None:
        downloads.java()
        downloads.jars("kafka")

    def configure(self, place: Place) -> None:
        place.write(
            "conf/server.properties",
            PROPERTIES.format(host=HOST, data=place.folder / "data", **place.ports),
        )
        place.write("conf/log4j2.properties", LOG4J)

    def stages(self, place: Place) -> tuple[Stage, ...]:
        port = place.ports["broker"]
        role = Role(
            "broker",
            _command(place, "kafka.Kafka", str(_properties(place))),
            lambda: _answers(place, port),
        )
        return (Stage((role,), before=partial(_format, place)),)

    def exports(self, place: Place) -> dict[str, str]:
        return {"STATESHIFT_KAFKA": f"{HOST}:{place.ports['broker']}"}


def _answers(place: Place, port: int) -> bool:
    return "Kafka Server started" in place.text_of_log("broker") and asking.kafka(port)


def _format(place: Place) -> None:
    if not (place.folder / "data" / "meta.properties").exists():
        words = ("format", "--cluster-id", CLUSTER_ID, "--config", str(_properties(place)))
        finish(_command(place, "kafka.tools.StorageTool", *words), place.log("format"))


def _command(place: Place, kind: str, *words: str) -> tuple[str, ...]:
    class_path = f"{place.folder / 'conf'}:{downloads.jars('kafka')}/*"
    return (*java(place, HEAP_MIB), "-cp", class_path, kind, *words)


def _properties(place: Place) -> Path:
    return place.folder / "conf" / "server.properties"

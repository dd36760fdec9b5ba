"""Kafka: one broker that is its own controller (KRaft), as `kafka.tools.StorageTool` formats it; and
MirrorMaker 2 from one to the next, as `connect-mirror-maker.sh` starts it.
"""

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
log.cleaner.backoff.ms=1000
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=2
"""
# Often, so that a test with few records has some syncs. One topic's copy is called `a.TOPIC`.
MIRROR = """clusters=a,b
a.bootstrap.servers={a}
b.bootstrap.servers={b}
a->b.enabled=true
a->b.topics=.*
b->a.enabled=false
a.consumer.isolation.level=read_committed
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
refresh.topics.interval.seconds=2
offset.lag.max=10
emit.heartbeats.enabled=false
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
    cluster_id: str = "c3RhdGVzaGlmdC0wMDAwMQ"  # sixteen bytes, in base64 for URLs

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
        return (Stage((role,), before=partial(_format, place, self.cluster_id)),)

    def exports(self, place: Place) -> dict[str, str]:
        return {f"STATESHIFT_{self.name.replace('-', '_').upper()}": _address(place)}


@dataclass(frozen=True)
class MirrorMaker(Server):
    """Copies all topics of one broker to another; both have to be up."""

    name: str = "mirrormaker"
    source: str = "kafka"
    target: str = "kafka-2"

    @property
    def ports(self) -> tuple[str, ...]:
        return ()

    def fetch(self) -> None:
        downloads.java()
        downloads.jars("mirrormaker")

    def configure(self, place: Place) -> None:
        a, b = (_address(Place(place.root, name)) for name in (self.source, self.target))
        place.write("conf/mirror.properties", MIRROR.format(a=a, b=b))
        place.write("conf/log4j2.properties", LOG4J)

    def stages(self, place: Place) -> tuple[Stage, ...]:
        class_path = f"{place.folder / 'conf'}:{downloads.jars('mirrormaker')}/*"
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        words = ("-cp", class_path, main, str(place.folder / "conf" / "mirror.properties"))
        command = (*java(place, HEAP_MIB), *words)
        started = "Kafka MirrorMaker started"
        role = Role("mirror", command, lambda: started in place.text_of_log("mirror"))
        return (Stage((role,)),)

    def exports(self, place: Place) -> dict[str, str]:
        return {}


def _address(place: Place) -> str:
    return f"{HOST}:{place.ports['broker']}"


def _answers(place: Place, port: int) -> bool:
    return "Kafka Server started" in place.text_of_log("broker") and asking.kafka(port)


def _format(place: Place, cluster_id: str) -> None:
    if not (place.folder / "data" / "meta.properties").exists():
        words = ("format", "--cluster-id", cluster_id, "--config", str(_properties(place)))
        finish(_command(place, "kafka.tools.StorageTool", *words), place.log("format"))


def _command(place: Place, kind: str, *words: str) -> tuple[str, ...]:
    class_path = f"{place.folder / 'conf'}:{downloads.jars('kafka')}/*"
    return (*java(place, HEAP_MIB), "-cp", class_path, kind, *words)


def _properties(place: Place) -> Path:
    return place.folder / "conf" / "server.properties"

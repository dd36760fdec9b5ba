"""Flink: a session cluster of one JobManager and one TaskManager, which runs the jars that its REST
API is given.

STATESHIFT_FLINK_VERSION_A and _B name other versions than the newest; STATESHIFT_FLINK_CONF a file
of further lines `key: value`, which go before ours; STATESHIFT_FLINK_JARS jars that go into its class
path, parted by colons. All are looked for in the environment of the servers, too, and hold until the
server is stopped: what crashed is started again as it was.
flink-1.20 is an older Flink beside these two.

With an `application` (a jar, its class and its arguments) it is a cluster of that one instead,
which goes with it.

The distribution's scripts compute how a TaskManager's memory is divided; its package does not carry
them, and so all parts are told here. What a job leaves without being told where lies in the
server's folder, and goes with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers import asking, downloads
from servers.hadoop import java
from servers.place import Place, Role
from servers.ports import HOST
from servers.server import Server, Stage

SLOTS = 8
JOBMANAGER_HEAP_MIB, DIRECT_MIB = 600, 128
ENTRY_POINTS = {
    "jobmanager": "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
    "taskmanager": "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
}
# In a TaskManager's own log: the slots that the JobManager tells may still be those of one that was
# just killed.
REGISTERED = "Successful registration at resource manager"
APPLICATION = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
# A gigabyte, of which RocksDB has a quarter. Flink refuses to start if the parts of a sum do not
# add up.
MEMORY = {
    "taskmanager.cpu.cores": "2.0",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.task.heap.size": "192m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.off-heap.size": "0m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.managed.size": "256m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "64m",
    "taskmanager.memory.jvm-overhead.max": "64m",
}
HOSTS = (
    "rest.address",
    "rest.bind-address",
    "jobmanager.rpc.address",
    "jobmanager.bind-host",
    "taskmanager.host",
    "taskmanager.bind-host",
)
# As the distribution's own configuration opens them for Java 17; 1.15 to 1.17 need the export as
# well.
OPEN = (
    "lang",
    "net",
    "io",
    "nio",
    "lang.reflect",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
    "util.concurrent.locks",
)
MODULES = (
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPEN),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
)
LOG4J = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
logger.pekko.name = org.apache.pekko
logger.pekko.level = warn
"""


@dataclass(frozen=True)
class Flink(Server):
    name: str
    version: str
    apart: bool = False
    application: tuple[str, ...] = ()

    @property
    def ports(self) -> tuple[str, ...]:
        return ("rest", "rpc", "blob", "data")

    def fetch(self) -> None:
        downloads.java()
        downloads.flink(self.asked(os.environ))

    def configure(self, place: Place) -> None:
        """Once, but for the ports: what runs it is not exchanged under its jobs."""
        if not (place.folder / "conf" / "version").exists():
            env = {**os.environ, **place.env}
            more = env.get("STATESHIFT_FLINK_CONF")
            place.write("conf/more", Path(more).read_text() if more else "")
            place.write("conf/jars", env.get("STATESHIFT_FLINK_JARS", ""))
            place.write("conf/version", self.asked(env))
        lines = self.properties(place)
        file = "config.yaml" if _major(self.running(place)) >= 2 else "flink-conf.yaml"
        place.write(f"conf/{file}", "".join(f"{key}: {value}\n" for key, value in lines.items()))
        place.write("conf/log4j.properties", LOG4J)
        (place.folder / "plugins").mkdir(exist_ok=True)

    def stages(self, place: Place) -> tuple[Stage, ...]:
        slots = self.properties(place)["taskmanager.numberOfTaskSlots"]
        jobmanager = self._role(
            place,
            "jobmanager",
            JOBMANAGER_HEAP_MIB,
            DIRECT_MIB,
            lambda: "flink-version" in _overview(place),
        )
        taskmanager = self._role(
            place,
            "taskmanager",
            self._mib(place, "framework.heap.size", "task.heap.size"),
            self._mib(place, "framework.off-heap.size", "task.off-heap.size", "network.max"),
            lambda: (
                REGISTERED in place.text_of_log("taskmanager")
                and _overview(place)["slots-total"] == int(slots)
            ),
        )
        return (Stage((jobmanager, taskmanager)),)

    def exports(self, place: Place) -> dict[str, str]:
        prefix = "STATESHIFT_" + self.name.replace("-", "_").replace(".", "_").upper()
        lib = downloads.flink(self.running(place))
        return {prefix: f"http://{HOST}:{place.ports['rest']}", f"{prefix}_LIB": str(lib)}

    def properties(self, place: Place) -> dict[str, str]:
        more = place.folder / "conf" / "more"
        return {
            **_properties(place, self.running(place)),
            **(_parsed(more.read_text()) if more.exists() else {}),
        }

    def asked(self, env: Mapping[str, str]) -> str:
        named = f"STATESHIFT_FLINK_VERSION_{self.name.removeprefix('flink-').upper()}"
        return self.version if self.apart else env.get(named) or self.version

    def running(self, place: Place) -> str:
        file = place.folder / "conf" / "version"
        return file.read_text() if file.exists() else self.asked({**os.environ, **place.env})

    def _mib(self, place: Place, *parts: str) -> int:
        """Of these together, as they are configured: the JVM has to be told, too."""
        sizes = [self.properties(place)[f"taskmanager.memory.{part}"] for part in parts]
        return sum(int(size[:-1]) << (10 if size.endswith("g") else 0) for size in sizes)

    def _role(
        self, place: Place, name: str, heap_mib: int, direct_mib: int, answers: Callable[[], bool]
    ) -> Role:
        conf, lib = place.folder / "conf", downloads.flink(self.running(place))
        # Without log.file, beside which RocksDB's logs would go: each is called as the whole path
        # of its database, and in a deep folder that is too long for a name.
        options = (
            *java(place, heap_mib),
            "-XX:MaxMetaspaceSize=256m",
            f"-XX:MaxDirectMemorySize={direct_mib}m",
            *MODULES,
            f"-Dlog4j.configurationFile={(conf / 'log4j.properties').as_uri()}",
        )
        env = {
            "FLINK_CONF_DIR": str(conf),
            "FLINK_LIB_DIR": str(lib),
            "FLINK_PLUGINS_DIR": str(place.folder / "plugins"),
        }
        path, words = f"{lib}/*", (ENTRY_POINTS[name], "--configDir", str(conf))
        more = conf / "jars"
        if more.exists() and more.read_text():
            path = f"{path}:{more.read_text()}"
        if self.application:
            jar, main, *arguments = self.application
            path = f"{path}:{jar}"
            if name == "jobmanager":
                words = (APPLICATION, *words[1:], "--job-classname", main, *arguments)
        return Role(name, (*options, "-cp", path, *words), answers, env)


def _overview(place: Place) -> dict[str, Any]:
    return dict(asking.get_json(f"http://{HOST}:{place.ports['rest']}/overview"))


def _properties(place: Place, version: str) -> dict[str, str]:
    ports, data = place.ports, place.folder / "data"
    checkpoints, savepoints = (
        "execution.checkpointing.dir",
        "execution.checkpointing.savepoint-dir",
    )
    if _major(version) < 2:
        checkpoints, savepoints = ("state.checkpoints.dir", "state.savepoints.dir")
    return {
        **dict.fromkeys(HOSTS, HOST),
        "rest.port": str(ports["rest"]),
        "rest.bind-port": str(ports["rest"]),
        "jobmanager.rpc.port": str(ports["rpc"]),
        "blob.server.port": str(ports["blob"]),
        # Another one at each start: with one that comes back at the same address right after it was
        # killed, the JobManager keeps the old connection, and the two never hear each other ("in
        # read-only association").
        "taskmanager.rpc.port": "0",
        "taskmanager.data.port": str(ports["data"]),
        "taskmanager.resource-id": "taskmanager",
        "taskmanager.numberOfTaskSlots": str(SLOTS),
        **MEMORY,
        "io.tmp.dirs": str(place.temporary),
        checkpoints: (data / "checkpoints").as_uri(),
        savepoints: (data / "savepoints").as_uri(),
        # Both start at once: the TaskManager would try again after ten seconds only.
        "cluster.registration.error-delay": "500",
        # What is told of a job is as old as this; three seconds by default, which tests would wait
        # for at each step.
        "web.refresh-interval": "500",
        # A TaskManager looks for a JobManager that was started again when it has heard nothing for
        # so long.
        "heartbeat.interval": "3000",
        "heartbeat.timeout": "15000",
        "classloader.check-leaked-classloader": "false",
    }


def _parsed(text: str) -> dict[str, str]:
    lines = [
        line.partition(": ")
        for line in text.splitlines()
        if line.strip() and not line.startswith("#")
    ]
    return {key.strip(): value.strip() for key, _, value in lines}


def _major(version: str) -> int:
    return int(version.partition(".")[0])

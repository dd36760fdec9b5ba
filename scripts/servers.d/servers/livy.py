"""Livy: the real server, and the Spark that it submits to, in local mode.

Livy 0.7.1 is of 2021 and knows Spark 2 only by name ("not verified, please use it carefully"). What
it does for a batch is to run `spark-submit` and to watch it, and that works with Spark 3.5 (shown
by the tests), on Java 17. Another home is named by STATESHIFT_LIVY_SPARK_HOME, another master by
STATESHIFT_LIVY_MASTER.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from servers import asking, downloads
from servers.hadoop import LOG4J, java
from servers.place import Place, Role
from servers.ports import HOST
from servers.server import Server, Stage
from servers.spark import environment, python_of

HEAP_MIB = 192
SPARK_VERSION = "3.5.9"
CONFIGURATION = """livy.server.host = {host}
livy.server.port = {port}
livy.spark.master = {master}
livy.file.local-dir-whitelist = /
livy.server.session.state-retain.sec = 3600s
"""
DEFAULTS = """spark.ui.enabled false
spark.driver.memory 512m
spark.driver.extraJavaOptions -XX:+UseSerialGC -XX:TieredStopAtLevel=1
"""


@dataclass(frozen=True)
class Livy(Server):
    name: str = "livy"

    @property
    def ports(self) -> tuple[str, ...]:
        return ("http",)

    def fetch(self) -> None:
        downloads.java()
        downloads.jars("livy")
        _home()

    def configure(self, place: Place) -> None:
        (place.folder / "logs").mkdir(
            exist_ok=True
        )  # the requests' log; Livy does not start without it
        master = os.environ.get("STATESHIFT_LIVY_MASTER", "local[2]")
        place.write(
            "conf/livy.conf",
            CONFIGURATION.format(host=HOST, port=place.ports["http"], master=master),
        )
        place.write("conf/log4j.properties", LOG4J.format(level="INFO"))
        place.write("conf/spark-defaults.conf", DEFAULTS)

    def stages(self, place: Place) -> tuple[Stage, ...]:
        conf = place.folder / "conf"
        words = ("-cp", f"{conf}:{downloads.jars('livy')}/*", "org.apache.livy.server.LivyServer")
        command = (*java(place, HEAP_MIB), *words)
        url = f"http://{HOST}:{place.ports['http']}/batches"
        env = {
            **environment(_home(), place),
            "LIVY_HOME": str(place.folder),
            "LIVY_CONF_DIR": str(conf),
            "PATH": os.pathsep.join(
                [str(Path(python_of(_home())).parent), os.environ.get("PATH", "")]
            ),
        }
        return (Stage((Role("livy", command, lambda: "sessions" in asking.get_json(url), env),)),)

    def exports(self, place: Place) -> dict[str, str]:
        return {
            "STATESHIFT_LIVY": f"http://{HOST}:{place.ports['http']}",
            "STATESHIFT_LIVY_SPARK_HOME": str(_home()),
        }


def _home() -> Path:
    named = os.environ.get("STATESHIFT_LIVY_SPARK_HOME")
    return Path(named) if named else downloads.spark(SPARK_VERSION)

"""Flink's SQL gateway, alone: it runs no jobs and belongs to no cluster. Each session says to which
its jobs go.

The package that carries Flink's jars has not the gateway's: those come by Maven, and its class path
is both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from servers import asking, downloads
from servers.flink import LOG4J, MODULES
from servers.hadoop import java
from servers.place import Place, Role
from servers.ports import HOST
from servers.server import Server, Stage

HEAP_MIB = 384
MAIN = "org.apache.flink.table.gateway.SqlGateway"
ENDPOINT = "sql-gateway.endpoint.rest"


@dataclass(frozen=True)
class FlinkSql(Server):
    name: str
    version: str
    gateway: str  # its jar's own: not each Flink's is published
    apart: bool = True

    @property
    def ports(self) -> tuple[str, ...]:
        return ("rest",)

    def fetch(self) -> None:
        downloads.java()
        downloads.flink(self.version)
        downloads.jars("flink-sql", flink=self.gateway)

    def configure(self, place: Place) -> None:
        port = place.ports["rest"]
        lines = {
            f"{ENDPOINT}.address": HOST,
            f"{ENDPOINT}.bind-address": HOST,
            f"{ENDPOINT}.port": port,
            f"{ENDPOINT}.bind-port": port,
            "io.tmp.dirs": place.temporary,
        }
        file = "flink-conf.yaml" if self.version.startswith("1.") else "config.yaml"
        place.write(f"conf/{file}", "".join(f"{key}: {value}\n" for key, value in lines.items()))
        place.write("conf/log4j.properties", LOG4J)
        (place.folder / "plugins").mkdir(exist_ok=True)

    def stages(self, place: Place) -> tuple[Stage, ...]:
        conf, lib = place.folder / "conf", downloads.flink(self.version)
        class_path = os.pathsep.join(
            f"{folder}/*" for folder in (lib, downloads.jars("flink-sql", flink=self.gateway))
        )
        options = (
            *java(place, HEAP_MIB),
            *MODULES,
            f"-Dlog4j.configurationFile={(conf / 'log4j.properties').as_uri()}",
        )
        env = {
            "FLINK_CONF_DIR": str(conf),
            "FLINK_LIB_DIR": str(lib),
            "FLINK_PLUGINS_DIR": str(place.folder / "plugins"),
        }
        url = f"{_url(place)}/v1/info"
        answers = Role(
            "gateway",
            (*options, "-cp", class_path, MAIN),
            lambda: "version" in asking.get_json(url),
            env,
        )
        return (Stage((answers,)),)

    def exports(self, place: Place) -> dict[str, str]:
        return {"STATESHIFT_" + self.name.replace("-", "_").replace(".", "_").upper(): _url(place)}


def _url(place: Place) -> str:
    return f"http://{HOST}:{place.ports['rest']}"

"""Spark's standalone cluster: a master that takes submissions over REST, and workers.

The Spark is the one of the Python that runs this; STATESHIFT_SPARK_HOME_A and _B name others. What
a worker starts (drivers, executors) is in its session, so that nothing of it is left behind.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from servers import asking, downloads
from servers.faults import Unavailable
from servers.place import Place, Role
from servers.ports import HOST
from servers.server import Server, Stage

CORES, MEMORY = 2, "1g"
# A port that is taken is told, not counted up from: nobody would look for the master there.
PROPERTIES = """spark.port.maxRetries 0
spark.master.rest.enabled true
spark.master.rest.host {host}
spark.master.rest.port {rest}
"""
DAEMON = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass(frozen=True)
class Spark(Server):
    name: str

    @property
    def ports(self) -> tuple[str, ...]:
        return ("master", "rest", "ui")

    def fetch(self) -> None:
        downloads.java()
        self.home()

    def home(self) -> Path:
        named = os.environ.get(f"STATESHIFT_SPARK_HOME_{self.name.removeprefix('spark-').upper()}")
        return Path(named) if named else installed_home()

    def configure(self, place: Place) -> None:
        place.write(
            "conf/master.properties", PROPERTIES.format(host=HOST, rest=place.ports["rest"])
        )
        place.write("conf/worker.properties", "")

    def stages(self, place: Place) -> tuple[Stage, ...]:
        return Stage((self.master(place),)), Stage((self.worker(place, "worker"),))

    def exports(self, place: Place) -> dict[str, str]:
        prefix = "STATESHIFT_" + self.name.replace("-", "_").upper()
        ports = place.ports
        return {
            prefix: f"spark://{HOST}:{ports['master']}",
            f"{prefix}_REST": f"http://{HOST}:{ports['rest']}",
            f"{prefix}_UI": f"http://{HOST}:{ports['ui']}",
        }

    def master(self, place: Place) -> Role:
        ports = place.ports
        words = ("--port", str(ports["master"]), "--webui-port", str(ports["ui"]))
        url = f"http://{HOST}:{ports['ui']}/json/"
        return self._role(
            place,
            "master",
            "master.Master",
            words,
            lambda: asking.get_json(url)["status"] == "ALIVE",
        )

    def worker(self, place: Place, name: str) -> Role:
        """Any number of them, by name. It is there when the master knows it."""
        ports = place.ports
        work = place.folder / "work" / name
        words = (
            "--port",
            "0",
            "--webui-port",
            "0",
            "--cores",
            str(CORES),
            "--memory",
            MEMORY,
            "--work-dir",
            str(work),
            f"spark://{HOST}:{ports['master']}",
        )
        registered = "Successfully registered with master"
        return self._role(
            place, name, "worker.Worker", words, lambda: registered in place.text_of_log(name)
        )

    def _role(
        self,
        place: Place,
        name: str,
        kind: str,
        words: tuple[str, ...],
        answers: Callable[[], bool],
    ) -> Role:
        properties = place.folder / "conf" / f"{kind.partition('.')[0]}.properties"
        command = (
            str(self.home() / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind}",
            "--host",
            HOST,
            "--properties-file",
            str(properties),
            *words,
        )
        return Role(name, command, answers, environment(self.home(), place))


def class_path(home: Path, *folders: Path) -> str:
    """Return the jars of these folders that a Spark does not have; its own may be of another
    version.
    """
    own = {_artifact(jar) for jar in (home / "jars").glob("*.jar")}
    jars = [jar for folder in folders for jar in sorted(folder.glob("*.jar"))]
    return ":".join(str(jar) for jar in jars if _artifact(jar) not in own)


def _artifact(jar: Path) -> str:
    return re.sub(r"-\d.*", "", jar.name)


def installed_home() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise Unavailable(f"pyspark is missing in {sys.prefix}: ./scripts/setup installs it")
    return Path(found.origin).parent


def python_of(home: Path) -> str:
    """The Python that a pyspark is installed in, else ours:
    `lib/python3.11/site-packages/pyspark`.
    """
    own = home.parents[3] / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def environment(home: Path, place: Place) -> dict[str, str]:
    """One Python on both sides of a job, small daemons, all HDFS that are up, and nothing of the
    user's own Spark.
    """
    return {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(place.folder / "conf"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{DAEMON} -Djava.io.tmpdir={place.temporary}",
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(place.folder / "data"),
        "PYSPARK_PYTHON": python_of(home),
        "PYSPARK_DRIVER_PYTHON": python_of(home),
        "HADOOP_CONF_DIR": str(place.hadoop_conf),
        "JAVA_HOME": str(Path(downloads.java()).resolve().parents[1]),
    }

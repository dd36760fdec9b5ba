"""What a driver on this machine was started with, by its command line: that of spark-submit.

java … org.apache.spark.deploy.SparkSubmit --master local[2] --conf k=v --name orders app.py a b
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stateshift.clusters import processes
from stateshift.clusters.protocol import Origin

_MAIN: Final = "org.apache.spark.deploy.SparkSubmit"
# Options of spark-submit, and the setting that each is.
_SETTINGS: Final[Mapping[str, str]] = {
    "--name": "spark.app.name",
    "--jars": "spark.jars",
    "--files": "spark.files",
    "--archives": "spark.archives",
    "--packages": "spark.jars.packages",
    "--exclude-packages": "spark.jars.excludes",
    "--repositories": "spark.jars.repositories",
    "--driver-memory": "spark.driver.memory",
    "--driver-cores": "spark.driver.cores",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-library-path": "spark.driver.extraLibraryPath",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--num-executors": "spark.executor.instances",
    "--total-executor-cores": "spark.cores.max",
    "--queue": "spark.yarn.queue",
    "--principal": "spark.kerberos.principal",
    "--keytab": "spark.kerberos.keytab",
}
_CONF: Final = ("--conf", "-c")
_OURS: Final = ("STATESHIFT_", "_", "PWD", "OLDPWD", "SHLVL")


def origin_of(pids: Iterable[int], master: str) -> Origin:
    """Return what the driver among these processes was started with."""
    for pid in pids:
        words = processes.command_line(pid)
        if _MAIN in words:
            return _read(words[words.index(_MAIN) + 1 :], pid, master)
    return Origin(why="none of its processes here is a spark-submit")


def _read(words: Sequence[str], pid: int, master: str) -> Origin:
    conf: dict[str, str] = {}
    options: dict[str, object] = {}
    at = 0
    while at + 1 < len(words) and words[at].startswith("-"):
        option, value = words[at], words[at + 1]
        at += 2
        if option in _CONF:
            key, _, text = value.partition("=")
            conf[key] = text
        elif option in _SETTINGS:
            conf[_SETTINGS[option]] = value
        elif option == "--py-files":
            options["py_files"] = value.split(",")
        elif option == "--deploy-mode":
            options["deploy_mode"] = value
        elif option == "--master":
            if value != master:
                return Origin(why=f"it runs with master {value}, and the cluster's is {master}")
        else:
            return Origin(why=f"it was started with {option}, which is not given again")
    if at >= len(words):
        return Origin(why="its command line names no application")
    options |= {"application": words[at], "arguments": list(words[at + 1 :]), "conf": conf}
    folder = processes.working_folder(pid)
    if folder is not None:
        options["cwd"] = folder
    environment = {
        name: value
        for name, value in processes.environment(pid).items()
        if os.environ.get(name) != value and not name.startswith(_OURS)
    }
    return Origin(options, environment)

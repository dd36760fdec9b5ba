"""The servers of scripts/servers as fixtures: a group is up for as long as a test wants it, in a
folder of its own.

    @pytest.fixture(scope="module")
    def servers(tmp_path_factory):
        with group(tmp_path_factory.mktemp("servers"), "hdfs-a", "s3-moto") as servers:
            yield servers

    servers.exports()["STATESHIFT_HDFS_A_WEB"]
    servers.kill("hdfs-a", "datanode")     a crash;  servers.up("hdfs-a")  starts again what has crashed

Where something cannot be had (no Maven, no JDK), the tests are skipped with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "servers.d"))

from servers import (
    NAMES,
    Failed,
    Servers,
    State,
    Unavailable,
    downloads,
    hadoop,
    kerberos,
    kubernetes,
    ports,
    processes,
    spark,
)
from servers.catalog import CATALOG, named
from servers.flink import LOG4J, MODULES, Flink
from servers.place import Place, Role
from servers.s3 import CREDENTIALS as S3_CREDENTIALS
from servers.s3 import spark_settings as s3_settings
from servers.server import Server, Stage
from servers.yarn import Yarn

SERVERS_D = Path(__file__).resolve().parents[2] / "scripts" / "servers.d"

__all__ = [
    "CATALOG",
    "LOG4J",
    "MODULES",
    "NAMES",
    "S3_CREDENTIALS",
    "SERVERS_D",
    "Failed",
    "Flink",
    "Place",
    "Role",
    "Server",
    "Servers",
    "Stage",
    "State",
    "Unavailable",
    "Yarn",
    "command",
    "downloads",
    "group",
    "hadoop",
    "in_their_python",
    "kerberos",
    "kubernetes",
    "named",
    "ports",
    "processes",
    "s3_settings",
    "spark",
    "start",
    "stop",
]


@contextmanager
def group(root: Path, *names: str, **env: str) -> Iterator[Servers]:
    """These servers up, and down afterwards, whatever happens; `env` is added to their
    environment.
    """
    servers = Servers(root, env)
    try:
        start(servers, *names)
        yield servers
    finally:
        stop(servers, *names)


def start(servers: Servers, *names: str) -> None:
    """Start these servers, as far as they are not up."""
    for name in names:
        try:
            servers.up(name)
        except Unavailable as reason:
            pytest.skip(f"{name} cannot be had: {reason}")


def stop(servers: Servers, *names: str) -> None:
    for name in reversed(names):
        servers.down(name)


def command(root: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The program behind scripts/servers, without the setting up."""
    program = [sys.executable, str(SERVERS_D / "main.py"), "--root", str(root), *words]
    return subprocess.run(
        program, text=True, capture_output=True, check=False, timeout=600, env={**os.environ, **env}
    )


def in_their_python(script: Path, *words: str, **env: str) -> str:
    """What a script says that needs the clients of the extra `servers`."""
    done = subprocess.run(
        [str(downloads.python()), str(script), *words],
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout

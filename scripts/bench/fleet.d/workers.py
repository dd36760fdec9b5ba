"""A Spark of the installed pyspark: a master, and workers whose executors each go by a link of
their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from servers.spark import installed_home

HOST = "127.0.0.1"
CORES, MEMORY = 2, "2g"
SECONDS_MAX = 60.0


@contextlib.contextmanager
def spark(folder: Path, environments: Sequence[Mapping[str, str]], java: str) -> Iterator[str]:
    """The master's URL; a worker for each of the environments, which its executors inherit."""
    folder.mkdir(parents=True)
    port, page = free_port(), free_port()
    url = f"spark://{HOST}:{port}"
    with contextlib.ExitStack() as running:
        words = ["master.Master", "--port", str(port), "--webui-port", str(page)]
        running.enter_context(_daemon(folder, "master", words, {}, java, "New state: ALIVE"))
        for number, environment in enumerate(environments):
            words = [
                "worker.Worker",
                "--port",
                "0",
                "--webui-port",
                "0",
                "--cores",
                str(CORES),
                "--memory",
                MEMORY,
                "--work-dir",
                str(folder / f"work-{number}"),
                url,
            ]
            running.enter_context(
                _daemon(folder, f"worker-{number}", words, environment, java, "Successfully reg")
            )
        yield url


@contextlib.contextmanager
def _daemon(
    folder: Path,
    name: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    java: str,
    ready: str,
) -> Iterator[None]:
    home, log = installed_home(), folder / f"{name}.log"
    own = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "JAVA_HOME": java,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
    }
    kind, *rest = words
    command = [
        str(home / "bin" / "spark-class"),
        f"org.apache.spark.deploy.{kind}",
        "--host",
        HOST,
        *rest,
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment, **own},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + SECONDS_MAX
        while ready not in log.read_text(errors="replace"):
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit(
                    f"{name} does not start:\n{log.read_text(errors='replace')[-3000:]}"
                )
            time.sleep(0.1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])

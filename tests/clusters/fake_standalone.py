"""A stand-in that answers as a standalone master and its worker of Spark 4.3 were seen to answer
(tests/servers/test_standalone.py asks the real ones), and that can be told to misbehave: what is
tested with it are lost answers and odd ones, not Spark.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.clusters import faulty_server
from tests.clusters.faulty_server import StandIn

HIDDEN = ("secret", "password", "token")


@dataclass
class FakeStandalone(StandIn):
    """`launches` is whether its worker has room: a driver that was not launched says nothing."""

    started: Counter[str] = field(default_factory=Counter)
    drivers: dict[str, dict[str, Any]] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    applications: list[dict[str, Any]] = field(default_factory=list)
    launches: bool = True
    version: str = "4.3.0"
    says: str = "password=hunter22\nit runs\n"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def submits(self, method: str, path: str) -> bool:
        return path.endswith("/create")

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        with self.lock:
            match path.strip("/").split("/"):
                case ["v1", "submissions", "create"]:
                    return 200, self._create(body)
                case ["v1", "submissions", "status", id]:
                    return 200, self._status(id)
                case ["v1", "submissions", "kill", id]:
                    return 200, self._kill(id)
                case ["json"]:
                    return 200, self._overview()
                case ["log"]:
                    return self._log(query)
        return 404, {"message": "Missing URL"}

    def set_state(self, id: str, state: str) -> None:
        with self.lock:
            self.drivers[id]["state"] = state

    def launch(self) -> None:
        with self.lock:
            for driver in self.drivers.values():
                if driver["state"] == "SUBMITTED":
                    driver.update(state="RUNNING", worker="worker-1")

    def forget(self) -> None:
        with self.lock:
            self.drivers.clear()

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        id = f"driver-{len(self.bodies)}"
        self.bodies.append(body)
        self.started[body["sparkProperties"].get("spark.stateshift.tag", "")] += 1
        state, worker = ("RUNNING", "worker-1") if self.launches else ("SUBMITTED", "None")
        begun = str(int(1000 * time.time()))
        self.drivers[id] = {
            "id": id,
            "starttime": begun,
            "state": state,
            "worker": worker,
            "mainclass": "x",
        }
        return {"success": True, "submissionId": id, "serverSparkVersion": self.version}

    def _status(self, id: str) -> dict[str, Any]:
        driver = self.drivers.get(id)
        if driver is None:
            return {"success": False, "submissionId": id, "serverSparkVersion": self.version}
        said = {"message": driver["message"]} if "message" in driver else {}
        return {
            "success": True,
            "driverState": driver["state"],
            "workerId": driver["worker"],
            "serverSparkVersion": self.version,
            **said,
        }

    def _kill(self, id: str) -> dict[str, Any]:
        alive = id in self.drivers and self.drivers[id]["state"] in ("RUNNING", "SUBMITTED")
        if alive:
            self.drivers[id]["state"] = "KILLED"
        return {"success": alive, "submissionId": id}

    def _overview(self) -> dict[str, Any]:
        every = list(self.drivers.values())
        alive = [driver for driver in every if driver["state"] in ("RUNNING", "SUBMITTED")]
        return {
            "workers": [{"id": "worker-1", "webuiaddress": self.url}],
            "activeapps": self.applications,
            "activedrivers": alive,
            "completeddrivers": [driver for driver in every if driver not in alive],
        }

    def _log(self, query: dict[str, list[str]]) -> tuple[int, str]:
        id, kind = query["driverId"][0], query["logType"][0]
        if self.drivers.get(id, {}).get("worker") != "worker-1":
            return 200, "Error: invalid log directory"
        if kind == "stdout":
            return 200, f"==== Bytes 0-9 of 9 ====\n{self.says}"
        settings = self.bodies[int(id.rpartition("-")[2])]["sparkProperties"]
        shown = {
            key: "***" if any(word in value for word in HIDDEN) else value
            for key, value in settings.items()
        }
        words = " ".join(f'"-D{key}={value}"' for key, value in shown.items())
        return 200, f'==== Bytes 0-9 of 9 ====\nLaunch Command: "java" {words} "Wrapper"\n'


@contextmanager
def serving(seconds: float = 0.0, tls: ssl.SSLContext | None = None) -> Iterator[FakeStandalone]:
    """Such servers at one address; `seconds` is how long it takes over a submission."""
    standalone = FakeStandalone(seconds)
    with faulty_server.serving(standalone, tls):
        yield standalone

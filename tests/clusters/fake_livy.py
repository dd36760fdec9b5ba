"""A stand-in that answers as Livy 0.7.1 was seen to answer (tests/servers/test_livy.py asks the
real one), and that can be told to misbehave: what is tested with it are lost answers and odd ones,
not Livy.
"""

from __future__ import annotations

import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.clusters import faulty_server
from tests.clusters.faulty_server import StandIn


@dataclass
class FakeLivy(StandIn):
    started: Counter[str] = field(default_factory=Counter)  # by tag
    batches: dict[int, dict[str, Any]] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    says: list[str] = field(default_factory=lambda: ["stdout: ", "password=hunter22", "it runs"])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        parts = path.strip("/").split("/")
        with self.lock:
            if parts == ["batches"] and method == "POST":
                return self._create(body)
            if parts == ["batches"]:
                start, size = (int(query[name][0]) for name in ("from", "size"))
                every = list(self.batches.values())
                return 200, {
                    "from": start,
                    "total": len(every),
                    "sessions": every[start : start + size],
                }
            batch = self.batches.get(int(parts[1]))
            if batch is None:
                return 404, {"msg": f"Session '{parts[1]}' not found."}
            if method == "DELETE":
                del self.batches[batch["id"]]
                return 200, {"msg": "deleted"}
            if parts[2:] == ["log"]:
                start, size = (int(query[name][0]) for name in ("from", "size"))
                part = self.says[start : start + size]
                return 200, {"id": batch["id"], "from": start, "total": len(self.says), "log": part}
            return 200, batch

    def _create(self, body: dict[str, Any]) -> tuple[int, Any]:
        if any(batch["name"] == body["name"] for batch in self.batches.values()):
            return 400, {"msg": f"Duplicate session name: Some({body['name']}) for session 9"}
        id = len(self.bodies)
        self.bodies.append(body)
        self.started[body["name"].partition("@")[0]] += 1
        self.batches[id] = {
            "id": id,
            "name": body["name"],
            "state": "running",
            "appId": None,
            "log": [],
        }
        return 201, self.batches[id]

    def set_state(self, tag: str, state: str) -> None:
        with self.lock:
            next(batch for batch in self.batches.values() if batch["name"].startswith(f"{tag}@"))[
                "state"
            ] = state

    def forget(self) -> None:
        with self.lock:
            self.batches.clear()


@contextmanager
def serving(seconds: float = 0.0, tls: ssl.SSLContext | None = None) -> Iterator[FakeLivy]:
    """Such a server; `seconds` is how long it takes over a POST."""
    livy = FakeLivy(seconds)
    with faulty_server.serving(livy, tls):
        yield livy

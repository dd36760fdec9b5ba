"""A stand-in that answers as Livy 0.7.1 was seen to answer (tests/servers/test_livy.py asks the real one), and that can
be told to misbehave: what is tested with it are lost answers and odd ones, not Livy."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from tests.support.listening import listening

# What happens to the next POST: refused before it has an effect, lost after it had one, late, or odd.
Fault = Literal["503", "503 after all", "cut off", "cut off after all", "hang", "page"]


@dataclass
class FakeLivy:
    seconds: float = 0.0
    url: str = ""
    started: Counter[str] = field(default_factory=Counter)
    batches: dict[int, dict[str, Any]] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    faults: deque[Fault] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        parts = path.strip("/").split("/")
        with self.lock:
            if parts == ["batches"] and method == "POST":
                return self._create(body)
            if parts == ["batches"]:
                start, size = (int(query[name][0]) for name in ("from", "size"))
                every = list(self.batches.values())
                return 200, {"from": start, "total": len(every), "sessions": every[start : start + size]}
            batch = self.batches.get(int(parts[1]))
            if batch is None:
                return 404, {"msg": f"Session '{parts[1]}' not found."}
            if method == "DELETE":
                del self.batches[batch["id"]]
                return 200, {"msg": "deleted"}
            if parts[2:] == ["log"]:
                start, size = (int(query[name][0]) for name in ("from", "size"))
                lines = ["stdout: ", "password=hunter22", "it runs"]
                return 200, {"id": batch["id"], "from": start, "total": 3, "log": lines[start : start + size]}
            return 200, batch

    def _create(self, body: dict[str, Any]) -> tuple[int, Any]:
        if any(batch["name"] == body["name"] for batch in self.batches.values()):
            return 400, {"msg": f"Duplicate session name: Some({body['name']}) for session 9"}
        id = len(self.bodies)
        self.bodies.append(body)
        self.started[body["name"]] += 1
        self.batches[id] = {"id": id, "name": body["name"], "state": "running", "appId": None, "log": []}
        return 201, self.batches[id]

    def set_state(self, name: str, state: str) -> None:
        with self.lock:
            next(batch for batch in self.batches.values() if batch["name"] == name)["state"] = state

    def forget(self) -> None:
        with self.lock:
            self.batches.clear()


@contextmanager
def serving(seconds: float = 0.0) -> Iterator[FakeLivy]:
    """Such a server; `seconds` is how long it takes over a POST."""
    livy = FakeLivy(seconds)

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            place = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            livy.headers.append(dict(self.headers))
            fault = livy.faults.popleft() if self.command == "POST" and livy.faults else None
            if self.command == "POST":
                time.sleep(livy.seconds)
            if fault == "hang":
                time.sleep(1.5)
            if fault in ("503", "cut off", "page"):
                status, told = 503, {"msg": "Slow down"}
            else:
                body = json.loads(content) if content else None
                status, told = livy.answer(self.command, place.path, parse_qs(place.query), body)
            if fault in ("cut off", "cut off after all"):
                self.close_connection = True
                return
            if fault == "503 after all":
                status, told = 503, {"msg": "Slow down"}
            self._send(200 if fault == "page" else status, b"<html>" if fault == "page" else json.dumps(told).encode())

        def _send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if content == b"<html>" else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            """Quietly."""

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                return  # who asked was killed

    with listening(Handler) as place:
        livy.url = f"http://{place}"
        yield livy

"""Serving a stand-in for a cluster's REST API, which can be told to misbehave: answers that are
late, lost, or odd.
"""

from __future__ import annotations

import json
import select
import ssl
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from tests.support.listening import listening

# What happens to the next submission: refused before it has an effect, lost after it had one, late,
# or odd.
Fault = Literal["503", "503 after all", "cut off", "cut off after all", "hang", "page"]


def hasty(fault: Fault | None) -> dict[str, object]:
    """Return the options of a cluster that gives up soon, where the server never answers."""
    return {"request_seconds": 1, "settle_seconds": 60} if fault == "hang" else {}


@dataclass
class StandIn:
    """`seconds` is how long it takes over a submission."""

    seconds: float = 0.0
    url: str = ""
    location: str = ""  # where its redirects lead to
    headers: list[dict[str, str]] = field(default_factory=list)
    faults: deque[Fault] = field(default_factory=deque)

    def submits(self, method: str, path: str) -> bool:
        """Whether this request is one that a fault may happen to."""
        return method == "POST"

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        """Status, and what is said as JSON; a text is a page."""
        raise AssertionError("a stand-in answers")


@contextmanager
def serving(stand_in: StandIn, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            place = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            stand_in.headers.append(dict(self.headers))
            submits = stand_in.submits(self.command, place.path)
            fault = stand_in.faults.popleft() if submits and stand_in.faults else None
            if submits:
                time.sleep(stand_in.seconds)
            if fault == "hang":
                select.select([self.connection], [], [])  # until whoever asked has gone
            if fault in ("503", "cut off", "page"):
                status, told = 503, {"msg": "Slow down", "message": "Slow down"}
            else:
                form = "multipart/" in (self.headers.get("Content-Type") or "")
                body = content if form else json.loads(content) if content else None
                status, told = stand_in.answer(
                    self.command, place.path, parse_qs(place.query), body
                )
            if fault in ("cut off", "cut off after all"):
                self.close_connection = True
                return
            if fault == "503 after all":
                status, told = 503, {"msg": "Slow down", "message": "Slow down"}
            self._send(200 if fault == "page" else status, "<html>" if fault == "page" else told)

        def _send(self, status: int, told: Any) -> None:
            content = (told if isinstance(told, str) else json.dumps(told)).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", stand_in.location)
            self.send_header(
                "Content-Type", "text/html" if isinstance(told, str) else "application/json"
            )
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            """Quietly."""

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                return  # who asked was killed

    with listening(Handler, tls) as place:
        stand_in.url = f"{'http' if tls is None else 'https'}://{place}"
        yield

"""What readers speak, over HTTP.

    GET    /status                   the buffer as it is
    GET    /records?from=N&until=M   records as frames.py has them, from N on: one at least, not all
                                     where they are many; none where N is the next one
    PUT    /readers/NAME?next=N      the reader needs nothing before N
    DELETE /readers/NAME             nothing is kept for it any more

410 answers what is not there any more, or was never promised; all errors are JSON with `error` and
`hint`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from socketserver import BaseServer
from urllib.parse import parse_qs, urlsplit

from stateshift.errors import StateshiftError
from stateshift.live.buffer.buffer import Buffer, GoneError
from stateshift.live.buffer.intake import problem
from stateshift.live.buffer.sockets import Address, HttpHandler, Request, Server
from stateshift.plain import to_plain

ANSWER_BYTES = 4 << 20
RECORDS_TYPE = "application/octet-stream"
NUMBER = re.compile(r"[0-9]{1,18}")


def serve(buffer: Buffer, address: Address) -> Server:
    """Listen for readers; the server is not run yet."""
    return Server(address, partial(_Reading, buffer=buffer))


class _Reading(HttpHandler):
    """One reader's connection."""

    def __init__(
        self, request: Request, client: object, server: BaseServer, buffer: Buffer
    ) -> None:
        self._buffer = buffer
        super().__init__(request, client, server)

    def do_GET(self) -> None:
        """Answer what the buffer is, or records."""
        path, values = self._asked()
        if path == "/status":
            self.answer(200, json.dumps(to_plain(self._buffer.status())).encode())
        elif path == "/records" and {"from", "until"} <= values.keys():
            self._act(lambda: self._records(values["from"], values["until"]))
        else:
            self.answer(404, problem(f"nothing is at {self.path}"))

    def do_PUT(self) -> None:
        """Note where a reader is."""
        path, values = self._asked()
        if path.startswith("/readers/") and "next" in values:
            name = path.removeprefix("/readers/")
            self._act(lambda: self._buffer.set_position(name, values["next"]))
        else:
            self.answer(404, problem(f"nothing is at {self.path}"))

    def do_DELETE(self) -> None:
        """Forget a reader."""
        path, _ = self._asked()
        self._act(lambda: self._buffer.forget(path.removeprefix("/readers/")))

    def _asked(self) -> tuple[str, dict[str, int]]:
        """Return the path, and the numbers that the query names."""
        parts = urlsplit(self.path)
        words = parse_qs(parts.query).items()
        return parts.path, {key: int(said[-1]) for key, said in words if NUMBER.fullmatch(said[-1])}

    def _records(self, first: int, until: int) -> bytes:
        return self._buffer.read(first, until - first, ANSWER_BYTES)

    def _act(self, act: Callable[[], bytes | None]) -> None:
        try:
            content = act()
        except GoneError as error:
            self.answer(410, problem(error.fact, error.hint))
        except StateshiftError as error:
            self.answer(400, problem(str(error), error.hint))
        except OSError as error:
            self.answer(500, problem(f"the disk of the buffer fails: {error.strerror or error}"))
        else:
            self.answer(200, content or b"", RECORDS_TYPE)

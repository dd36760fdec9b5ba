"""moto's server, with the writes one after the other: moto_in_turn.py HOST PORT.

moto looks whether a condition holds and writes then, with nothing between other threads and that:
of eight that create one object by `If-None-Match: *` at once, two may win (seen once, on a busy
machine). S3 lets one win. Run by the Python of the extra `servers`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

READS = frozenset({"GET", "HEAD", "OPTIONS"})


class InTurn:
    """A body is read before it is the request's turn: a client that sends slowly, or stops,
    keeps nobody waiting.
    """

    def __init__(self, application: Any) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in READS:
            return list(self._application(environ, start_response))
        ends_itself = environ.get("wsgi.input_terminated", False)
        size = -1 if ends_itself else int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = BytesIO(environ["wsgi.input"].read(size))
        with self._turn:
            return list(self._application(environ, start_response))


def main(host: str, port: int) -> None:
    application = DomainDispatcherApplication(create_backend_app)
    application.debug = True
    run_simple(host, port, InTurn(application), threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""A reader's end: a buffer by its address, or by its directory on this machine.

A buffer may be killed and started again while readers run, also at another port: whatever it does
not answer is asked again for a while.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from stateshift.errors import FormatError, PlanError, StorageError
from stateshift.live.buffer.buffer import Status
from stateshift.live.buffer.folder import Folder
from stateshift.live.buffer.frames import BufferRecord, decode_records
from stateshift.plain import Misfit, from_plain

ANSWER_SECONDS = 30.0
AGAIN_SECONDS = 0.5
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Client:
    """A buffer at a place: `http://HOST:PORT`, or its directory."""

    place: str
    patience_seconds: float = PATIENCE_SECONDS

    def status(self) -> Status:
        content = self._ask("GET", "/status")
        try:
            status: Status = from_plain(Status, json.loads(content))
        except (ValueError, Misfit) as error:
            raise FormatError(f"what answers at {self.place} is no buffer: {error}") from None
        return status

    def records(self, first: int, until: int) -> Iterator[list[BufferRecord]]:
        """Yield the records of a range, in parts, in their order."""
        while first < until:
            content = self._ask("GET", f"/records?from={first}&until={until}")
            records = list(decode_records(content, first))
            if not records:
                raise PlanError(f"record {first} of {self.place} is not there yet")
            yield records
            first = records[-1].number + 1

    def set_position(self, reader: str, number: int) -> None:
        self._ask("PUT", f"/readers/{reader}?next={number}")

    def forget(self, reader: str) -> None:
        self._ask("DELETE", f"/readers/{reader}")

    def _ask(self, method: str, path: str) -> bytes:
        """Ask, and ask again where nobody answers, as long as patience lasts."""
        until = time.monotonic() + self.patience_seconds
        while True:
            try:
                return _answer(self._address(), method, path)
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() + AGAIN_SECONDS > until:
                    raise nobody(self.place, str(error)) from None
            time.sleep(AGAIN_SECONDS)

    def _address(self) -> str:
        """Return the address, as the directory says it now; ConnectionError where it says none."""
        if "://" in self.place:
            return self.place
        folder = Folder(Path(self.place))
        folder.check()
        running = folder.running()
        if running is None:
            raise ConnectionError("it does not run")
        return running.serves


def nobody(place: str, reason: str) -> StorageError:
    """Return the error that no buffer answers."""
    where = "DIRECTORY" if "://" in place else place
    return StorageError(
        f"no buffer answers at {place}: {reason}",
        location=place,
        hint=f"start it: stateshift live buffer {where} --listen http://127.0.0.1:0",
    )


def _answer(address: str, method: str, path: str) -> bytes:
    parts = urlsplit(address)
    if parts.scheme != "http" or parts.hostname is None:
        raise PlanError(f"{address} is no http://HOST:PORT", hint="http://127.0.0.1:8092")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status == 200:
        return content
    try:
        told = json.loads(content)
        fact, hint = str(told["error"]), told.get("hint")
    except (ValueError, KeyError, TypeError, AttributeError):
        fact, hint = f"HTTP {response.status}", None
    if response.status >= 500:
        raise ConnectionError(fact)  # it is worth another try
    raise PlanError(fact, hint=hint)

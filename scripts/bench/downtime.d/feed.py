"""The source: records that come when they come, whether somebody reads them or not (open loop).

Record `n` comes into being at `began + n / RATE`, by which its latency is reckoned, however late
its file is written. A file holds what came since the one before it. The state is filled by lines
that stand for many records each.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RATE = 100  # records a second
SECONDS = 0.2  # from file to file
FILL_FILES = 8
PERSONS = 4  # of that many records one is a new person (NEXMark has three auctions for each)


class Feed:
    rate = RATE

    def __init__(self, folder: Path, query: str, keys: int) -> None:
        self.folder, self.query, self.keys = folder, query, keys
        self.began, self._next, self._file = 0.0, 0, 0
        self._end = threading.Event()
        for name in ("records",) if query == "map" else ("persons", "auctions"):
            (folder / name).mkdir(parents=True)

    def fill(self) -> None:
        """The state, in one batch: numbers below zero, of which nothing is measured."""
        share = -(-self.keys // FILL_FILES)
        for first in range(0, self.keys, share):
            last = min(first + share, self.keys) - 1
            line = {
                "first": first - self.keys,
                "last": last - self.keys,
                "fill": True,
                "at": _time(0),
            }
            self._write("records" if self.query == "map" else "persons", [line])

    def created(self, number: int) -> float:
        return self.began + number / self.rate

    @contextmanager
    def coming(self) -> Iterator[None]:
        self.began = time.time()
        thread = threading.Thread(target=self._go)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()

    def forget(self, seconds: float) -> None:
        """What is older, and was read."""
        until = time.time() - seconds
        for file in self.folder.glob("*/*.json"):
            if file.stat().st_mtime < until:
                file.unlink()

    def _go(self) -> None:
        while not self._end.wait(SECONDS):
            now = int((time.time() - self.began) * self.rate)
            numbers = range(self._next, now + 1)
            self._next = now + 1
            if self.query == "map":
                self._write("records", [_line(number) for number in numbers])
                continue
            people = [{**_line(n), "seller": self.keys + n} for n in numbers if n % PERSONS == 0]
            self._write("persons", people)
            # Those who came with the fill have a number below zero for an id.
            self._write(
                "auctions", [{**_line(n), "seller": n % self.keys - self.keys} for n in numbers]
            )

    def _write(self, name: str, lines: list[dict[str, Any]]) -> None:
        self._file += 1
        file = self.folder / name / f"{self._file:08}.json"
        hidden = file.with_name(f".{file.name}")
        hidden.write_text("".join(json.dumps(line) + "\n" for line in lines))
        hidden.replace(file)


def _line(number: int) -> dict[str, Any]:
    return {"first": number, "last": number, "fill": False, "at": _time(number)}


def _time(number: int) -> str:
    """Event time: all of it in one window."""
    return datetime.fromtimestamp(1_800_000_000 + 3600 + number / RATE, UTC).isoformat()

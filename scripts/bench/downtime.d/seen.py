"""What came out of the job, and when: by the files that each of its batches leaves."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feed import Feed

BUCKET_SECONDS = 0.25
FRESH_SECONDS = 3.0


@dataclass(frozen=True)
class Gap:
    """Between two outputs nothing came. `worst` is the latency of whatever waited longest."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Seen:
    """`keys`: of a query that tells of each key its last record alone, how many there are; a record
    that is not told of has come out with the next one of its key.
    """

    def __init__(self, folder: Path, feed: Feed, keys: int | None) -> None:
        self.folder, self.feed, self.keys = folder, feed, keys
        self.batches = 0
        self.arrived: dict[int, float] = {}
        self.outputs: list[float] = []
        self.notes: list[dict[str, Any]] = []
        self._read: set[str] = set()

    def read(self) -> None:
        if not self.folder.exists():
            return
        for file in sorted(self.folder.iterdir()):
            if file.name in self._read or file.name.startswith("."):
                continue
            self._read.add(file.name)
            told = json.loads(file.read_text())
            if file.suffix == ".note":
                self.notes.append(told)
                continue
            self.batches += 1
            if told["numbers"]:
                self.outputs.append(told["at"])
            for number in told["numbers"]:
                self.arrived[number] = min(told["at"], self.arrived.get(number, told["at"]))
        self.outputs.sort()
        self.notes.sort(key=lambda one: float(one["at"]))

    def fresh_since(self, moment: float) -> bool:
        """Whether, after that moment, something came out that was no older than it usually is."""
        late = [
            at - self.feed.created(n) for n, at in list(self.arrived.items())[-50:] if at > moment
        ]
        return bool(late) and max(late) < FRESH_SECONDS + 2 * self.pause()

    def pause(self) -> float:
        """The usual time between two outputs."""
        between = sorted(b - a for a, b in zip(self.outputs, self.outputs[1:], strict=False))
        return between[len(between) // 2] if between else 0.0

    def gap(self, moment: float) -> Gap:
        """That in which the moment lies."""
        at = bisect_right(self.outputs, moment)
        return Gap(self.outputs[at - 1], self.outputs[at])

    def latencies(self, begin: float, end: float) -> list[float]:
        """Of the records that came into being in that time."""
        feed = self.feed
        first, last = (max(0, round((moment - feed.began) * feed.rate)) for moment in (begin, end))
        found = []
        for number in range(first, last):
            at = self._arrival(number)
            if at is not None:
                found.append(at - feed.created(number))
        return found

    def _arrival(self, number: int) -> float | None:
        if number in self.arrived or self.keys is None:
            return self.arrived.get(number)
        later = range(number + self.keys, max(self.arrived, default=0) + 1, self.keys)
        return next((self.arrived[one] for one in later if one in self.arrived), None)

    def noted(self, what: str, after: float) -> float | None:
        """When the job that came last said so."""
        found = [
            float(one["at"]) for one in self.notes if one["what"] == what and one["at"] > after
        ]
        return found[-1] if found else None


def buckets(latencies: list[float]) -> dict[int, int]:
    """How many there are of each quarter of a second."""
    found: dict[int, int] = {}
    for latency in latencies:
        bucket = int(max(0.0, latency) / BUCKET_SECONDS)
        found[bucket] = found.get(bucket, 0) + 1
    return dict(sorted(found.items()))

"""A stream-stream join's stores held against each other, one shard at a time. Pure.

    formats 1 to 3   <side>-keyToNumValues        key -> n
                     <side>-keyWithIndexToValue   (key, index) -> row       every index 0 ... n-1, and no other
    format 4         <side>-keyWithTsToValues     (key, time) -> rows
                     <side>-tsWithKey             (time, key) -> as many    the same keys and times in both

Spark reads the indexes 0 to n-1 one by one (SymmetricHashJoinStateManager.getAll): a missing one fails the query, one
beyond n is never read. Keys are compared as they are shown, so that of two NaNs one is not another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from stateshift.engines.spark.encoders import Row
from stateshift.engines.spark.sameness import common_name
from stateshift.survey import Finding, ShardFiles

COUNTS, INDEXED, LISTS, TIMES = "-keyToNumValues", "-keyWithIndexToValue", "-keyWithTsToValues", "-tsWithKey"

# So many keys of a shard are told one by one.
KEYS_MAX = 3


@dataclass(slots=True)
class _Side:
    """One side of the join: counts as they are said, and the indexes that are found."""

    path: str = ""
    said: dict[str, int] = field(default_factory=dict)
    found: dict[str, set[int]] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)


@dataclass
class Join:
    """The join's stores in one shard; of any other operator nothing is kept. `incomplete` where rows are missing
    because they did not decode: that was said already."""

    operator: str
    shard: int
    incomplete: bool = False
    _sides: dict[str, _Side] = field(default_factory=dict)

    def add(self, store: str, shard: ShardFiles, key: Row, value: Row | list[Row]) -> None:
        side, dash, kind = common_name(store).partition("-")
        if f"{dash}{kind}" not in (COUNTS, INDEXED, LISTS, TIMES):
            return
        kept = self._sides.setdefault(side, _Side())
        match f"{dash}{kind}":
            case "-keyToNumValues":
                kept.said[repr(key)] = _count(value)
            case "-keyWithIndexToValue":
                kept.path = shard.files[-1]
                kept.found.setdefault(repr(key[:-1]), set()).add(_index(key))
            case "-keyWithTsToValues":
                kept.path = shard.files[-1]
                kept.lists[repr(key)] = len(value)
            case "-tsWithKey":
                kept.times[repr(key)] = len(value)

    def findings(self) -> Iterator[Finding]:
        if self.incomplete:
            return
        for name, side in sorted(self._sides.items()):
            yield from _counted(side, list(self._gaps(name, side)), "refuse")
            yield from _counted(side, list(self._strays(name, side)), "warn")

    def _gaps(self, name: str, side: _Side) -> Iterator[str]:
        for key, count in side.said.items():
            missing = next((at for at in range(count) if at not in side.found.get(key, ())), None)
            if missing is not None:
                yield f"{self._of(name)}: the key {key} has {count} rows, and number {missing} is missing"
        for key in sorted(side.lists.keys() ^ side.times.keys()):
            yield f"{self._of(name)}: the key and time {key} is in one of its two indexes only"

    def _strays(self, name: str, side: _Side) -> Iterator[str]:
        for key, found in side.found.items():
            count = side.said.get(key, 0)
            if max(found) >= count:
                yield f"{self._of(name)}: the key {key} has {count} rows, and one numbered {max(found)}: never read"

    def _of(self, side: str) -> str:
        return f"operator {self.operator}, shard {self.shard}, {side} side"


def _counted(side: _Side, facts: list[str], level: Any) -> Iterator[Finding]:
    for fact in facts[:KEYS_MAX]:
        yield Finding(level, fact, path=side.path or None)
    if len(facts) > KEYS_MAX:
        yield Finding(level, f"and {len(facts) - KEYS_MAX} more keys like it", path=side.path or None)


def _count(value: Row | list[Row]) -> int:
    return int(value[0]) if value and isinstance(value[0], int) else 0


def _index(key: Row) -> int:
    return key[-1] if isinstance(key[-1], int) else -1

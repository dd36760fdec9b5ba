"""How far shards are cut into parts, so that nobody is idle while a large one is read.

    Cutter.settings_of_parts(shards, ...)  of each the settings by which its parts are read

There are about PARTS_A_SLOT orders for each that can be at work, and none of less than
PART_BYTES_MIN: shards that are many enough stay whole, unless the last of them would leave others
idle for long. Where a shard can be cut, an executor looks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stateshift.engines.spark.layout import has_tables
from stateshift.errors import FormatError, MissingFile
from stateshift.fleet.orders import Order, Spread
from stateshift.plain import from_plain, to_plain
from stateshift.survey import ShardFiles
from stateshift.world import World

PARTS_A_SLOT = 2
PARTS_MAX = 1024
PART_BYTES_MIN = 16 * 1024 * 1024
IDLE_MAX = 0.15  # of the time that all would need if none were idle

Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ShardAt:
    """A shard somewhere, the settings by which it is read, and how large its files are."""

    location: str
    shard: ShardFiles
    settings: Settings
    size: int


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts what is read by those whom `spread` sends orders to, `slots` of them at once; no part is
    smaller than `least`.
    """

    spread: Spread
    slots: int
    least: int = PART_BYTES_MIN

    def bytes_of_part(self, sizes: Sequence[int]) -> int:
        """Return how large parts are, where shards of these sizes are read. To read one in more
        parts is more work, since each reads all changelogs.
        """
        part_bytes = max(self.least, sum(sizes) // (PARTS_A_SLOT * self._at_once))
        while part_bytes >= 2 * self.least and self._idle(sizes, part_bytes) > IDLE_MAX:
            part_bytes //= 2
        return part_bytes

    def leaves_idle(self, sizes: Sequence[int]) -> bool:
        """Whether somebody would be idle for long where each of these is read whole."""
        largest = max(sizes, default=0)
        return largest > 0 and self._idle(sizes, largest) > IDLE_MAX

    def _idle(self, sizes: Sequence[int], part_bytes: int) -> float:
        """Return how much longer it takes than if nobody were idle at the end."""
        busy = [0.0] * self._at_once
        for size in sizes:
            count = _count_of_parts(size, part_bytes)
            for _ in range(count):
                heapq.heapreplace(busy, busy[0] + size / count)
        return max(busy) * self._at_once / max(1, sum(sizes)) - 1

    @property
    def _at_once(self) -> int:
        return max(1, self.slots)

    def settings_of_parts(self, shards: Sequence[ShardAt], part_bytes: int) -> list[list[Settings]]:
        """Return for each shard the settings of its parts; its own where it stays whole."""
        counts = [_parts_to_ask_for(shard, part_bytes) for shard in shards]
        orders = []
        for shard, count in zip(shards, counts, strict=True):
            if count > 1:
                orders.append(_order(shard, count))
        if not orders:
            return [[shard.settings] for shard in shards]
        from stateshift.engines.spark.entries.shard_parts import SHARD_PART  # loads Arrow

        answers = iter(list(self.spread("parts", orders)))
        settings: list[list[Settings]] = []
        for shard, count in zip(shards, counts, strict=True):
            parts = next(answers) if count > 1 else []
            own: list[Settings] = [{**shard.settings, SHARD_PART: part} for part in parts]
            settings.append(own if len(own) > 1 else [shard.settings])
        return settings


def parts_here(order: Order, world: World) -> list[str]:
    """Return the parts of a shard, on an executor; none where it cannot be read: who reads it whole
    says why.
    """
    # Loads Arrow.
    from stateshift.engines.spark.entries.shard_parts import encode_part, parts_of

    chunks = world.storage(order["location"]).chunks
    shard = from_plain(ShardFiles, order["shard"])
    try:
        parts = parts_of(chunks, shard, order["count"])
    except (FormatError, MissingFile):
        return []
    return [encode_part(part) for part in parts]


def spans(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield at most `count` spans, of about as many places each, that cover `length` places."""
    count = max(1, min(length, count))
    yield from pairwise(length * number // count for number in range(count + 1))


def _count_of_parts(size: int, part_bytes: int) -> int:
    return max(1, min(PARTS_MAX, round(size / part_bytes)))


def _parts_to_ask_for(shard: ShardAt, part_bytes: int) -> int:
    """Return how many parts to ask for: one where the names of its files say that it has no
    others.
    """
    return _count_of_parts(shard.size, part_bytes) if has_tables(shard.shard.files) else 1


def _order(shard: ShardAt, count: int) -> Order:
    return {
        "location": shard.location,
        "shard": to_plain(shard.shard),
        "count": count,
    }

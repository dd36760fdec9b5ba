"""Cuts of large shards into parts, to leave nobody idle while one is read; and images in parts.

    Cutter.settings_of_parts  the settings of each shard by which its parts are read
    parts_of                  `compare`: an order for each shard where that is worth it, else a side
    check_portions            `verify --deep`: every portion of an image, or the parts of its one
                              shard and the rest

There are about PARTS_A_SLOT orders for each that can be at work, and none of less than
PART_BYTES_MIN: shards that are many enough stay whole, unless the last of them would leave others
idle for long. An executor looks for the places where a shard can be cut.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import NamedTuple

from stateshift.engines.spark.layout import has_tables
from stateshift.engines.views import Tallies
from stateshift.errors import FormatError, MissingFile
from stateshift.fleet.orders import Json, Order, Spread
from stateshift.plain import from_plain, to_plain
from stateshift.step import CompareImages
from stateshift.step.images import Side
from stateshift.survey import Finding, Image, ShardFiles, Survey, sizes_of
from stateshift.world import World

PARTS_A_SLOT = 2
PARTS_MAX = 1024
PART_BYTES_MIN = 16 * 1024 * 1024
IDLE_MAX = 0.15  # of the time that all would need if none were idle

Settings = Mapping[str, str]
WORTHWHILE_BYTES = 64 * 1024 * 1024  # below it nobody waits for a few large steps

JOIN = "symmetricHashJoin"
_MODULUS = 1 << 64

# A side of a comparison, and the label of its order.
Labelled = tuple[str, Side]
Portion = tuple[Survey, Image]


@dataclass(frozen=True, slots=True)
class ShardAt:
    """A shard somewhere, the settings by which it is read, and the size of its files."""

    location: str
    shard: ShardFiles
    settings: Settings
    size: int


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts shards into parts of `least` bytes or more, for `slots` at once behind `spread`."""

    spread: Spread
    slots: int
    least: int = PART_BYTES_MIN

    def bytes_of_part(self, sizes: Sequence[int]) -> int:
        """Return the size of parts. Each part reads all changelogs: more of them are more work."""
        part_bytes = max(self.least, sum(sizes) // (PARTS_A_SLOT * self._at_once))
        while part_bytes >= 2 * self.least and self._idle(sizes, part_bytes) > IDLE_MAX:
            part_bytes //= 2
        return part_bytes

    def leaves_idle(self, sizes: Sequence[int]) -> bool:
        """Whether somebody would be idle for long where each of these is read whole."""
        largest = max(sizes, default=0)
        return largest > 0 and self._idle(sizes, largest) > IDLE_MAX

    def _idle(self, sizes: Sequence[int], part_bytes: int) -> float:
        """Return the share of time that it takes more than if nobody were idle at the end."""
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
        counts, orders = [], []
        for shard in shards:
            # One, where the names of its files say that it has no others.
            count = 1
            if has_tables(shard.shard.files):
                count = _count_of_parts(shard.size, part_bytes)
            counts.append(count)
            if count > 1:
                plain = to_plain(shard.shard)
                orders.append({"location": shard.location, "shard": plain, "count": count})
        if not orders:
            return [[shard.settings] for shard in shards]
        from stateshift.engines.spark.entries.rocksdb_version import SHARD_PART  # loads Arrow

        answers = iter(list(self.spread("parts", orders)))
        settings: list[list[Settings]] = []
        for shard, count in zip(shards, counts, strict=True):
            parts = next(answers) if count > 1 else []
            own: list[Settings] = [{**shard.settings, SHARD_PART: part} for part in parts]
            settings.append(own if len(own) > 1 else [shard.settings])
        return settings


def parts_here(order: Order, world: World) -> list[str]:
    """Return the parts of a shard, on an executor; none where it cannot be read."""
    # Loads Arrow.
    from stateshift.engines.spark.entries.rocksdb_version import encode_part, parts_of

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


class ComparedParts(NamedTuple):
    """The parts of a comparison of entries, each with a label."""

    source: list[Labelled]
    target: list[Labelled]


def parts_of(step: CompareImages, world: World, is_cut: bool) -> ComparedParts | None:
    """Return the parts of a comparison of entries: each shard where they are worth it, else each
    side. None where one order is enough. Shards of the source that were read before are no parts.
    """
    if step.paths:
        return None
    is_large = step.bytes >= WORTHWHILE_BYTES or is_cut
    if not is_large and not any(step.known(world)):
        return None

    def divide(side: Side, label: str) -> list[Labelled]:
        return shards_of(side, label) if is_large else [(label, side)]

    source = []
    for number, side in enumerate(step.unread(world)):
        source += divide(side, f"{step.name}/source{number or ''}")
    target = divide(step.sides[1], f"{step.name}/target")
    return ComparedParts(source, target) if source or target else None


def shards_of(side: Side, label: str) -> list[Labelled]:
    """Return a side for each of its shards, with its label."""
    return [
        (f"{label}/{number}", replace(side, shards=(shard,)))
        for number, shard in enumerate(side.shards)
    ]


def check_portions(
    cutter: Cutter, there: Sequence[Portion], tallies: Tallies | None
) -> tuple[Finding, ...]:
    """Return the findings on an image beyond those of its survey, each once. If one of several
    parts finds anything, its portion is read once more as one: the findings are those of a single
    process then. The stores of a join stay together, since they are compared with each other.
    """
    settings, is_tallied = _settings_of_parts(cutter, there), tallies is not None
    orders: list[Order] = []
    for portion, own in zip(there, settings, strict=True):
        if len(own) == 1:
            orders.append(_order(portion, own[0], "all", is_tallied))
        else:
            orders.append(_order(portion, portion[1].settings, "rest", is_tallied))
            orders += [_order(portion, part, "state", is_tallied) for part in own]
    # All of them: answers that nobody takes would end the fleet.
    answers = iter(list(cutter.spread("deep", orders)))
    findings: dict[Finding, None] = {}
    for portion, own in zip(there, settings, strict=True):
        answer = next(answers)
        if len(own) > 1:
            answer = _together([answer, *islice(answers, len(own))])
            if any(finding["level"] != "note" for finding in answer["findings"]):
                again = _order(portion, portion[1].settings, "all", is_tallied)
                (answer,) = cutter.spread("deep", [again])
        findings |= dict.fromkeys(from_plain(Finding, each) for each in answer["findings"])
        if tallies is not None:
            tallies |= {tuple(place): tuple(tally) for place, tally in answer["tallies"]}
    return tuple(findings)


def _together(answers: Sequence[Json]) -> Json:
    """Return the answers for the parts of one shard as one."""
    findings: list[Json] = []
    sums: dict[tuple[str, int, str], tuple[int, int]] = {}
    for answer in answers:
        findings += answer["findings"]
        for place, (records, total) in answer["tallies"]:
            before = sums.get(tuple(place), (0, 0))
            sums[tuple(place)] = before[0] + records, (before[1] + total) % _MODULUS
    return {"findings": findings, "tallies": list(sums.items())}


def _settings_of_parts(cutter: Cutter, there: Sequence[Portion]) -> list[list[Settings]]:
    """Return for each portion the settings of its parts, its own where it stays whole."""
    sizes = []
    for survey, image in there:
        read = set(image.needed) - set(image.read_before)
        sizes.append(sum(sizes_of(survey, read)))
    settings: list[list[Settings]] = [[image.settings] for _, image in there]
    divisible: dict[int, ShardAt] = {}
    for number, (survey, image) in enumerate(there):
        joins = {operator.id for operator in image.operators if operator.name == JOIN}
        if len(image.shards) == 1 and image.shards[0].operator not in joins:
            (shard,) = image.shards
            at = ShardAt(survey.location, shard, image.settings, sizes[number])
            divisible[number] = at
    shards = list(divisible.values())
    parts = cutter.settings_of_parts(shards, cutter.bytes_of_part(sizes))
    for number, own in zip(divisible, parts, strict=True):
        settings[number] = own
    return settings


def _order(portion: Portion, settings: Mapping[str, str], reads: str, tally: bool) -> Order:
    survey, image = portion
    own = replace(image, settings=settings)
    return {"survey": to_plain(survey), "image": to_plain(own), "reads": reads, "tally": tally}

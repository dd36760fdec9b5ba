"""`diff` by a fleet: sums of every shard first, then the entries of those buckets that differ, and
nothing else.

fold  every piece of either side  ──▶ sums per store and bucket, added up here
pick  those with a differing bucket  ──▶ its entries, at most PICKED_MAX bytes an answer

A piece is a few shards, or a part of a large one.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from stateshift import plain
from stateshift.engines.spark.check.portions import drop_shards, shard_groups
from stateshift.engines.spark.entries.sides import (
    Folded,
    OperatorSide,
    Sides,
    add_sums,
    differing,
    fold,
    pick,
)
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.views import Compared
from stateshift.fleet.cutting import Cutter, Settings, ShardAt
from stateshift.fleet.orders import Json, Order
from stateshift.formats.blocks import RowBlock, block_of
from stateshift.survey import Image, ShardFiles
from stateshift.world import World

LEFT, RIGHT = 0, 1
PICKED_MAX = 8 * 1024 * 1024

Put = Callable[[int, RowBlock], None]
Sizes = tuple[Mapping[str, int], Mapping[str, int]]


class _OrderedPart(NamedTuple):
    """The part of one order: some shards of a side, or a part of one by its settings."""

    side: int
    shards: list[ShardFiles]
    settings: Settings


def unequal(cutter: Cutter, sides: Sides, sizes: Sizes, put: Put) -> Compared:
    """Put every entry that may differ, with its side, in blocks; keys are in the common form."""
    ends = [_end(sides.left), _end(sides.right)]
    pieces = _pieces(cutter, sides, sizes)
    compared, sums = Compared(), list[Folded]()
    for answer in cutter.spread("fold", (_order(ends, piece) for piece in pieces)):
        folded: Folded = {}
        for store, buckets in answer["folded"].items():
            folded[store] = {int(bucket): tuple(own) for bucket, own in buckets.items()}
        sums.append(folded)
        compared.met |= set(answer["met"])
    folds = list(zip(pieces, sums, strict=True))
    left = add_sums(folded for piece, folded in folds if piece.side == LEFT)
    right = add_sums(folded for piece, folded in folds if piece.side == RIGHT)
    different, compared.same = differing(left, right)
    picks: list[Order] = []
    for piece, folded in folds:
        order = _order(ends, piece)
        picks += [{**order, "wanted": wanted} for wanted in _wanted(folded, different)]
    for order, entries in zip(picks, cutter.spread("pick", picks), strict=True):
        block = block_of((b64decode(key), b64decode(value)) for key, value in entries)
        put(order["side"], block)
    return compared


def fold_here(order: Order, world: World) -> Json:
    """Fold shards, on an executor."""
    sides = _sides(order, world)
    folded = fold(sides.formed(order["side"], _shards(order)))
    return {"folded": folded, "met": sides.met}


def pick_here(order: Order, world: World) -> Json:
    """Pick entries, on an executor."""
    picked = []
    entries = _sides(order, world).formed(order["side"], _shards(order))
    for _, block in pick(entries, order["wanted"]):
        for key, value in block.records():
            picked.append([b64encode(key).decode(), b64encode(value or b"").decode()])
    return picked


def _pieces(cutter: Cutter, sides: Sides, sizes: Sizes) -> list[_OrderedPart]:
    """Return both sides in pieces: a few shards, or a part of a large one."""
    groups: list[_OrderedPart] = []
    shards: list[ShardAt] = []
    for side in (LEFT, RIGHT):
        image, storage = sides[side].image, sides[side].storage
        for group in shard_groups(tuple(sides[side].shards), sizes[side]):
            assert image is not None and storage is not None, "where there are shards"
            groups.append(_OrderedPart(side, group, image.settings))
            paths = chain.from_iterable(shard.files for shard in group)
            size = sum(sizes[side].get(path, 0) for path in paths)
            shards.append(ShardAt(storage.location, group[0], image.settings, size))
    part_bytes = cutter.bytes_of_part([shard.size for shard in shards])
    alone = [number for number, piece in enumerate(groups) if len(piece.shards) == 1]
    divided = cutter.settings_of_parts([shards[number] for number in alone], part_bytes)
    settings = dict(zip(alone, divided, strict=True))
    pieces: list[_OrderedPart] = []
    for number, piece in enumerate(groups):
        own = settings.get(number, [piece.settings])
        pieces += [piece._replace(settings=each) for each in own]
    return pieces


def _wanted(folded: Folded, different: Mapping[str, set[int]]) -> Iterator[dict[str, list[int]]]:
    """Yield the differing buckets of a group that are not empty, PICKED_MAX bytes at once."""
    wanted: dict[str, list[int]] = {}
    size = 0
    for store, buckets in folded.items():
        for bucket in sorted(different[store] & buckets.keys()):
            own = buckets[bucket][2]
            if wanted and size + own > PICKED_MAX:
                yield wanted
                wanted, size = {}, 0
            wanted.setdefault(store, []).append(bucket)
            size += own
    if wanted:
        yield wanted


def _order(ends: list[Json], piece: _OrderedPart) -> Order:
    shards = plain.to_plain(piece.shards)
    settings = dict(piece.settings)
    return {"ends": ends, "side": piece.side, "shards": shards, "settings": settings}


def _end(side: OperatorSide) -> Json:
    """Return the facts that read a side's rows; None if it has no such operator."""
    if side.image is None or side.operator is None:
        return None
    assert side.storage is not None, "where there is an image there is a storage"
    image = plain.to_plain(drop_shards(side.image))
    return {"location": side.storage.location, "image": image, "operator": side.operator.id}


def _sides(order: Order, world: World) -> Sides:
    sides = [_side(end, world) for end in order["ends"]]
    own = sides[order["side"]]
    if own.image is not None:
        read = replace(own.image, settings=order["settings"])
        sides[order["side"]] = replace(own, image=read)
    return Sides(*sides)


def _side(end: Json, world: World) -> OperatorSide:
    if end is None:
        return OperatorSide()
    storage, image = world.storage(end["location"]), plain.from_plain(Image, end["image"])
    operator = next(operator for operator in image.operators if operator.id == end["operator"])
    return OperatorSide(storage, image, operator, views_of(storage, image))


def _shards(order: Order) -> list[ShardFiles]:
    return [plain.from_plain(ShardFiles, shard) for shard in order["shards"]]

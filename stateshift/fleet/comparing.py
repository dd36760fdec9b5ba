"""`diff` by a fleet: sums of every shard first, then the entries of those buckets that differ, and
nothing else.

fold  every group of shards of either side  ──▶ sums per store and bucket, added up here
pick  the groups with a differing bucket    ──▶ its entries, at most PICKED_MAX bytes an answer
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping

from stateshift import plain
from stateshift.engines.spark.check.portions import shard_groups, undivided
from stateshift.engines.spark.entries.buckets import Folded, added, differing, fold, pick
from stateshift.engines.spark.entries.sides import Side, Sides
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.views import Compared
from stateshift.fleet.orders import Json, Order
from stateshift.formats.blocks import Block, block_of
from stateshift.survey import Image, ShardFiles
from stateshift.world import World

LEFT, RIGHT = 0, 1
PICKED_MAX = 8 * 1024 * 1024

Put = Callable[[int, Block], None]
# Orders of one kind go out to whoever is free; their answers come back in the same order.
Spread = Callable[[str, Iterable[Order]], Iterator[Json]]


def unequal(
    spread: Spread, sides: Sides, sizes: tuple[Mapping[str, int], Mapping[str, int]], put: Put
) -> Compared:
    """Put every entry that may differ, with its side, in blocks; keys are in the common form."""
    ends = [_end(sides.left), _end(sides.right)]
    groups = []
    for side in (LEFT, RIGHT):
        for group in shard_groups(tuple(sides[side].shards), sizes[side]):
            groups.append((side, group))
    compared, sums = Compared(), list[Folded]()
    for answer in spread("fold", (_order(ends, side, group) for side, group in groups)):
        sums.append(_decoded(answer["folded"]))
        compared.met |= set(answer["met"])
    folds = list(zip(groups, sums, strict=True))
    left = added(folded for (side, _), folded in folds if side == LEFT)
    right = added(folded for (side, _), folded in folds if side == RIGHT)
    different, compared.same = differing(left, right)
    picks: list[Order] = []
    for (side, group), folded in folds:
        order = _order(ends, side, group)
        picks += [{**order, "wanted": wanted} for wanted in _wanted(folded, different)]
    for order, entries in zip(picks, spread("pick", picks), strict=True):
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


def _wanted(folded: Folded, different: Mapping[str, set[int]]) -> Iterator[dict[str, list[int]]]:
    """Yield the differing buckets of a group that are not empty there, as many at once as make an
    answer of PICKED_MAX.
    """
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


def _order(ends: list[Json], side: int, group: list[ShardFiles]) -> Order:
    return {"ends": ends, "side": side, "shards": plain.to_plain(group)}


def _end(side: Side) -> Json:
    """Return what it takes to read a side's rows; None if it has no such operator."""
    if side.image is None or side.operator is None:
        return None
    assert side.storage is not None, "where there is an image there is a storage"
    image = plain.to_plain(undivided(side.image))
    return {"location": side.storage.location, "image": image, "operator": side.operator.id}


def _sides(order: Order, world: World) -> Sides:
    return Sides(*(_side(end, world) for end in order["ends"]))


def _side(end: Json, world: World) -> Side:
    if end is None:
        return Side()
    storage, image = world.storage(end["location"]), plain.from_plain(Image, end["image"])
    operator = next(operator for operator in image.operators if operator.id == end["operator"])
    return Side(storage, image, operator, views_of(storage, image))


def _shards(order: Order) -> list[ShardFiles]:
    return [plain.from_plain(ShardFiles, shard) for shard in order["shards"]]


def _decoded(folded: Mapping[str, Mapping[str, list[int]]]) -> Folded:
    return {
        store: {int(bucket): (sums[0], sums[1], sums[2]) for bucket, sums in buckets.items()}
        for store, buckets in folded.items()
    }

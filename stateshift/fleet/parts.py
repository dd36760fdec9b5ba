"""A comparison of entries in parts, each an order of its own: a shard where that is worth it, else
a side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from stateshift.step import CompareImages
from stateshift.step.images import Side
from stateshift.world import World

WORTHWHILE_BYTES = 64 * 1024 * 1024  # below it nobody waits for a few large steps

# A side of a comparison, and what its order is called.
Labelled = tuple[str, Side]


class ComparedParts(NamedTuple):
    """The parts of a comparison of entries, each with a label."""

    source: list[Labelled]
    target: list[Labelled]


def parts_of(step: CompareImages, world: World, is_cut: bool) -> ComparedParts | None:
    """Return the parts of a comparison of entries: each shard where they are worth it, else each
    side. None where one order is enough. What was read of the source before is no part.
    """
    if step.paths:
        return None
    is_large = step.bytes >= WORTHWHILE_BYTES or is_cut
    if not is_large and not any(step.known(world)):
        return None
    source = []
    for number, side in enumerate(step.unread(world)):
        label = f"{step.name}/source{number or ''}"
        source += shards_of(side, label) if is_large else [(label, side)]
    label, side = f"{step.name}/target", step.sides[1]
    target = shards_of(side, label) if is_large else [(label, side)]
    return ComparedParts(source, target) if source or target else None


def shards_of(side: Side, label: str) -> list[Labelled]:
    """Return a side for each of its shards, with its label."""
    return [
        (f"{label}/{number}", replace(side, shards=(shard,)))
        for number, shard in enumerate(side.shards)
    ]

"""Two images compared by their entries: shards, files, providers and codecs forgotten. Reads only.

    diff(A, B) -> Differences  per operator and store: added (only B has the key), removed (only A),
                               changed

Where both have as many shards, shard is matched with shard first. What finds no partner there, and
everything where the counts differ, is matched once more, all shards together: so a key that lies in
another shard is no difference. Held in memory is what matching holds (see `match`); the rest of
it, and what was left of shards, lies on disk.

What cannot be compared is named, and then the images are not called equal: nothing showed that they
are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow.compute as pc

from stateshift.engines.match import Matched, Shelf, matched
from stateshift.engines.spark.entries.sides import SEPARATOR, Side, Sides
from stateshift.engines.spark.views.selection import Opened, opened
from stateshift.engines.views import Change, Counts, Difference, Differences, Opening, Readers
from stateshift.formats.blocks import Binary, Block
from stateshift.survey import ShardFiles


def diff(
    one: str,
    other: str,
    opening: Opening,
    show: int = 0,
    fleet: Readers | None = None,
) -> Differences:
    """Compare the image at `one` (A) with that at `other` (B); `show` of the differences of each
    store are decoded. A `fleet` reads them, where there is one.
    """
    a, b = opened(one, opening), opened(other, opening)
    found = Differences(epochs=(a.survey.epoch, b.survey.epoch))
    sizes = (_sizes(a), _sizes(b))
    for name, left, right in _paired(a, b):
        _Comparison(found, name, Sides(left, right), show).run(fleet, sizes)
    return found


def _paired(a: Opened, b: Opened) -> Iterator[tuple[str, Side, Side]]:
    """Operators of one name on both sides; a side that has no such operator is empty."""
    ones, others = _sides(a), _sides(b)
    if len(a.images) == len(b.images) == 1:  # wherever in its directory a single image lies
        ones, others = (
            {k.rpartition("/")[2]: v for k, v in side.items()} for side in (ones, others)
        )
    for name in dict.fromkeys((*ones, *others)):
        yield name, ones.get(name, Side()), others.get(name, Side())


def _sides(found: Opened) -> dict[str, Side]:
    sides = {}
    for image in found.images:
        for operator in image.operators:
            sides[f"{image.path}/{operator.id}" if image.path else operator.id] = Side(
                found.storage, image, operator, found.views[image.path]
            )
    return sides


class _Comparison:
    """One operator being compared."""

    def __init__(self, found: Differences, operator: str, sides: Sides, show: int) -> None:
        self._found, self._operator, self._sides, self._show = found, operator, sides, show
        self._counts: dict[str, Counts] = {}
        self._begun: set[str] = set()

    def run(self, fleet: Readers | None, sizes: tuple[dict[str, int], dict[str, int]]) -> None:
        for store in self._sides.names():
            self._begin(store)
        left, right = _by_number(self._sides.left.shards), _by_number(self._sides.right.shards)
        with Shelf() as apart:
            if fleet is not None:
                self._read_by(fleet, sizes, apart)
                self._tell(matched(apart.sided()))
            elif left.keys() != right.keys():
                self._tell(self._matched(self._sides.left.shards, self._sides.right.shards))
            else:
                for number, shards in left.items():
                    for found in self._matched(shards, right[number]):
                        self._same(found.same)
                        apart.put(0, found.removed, found.changed[0])
                        apart.put(1, found.added, found.changed[1])
                self._tell(matched(apart.sided()))
        for store in self._sides.met:
            self._begin(store)
        self._found.stores += [self._counts[name] for name in sorted(self._counts)]

    def _begin(self, store: str) -> None:
        """A store that cannot be compared is a result, too."""
        if store in self._begun:
            return
        self._begun.add(store)
        forms = self._sides.form(store)
        if isinstance(forms, str):
            self._found.incomparable.append((self._operator, store, forms))
        else:
            self._counts[store] = Counts(self._operator, store)

    def _read_by(
        self, fleet: Readers, sizes: tuple[dict[str, int], dict[str, int]], apart: Shelf
    ) -> None:
        """What a fleet has found in buckets whose sums differ is put aside; the rest is the
        same.
        """
        compared = fleet.unequal(self._sides, sizes, apart.put)
        for store in sorted(compared.met):
            self._begin(store)
        for store, count in compared.same.items():
            self._counts[store].same += count

    def _matched(self, left: list[ShardFiles], right: list[ShardFiles]) -> Iterator[Matched]:
        sides = enumerate((left, right))
        return matched(
            (side, block) for side, shards in sides for block in self._formed(side, shards)
        )

    def _formed(self, side: int, shards: list[ShardFiles]) -> Iterator[Block]:
        for store, block in self._sides.formed(side, shards):
            self._begin(store)
            yield block

    def _same(self, keys: Binary) -> None:
        for store, places in _by_store(keys, self._counts):
            self._counts[store].same += len(places)

    def _tell(self, found: Iterable[Matched]) -> None:
        """What differs, counted, and shown if there is room."""
        for one in found:
            self._same(one.same)
            self._differ("removed", one.removed, None)
            self._differ("added", None, one.added)
            self._differ("changed", *one.changed)

    def _differ(self, change: Change, before: Block | None, after: Block | None) -> None:
        either = before if before is not None else after
        assert either is not None, "an entry that differs is on one side at least"
        for store, places in _by_store(either.keys, self._counts):
            counts = self._counts[store]
            room = max(0, self._show - counts.added - counts.removed - counts.changed)
            setattr(counts, change, getattr(counts, change) + len(places))
            picked = places[:room]
            values = (
                [None] * len(picked) if b is None else b.values.take(picked).to_pylist()
                for b in (before, after)
            )
            for key, old, new in zip(either.keys.take(picked).to_pylist(), *values, strict=True):
                self._found.shown.append(self._decoded(store, change, key, old, new))

    def _decoded(
        self, store: str, change: Change, key: bytes, before: bytes | None, after: bytes | None
    ) -> Difference:
        forms = self._sides.form(store)
        assert not isinstance(forms, str), "what cannot be compared differs in nothing"
        left, right = forms
        return Difference(
            self._operator,
            store,
            change,
            (right if before is None else left).show_key(key.partition(SEPARATOR)[2]),
            None if before is None else left.show_value(before),
            None if after is None else right.show_value(after),
        )


def _by_store(keys: Binary, stores: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """The places of each store's keys, in their order."""
    for store in sorted(stores):
        places = pc.indices_nonzero(pc.starts_with(keys, store.encode() + SEPARATOR))
        if len(places):
            yield store, places


def _sizes(found: Opened) -> dict[str, int]:
    return {file.path: file.size for file in found.survey.files}


def _by_number(shards: list[ShardFiles]) -> dict[int, list[ShardFiles]]:
    found: dict[int, list[ShardFiles]] = {}
    for shard in shards:
        found.setdefault(shard.shard, []).append(shard)
    return found

"""Two images compared by their entries: shards, files, providers and codecs forgotten. Reads only.

    diff(A, B) -> Differences  per operator and store: added (only B has the key), removed (only A),
                               changed

If both have as many shards, shard is matched with shard first. Entries without a partner there, and
everything where the counts differ, is matched once more, all shards together: so a key that lies in
another shard is no difference. Held in memory is what matching holds (see `match`); the rest of it,
and what was left of shards, lies on disk.

A store that cannot be compared is named, and then the images are not called equal: nothing showed
that they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import pyarrow.compute as pc

from stateshift.engines.match import Matched, Shelf, Sided, match_sides
from stateshift.engines.spark.entries.sides import SEPARATOR, OperatorSide, Sides
from stateshift.engines.spark.views.selection import Opened, open_images, operator_id
from stateshift.engines.views import Change, Counts, Difference, Differences, Opening, Readers
from stateshift.formats.blocks import Binary, Column, RowBlock
from stateshift.survey import ShardFiles

Places = Column  # numbers of entries
Sizes = tuple[dict[str, int], dict[str, int]]  # of each side's files, by path


def diff(
    one: str, other: str, opening: Opening, show: int = 0, fleet: Readers | None = None
) -> Differences:
    """Compare two images, A and B; `show` of the differences of each store are decoded."""
    a, b = open_images(one, opening), open_images(other, opening)
    differences = Differences(epochs=(a.survey.epoch, b.survey.epoch))
    sizes = tuple({file.path: file.size for file in each.survey.files} for each in (a, b))
    size = _bytes_read(a, sizes[0]) + _bytes_read(b, sizes[1])
    is_shared = fleet is not None and fleet.is_worth(size)
    # Wherever in its directory a single image lies.
    are_single = len(a.images) == len(b.images) == 1
    lefts, rights = _sides(a, are_single), _sides(b, are_single)
    for name in dict.fromkeys((*lefts, *rights)):
        sides = Sides(lefts.get(name, OperatorSide()), rights.get(name, OperatorSide()))
        comparison = _Comparison(differences, name, sides, show)
        comparison.run(fleet if is_shared else None, (sizes[0], sizes[1]))
    return differences


def _sides(opened: Opened, is_single: bool) -> dict[str, OperatorSide]:
    """Return the operators of one side, by their ids below their images' paths."""
    sides = {}
    for image in opened.images:
        views = opened.views[image.path]
        for operator in image.operators:
            name = operator.id if is_single else operator_id(image, operator.id)
            sides[name] = OperatorSide(opened.storage, image, operator, views)
    return sides


@dataclass(eq=False)
class _Comparison:
    """One operator being compared."""

    _differences: Differences
    _operator: str
    _sides: Sides
    _show: int
    _counts: dict[str, Counts] = field(default_factory=dict, init=False)
    _begun: set[str] = field(default_factory=set, init=False)

    def run(self, fleet: Readers | None, sizes: Sizes) -> None:
        self._begin(self._sides.names())
        with Shelf() as apart:
            if fleet is not None:
                # All that the fleet does not name is the same.
                compared = fleet.unequal(self._sides, sizes, apart.put)
                self._begin(sorted(compared.met))
                for store, count in compared.same.items():
                    self._counts[store].same += count
            else:
                self._read(apart)
            self._report(match_sides(apart.sided()))
        self._begin(self._sides.met)
        self._differences.stores += [self._counts[name] for name in sorted(self._counts)]

    def _begin(self, stores: Iterable[str]) -> None:
        for store in stores:
            if store not in self._begun:
                self._begun.add(store)
                # That it cannot be compared is a result, too.
                forms = self._sides.form(store)
                if isinstance(forms, str):
                    self._differences.incomparable.append((self._operator, store, forms))
                else:
                    self._counts[store] = Counts(self._operator, store)

    def _read(self, apart: Shelf) -> None:
        """Match shard with shard and put the rest aside; all together where shards differ."""
        left, right = _by_number(self._sides.left.shards), _by_number(self._sides.right.shards)
        if left.keys() != right.keys():
            self._report(self._matched(self._sides.left.shards, self._sides.right.shards))
            return
        for number, shards in left.items():
            matches = self._matched(shards, right[number])
            for match in matches:
                self._same(match.same)
                apart.put(0, match.removed, match.changed[0])
                apart.put(1, match.added, match.changed[1])

    def _matched(self, left: list[ShardFiles], right: list[ShardFiles]) -> Iterator[Matched]:
        return match_sides(chain(self._formed(0, left), self._formed(1, right)))

    def _formed(self, side: int, shards: list[ShardFiles]) -> Iterator[Sided]:
        for store, block in self._sides.formed(side, shards):
            self._begin((store,))
            yield Sided(side, block)

    def _same(self, keys: Binary) -> None:
        for store, places in _by_store(keys, self._counts):
            self._counts[store].same += len(places)

    def _report(self, matches: Iterable[Matched]) -> None:
        for match in matches:
            self._same(match.same)
            self._differ("removed", match.removed, None)
            self._differ("added", None, match.added)
            self._differ("changed", *match.changed)

    def _differ(self, change: Change, before: RowBlock | None, after: RowBlock | None) -> None:
        either = before if before is not None else after
        assert either is not None, "an entry that differs is on one side at least"
        for store, places in _by_store(either.keys, self._counts):
            counts = self._counts[store]
            left_to_show = self._show - counts.added - counts.removed - counts.changed
            setattr(counts, change, getattr(counts, change) + len(places))
            picked = places[: max(0, left_to_show)]
            keys = either.keys.take(picked).to_pylist()
            old, new = _values(before, picked), _values(after, picked)
            for key, value_before, value_after in zip(keys, old, new, strict=True):
                shown = self._decoded(store, change, key, (value_before, value_after))
                self._differences.shown.append(shown)

    def _decoded(
        self, store: str, change: Change, key: bytes, values: tuple[bytes | None, bytes | None]
    ) -> Difference:
        forms = self._sides.form(store)
        assert not isinstance(forms, str), "what cannot be compared differs in nothing"
        left, right = forms
        before, after = values
        show_key = right.show_key if before is None else left.show_key
        return Difference(
            operator=self._operator,
            store=store,
            change=change,
            key=show_key(key.partition(SEPARATOR)[2]),
            before=None if before is None else left.show_value(before),
            after=None if after is None else right.show_value(after),
        )


def _values(block: RowBlock | None, places: Places) -> list[bytes | None]:
    if block is None:
        return [None] * len(places)
    values: list[bytes | None] = block.values.take(places).to_pylist()
    return values


def _by_store(keys: Binary, stores: Iterable[str]) -> Iterator[tuple[str, Places]]:
    """Yield the places of each store's keys, in their order."""
    for store in sorted(stores):
        places = pc.indices_nonzero(pc.starts_with(keys, store.encode() + SEPARATOR))
        if len(places):
            yield store, places


def _bytes_read(opened: Opened, sizes: Mapping[str, int]) -> int:
    paths = chain.from_iterable(image.needed_files for image in opened.images)
    return sum(sizes.get(path, 0) for path in paths)


def _by_number(shards: list[ShardFiles]) -> dict[int, list[ShardFiles]]:
    by_number: dict[int, list[ShardFiles]] = {}
    for shard in shards:
        by_number.setdefault(shard.shard, []).append(shard)
    return by_number

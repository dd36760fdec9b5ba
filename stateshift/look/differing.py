"""Two images compared by their entries: shards, files, providers and codecs forgotten. Reads only.

    diff(A, B) -> Differences      per operator and store: added (only B has the key), removed (only A), changed

Where both have as many shards, shard is matched with shard first. What finds no partner there, and everything where
the counts differ, is matched once more, all shards together: so a key that lies in another shard is no difference. Held
in memory is what matching holds (see `matching`); the rest of it, and what was left of shards, lies on disk.

What cannot be compared is named, and then the images are not called equal: nothing showed that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from stateshift.engines.spark.folding import folded
from stateshift.engines.spark.matching import Matched, Shelf, matched
from stateshift.engines.spark.sameness import Form, common_name, forms
from stateshift.engines.spark.store_view import StoreView
from stateshift.formats.binaries import joined
from stateshift.formats.blocks import Binary, Block
from stateshift.look.differences import Change, Counts, Difference, Differences
from stateshift.look.selecting import Opened, opened
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Operator, ShardFiles

_SEP = b"\0"


@dataclass(frozen=True)
class _Side:
    """One operator of one image; `image` is None where only the other one has it."""

    opened: Opened
    image: Image | None
    operator: Operator | None

    @property
    def shards(self) -> list[ShardFiles]:
        if self.image is None or self.operator is None:
            return []
        return [shard for shard in self.image.shards if shard.operator == self.operator.id]

    def view(self, store: str) -> StoreView:
        if self.image is None or self.operator is None:
            return StoreView("", store)
        return self.opened.views[self.image.path].of(self.operator.id, store)

    def stores(self) -> dict[str, str]:
        """Common name -> this side's."""
        if self.image is None or self.operator is None:
            return {}
        views = self.opened.views[self.image.path]
        return {
            common_name(name): name
            for store in self.operator.stores
            for name in views.names(self.operator.id, store.name)
        }

    def blocks(self, shards: list[ShardFiles]) -> Iterator[tuple[str, Block]]:
        assert self.image is not None, "an operator that is not there has no shards"
        for shard in shards:
            for store, block in folded(self.opened.storage.chunks, shard, self.image.settings):
                yield common_name(store), block


def diff(
    one: str, other: str, opening: Callable[[str], Storage] = open_patiently, show: int = 0
) -> Differences:
    """Compare the image at `one` (A) with that at `other` (B); `show` of the differences of each store are decoded."""
    a, b = opened(one, opening), opened(other, opening)
    found = Differences(epochs=(a.survey.epoch, b.survey.epoch))
    for name, left, right in _paired(a, b):
        _Comparison(found, name, left, right, show).run()
    return found


def _paired(a: Opened, b: Opened) -> Iterator[tuple[str, _Side, _Side]]:
    """Operators of one name on both sides; a side that has no such operator is empty."""
    ones, others = _sides(a), _sides(b)
    if len(a.images) == len(b.images) == 1:  # wherever in its directory a single image lies
        ones, others = ({k.rpartition("/")[2]: v for k, v in side.items()} for side in (ones, others))
    for name in dict.fromkeys((*ones, *others)):
        yield name, ones.get(name, _Side(a, None, None)), others.get(name, _Side(b, None, None))


def _sides(found: Opened) -> dict[str, _Side]:
    return {
        f"{image.path}/{operator.id}" if image.path else operator.id: _Side(found, image, operator)
        for image in found.images
        for operator in image.operators
    }


class _Comparison:
    """One operator being compared."""

    def __init__(self, found: Differences, operator: str, left: _Side, right: _Side, show: int) -> None:
        self._found, self._operator, self._left, self._right, self._show = found, operator, left, right, show
        self._counts: dict[str, Counts] = {}
        self._forms: dict[str, tuple[Form, Form] | None] = {}

    def run(self) -> None:
        for store in dict.fromkeys((*self._left.stores(), *self._right.stores())):
            self._form(store)
        left, right = _by_number(self._left.shards), _by_number(self._right.shards)
        if left.keys() != right.keys():
            self._tell(self._matched(self._left.shards, self._right.shards))
        else:
            with Shelf() as apart:
                for number, shards in left.items():
                    for found in self._matched(shards, right[number]):
                        self._same(found.same)
                        apart.put(0, found.removed, found.changed[0])
                        apart.put(1, found.added, found.changed[1])
                self._tell(matched(apart.sided()))
        self._found.stores += [self._counts[name] for name in sorted(self._counts)]

    def _matched(self, left: list[ShardFiles], right: list[ShardFiles]) -> Iterator[Matched]:
        sides = enumerate((left, right))
        return matched((side, block) for side, shards in sides for block in self._formed(side, shards))

    def _formed(self, side: int, shards: list[ShardFiles]) -> Iterator[Block]:
        """A side's entries in the common form, the store's name before the key."""
        for store, block in (self._left, self._right)[side].blocks(shards) if shards else ():
            forms = self._form(store)
            if forms is not None:
                form = forms[side]
                yield Block(joined(store.encode() + _SEP, form.key(block.keys)), form.value(block.values))

    def _form(self, store: str) -> tuple[Form, Form] | None:
        if store not in self._forms:
            left, right = self._left.stores().get(store, store), self._right.stores().get(store, store)
            self._forms[store] = self._chosen(store, self._left.view(left), self._right.view(right))
        return self._forms[store]

    def _chosen(self, store: str, left: StoreView, right: StoreView) -> tuple[Form, Form] | None:
        """The common form; where there is none, that is a result, too. A store that one side lacks needs none."""
        one, other = self._left.operator, self._right.operator
        if one is None or store not in self._left.stores():
            left = right
        if other is None or store not in self._right.stores():
            right = left
        alike = one is None or other is None or one.provider == other.provider
        found = forms(left, right, alike or left is right)
        if isinstance(found, str):
            self._found.incomparable.append((self._operator, store, found))
            return None
        self._counts[store] = Counts(self._operator, store)
        return found

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
            values = ([None] * len(picked) if b is None else b.values.take(picked).to_pylist() for b in (before, after))
            for key, old, new in zip(either.keys.take(picked).to_pylist(), *values, strict=True):
                self._found.shown.append(self._decoded(store, change, key, old, new))

    def _decoded(
        self, store: str, change: Change, key: bytes, before: bytes | None, after: bytes | None
    ) -> Difference:
        forms = self._forms[store]
        assert forms is not None, "what cannot be compared differs in nothing"
        left, right = forms
        return Difference(
            self._operator,
            store,
            change,
            (right if before is None else left).show_key(key.partition(_SEP)[2]),
            None if before is None else left.show_value(before),
            None if after is None else right.show_value(after),
        )


def _by_store(keys: Binary, stores: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """The places of each store's keys, in their order."""
    for store in sorted(stores):
        places = pc.indices_nonzero(pc.starts_with(keys, store.encode() + _SEP))
        if len(places):
            yield store, places


def _by_number(shards: list[ShardFiles]) -> dict[int, list[ShardFiles]]:
    found: dict[int, list[ShardFiles]] = {}
    for shard in shards:
        found.setdefault(shard.shard, []).append(shard)
    return found

"""Two images compared by their entries: shards, files, providers and codecs forgotten. Reads only.

    diff(A, B) -> Differences      per operator and store: added (only B has the key), removed (only A), changed

Where both have as many shards, shard is compared with shard first. What finds no partner there, and everything where
the counts differ, is put on piles by key (on disk where it is much), and pile is compared with pile: so a key that lies
in another shard is no difference. Held in memory is a shard of either side, or a pile.

What cannot be compared is named, and then the images are not called equal: nothing showed that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from stateshift.engines.spark.sides import Side, Sides
from stateshift.look.piles import Piles
from stateshift.look.selecting import Opened, opened
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import Storage
from stateshift.survey import ShardFiles

if TYPE_CHECKING:
    from stateshift.fleet.crew import Crew

# Bytes of entries that a byte of compressed files is taken for when piles are counted out.
EXPANSION = 6

_SEP = b"\0"


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs, decoded as far as it can be. `before` is A's value, `after` B's; None where it is not."""

    operator: str
    store: str
    change: Literal["added", "removed", "changed"]
    key: Any
    before: Any
    after: Any


@dataclass(slots=True)
class Counts:
    """What was found of one store of one operator."""

    operator: str
    store: str
    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0

    @property
    def equal(self) -> bool:
        return not (self.added or self.removed or self.changed)


@dataclass(slots=True)
class Differences:
    """`incomparable` names stores, and why nothing can be said about them."""

    stores: list[Counts] = field(default_factory=list)
    incomparable: list[tuple[str, str, str]] = field(default_factory=list)
    shown: list[Difference] = field(default_factory=list)
    epochs: tuple[int | None, int | None] = (None, None)

    @property
    def equal(self) -> bool:
        return not self.incomparable and all(store.equal for store in self.stores)


def diff(
    one: str,
    other: str,
    opening: Callable[[str], Storage] = open_patiently,
    show: int = 0,
    fleet: Crew | None = None,
) -> Differences:
    """Compare the image at `one` (A) with that at `other` (B); `show` of the differences of each store are decoded. A
    `fleet` reads them, where there is one."""
    a, b = opened(one, opening), opened(other, opening)
    found = Differences(epochs=(a.survey.epoch, b.survey.epoch))
    sizes = (_sizes(a), _sizes(b))
    for name, left, right in _paired(a, b):
        _Comparison(found, name, Sides(left, right), show, sizes).run(fleet)
    return found


def _paired(a: Opened, b: Opened) -> Iterator[tuple[str, Side, Side]]:
    """Operators of one name on both sides; a side that has no such operator is empty."""
    ones, others = _sides(a), _sides(b)
    if len(a.images) == len(b.images) == 1:  # wherever in its directory a single image lies
        ones, others = ({k.rpartition("/")[2]: v for k, v in side.items()} for side in (ones, others))
    for name in dict.fromkeys((*ones, *others)):
        yield name, ones.get(name, Side()), others.get(name, Side())


def _sides(found: Opened) -> dict[str, Side]:
    return {
        f"{image.path}/{operator.id}" if image.path else operator.id: Side(
            found.storage, image, operator, found.views[image.path]
        )
        for image in found.images
        for operator in image.operators
    }


class _Comparison:
    """One operator being compared."""

    def __init__(
        self, found: Differences, operator: str, sides: Sides, show: int, sizes: tuple[dict[str, int], dict[str, int]]
    ) -> None:
        self._found, self._operator, self._sides, self._show, self._sizes = found, operator, sides, show, sizes
        self._counts: dict[str, Counts] = {}
        self._begun: set[str] = set()

    def run(self, fleet: Crew | None) -> None:
        for store in self._sides.names():
            self._begin(store)
        with closing(Piles(EXPANSION * sum(map(self._bytes_of, (0, 1))))) as piles:
            if fleet is None:
                self._deal(piles)
            else:
                self._dealt_by(fleet, piles)
            for store in self._sides.met:
                self._begin(store)
            if not piles.empty:
                for left, right in piles.each():
                    self._compare(left, right)
        self._found.stores += [self._counts[name] for name in sorted(self._counts)]

    def _begin(self, store: str) -> None:
        """A store that cannot be compared is a result, too."""
        if store in self._begun:
            return
        self._begun.add(store)
        form = self._sides.form(store)
        if isinstance(form, str):
            self._found.incomparable.append((self._operator, store, form))
        else:
            self._counts[store] = Counts(self._operator, store)

    def _dealt_by(self, fleet: Crew, piles: Piles) -> None:
        """Onto piles what a fleet has found in buckets whose sums differ."""
        from stateshift.fleet.comparing import unequal

        def put(side: int, store: str, key: bytes, value: bytes) -> None:
            piles.put(side, store.encode() + _SEP + key, value)

        compared = unequal(fleet, self._sides, self._sizes, put)
        for store in sorted(compared.met):
            self._begin(store)
        for store, count in compared.same.items():
            self._counts[store].same += count

    def _bytes_of(self, side: int) -> int:
        return sum(self._sizes[side].get(path, 0) for shard in self._sides[side].shards for path in shard.files)

    def _deal(self, piles: Piles) -> None:
        """Everything onto piles, but for what shards of the same number agree about."""
        left, right = _by_number(self._sides.left.shards), _by_number(self._sides.right.shards)
        if left.keys() != right.keys():
            for side, shards in enumerate((self._sides.left.shards, self._sides.right.shards)):
                for key, value in self._formed(side, shards):
                    piles.put(side, key, value)
            return
        for number, shards in left.items():
            held = dict(self._formed(0, shards))
            for key, value in self._formed(1, right[number]):
                if held.get(key) == value:
                    del held[key]
                    self._counts[_store_of(key)].same += 1
                else:
                    piles.put(1, key, value)
            for key, value in held.items():
                piles.put(0, key, value)

    def _formed(self, side: int, shards: list[ShardFiles]) -> Iterator[tuple[bytes, bytes]]:
        """A side's entries in the common form, the store's name before the key."""
        for store, key, value in self._sides.formed(side, shards):
            self._begin(store)
            yield store.encode() + _SEP + key, value

    def _compare(self, left: dict[bytes, list[bytes]], right: dict[bytes, list[bytes]]) -> None:
        for key, values in right.items():
            before = left.pop(key, [])
            rest = _without(values, before)
            missing = _without(before, values)
            counts = self._counts[_store_of(key)]
            counts.same += len(values) - len(rest)
            for at in range(max(len(rest), len(missing))):
                self._tell(key, missing[at : at + 1], rest[at : at + 1])
        for key, values in left.items():
            for value in values:
                self._tell(key, [value], [])

    def _tell(self, key: bytes, before: list[bytes], after: list[bytes]) -> None:
        """One difference, counted, and shown if there is room."""
        store = _store_of(key)
        counts = self._counts[store]
        change: Literal["added", "removed", "changed"] = (
            "changed" if before and after else "added" if after else "removed"
        )
        seen = counts.added + counts.removed + counts.changed
        setattr(counts, change, getattr(counts, change) + 1)
        if seen < self._show:
            self._found.shown.append(self._decoded(store, change, key, before, after))

    def _decoded(
        self, store: str, change: Literal["added", "removed", "changed"], key: bytes, before: list[bytes],
        after: list[bytes],
    ) -> Difference:  # fmt: skip
        forms = self._sides.form(store)
        assert not isinstance(forms, str), "what cannot be compared differs in nothing"
        left, right = forms
        return Difference(
            self._operator,
            store,
            change,
            (left if before else right).show_key(key.partition(_SEP)[2]),
            left.show_value(before[0]) if before else None,
            right.show_value(after[0]) if after else None,
        )


def _store_of(key: bytes) -> str:
    return key.partition(_SEP)[0].decode()


def _without(values: list[bytes], taken: list[bytes]) -> list[bytes]:
    """The values but for those that are also in `taken`, one for one."""
    rest = list(values)
    for value in taken:
        if value in rest:
            rest.remove(value)
    return rest


def _by_number(shards: list[ShardFiles]) -> dict[int, list[ShardFiles]]:
    found: dict[int, list[ShardFiles]] = {}
    for shard in shards:
        found.setdefault(shard.shard, []).append(shard)
    return found


def _sizes(opened: Opened) -> dict[str, int]:
    return {file.path: file.size for file in opened.survey.files}

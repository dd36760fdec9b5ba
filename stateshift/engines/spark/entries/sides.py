"""One operator in two images, and the form in which its entries are compared. Reads only.

OperatorSide  the operator in one of the images; without one where only the other image has it
Sides.form    the common form of a store, or why there is none
Sides.formed  a side's entries in it, in blocks of one store each; the store's name stands before
              every key

The form is the same for the same state, whoever holds it:

    providers alike   the bytes of key and value, as the provider has them
    providers differ  the bare rows: RocksDB's encoding byte taken off
                      composite keys (prefixes, ranges, times), which only RocksDB has: the
                      columns, as JSON
    lists             the bare rows one after the other, whatever the merge operator puts between
                      them

A store of column families is called by its family: `left-keyToNumValues` is a store of its own on
the HDFS-backed provider and under join state format 2, and a family of the store `default` under
format 3.

A fleet compares two sides by sums first, and looks only at the buckets that differ:

    fold  every entry into one of BUCKETS by its key: per store and bucket a count, a sum of 128-bit
          hashes, bytes
    pick  the entries of those buckets whose sums differ between the sides

The sum of a bucket is over all shards of a side: their numbers make no difference. Equal sums are
equal entries, as in CompareImages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from stateshift.engines.spark.entries.encoders import PLAIN, bare, rows_of_list
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.store_views import Views
from stateshift.formats.blocks import (
    Binary,
    Ints,
    RowBlock,
    binary,
    join_columns,
    lengths,
    numerals,
    without_first,
)
from stateshift.formats.spans import hash64, hash128, spans
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Operator, ShardFiles

Change = Callable[[Binary], Binary]
Show = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Form:
    """How one side's bytes are brought into the common form, and shown when they are in it."""

    key: Change
    value: Change
    show_key: Show
    show_value: Show


def common_name(store: str) -> str:
    """Return the name that both images give the store."""
    return store.rpartition("/")[2]


def forms(one: StoreView, other: StoreView, alike: bool) -> tuple[Form, Form] | str:
    """Return both sides' forms, or why there are none. `alike`: one provider has written both."""
    if one.many != other.many:
        return "its values are lists in one image and single rows in the other"
    if alike and one.encoder == other.encoder:
        return _form(one, "as it is"), _form(other, "as it is")
    if not one.known or not other.known:
        return "its schema is not known in both images, and they encode rows differently"
    if one.encoder.avro != other.encoder.avro:
        return "its rows are Avro's in one image only"
    if {one.encoder.kind, other.encoder.kind} <= {"plain", "row"}:
        return _form(one, "bare"), _form(other, "bare")
    if one.key != other.key:
        return "its keys have other columns, and are encoded differently"
    return _form(one, "decoded"), _form(other, "decoded")


def _form(view: StoreView, keys: Literal["as it is", "bare", "decoded"]) -> Form:
    """Return a side's form. A list is (i32LE size | 00 | row)*, without a delimiter."""
    shown = view if keys == "as it is" else replace(view, encoder=PLAIN)
    key: Change = _same if shown.encoder == view.encoder else _bare
    value = key
    show_key: Show = shown.show_key
    show_value = shown.show_value
    if keys == "decoded":
        key = _each(lambda content: json.dumps(view.named_key(view.decode_key(content))).encode())
        show_key = json.loads
    if view.many:

        def joined(content: bytes) -> bytes:
            rows = rows_of_list(content, view.delimiter)
            return b"".join((len(row) + 1).to_bytes(4, "little") + b"\0" + row for row in rows)

        value = _each(joined)
        show_value = replace(shown, delimiter=b"").show_value
    return Form(key, value, show_key, show_value)


def _same(items: Binary) -> Binary:
    return items


def _bare(items: Binary) -> Binary:
    """Return rows without the byte that RocksDB's encoding puts before each."""
    rows = spans(items)
    if (rows.sizes < 1).any() or rows.content[rows.starts].any():
        return _each(bare)(items)  # which says what is wrong
    return without_first(items, 1)


def _each(change: Callable[[bytes], bytes]) -> Change:
    return lambda items: binary([change(item) for item in items.to_pylist()])


# Between the name of a store and a key.
SEPARATOR = b"\0"

Formed = tuple[str, RowBlock]


@dataclass(frozen=True)
class OperatorSide:
    """One operator of one image."""

    storage: Storage | None = None
    image: Image | None = None
    operator: Operator | None = None
    views: Views | None = None

    @property
    def shards(self) -> list[ShardFiles]:
        if self.image is None or self.operator is None:
            return []
        return [shard for shard in self.image.shards if shard.operator == self.operator.id]

    def view(self, store: str) -> StoreView:
        if self.views is None or self.operator is None:
            return StoreView("", store)
        return self.views.of(self.operator.id, store)

    def stores(self) -> dict[str, str]:
        if self.views is None or self.operator is None:
            return {}
        names = {}
        for store in self.operator.stores:
            for name in self.views.names(self.operator.id, store.name):
                names[common_name(name)] = name
        return names

    def blocks(self, shards: Iterable[ShardFiles]) -> Iterator[Formed]:
        assert self.image is not None and self.storage is not None, (
            "an operator that is not there has no shards"
        )
        for shard in shards:
            for store, block in fold_shard(self.storage.chunks, shard, self.image.settings):
                yield common_name(store), block


@dataclass(eq=False)
class Sides:
    """Both images of one operator, 0 left and 1 right, with the form of each store's entries."""

    left: OperatorSide
    right: OperatorSide
    _forms: dict[str, tuple[Form, Form] | str] = field(default_factory=dict, init=False)

    def __getitem__(self, number: int) -> OperatorSide:
        return (self.left, self.right)[number]

    def names(self) -> list[str]:
        return list(dict.fromkeys((*self.left.stores(), *self.right.stores())))

    def form(self, store: str) -> tuple[Form, Form] | str:
        if store not in self._forms:
            left = self.left.view(self.left.stores().get(store, store))
            right = self.right.view(self.right.stores().get(store, store))
            one, other = self.left.operator, self.right.operator
            # A side that lacks the store needs no form of its own there.
            if one is None or store not in self.left.stores():
                left = right
            if other is None or store not in self.right.stores():
                right = left
            have_one_provider = one is None or other is None or one.provider == other.provider
            self._forms[store] = forms(left, right, have_one_provider or left is right)
        return self._forms[store]

    @property
    def met(self) -> list[str]:
        """Return every store of which an entry was seen, or the form asked for."""
        return list(self._forms)

    def formed(self, side: int, shards: Iterable[ShardFiles]) -> Iterator[Formed]:
        """Yield the entries of stores that can be compared."""
        if not shards:
            return
        for store, block in self[side].blocks(shards):
            forms = self.form(store)
            if not isinstance(forms, str):
                keys = join_columns(store.encode() + SEPARATOR, forms[side].key(block.keys))
                yield store, RowBlock(keys, forms[side].value(block.values))


BUCKETS = 1024
_MODULUS = 1 << 128

# Store -> bucket -> count, sum, bytes
Sums = tuple[int, int, int]
Folded = dict[str, dict[int, Sums]]


def fold(entries: Iterable[Formed]) -> Folded:
    """Return the sums of the entries, by store and bucket."""
    return add_sums({store: _sums(block)} for store, block in entries if len(block))


def add_sums(folded: Iterable[Folded]) -> Folded:
    """Return the sums of all parts of one side."""
    whole: Folded = {}
    for part in folded:
        for store, buckets in part.items():
            into = whole.setdefault(store, {})
            for bucket, sums in buckets.items():
                one = into.get(bucket, (0, 0, 0))
                total = (one[1] + sums[1]) % _MODULUS
                into[bucket] = one[0] + sums[0], total, one[2] + sums[2]
    return whole


def pick(entries: Iterable[Formed], wanted: Mapping[str, Collection[int]]) -> Iterator[Formed]:
    """Yield the entries of some buckets."""
    for store, block in entries:
        places = np.flatnonzero(np.isin(buckets_of(block.keys), list(wanted.get(store, ()))))
        if len(places):
            yield store, block.take(places)


def buckets_of(keys: Binary) -> Ints:
    """Return the bucket of each key."""
    return (hash64(keys) % np.uint64(BUCKETS)).astype(np.int64)


def differing(left: Folded, right: Folded) -> tuple[dict[str, set[int]], dict[str, int]]:
    """Return the buckets that differ, by store, and how many entries the others hold."""
    different: dict[str, set[int]] = {}
    same: dict[str, int] = {}
    for store in dict.fromkeys((*left, *right)):
        buckets, others = left.get(store, {}), right.get(store, {})
        equal = dict(buckets.items() & others.items())
        different[store] = buckets.keys() ^ equal.keys() | others.keys() ^ equal.keys()
        same[store] = sum(count for count, _, _ in equal.values())
    return different, same


def _sums(block: RowBlock) -> dict[int, Sums]:
    """Return the sums of a block, which is not empty: of quarters of hashes, below 64 bits."""
    keys, values = lengths(block.keys), lengths(block.values)
    buckets = buckets_of(block.keys)
    order = np.argsort(buckets, kind="stable")
    numbers, starts, counts = np.unique(buckets[order], return_index=True, return_counts=True)
    halves = hash128(join_columns(numerals(keys), b" ", block.keys, block.values))[order]
    quarters = []
    for half in halves.transpose():
        for shift in (0, 32):
            quarters.append(half >> shift & 0xFFFFFFFF)
    totals = [np.add.reduceat(quarter, starts).tolist() for quarter in quarters]
    sizes = np.add.reduceat((keys + values)[order], starts).tolist()
    hashes = []
    for own in zip(*totals, strict=True):  # quarters, the lowest first
        whole = sum(quarter << 32 * place for place, quarter in enumerate(own))
        hashes.append(whole % _MODULUS)
    sums = zip(counts.tolist(), hashes, sizes, strict=True)
    return dict(zip(numbers.tolist(), sums, strict=True))

"""One operator in two images, and the form in which its entries are compared. Reads only.

Side          the operator in one of the images; without one where only the other image has it
Sides.form    the common form of a store, or why there is none
Sides.formed  a side's entries in it, in blocks of one store each; the store's name stands before
              every key
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stateshift.engines.spark.entries.canonical_form import Form, common_name, forms
from stateshift.engines.spark.entries.fold import folded
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.store_views import Views
from stateshift.formats.binaries import join_columns
from stateshift.formats.blocks import Block
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Operator, ShardFiles

# Between the name of a store and a key.
SEPARATOR = b"\0"

Formed = tuple[str, Block]


@dataclass(frozen=True)
class Side:
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
        """Return common name -> this side's."""
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
            for store, block in folded(self.storage.chunks, shard, self.image.settings):
                yield common_name(store), block


class Sides:
    """Both images of one operator, 0 left and 1 right, with the form in which each store's entries
    are compared.
    """

    def __init__(self, left: Side, right: Side) -> None:
        self.left, self.right = left, right
        self._forms: dict[str, tuple[Form, Form] | str] = {}

    def __getitem__(self, number: int) -> Side:
        return (self.left, self.right)[number]

    def names(self) -> list[str]:
        """Return every store of either side."""
        return list(dict.fromkeys((*self.left.stores(), *self.right.stores())))

    def form(self, store: str) -> tuple[Form, Form] | str:
        if store not in self._forms:
            left = self.left.view(self.left.stores().get(store, store))
            right = self.right.view(self.right.stores().get(store, store))
            self._forms[store] = self._chosen(store, left, right)
        return self._forms[store]

    @property
    def met(self) -> list[str]:
        """Return every store of which an entry was seen, or the form asked for."""
        return list(self._forms)

    def formed(self, side: int, shards: Iterable[ShardFiles]) -> Iterator[Formed]:
        """Yield the entries that can be compared; of stores that cannot, nothing else is
        reported.
        """
        if not shards:
            return
        for store, block in self[side].blocks(shards):
            forms = self.form(store)
            if not isinstance(forms, str):
                keys = join_columns(store.encode() + SEPARATOR, forms[side].key(block.keys))
                yield store, Block(keys, forms[side].value(block.values))

    def _chosen(self, store: str, left: StoreView, right: StoreView) -> tuple[Form, Form] | str:
        """Return the forms of a store; a side that lacks it needs no form of its own there."""
        if self.left.operator is None or store not in self.left.stores():
            left = right
        if self.right.operator is None or store not in self.right.stores():
            right = left
        one, other = self.left.operator, self.right.operator
        have_one_provider = one is None or other is None or one.provider == other.provider
        return forms(left, right, have_one_provider or left is right)

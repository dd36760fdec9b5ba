"""Keys, values and placement of whole blocks: what they are entry by entry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stateshift.engines.spark.entries.columnar import hashes_of, keys_of, values_of
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.entries.vectors import array, arrow_type, fits
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.formats.blocks import RowBlock
from stateshift.formats.spark.placement import signed_hash
from tests.engines.spark.golden import NAMES, golden


def blocks(name: str) -> Iterator[tuple[StoreView, RowBlock]]:
    """Yield what the shards of a golden checkpoint keep, with how it is read."""
    storage = golden(name)
    for image in survey(storage).images:
        views = views_of(storage, image)
        for shard in image.shards:
            for store, block in fold_shard(storage.chunks, shard, image.settings):
                view = views.of(shard.operator, store)
                if view.known:
                    yield view, block


@pytest.mark.parametrize("name", NAMES)
def test_golden_blocks_are_what_they_are_entry_by_entry(name: str) -> None:
    for view, block in blocks(name):
        assert view.key is not None and view.value is not None
        rows = [view.decode_key(key) for key in block.keys.to_pylist()]
        keys = keys_of(view, block.keys)
        assert (keys is not None) == (fits(view.key) and bool(view.key.types))
        if keys is not None:
            assert keys.equals(array(rows, arrow_type(view.key)))
        values = values_of(view, block.values)
        assert (values is not None) == (fits(view.value) and bool(view.value.types))
        if values is not None:
            found = [view.decode_value(value) for value in block.values.to_pylist()]
            assert values.equals(array(found, values.type))
        if view.placed is not None:
            expected = [signed_hash(*view.placing(row)) if view.placed else 0 for row in rows]
            assert hashes_of(view, block.keys).tolist() == expected


@pytest.mark.long
def test_every_encoding_is_among_the_golden_ones() -> None:
    missing = {"plain", "row", "prefix", "range", "postfix", "before"}
    several = {True, False}
    for name in NAMES:
        if not missing and not several:
            return
        for view, block in blocks(name):
            if keys_of(view, block.keys) is not None:
                missing.discard(view.encoder.kind)
                several.discard(view.many)
    assert not missing and not several

"""Keys, values and placement of whole blocks: what they are entry by entry."""

from __future__ import annotations

import pytest

from stateshift.engines.spark.entries.columnar import hashes_of, keys_of, values_of
from stateshift.engines.spark.entries.columns import array, arrow_type
from stateshift.engines.spark.entries.fold import folded
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.entries.vectors import fits
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.formats.spark.placement import signed_hash
from tests.engines.spark.golden import NAMES, golden

SEEN: set[tuple[str, bool]] = set()


@pytest.mark.parametrize("name", NAMES)
def test_golden_blocks_are_what_they_are_entry_by_entry(name: str) -> None:
    storage = golden(name)
    for image in survey(storage).images:
        views = views_of(storage, image)
        for shard in image.shards:
            for store, block in folded(storage.chunks, shard, image.settings):
                view = views.of(shard.operator, store)
                if not view.known:
                    continue
                assert view.key is not None and view.value is not None
                rows = [view.decode_key(key) for key in block.keys.to_pylist()]
                keys = keys_of(view, block.keys)
                assert (keys is not None) == (fits(view.key) and bool(view.key.types))
                if keys is not None:
                    SEEN.add((view.encoder.kind, view.many))
                    assert keys.equals(array(rows, arrow_type(view.key)))
                values = values_of(view, block.values)
                assert (values is not None) == (fits(view.value) and bool(view.value.types))
                if values is not None:
                    found = [view.decode_value(value) for value in block.values.to_pylist()]
                    assert values.equals(array(found, values.type))
                if view.placed is not None:
                    expected = [
                        signed_hash(*view.placing(row)) if view.placed else 0 for row in rows
                    ]
                    assert hashes_of(view, block.keys).tolist() == expected


def test_every_encoding_was_among_the_golden_ones(how: str) -> None:
    if len(SEEN) > 1 and how != "quick":  # the whole module ran
        assert {kind for kind, _ in SEEN} == {
            "plain",
            "row",
            "prefix",
            "range",
            "postfix",
            "before",
        }
        assert {many for _, many in SEEN} == {True, False}

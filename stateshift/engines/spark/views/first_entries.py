"""The first entries of every store, keys and values by the names of their columns as far as
these are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from stateshift.engines.spark.entries.fold import folded
from stateshift.engines.spark.entries.store_view import note_of
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.views import ShownEntry
from stateshift.storage.protocol import Storage
from stateshift.survey import Survey


def first_entries(storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
    """Yield the first entries of every store, `limit` of each at most."""
    for image in survey.images:
        shown: Counter[tuple[str, str]] = Counter()
        views = views_of(storage, image)
        for shard in image.shards:
            names = views.names(shard.operator, shard.store)
            if all(shown[shard.operator, name] >= limit for name in names):
                continue
            for store, block in folded(storage.chunks, shard, image.settings):
                view = views.of(shard.operator, store)
                note = note_of(view, image)
                left = max(0, limit - shown[shard.operator, store])
                shown[shard.operator, store] += len(block)
                for key, value in islice(block.records(), left):
                    assert value is not None, "what is folded has no deletes"
                    yield ShownEntry(
                        operator=shard.operator,
                        store=store,
                        shard=shard.shard,
                        key=view.show_key(key),
                        value=view.show_value(value),
                        note=note,
                    )

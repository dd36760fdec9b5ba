"""One file of a checkpoint, and the first entries of every store: keys and values by the names of
their columns, as far as these are known. The place of a file in its checkpoint says which schema
its rows have.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from stateshift.engines.spark.entries import single_file as decoding
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.store_view import RowSchema, note_of
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.small_files import errors_at
from stateshift.engines.views import DecodedFile, Opening, ShownEntry
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.survey import Survey

# A file longer than this is shown from its beginning only.
FILE_MAX = 256 * 1024 * 1024


def decode_at(storage: Storage, name: str, location: str, opening: Opening) -> DecodedFile:
    """Return one decoded file; state files find their schema in the checkpoint around them."""
    path = locations.normal(location, os.getcwd())
    with errors_at(location):
        rows = _rows(opening, path)
        return decoding.decode_file(path, storage.read(name, FILE_MAX), rows)


def _rows(opening: Opening, path: str) -> RowSchema:
    """Return the schema beside a state file, where there is one."""
    inside = decoding.inside(path)
    schema = decoding.schema_path(inside)
    if schema is None:
        return RowSchema()
    storage = opening(path.removesuffix(inside).rstrip("/") or path)
    if storage.stat(schema) is None:
        return RowSchema()
    rocksdb = path.endswith((".zip", ".changelog", ".sst"))
    return RowSchema.of(storage.read(schema, FILE_MAX), "rocksdb" if rocksdb else None)


def first_entries(storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
    """Yield the first entries of every store, `limit` of each at most."""
    for image in survey.images:
        shown: Counter[tuple[str, str]] = Counter()
        views = views_of(storage, image)
        for shard in image.shards:
            names = views.names(shard.operator, shard.store)
            if all(shown[shard.operator, name] >= limit for name in names):
                continue
            for store, block in fold_shard(storage.chunks, shard, image.settings):
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

"""The columns of dropDuplicates' values, found by looking at the state where the schema is wrong
(see `dedup_rows`). Reads only.

Operator metadata (4.0 and later) says whether an operator is dropDuplicates. Without it, the state
shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from stateshift.engines.spark.entries.dedup_rows import ONE_NULL, VALUE, lists_the_input
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.errors import FormatError, MissingFile
from stateshift.formats import bounds
from stateshift.formats.blocks import Block
from stateshift.formats.rocksdb.sst_blocks import decode_sst_blocks
from stateshift.formats.spark.names import DEFAULT_STORE
from stateshift.formats.spark.state_blocks import (
    decode_changelog_blocks,
    decode_delta_blocks,
    decode_snapshot_blocks,
)
from stateshift.formats.spark.types import StructType
from stateshift.storage.protocol import Storage
from stateshift.survey import Image

OPERATOR = "dedupe"


def dedup_value(
    storage: Storage, image: Image, view: StoreView, operator: str | None
) -> StructType | None:
    """Return the columns of the view's values: one void column where the store is dropDuplicates'
    own, else the schema's.
    """
    if view.key is None or view.value is None or view.avro is not None:
        return view.value
    if operator == OPERATOR:
        return VALUE
    if operator is not None or view.store != DEFAULT_STORE:
        return view.value
    if not lists_the_input(view.key, view.value):
        return view.value
    return VALUE if _holds_nulls(storage, image, view) else view.value


def _holds_nulls(storage: Storage, image: Image, view: StoreView) -> bool:
    """Whether the first value that can be read is the one null. All values are, or none."""
    one_null = ONE_NULL if view.encoder.kind == "plain" else b"\0" + ONE_NULL
    for path in _files_of(image, view.operator):
        value = _first_value(storage, path)
        if value is not None:
            return value == one_null
    return False


def _files_of(image: Image, operator: str) -> Iterator[str]:
    for shard in image.shards:
        if shard.operator == operator:
            yield from shard.files


def _first_value(storage: Storage, path: str) -> bytes | None:
    """Return the first value in a file; None where there is none, or it cannot be read."""
    try:
        decode = _DECODERS.get(path.rpartition(".")[2])
        blocks = iter(()) if decode is None else decode(storage.chunks(path))
        return next(_values(blocks), None)
    except (FormatError, MissingFile):
        return None


def _values(blocks: Iterable[Block]) -> Iterator[bytes]:
    for block in blocks:
        for _, value in block.records():
            if value is not None:
                yield value


def _changelog_blocks(chunks: Iterator[bytes]) -> Iterator[Block]:
    _, blocks = decode_changelog_blocks(chunks)
    yield from blocks


def _table_blocks(chunks: Iterator[bytes]) -> Iterator[Block]:
    for block, _ in decode_sst_blocks(bounds.gathered(chunks, "an SST")):
        yield block


# What decodes the records of a file, by how its name ends; a zip has none.
_DECODERS: Mapping[str, Callable[[Iterator[bytes]], Iterator[Block]]] = {
    "delta": decode_delta_blocks,
    "snapshot": decode_snapshot_blocks,
    "changelog": _changelog_blocks,
    "sst": _table_blocks,
}

"""A shard's files folded into its entries: what the state is, with files forgotten.

    HDFS-backed   [N.snapshot] then N.delta in order                       key and value are UnsafeRows

A shard is held in memory while it is folded, as Spark itself holds it. Pure: files come through `read`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stateshift.errors import FormatError
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.state_files import (
    Record,
    decode_delta,
    decode_snapshot,
    without_row_checksum,
)
from stateshift.survey import ShardFiles
from stateshift.world import Entry, Read

ROW_CHECKSUM = "spark.sql.streaming.stateStore.rowChecksum.enabled"


def entries(read: Read, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[Entry]:
    """The entries of one shard, in no particular order."""
    kinds = {classify(path).kind for path in shard.files}
    if kinds <= {"snapshot", "delta"}:
        yield from _folded_hdfs(read, shard, settings)
    else:
        raise FormatError("these files belong to no one state store provider", shard.files[0])


def _folded_hdfs(read: Read, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[Entry]:
    checksums = settings.get(ROW_CHECKSUM) == "true"
    state: dict[bytes, bytes] = {}
    for path in shard.files:
        decode = decode_snapshot if path.endswith(".snapshot") else decode_delta
        try:
            if path.endswith(".snapshot"):
                state.clear()
            _apply(state, decode(read(path)), checksums)
        except FormatError as error:
            raise error.at(path) from error
    for key, value in state.items():
        yield Entry(shard.operator, shard.store, key, value)


def _apply(state: dict[bytes, bytes], records: Iterable[Record], checksums: bool) -> None:
    for record in records:
        key, value, _ = without_row_checksum(record) if checksums else record
        if value is None:
            state.pop(key, None)
        elif len(value) % 8:  # before 2.3, Spark wrote four bytes too many
            state[key] = value[: len(value) // 8 * 8]
        else:
            state[key] = value

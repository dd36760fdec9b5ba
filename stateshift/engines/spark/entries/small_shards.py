"""A HDFS-backed shard of little files, folded record by record: what Arrow takes for each file, and
for each block, is more than what a few records take in Python.

    begun = Begun(read, BYTES)      a file that was begun to see how much there is, is gone on with
    few_rows(begun, shard, settings) -> {key: value}, or None where there is more: `folded(begun,
    ...)` then

The entries are those that `fold` finds, which is tested on every golden checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from stateshift.engines.spark.layout import newest_files
from stateshift.errors import FormatError
from stateshift.formats.spark.offset_conf import has_row_checksums
from stateshift.formats.spark.state_files import (
    Record,
    decode_delta,
    decode_snapshot,
    without_row_checksum,
)
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom

# Bytes of files, compressed: so many records that columns are made as soon as they are read one by
# one.
BYTES = 16 * 1024

# A shard that decompresses to more than this is no little one either.
DECODED_BYTES = 64 * BYTES

WORD = 8  # bytes; rows are whole words, but before 2.3 Spark wrote four bytes too many


@dataclass
class Begun:
    """Reads files. One that was begun is continued once, then read again from its beginning."""

    open: ReadFrom
    bytes_max: int = BYTES
    _begun: dict[str, Iterator[bytes]] = field(default_factory=dict)

    def __call__(self, path: str, offset: int = 0) -> Iterator[bytes]:
        if offset:
            return self.open(path, offset)
        begun = self._begun.pop(path, None)
        return self.open(path) if begun is None else begun

    def are_few(self, paths: tuple[str, ...]) -> bool:
        """Whether all of them together are so little; then they have been read."""
        left = self.bytes_max
        for path in paths:
            for chunk in self._begin(path):
                left -= len(chunk)
                if left < 0:
                    return False
        return True

    def _begin(self, path: str) -> Iterator[bytes]:
        """Yield a file's chunks, and hold them for whoever reads it."""
        chunks, held = self.open(path), list[bytes]()
        self._begun[path] = chain(held, chunks)
        for chunk in chunks:
            held.append(chunk)
            yield chunk


def few_rows(
    begun: Begun, shard: ShardFiles, settings: Mapping[str, str]
) -> dict[bytes, bytes] | None:
    """Return every live key with its value, always in one order; None where there is more."""
    files = tuple(newest_files(shard.files, ".snapshot"))
    are_hdfs_backed = all(path.endswith((".snapshot", ".delta")) for path in shard.files)
    if not are_hdfs_backed or not begun.are_few(files):
        return None
    checked = has_row_checksums(settings)
    rows: dict[bytes, bytes] = {}
    bytes_left = DECODED_BYTES
    for path in files:
        try:
            records, bytes_left = _records(begun, path, bytes_left)
            if bytes_left < 0:
                return None
            _apply(records, rows, checked)
        except FormatError as error:
            raise error.at(path) from error
    return rows


def _records(begun: Begun, path: str, bytes_left: int) -> tuple[list[Record], int]:
    """Return a file's records, and how many bytes may still be decoded; below zero, there are more
    records. The whole file is read before anything is said of its checksums.
    """
    decode = decode_snapshot if path.endswith(".snapshot") else decode_delta
    records = []
    for record in decode(begun(path)):
        records.append(record)
        bytes_left -= len(record.key) + len(record.value or b"")
        if bytes_left < 0:
            break
    return records, bytes_left


def _apply(records: Iterable[Record], rows: dict[bytes, bytes], checked: bool) -> None:
    for key, value, _ in map(without_row_checksum, records) if checked else records:
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value[: len(value) // WORD * WORD]

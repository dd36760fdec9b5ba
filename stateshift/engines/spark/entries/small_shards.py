"""A HDFS-backed shard of little files, folded record by record: what Arrow takes for each file, and
for each block, is more than what a few records take in Python.

    begun = Begun(read, BYTES)      what was read of a file to see how much there is, is not read
                                    again
    few_rows(begun, shard, settings) -> {key: value}, or None where there is more: `folded(begun,
    ...)` then

The entries are those that `fold` finds, which is tested on every golden checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from stateshift.engines.spark.entries.settings import ROW_CHECKSUM
from stateshift.errors import FormatError
from stateshift.formats.spark.state_files import (
    Record,
    decode_delta,
    decode_snapshot,
    without_row_checksum,
)
from stateshift.survey import ShardFiles
from stateshift.world import Read

# Of files, compressed: so many records that columns are made as soon as they are read one by one.
BYTES = 16 * 1024

# What decompresses to more than this is no little either.
DECODED_BYTES = 64 * BYTES

WORD = 8  # bytes; rows are whole words, but before 2.3 Spark wrote four bytes too many


@dataclass
class Begun:
    """Reads files, some of which were begun. A file that was begun is gone on with once, and
    then read anew.
    """

    open: Read
    bytes_max: int = BYTES
    _begun: dict[str, Iterator[bytes]] = field(default_factory=dict)

    def __call__(self, path: str) -> Iterator[bytes]:
        begun = self._begun.pop(path, None)
        return self.open(path) if begun is None else begun

    def are_few(self, paths: tuple[str, ...]) -> bool:
        """Whether all of them together are so little; then they have been read."""
        left = self.bytes_max
        for path in paths:
            chunks, held = self.open(path), list[bytes]()
            self._begun[path] = chain(held, chunks)
            for chunk in chunks:
                held.append(chunk)
                left -= len(chunk)
                if left < 0:
                    return False
        return True


def few_rows(
    begun: Begun, shard: ShardFiles, settings: Mapping[str, str]
) -> dict[bytes, bytes] | None:
    """Every live key with its value; the same files give the same order."""
    kinds = [path.rpartition(".")[2] for path in shard.files]
    if not set(kinds) <= {"snapshot", "delta"}:
        return None
    last = max((at for at, kind in enumerate(kinds) if kind == "snapshot"), default=0)
    if not begun.are_few(shard.files[last:]):
        return None
    checked, rows, left = settings.get(ROW_CHECKSUM) == "true", dict[bytes, bytes](), DECODED_BYTES
    for path, kind in zip(shard.files[last:], kinds[last:], strict=True):
        try:
            found = list[Record]()  # the whole file, before anything is said of its checksums
            for record in (decode_snapshot if kind == "snapshot" else decode_delta)(begun(path)):
                found.append(record)
                left -= len(record.key) + len(record.value or b"")
                if left < 0:
                    return None
            for key, value, _ in map(without_row_checksum, found) if checked else found:
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value[: len(value) // WORD * WORD]
        except FormatError as error:
            raise error.at(path) from error
    return rows

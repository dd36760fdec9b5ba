"""The rows of one shard, checked one by one: inside their bounds, and in the shard where their key belongs. Reads only.

An entry is what all files of the shard come to. Which of them a bad row stands in is looked for only then: the newest
one that writes its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stateshift.engines.spark.encoders import Row
from stateshift.engines.spark.entries import Entry
from stateshift.engines.spark.store_view import StoreView
from stateshift.errors import FormatError
from stateshift.formats.spark.compression import decompress
from stateshift.formats.spark.placement import partition_of
from stateshift.formats.spark.sst import decode_sst
from stateshift.formats.spark.state_files import Record, decode_changelog, decode_delta
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, ShardFiles

# So many rows of a shard are told one by one, the others counted.
ROWS_MAX = 3

STRICT = "spark.sql.streaming.statefulOperator.useStrictDistribution"


@dataclass
class RowCheck:
    """What was found in one store of one shard. `shards` is how many the operator has."""

    storage: Storage
    shard: ShardFiles
    settings: Mapping[str, str]
    shards: int
    broken: list[tuple[bytes, FormatError]] = field(default_factory=list)
    misplaced: list[tuple[bytes, Any, int]] = field(default_factory=list)

    def decoded(self, view: StoreView, entry: Entry) -> tuple[Row, Row | list[Row]] | None:
        """Key and value of the entry; None where they do not decode, or nothing tells how they should."""
        if not view.known:
            return None
        try:
            key, value = view.decode_key(entry.key), view.decode_value(entry.value)
        except FormatError as error:
            self.broken.append((entry.key, error))
            return None
        if view.placed is not None:
            self._place(view, entry, key)
        return key, value

    def findings(self) -> Iterator[Finding]:
        for key, error in self.broken[:ROWS_MAX]:
            path, offset = self._where(key)
            yield Finding("refuse", f"{path}: the row of the key {key.hex()[:64]} is damaged: {error.fact}",
                          path=path, offset=offset)  # fmt: skip
        yield from self._more(len(self.broken), "are damaged", True)
        for key, shown, belongs in self.misplaced[:ROWS_MAX]:
            path, offset = self._where(key)
            yield self._displaced(path, offset, shown, belongs)
        yield from self._more(len(self.misplaced), "lie in a shard where they do not belong", self._strict)

    @property
    def _strict(self) -> bool:
        """Checkpoints born before 3.3 may be distributed by some of the key's columns only (SPARK-38204)."""
        return self.settings.get(STRICT) == "true"

    def _place(self, view: StoreView, entry: Entry, key: Row) -> None:
        values, types = view.placing(key)
        try:
            belongs = partition_of(values, types, self.shards) if types else 0
        except FormatError:  # a type whose placement is not known
            return
        if belongs != self.shard.shard:
            self.misplaced.append((entry.key, view.named_key(key), belongs))

    def _displaced(self, path: str, offset: int | None, key: Any, belongs: int) -> Finding:
        fact = f"{path}: the key {key} is not looked for here, but in shard {belongs}"
        if self._strict:
            return Finding("refuse", fact, path=path, offset=offset)
        return Finding("warn", f"{fact}, unless the operator is distributed by fewer columns", path=path, offset=offset)

    def _more(self, count: int, what: str, fatal: bool) -> Iterator[Finding]:
        if count > ROWS_MAX:
            shard = f"shard {self.shard.shard} of operator {self.shard.operator}"
            fact = f"{count - ROWS_MAX} more rows of {shard}, store {self.shard.store}, {what}"
            yield Finding("refuse" if fatal else "warn", fact)

    def _where(self, key: bytes) -> tuple[str, int | None]:
        """The newest file that writes the key, and the offset of that record."""
        for path in reversed(self.shard.files):
            for offset, written in self._writes(path):
                if written.endswith(key) and len(written) - len(key) in (0, 2):
                    return path, offset
        return self.shard.files[-1], None

    def _writes(self, path: str) -> Iterable[tuple[int | None, bytes]]:
        if path.endswith(".sst"):
            return ((None, entry.key) for entry in decode_sst(b"".join(self.storage.chunks(path))))
        if path.endswith(".changelog"):
            header, records = decode_changelog(self.storage.chunks(path))
            return _placed(records, _start(self.storage, path), int(header.column_families))
        if path.endswith((".delta", ".snapshot")):
            return _placed(decode_delta(self.storage.chunks(path)), 0, 0)
        return ()


def _placed(records: Iterable[Record], start: int, extra: int) -> Iterator[tuple[int, bytes]]:
    for key, value, _ in records:
        if value is not None:
            yield start, key
        start += 8 + extra + len(key) + len(value or b"")


def _start(storage: Storage, path: str) -> int:
    """Where a changelog's first record stands: behind the version and the lineage."""
    head = b""
    for piece in decompress(storage.chunks(path)):
        head += piece
        if len(head) >= 6:
            break
    if head[:3] != b"\0\2v":
        return 0
    return 4 if head[3:4] == b"2" else 6 + int.from_bytes(head[4:6], "big")


"""The rows of one shard, checked block by block: inside their bounds, in the shard where their key
belongs. Reads only.

What a file deletes is in no entry, and is placed too: two shards' changes that hold nothing but
deletes, exchanged, leave behind what should be gone.

An entry is what all files of the shard come to. Which of them a bad row stands in is looked for
only then: the newest one that writes its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stateshift.engines.spark.entries.columnar import hashes_of, keys_of, values_of
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.errors import FormatError
from stateshift.formats import bounds
from stateshift.formats.blocks import Binary, Block
from stateshift.formats.rocksdb.sst import DELETES, decode_sst
from stateshift.formats.spark.compression import decompress
from stateshift.formats.spark.state_files import Record, decode_changelog, decode_delta
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, ShardFiles

# So many rows of a shard are told one by one, the others counted.
ROWS_MAX = 3

STRICT = "spark.sql.streaming.statefulOperator.useStrictDistribution"


@dataclass
class _Told:
    """Rows with something wrong: the first of them, and how many there are."""

    rows: list[tuple[bytes, Any]] = field(default_factory=list)
    count: int = 0

    def add(self, key: bytes, what: Any) -> None:
        self.count += 1
        if len(self.rows) < ROWS_MAX:
            self.rows.append((key, what))


@dataclass
class RowCheck:
    """What was found in one store of one shard. `shards` is how many the operator has."""

    storage: Storage
    shard: ShardFiles
    settings: Mapping[str, str]
    shards: int
    broken: _Told = field(default_factory=_Told)
    misplaced: _Told = field(default_factory=_Told)
    deleted_elsewhere: _Told = field(default_factory=_Told)

    def deletes(self, view: StoreView, keys: Binary) -> None:
        """Hold the keys that a file deletes against the shard."""
        if view.key is None or view.placed is None:
            return
        try:
            self._place(view, keys, None, self.deleted_elsewhere)
        except FormatError:  # a key that does not decode: which one is told one by one
            for key in keys.to_pylist():
                try:
                    view.decode_key(key)
                except FormatError as error:
                    self.broken.add(key, error)

    def sound(self, view: StoreView, block: Block) -> Block | None:
        """The entries whose key and value decode; None where nothing tells how they should."""
        if not view.known:
            return None
        keys = keys_of(view, block.keys)
        if keys is None or values_of(view, block.values) is None:
            keys, block = None, block.take(np.array(list(self._decoding(view, block)), np.int64))
        if view.placed is not None and len(block):
            with suppress(FormatError):  # a type whose placement is not known
                self._place(view, block.keys, keys, self.misplaced)
        return block

    def _decoding(self, view: StoreView, block: Block) -> Iterator[int]:
        """One by one: which do, and why others do not."""
        for at, (key, value) in enumerate(block.records()):
            try:
                view.decode_key(key)
                view.decode_value(value or b"")
                yield at
            except FormatError as error:
                self.broken.add(key, error)

    def _place(self, view: StoreView, keys: Binary, decoded: Any, told: _Told) -> None:
        belongs = (
            hashes_of(view, keys, decoded) % self.shards
            if view.placed
            else np.zeros(len(keys), np.int64)
        )
        wrong = np.flatnonzero(belongs != self.shard.shard)
        told.count += len(wrong)
        for at in wrong[: max(0, ROWS_MAX - len(told.rows))].tolist():
            key = keys[at].as_py()
            told.rows.append((key, (view.named_key(view.decode_key(key)), int(belongs[at]))))

    def findings(self) -> Iterator[Finding]:
        for key, error in self.broken.rows:
            path, offset = self._where(key)
            yield Finding(
                "refuse",
                f"{path}: the row of the key {key.hex()[:64]} is damaged: {error.fact}",
                path=path,
                offset=offset,
            )
        yield from self._more(self.broken.count, "are damaged", True)
        for key, (shown, belongs) in self.misplaced.rows:
            path, offset = self._where(key)
            yield self._displaced(path, offset, shown, belongs)
        yield from self._more(
            self.misplaced.count, "lie in a shard where they do not belong", self._strict
        )
        for key, (shown, belongs) in self.deleted_elsewhere.rows:
            path, offset = self._where(key, deleted=True)
            yield self._displaced(path, offset, f"{shown}, which it deletes,", belongs)
        yield from self._more(
            self.deleted_elsewhere.count, "are deleted where they do not belong", self._strict
        )

    @property
    def _strict(self) -> bool:
        """Checkpoints born before 3.3 may be distributed by some of the key's columns only
        (SPARK-38204).
        """
        return self.settings.get(STRICT) == "true"

    def _displaced(self, path: str, offset: int | None, key: Any, belongs: int) -> Finding:
        fact = f"{path}: the key {key} is not looked for here, but in shard {belongs}"
        if self._strict:
            return Finding("refuse", fact, path=path, offset=offset)
        return Finding(
            "warn",
            f"{fact}, unless the operator is distributed by fewer columns",
            path=path,
            offset=offset,
        )

    def _more(self, count: int, what: str, fatal: bool) -> Iterator[Finding]:
        if count > ROWS_MAX:
            shard = f"shard {self.shard.shard} of operator {self.shard.operator}"
            fact = f"{count - ROWS_MAX} more rows of {shard}, store {self.shard.store}, {what}"
            yield Finding("refuse" if fatal else "warn", fact)

    def _where(self, key: bytes, deleted: bool = False) -> tuple[str, int | None]:
        """The newest file that writes the key, or deletes it, and the offset of that record. A
        column family's number stands before it, and a checksum before one that is deleted.
        """
        for path in reversed(self.shard.files):
            for offset, written, gone in self._writes(path):
                if (
                    gone == deleted
                    and written.endswith(key)
                    and len(written) - len(key) in (0, 2, 4, 6)
                ):
                    return path, offset
        return self.shard.files[-1], None

    def _writes(self, path: str) -> Iterable[tuple[int | None, bytes, bool]]:
        if path.endswith(".sst"):
            tables = decode_sst(bounds.gathered(self.storage.chunks(path), "an SST"))
            return ((None, entry.key, entry.kind in DELETES) for entry in tables)
        if path.endswith(".changelog"):
            header, records = decode_changelog(self.storage.chunks(path))
            return _placed(records, _start(self.storage, path), int(header.column_families))
        if path.endswith((".delta", ".snapshot")):
            return _placed(decode_delta(self.storage.chunks(path)), 0, 0)
        return ()


def _placed(records: Iterable[Record], start: int, extra: int) -> Iterator[tuple[int, bytes, bool]]:
    for key, value, _ in records:
        yield start, key, value is None
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

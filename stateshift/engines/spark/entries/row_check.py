"""The rows of one shard, checked block by block: inside their bounds, in the shard where their key
belongs. Reads only.

A key that a file deletes is in no entry, and its shard is checked too: two shards' changes that
hold nothing but deletes, exchanged, leave behind what should be gone.

An entry is what all files of the shard come to. Only for a bad row is its file looked for: the
newest one that writes its key.

A file of another store decodes often enough, and gives other values. Rows can be of their store's
columns only in the forms in which UnsafeRow leaves no freedom:

    a narrow value  the rest of its slot is zero: an offset and a size are none
    a null          its whole slot is zero
    the whole row   null bits, slots, and the variable parts, each padded to 8, without a gap

Long decimals and calendar intervals keep their place where they are null, so that such rows are not
added up. Columns of like widths cannot be told apart.

Source: Spark, UnsafeRowUtils.validateStructuralIntegrityWithReason, UnsafeRowWriter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries.columnar import hashes_of, keys_of, values_of
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.layout import FRAME
from stateshift.errors import FormatError
from stateshift.formats import bounds
from stateshift.formats.blocks import Binary, Flags, RowBlock
from stateshift.formats.rocksdb.table import DELETES, decode_sst
from stateshift.formats.spans import spans, words
from stateshift.formats.spark.compression import decompress
from stateshift.formats.spark.state_files import StateRecord, decode_changelog, decode_delta
from stateshift.formats.spark.types import (
    LONG_DIGITS,
    WIDTHS,
    Atomic,
    DataType,
    DecimalType,
    is_in_slot,
)
from stateshift.survey import Finding, ShardFiles
from stateshift.world import ReadFrom

# The number of rows of a shard that are named one by one; the others are counted.
ROWS_MAX = 3

T = TypeVar("T")


@dataclass
class _Faults(Generic[T]):
    """Rows with a fault: the first keys with their faults, and how many there are."""

    rows: list[tuple[bytes, T]] = field(default_factory=list)
    count: int = 0

    @property
    def unnamed(self) -> int:
        return max(0, ROWS_MAX - len(self.rows))

    def add(self, key: bytes, fault: T) -> None:
        self.count += 1
        if self.unnamed:
            self.rows.append((key, fault))


class _Elsewhere(NamedTuple):
    """A key as it is shown, and the shard where it belongs."""

    shown: object
    shard: int


class _Written(NamedTuple):
    """A record of a file: where it begins, its key, and whether it deletes it."""

    offset: int | None
    key: bytes
    deletes: bool


@dataclass
class RowCheck:
    """The faults of one store's rows in one shard, of `shards`; `strict` as `is_strict` says."""

    read: ReadFrom
    shard: ShardFiles
    strict: bool
    shards: int
    broken: _Faults[FormatError] = field(default_factory=_Faults)
    misplaced: _Faults[_Elsewhere] = field(default_factory=_Faults)
    deleted_elsewhere: _Faults[_Elsewhere] = field(default_factory=_Faults)

    def check_deleted(self, view: StoreView, keys: Binary) -> None:
        """Check that the keys which a file deletes belong in the shard."""
        if view.key is None or view.placed is None:
            return
        try:
            self._place(view, keys, None, self.deleted_elsewhere)
        except FormatError:  # one of the keys does not decode
            for key in keys.to_pylist():
                try:
                    view.decode_key(key)
                except FormatError as error:
                    self.broken.add(key, error)

    def sound(self, view: StoreView, block: RowBlock) -> RowBlock | None:
        """Return the entries that decode; None where nothing tells how they should."""
        if not view.known:
            return None
        keys = keys_of(view, block.keys)
        if keys is None or values_of(view, block.values) is None:
            decoding = []
            for position, (key, value) in enumerate(block.records()):
                try:
                    view.decode_key(key)
                    view.decode_value(value or b"")
                    decoding.append(position)
                except FormatError as error:
                    self.broken.add(key, error)
            keys, block = None, block.take(np.array(decoding, np.int64))
        odd = np.flatnonzero(unlike(view, block.values))
        if len(odd):
            for key in block.keys.take(pa.array(odd)).to_pylist():
                self.broken.add(key, FormatError(f"it is no row of the columns of {view.store}"))
            keys, block = None, block.take(np.setdiff1d(np.arange(len(block)), odd))
        if view.placed is not None and len(block):
            with suppress(FormatError):  # a type whose placement is not known
                self._place(view, block.keys, keys, self.misplaced)
        return block

    def _place(
        self, view: StoreView, keys: Binary, decoded: pa.Array | None, faults: _Faults[_Elsewhere]
    ) -> None:
        """Add the keys that belong in another shard. `decoded` are the keys as columns."""
        # 0 where the operator has no key.
        if not view.placed:
            shards = np.zeros(len(keys), np.int64)
        else:
            shards = hashes_of(view, keys, decoded) % self.shards
        wrong = np.flatnonzero(shards != self.shard.shard)
        faults.count += len(wrong)
        for position in wrong[: faults.unnamed].tolist():
            key = keys[position].as_py()
            shown = view.named_key(view.decode_key(key))
            faults.rows.append((key, _Elsewhere(shown, int(shards[position]))))

    @property
    def are_refused(self) -> bool:
        """Whether one of the rows keeps a job from restarting."""
        elsewhere = self.misplaced.count + self.deleted_elsewhere.count
        return self.broken.count > 0 or (self.strict and elsewhere > 0)

    def findings(self) -> Iterator[Finding]:
        for key, error in self.broken.rows:
            path, offset = self._where(key)
            fact = f"{path}: the row of the key {key.hex()[:64]} is damaged: {error.fact}"
            yield Finding("refuse", fact, path=path, offset=offset)
        yield from self._more(self.broken.count, "are damaged", fatal=True)
        for key, fault in self.misplaced.rows:
            path, offset = self._where(key)
            yield self._displaced(path, offset, f"{fault.shown}", fault.shard)
        yield from self._more(
            self.misplaced.count, "lie in a shard where they do not belong", self.strict
        )
        for key, fault in self.deleted_elsewhere.rows:
            path, offset = self._where(key, deleted=True)
            yield self._displaced(path, offset, f"{fault.shown}, which it deletes,", fault.shard)
        yield from self._more(
            self.deleted_elsewhere.count, "are deleted where they do not belong", self.strict
        )

    def _displaced(self, path: str, offset: int | None, key: str, shard: int) -> Finding:
        fact = f"{path}: the key {key} is not looked for here, but in shard {shard}"
        if self.strict:
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
        """Return the newest file that writes, or deletes, the key, and the record's offset."""
        for path in reversed(self.shard.files):
            for offset, written, deletes in self._writes(path):
                # A column family's number stands before a record's key, and a checksum before
                # one that is deleted.
                is_key = written.endswith(key) and len(written) - len(key) in (0, 2, 4, 6)
                if deletes == deleted and is_key:
                    return path, offset
        return self.shard.files[-1], None

    def _writes(self, path: str) -> Iterable[_Written]:
        if path.endswith(".sst"):
            entries = decode_sst(bounds.gather(self.read(path), "an SST"))
            return (_Written(None, entry.key, entry.kind in DELETES) for entry in entries)
        if path.endswith(".changelog"):
            header, records = decode_changelog(self.read(path))
            return _with_offsets(records, _start(self.read(path)), int(header.column_families))
        if path.endswith((".delta", ".snapshot")):
            return _with_offsets(decode_delta(self.read(path)), 0, 0)
        return ()


def _with_offsets(records: Iterable[StateRecord], start: int, extra: int) -> Iterator[_Written]:
    """Yield records with their offsets. Each is its two lengths, `extra` bytes, key and value."""
    for key, value, _ in records:
        yield _Written(start, key, value is None)
        start += 8 + extra + len(key) + len(value or b"")


def _start(changelog: Iterator[bytes]) -> int:
    """Return the offset of a changelog's first record: behind the version and the lineage."""
    head = b""
    for piece in decompress(changelog):
        head += piece
        if len(head) >= 6:
            break
    if head[:3] != b"\0\2v":
        return 0
    if head[3:4] == b"2":
        return 4
    return 6 + int.from_bytes(head[4:6], "big")


# Bits of a slot that a narrow value may use.
_BITS: Final = {**{name: 8 * width for name, width in WIDTHS.items() if width < 8}, "boolean": 1}
_LOW = np.uint64(0xFFFFFFFF)


def unlike(view: StoreView, values: Binary) -> Flags:
    """Return the flags of values that cannot be rows of the store's columns. All of them decode."""
    kinds = () if view.value is None or view.many or view.avro is not None else view.value.types
    if not kinds:
        return np.zeros(len(values), bool)
    whole = spans(values)
    starts = whole.starts + (0 if view.encoder.kind == "plain" else len(FRAME))
    bits = (len(kinds) + 63) // 64
    odd = np.zeros(len(values), bool)
    taken = np.full(len(values), 8 * (bits + len(kinds)))
    for at, kind in enumerate(kinds):
        nulls = words(whole.content, starts + at // 64 * 8) >> np.uint64(at % 64) & np.uint64(1)
        slots = words(whole.content, starts + 8 * (bits + at))
        is_null = nulls != 0
        if not _keeps_its_place(kind):
            odd |= is_null & (slots != 0)
        if isinstance(kind, Atomic) and kind.name in _BITS:
            odd |= ~is_null & (slots >> np.uint64(_BITS[kind.name]) != 0)
        elif not is_in_slot(kind):
            sizes = (slots & _LOW).astype(np.int64)
            taken += np.where(is_null, 0, (sizes + 7) // 8 * 8)
    if not any(map(_keeps_its_place, kinds)):
        odd |= taken != whole.ends - starts
    return odd


def _keeps_its_place(kind: DataType) -> bool:
    """Whether a null of this type has a place in the variable part."""
    is_long = isinstance(kind, DecimalType) and kind.precision > LONG_DIGITS
    return is_long or kind == Atomic("calendar")

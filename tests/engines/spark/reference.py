"""A shard folded record by record, with dictionaries: what folding in blocks is held against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stateshift.engines.spark.entries.row_checksums import (
    without_delete_checksum,
    without_value_checksums,
)
from stateshift.errors import FormatError
from stateshift.formats.rocksdb.table import DELETES, MERGE, TableEntry, decode_sst
from stateshift.formats.spark.offset_conf import ROW_CHECKSUM, delimiter
from stateshift.formats.spark.rocksdb import RocksDBSnapshot, decode_zip
from stateshift.formats.spark.state_files import (
    StateRecord,
    decode_changelog,
    decode_delta,
    decode_snapshot,
    without_row_checksum,
)
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom
from tests.support.entries import Entry

_EMPTY = RocksDBSnapshot((), 0)


def one_by_one(read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[Entry]:
    """The entries of one shard, in no particular order."""
    kinds = {path.rpartition(".")[2] for path in shard.files}
    if kinds <= {"snapshot", "delta"}:
        yield from _hdfs(read, shard, settings)
    elif kinds <= {"zip", "sst", "changelog"}:
        yield from _rocksdb(read, shard, settings)
    else:
        raise FormatError("these files are not of one state store provider", shard.files[0])


def _hdfs(read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[Entry]:
    checksums = settings.get(ROW_CHECKSUM) == "true"
    state: dict[bytes, bytes] = {}
    for path in shard.files:
        snapshot = path.endswith(".snapshot")
        if snapshot:
            state.clear()
        try:
            _apply_rows(
                state, (decode_snapshot if snapshot else decode_delta)(read(path)), checksums
            )
        except FormatError as error:
            raise error.at(path) from error
    for key, value in state.items():
        yield Entry(shard.operator, shard.store, key, value)


def _apply_rows(state: dict[bytes, bytes], records: Iterable[StateRecord], checksums: bool) -> None:
    for record in records:
        key, value, _ = without_row_checksum(record) if checksums else record
        if value is None:
            state.pop(key, None)
        else:  # before 2.3, Spark wrote four bytes too many
            state[key] = value[: len(value) & ~7] if len(value) % 8 else value


def _rocksdb(read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]) -> Iterator[Entry]:
    checksums, between = settings.get(ROW_CHECKSUM) == "true", delimiter(settings)
    snapshot, state, typed = _EMPTY, {}, False
    tables = {path.rpartition("/")[2]: path for path in shard.files if path.endswith(".sst")}
    for path in shard.files:
        try:
            if path.endswith(".zip"):
                snapshot = decode_zip(b"".join(read(path)))
                state = _tables(read, snapshot, tables, between)
            elif path.endswith(".changelog"):
                header, records = decode_changelog(read(path))
                typed = typed or header.column_families
                _apply_changes(state, records, between, checksums)
        except FormatError as error:
            raise error.at(path) from error
    yield from _named(state, shard, snapshot, between if checksums else None, typed)


def _tables(
    read: ReadFrom, snapshot: RocksDBSnapshot, tables: Mapping[str, str], between: bytes
) -> dict[bytes, bytes]:
    """What a version's tables hold together."""
    writes: dict[bytes, list[TableEntry]] = {}
    for table in snapshot.tables:
        path = tables.get(table.stored)
        if path is None:
            raise FormatError(
                f"the version needs the table {table.stored}, which is not among its files"
            )
        content = b"".join(read(path))
        if len(content) != table.size:
            raise FormatError(
                f"an SST of {table.size} bytes is {len(content)} long", path, len(content)
            )
        try:
            for entry in decode_sst(content):
                writes.setdefault(entry.key, []).append(entry)
        except FormatError as error:
            raise error.at(path) from error
    folded = ((key, _fold(found, between)) for key, found in writes.items())
    return {key: value for key, value in folded if value is not None}


def _fold(writes: list[TableEntry], between: bytes) -> bytes | None:
    """The value that a key's writes leave, whichever tables they came from."""
    if len(writes) > 1:
        writes.sort(key=lambda entry: entry.sequence)
    value: bytes | None = None
    for entry in writes:
        if entry.kind in DELETES:
            value = None
        elif entry.kind == MERGE and value is not None:
            value = value + between + entry.value
        else:
            value = entry.value
    return value


def _apply_changes(
    state: dict[bytes, bytes], records: Iterable[StateRecord], between: bytes, checksums: bool
) -> None:
    for key, value, merge in records:
        if value is None:
            state.pop(without_delete_checksum(key) if checksums else key, None)
        elif merge and key in state:
            state[key] = state[key] + between + value
        else:
            state[key] = value


def _named(
    state: Mapping[bytes, bytes],
    shard: ShardFiles,
    snapshot: RocksDBSnapshot,
    checked: bytes | None,
    typed: bool,
) -> Iterator[Entry]:
    """Column families by name, values without checksums; `checked` is the delimiter where they
    have some.
    """
    if typed and not snapshot.families:
        raise FormatError(
            "a changelog has column families, and no snapshot before it names them", shard.files[0]
        )
    stores = {number: f"{shard.store}/{name}" for name, number in snapshot.families.items()}
    for key, value in state.items():
        bare = value if checked is None else without_value_checksums(key, value, checked)
        if not stores:
            yield Entry(shard.operator, shard.store, key, bare)
            continue
        store = stores.get(int.from_bytes(key[:2], "little")) if len(key) >= 2 else None
        if store is None:
            raise FormatError(
                f"a key of the column family {key[:2].hex()}, which has no name", shard.files[0]
            )
        yield Entry(shard.operator, store, key[2:], bare)

"""The content of tables, compared: whether one has at some point what a job has read of another,
for any engine; and the snapshots of Iceberg's tables. Reads only, without a JVM.

    compare_tables(ours, theirs, opening, ways)   whether two tables hold the same, and the finding
    snapshot_search(change, source, last, opening).equal_snapshot()   the snapshot of another table
                                                  up to which the job has read, and its `proof`

The snapshot in the other table is

    of the same id        the same snapshot: a table that was copied with its metadata
    named by the user     a snapshot, or the newest one at a time
    looked for            the newest one whose content is proved to be the same

and the proof is

    the same files        a copy or a clone: name, size, and rows that are marked as deleted
    the same rows         both tables were read, where that is asked for: a digest of all rows,
                          which does not depend on their order or their files
    as many records       a table that was written anew (CTAS): its content was not compared

A row is the values of its columns, in the order of the columns' names: a column of Delta's may have
another name in its files (column mapping), and one that partitions the table is in its log alone;
one of Iceberg's is known by its id.

Iceberg looks for the next snapshot among the ancestors of the current one: one that was rolled
back, or is expired, has none. An Iceberg table has metadata, and is named by one of

    s3://lake/db/orders                                     a folder: the newest metadata in it
    s3://lake/db/orders/metadata/00007-….metadata.json      that very file
    catalog://lake/sales.orders                             the file that the catalog `lake` names

pyiceberg asks the catalog. It knows it from ~/.pyiceberg.yaml, or PYICEBERG_CATALOG__LAKE__… in the
environment. A table of a Hadoop catalog says which metadata is the newest. The file of the highest
number is taken of others, if it is the only one of that number.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from stateshift.engines.repositioning import RefusedError
from stateshift.engines.views import Opening
from stateshift.errors import (
    ClusterError,
    FormatError,
    MissingFile,
    StateshiftError,
    StorageError,
    errors_at,
)
from stateshift.formats import iceberg_metadata as iceberg
from stateshift.formats.iceberg_metadata import IcebergTable, Snapshot
from stateshift.specification.transform import Reposition
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, note, refuse, warn

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

METADATA_ENDING: Final = ".metadata.json"
CATALOG: Final = "catalog"
ROWS = 16 * 1024
OTHER = "other-records"
LOST = "lost-offsets"
SEARCHED_MAX = 20  # versions, or snapshots, whose files are read to find the equal one
_DIGEST_BYTES = 16

Counts = tuple[int | None, int | None]


class TableFile(NamedTuple):
    """A file of a table, as far as two tables can be compared by it: where it is, and the columns
    that are the same in all of its rows.
    """

    name: str
    size: int
    deleted: int
    records: int | None
    place: str = ""
    constants: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one point: words for it, and its files. `columns` are its columns by their names
    in the files, or by their ids; `types` those of columns that are not in the files. `reason`: why
    its rows cannot be told from its files.
    """

    words: str
    files: Sequence[TableFile]
    columns: Mapping[str | int, str] = field(default_factory=dict)
    types: Mapping[str, object] = field(default_factory=dict)
    reason: str | None = None

    @property
    def records(self) -> int | None:
        """The number of records; None where a file does not tell."""
        if self.reason is not None:
            return None
        total = 0
        for file in self.files:
            if file.records is None:
                return None
            total += file.records - file.deleted
        return total


class NotComparedError(StateshiftError):
    """Rows that cannot be compared."""


def has_same_files(ours: TableState, theirs: TableState) -> bool:
    """Whether both are made of the same files."""
    return _without_counts(ours.files) == _without_counts(theirs.files)


def _without_counts(files: Iterable[TableFile]) -> list[tuple[str, int, int]]:
    return sorted((file.name, file.size, file.deleted) for file in files)


def compare_tables(
    ours: TableState, theirs: TableState, opening: Opening | None, ways: str
) -> tuple[Counts, Finding]:
    """Return whether something is read again or skipped, and the finding that says why. Rows are
    compared with an `opening`; `ways` are those out of a difference.
    """
    before, after = ours.words, theirs.words
    if has_same_files(ours, theirs):
        return (0, 0), note(f"{after} has the files of {before} ({len(ours.files)})")
    counts = ours.records, theirs.records
    ways = f'{ways}; or, where you know better, "waive": ["{OTHER}"]'
    if None in counts or counts[0] != counts[1]:
        shown = ["an unknown number of" if count is None else f"{count:,}" for count in counts]
        return (None, None), refuse(
            f"{after} has {shown[1]} records, and {before} has {shown[0]}: the job would miss "
            "some, or get some twice",
            OTHER,
            ways,
        )
    fact = f"{after} has as many records as {before} ({counts[0]:,}), in other files"
    if opening is None:
        hint = 'to compare their rows: --compare-rows (in a spec, "compare_rows": true)'
        return (0, 0), warn(f"{fact}: their rows were not compared", hint=hint)
    try:
        are_same = digest_of_rows(ours, opening) == digest_of_rows(theirs, opening)
    except StateshiftError as error:
        fact = f"{fact}: their rows cannot be compared: {error.fact}"
        return (None, None), refuse(fact, OTHER, ways)
    if are_same:
        fact = f"{after} has the {counts[0]:,} rows of {before}, in other files"
        return (0, 0), note(fact)
    return (None, None), refuse(
        f"{after} has other rows than {before}, and as many ({counts[0]:,})", OTHER, ways
    )


def not_compared(words: str) -> Finding:
    """Return the refusal of a table that is compared with nothing."""
    return refuse(
        f"nobody can say whether {words} is what the job has read",
        OTHER,
        'name the table that it has read: --from-table LOCATION (in a spec, "from_table"); or, '
        f'where you know it, "waive": ["{OTHER}"]',
    )


def digest_of_rows(state: TableState, opening: Opening) -> tuple[int, int]:
    """Return the number of rows, and the sum of their digests."""
    if not state.columns:
        raise NotComparedError(f"{state.words} does not say what its columns are")
    heading = blake2b(repr(sorted(state.columns.values())).encode(), digest_size=_DIGEST_BYTES)
    count, total = 0, int.from_bytes(heading.digest(), "big")
    for file in state.files:
        if file.deleted:
            raise NotComparedError(f"{file.name} has rows that are marked as deleted")
        try:
            for row in _rows(state, file, opening):
                text = repr(row).encode("utf-8", "surrogatepass")
                digest = blake2b(text, digest_size=_DIGEST_BYTES).digest()
                total += int.from_bytes(digest, "big")
                count += 1
        except (ValueError, OverflowError) as error:  # pyarrow's are such, too
            raise NotComparedError(f"{file.name} has a value that is none: {error}") from error
    return count, total % (1 << 8 * _DIGEST_BYTES)


def _rows(state: TableState, file: TableFile, opening: Opening) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a file, each as the values of its columns by name."""
    import pyarrow as pa

    storage = opening(locations.parent(file.place))
    parquet = parquet_at(storage, locations.name(file.place))
    held: dict[str, int] = {}
    for number, column in enumerate(parquet.schema_arrow):
        field_id = (column.metadata or {}).get(b"PARQUET:field_id", b"")
        known = state.columns.get(int(field_id) if field_id.isdigit() else "")
        name = state.columns.get(column.name, known)
        if name is not None:
            held[name] = number
    constants = {name: _constant(state, name, text) for name, text in file.constants}
    absent = [name for name in state.columns.values() if name not in {**held, **constants}]
    if absent and any(isinstance(key, int) for key in state.columns):
        raise NotComparedError(f"{file.name} lacks the column {absent[0]}")
    for batch in batches_of(parquet):
        columns = {name: [value] * batch.num_rows for name, value in constants.items()}
        columns |= {name: [None] * batch.num_rows for name in absent}
        for name, number in held.items():
            column = batch.column(number)
            if pa.types.is_timestamp(column.type):  # microseconds are the finest of an engine
                column = column.cast(pa.timestamp("us"), safe=False)
            columns[name] = [_plain(value) for value in column.to_pylist()]
        yield from zip(*(columns[name] for name in sorted(columns)), strict=True)


def _plain(value: object) -> object:
    match value:
        case dict():
            return tuple(map(_plain, value.values()))
        case list() | tuple():
            return tuple(map(_plain, value))
    return value


def _constant(state: TableState, name: str, text: str | None) -> object:
    import pyarrow as pa

    kinds = {"string": pa.string(), "boolean": pa.bool_(), "date": pa.date32()}
    kinds |= {"byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64()}
    kind = state.types.get(name)
    if not isinstance(kind, str) or kind not in kinds:
        raise NotComparedError(f"the partitioning column {name} is of the type {kind}")
    return None if text is None else pa.scalar(text).cast(kinds[kind]).as_py()


# ---- Parquet


def parquet_at(storage: Storage, path: str) -> ParquetFile:
    """Return a file of Parquet, of which only what is asked for is read."""
    import pyarrow.parquet as pq

    info = storage.stat(path)
    if info is None:
        raise MissingFile(f"{path} is not there", location=storage.location)
    with _parquet_errors():
        return pq.ParquetFile(_Ranges(storage, path, info.size))


def batches_of(file: ParquetFile, columns: Sequence[str] | None = None) -> Iterator[RecordBatch]:
    """Yield the rows of a file of Parquet, or some columns of them."""
    with _parquet_errors():
        yield from file.iter_batches(ROWS, columns=columns, use_threads=False)


@contextmanager
def _parquet_errors() -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise FormatError(f"a file of a table is not Parquet: {first_line}") from error


class _Ranges(io.RawIOBase):
    """A file of a storage, of which only what is asked for is read."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__()
        self._storage, self._path, self._size = storage, path, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        wanted = left if size < 0 else min(size, left)
        pieces: list[bytes] = []
        held = 0
        if wanted:
            for chunk in self._storage.chunks(self._path, self._position, self._size):
                pieces.append(bytes(chunk[: wanted - held]))
                held += len(pieces[-1])
                if held >= wanted:
                    break
        self._position += held
        return b"".join(pieces)


# ---- Iceberg


def iceberg_table(location: str, opening: Opening) -> IcebergTable:
    """Return the table at a location, or in a catalog."""
    if locations.scheme(location) == CATALOG:
        location = metadata_in_catalog(location)
    if location.endswith(METADATA_ENDING):
        storage, path = opening(locations.parent(location)), locations.name(location)
    else:
        storage = opening(location)
        path = newest_path(storage)
    with errors_at(path):
        return iceberg.decode_table(storage.read(path, iceberg.METADATA_BYTES_MAX))


def metadata_in_catalog(location: str) -> str:
    """Return the metadata file that a catalog names."""
    catalog, table = locations.authority(location), locations.name(location)
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        fact = f"{location} is a table of a catalog, and pyiceberg is not installed here"
        hint = "pip install 'stateshift[iceberg]'; or name the table's folder, or its metadata file"
        raise StorageError(fact, hint=hint, location=location) from error
    try:
        return str(load_catalog(catalog).load_table(table).metadata_location)
    except Exception as error:  # each catalog has errors of its own
        first_line = str(error).partition("\n")[0] or type(error).__name__
        raise ClusterError(
            f"the catalog {catalog} gave no table {table}: {first_line}",
            hint=f"check `pyiceberg --catalog {catalog} describe {table}`; or name the table's "
            "folder, or its metadata file",
        ) from error


def newest_path(storage: Storage) -> str:
    """Return the path of the newest metadata of the table at the storage's location."""
    paths = [file.path for file in storage.list(iceberg.FOLDER)]
    names = {path.rpartition("/")[2] for path in paths if path.count("/") == 1}
    name = _hinted(storage, names) or _newest(storage, names)
    return f"{iceberg.FOLDER}/{name}"


def _hinted(storage: Storage, names: set[str]) -> str | None:
    """Return the hinted metadata file, or a newer one, which may be there before the hint is."""
    number = None
    if iceberg.VERSION_HINT in names:
        text = storage.read(f"{iceberg.FOLDER}/{iceberg.VERSION_HINT}", 1024).strip()
        if text.isdigit() and len(text) <= 18:
            number = int(text)
    by_number = {iceberg.metadata_number(name): name for name in names if name.startswith("v")}
    if number is None or number not in by_number:
        return None
    while number + 1 in by_number:
        number += 1
    return by_number[number]


def _newest(storage: Storage, names: set[str]) -> str:
    newest = iceberg.newest_metadata(names)
    if not newest:
        raise MissingFile(
            f"{storage.location} is no Iceberg table: it has no {iceberg.FOLDER} that names one"
        )
    if len(newest) > 1:
        raise StorageError(
            f"{storage.location} has {len(newest)} newest metadata files, and its catalog alone "
            f"knows which one counts: {', '.join(newest)}",
            hint="name that one: let the `location`, or the table, end with its name",
        )
    return newest[0]


def data_files(snapshot: Snapshot, opening: Opening) -> Iterator[TableFile]:
    """Yield the files of rows of a snapshot. Places are those that the table names."""
    if snapshot.manifest_list is None:
        fact = f"snapshot {snapshot.id} names no manifest list (it is of format version 1)"
        raise StorageError(fact, hint="let the newest Iceberg write the table once")

    def content(location: str) -> bytes:
        storage = opening(locations.parent(location))
        return storage.read(locations.name(location), iceberg.MANIFEST_BYTES_MAX)

    with errors_at(snapshot.manifest_list):
        manifests = iceberg.decode_manifest_list(content(snapshot.manifest_list))
    for manifest in manifests:
        with errors_at(manifest.path):
            for file in iceberg.decode_manifest(content(manifest.path)):
                name, place = locations.name(file.path), locations.normal(file.path)
                # Files that delete rows are told by the summary, too.
                if not manifest.of_deletes:
                    yield TableFile(name, file.size, 0, file.records, place)


@dataclass(frozen=True, slots=True)
class SnapshotSearch:
    """The snapshot that was read last, sought in the table where the job reads on; `old` is the
    table that it has read, where the spec names that.
    """

    change: Reposition
    source: str
    last: int
    table: IcebergTable
    old: IcebergTable | None
    opening: Opening

    @property
    def location(self) -> str:
        return self.change.table or ""

    @property
    def last_read(self) -> Snapshot | None:
        """The snapshot that was read last, as one of the tables still has it."""
        for table in (self.table, self.old):
            held = None if table is None else table.snapshot(self.last)
            if held is not None:
                return held
        return None

    def equal_snapshot(self) -> Snapshot:
        """Return the snapshot up to which the job has read, as this table has it."""
        change, line = self.change, self.table.line
        if change.snapshot is not None:
            return self._of_id(change.snapshot)
        if change.as_of is not None:
            before = [each for each in line if each.time_ms <= change.as_of]
            if not before:
                fact = f"{self.location} has no snapshot of {_time(change.as_of)} or before"
                raise RefusedError(fact, f"it has: {_range_words(self.table)}")
            return before[0]
        if self.last in self.table.all_ids:
            return self._of_id(self.last)
        if self.old is None:
            raise RefusedError(
                f"{self.location} has no snapshot {self.last}, which source {self.source} has read "
                "last: it was expired, or the table is another one",
                f"it has: {_range_words(self.table)}. Name the one up to which the job has read "
                "(--snapshot ID, --as-of TIME), or the table that it has read (--from-table "
                "LOCATION): the equal one is looked for",
            )
        return self._by_content(self.old)

    def _of_id(self, number: int) -> Snapshot:
        snapshot = self.table.snapshot(number)
        if snapshot is not None:
            return snapshot
        if number in self.table.all_ids:
            fact = (
                f"snapshot {number} is none that the current one of {self.location} comes from: "
                "the table was rolled back, or it is one of another branch"
            )
        else:
            fact = f"{self.location} has no snapshot {number}"
        raise RefusedError(fact, f"it has: {_range_words(self.table)}")

    def _by_content(self, old: IcebergTable) -> Snapshot:
        """Return the newest snapshot that holds what the job has read."""
        last = old.snapshot(self.last)
        if last is None:
            raise self._unknown_content(old)
        before = iceberg_at(old, last, self.change.from_table or "", self.opening)
        candidates = [each for each in self.table.line if each.records == last.records]
        states = []
        for snapshot in candidates[:SEARCHED_MAX]:
            state = iceberg_at(self.table, snapshot, self.location, self.opening)
            if has_same_files(before, state):
                return snapshot
            states.append((snapshot, state))
        reading = self.opening if self.change.compare_rows else None
        for snapshot, state in states if reading is not None else ():
            if compare_tables(before, state, reading, "")[1].level == "note":
                return snapshot
        as_many = ", ".join(_words(each) for each in candidates[:3]) or "none"
        raise RefusedError(
            f"no snapshot of {self.location} has the files of snapshot {self.last} of "
            f"{self.change.from_table}, which source {self.source} has read last; with as many "
            f"records: {as_many}",
            "name the one up to which the job has read (--snapshot ID), or let the rows be "
            "compared (--compare-rows)",
        )

    def _unknown_content(self, old: IcebergTable) -> RefusedError:
        return RefusedError(
            f"{self.change.from_table} has no snapshot {self.last} any more, which source "
            f"{self.source} has read last: what the job has read is not known",
            f"it has: {_range_words(old)}. Where you know the equal snapshot of {self.location}: "
            f'--snapshot ID without --from-table, and "waive": ["{OTHER}"]',
        )

    def proof(self, snapshot: Snapshot) -> tuple[Counts, Finding]:
        """Return the snapshots that are read again, and skipped, and the finding that proves it."""
        numbers = {each.id: number for number, each in enumerate(self.table.line)}
        before = numbers.get(self.last)
        if before is not None and snapshot.id != self.last:
            steps = numbers[snapshot.id] - before
            fact = f"the job goes on behind {_words(snapshot)}, and it has read up to {self.last}"
            return (max(0, steps), max(0, -steps)), note(fact)
        if before is not None:
            return self._proof_by_id(snapshot)
        words = f"{self.location} at snapshot {snapshot.id}"
        if self.old is None:
            return (None, None), not_compared(words)
        last = self.old.snapshot(self.last)
        if last is None:
            raise self._unknown_content(self.old)
        return compare_tables(
            iceberg_at(self.old, last, self.change.from_table or "", self.opening),
            iceberg_at(self.table, snapshot, self.location, self.opening),
            self.opening if self.change.compare_rows else None,
            "let the job read up to the snapshot that was copied before, or name another one "
            "(--snapshot ID)",
        )

    def _proof_by_id(self, snapshot: Snapshot) -> tuple[Counts, Finding]:
        last = None if self.old is None else self.old.snapshot(self.last)
        if last is not None and replace(last, manifest_list=None, parent=None) != replace(
            snapshot, manifest_list=None, parent=None
        ):
            fact = f"{self.location} and {self.change.from_table} have other snapshots {self.last}"
            return (None, None), refuse(fact, OTHER, "one of them is no copy")
        fact = f"{self.location} has the snapshot that the job has read last: {_words(snapshot)}"
        return (0, 0), note(fact)

    def unreadable(self) -> Iterator[Finding]:
        """Yield the refusal of a table that names its files at another place than theirs."""
        newest = self.table.line[0].manifest_list
        try:
            opened = None if newest is None else self.opening(locations.parent(newest))
            is_there = opened is None or opened.stat(locations.name(newest or "")) is not None
        except StateshiftError:
            is_there = False
        if not is_there:
            fact = f"{self.location} names its files at {newest}, where there is none: nobody can "
            hint = "copy a table by Iceberg's rewrite_table_path, which rewrites those paths"
            yield refuse(f"{fact}read the table", LOST, hint)


def snapshot_search(change: Reposition, source: str, last: int, opening: Opening) -> SnapshotSearch:
    """Return the search for the snapshot `last` in the table that the change names."""
    tables: list[IcebergTable | None] = []
    for location in (change.table or "", change.from_table):
        try:
            tables.append(None if location is None else iceberg_table(location, opening))
        except StateshiftError as error:
            fact = error.fact if not isinstance(error, FormatError) else str(error)
            fact = f"the Iceberg table {location} could not be asked: {fact}"
            hint = error.hint or "name the table's folder, or its metadata file"
            raise RefusedError(fact, hint) from error
    table, old = tables
    assert table is not None, "a change that names one"
    if not table.line:
        raise RefusedError(f"{change.table} has no snapshot: it is empty")
    return SnapshotSearch(change, source, last, table, old, opening)


def iceberg_at(
    table: IcebergTable, snapshot: Snapshot, location: str, opening: Opening
) -> TableState:
    """Return the table as it was at a snapshot."""
    files = list(data_files(snapshot, opening))
    has_deletes = snapshot.count("total-delete-files") != 0  # None: nobody has counted
    reason = "it has files of deleted rows" if has_deletes else None
    words = f"{location} at snapshot {snapshot.id}"
    return TableState(words, files, table.columns, reason=reason)


def _range_words(table: IcebergTable) -> str:
    """Return words for the snapshots that a table has left."""
    if not table.line:
        return "none"
    newest, oldest = _words(table.line[0]), _words(table.line[-1])
    return newest if len(table.line) == 1 else f"{oldest} to {newest}"


def _words(snapshot: Snapshot) -> str:
    return f"{snapshot.id} ({_time(snapshot.time_ms)})"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")

"""The new position of a source that reads on in another table of Delta or Iceberg, and the proof
that the other table has before that position what the job has read. Reads only.

    Delta      {"sourceVersion":1,"reservoirId":"<id>","reservoirVersion":4,"index":-1,
                "isStartingVersion":false}
    Iceberg    {"version":1,"snapshot_id":599…,"position":2,"scan_all_files":false}

Delta's version is the first one that is read. Iceberg's snapshot is the last one, read whole if the
position is the number of data files that it added (SparkMicroBatchStream.latestOffset, planFiles).
The place in the other table is

    of the same id        the same snapshot, or version: a table that was copied with its metadata
    named by the user     a version, a snapshot, or the newest snapshot at a time
    looked for            behind the newest content that is proved to be the same

and the proof is

    the same files        a copy or a clone: name, size, and rows that are marked as deleted
    the same rows         both tables were read, where that is asked for: a digest of all rows,
                          which does not depend on their order or their files
    as many records       a table that was written anew (CTAS): its content was not compared

A row is the values of its columns, in the order of the columns' names: a column of Delta's may have
another name in its files (column mapping), and one that partitions the table is in its log alone;
one of Iceberg's is known by its id.

While Delta's first snapshot is read, its files are in an order of that table's own; and files of a
version, or a snapshot, that is read in part are counted. Neither has a counterpart elsewhere.
Spark looks for Iceberg's next snapshot among the ancestors of the current one: one that was rolled
back, or is expired, has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b

from stateshift.engines.repositioning import RefusedError
from stateshift.engines.spark.small_files import json_or_text
from stateshift.engines.spark.survey.inputs import table_at
from stateshift.engines.spark.survey.table_logs import (
    TableFile,
    batches_of,
    data_files,
    files_at,
    iceberg_table,
    parquet_at,
)
from stateshift.engines.views import Opening
from stateshift.errors import FormatError, MissingFile, StateshiftError
from stateshift.formats.iceberg_metadata import IcebergTable, Snapshot
from stateshift.plain import JsonObject
from stateshift.specification.transform import Reposition
from stateshift.storage import locations
from stateshift.survey import (
    Endpoint,
    Finding,
    NewPosition,
    PositionChange,
    TableFacts,
    note,
    refuse,
    warn,
)

OTHER = "other-records"
LOST = "lost-offsets"
SEARCHED_MAX = 20  # versions, or snapshots, whose files are read to find the equal one
_DIGEST_BYTES = 16

Counts = tuple[int | None, int | None]


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


def _not_compared(words: str) -> Finding:
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
            if pa.types.is_timestamp(column.type):  # microseconds are the finest that Spark has
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


# ---- Delta

# An index before, and one behind, a change of the table's schema (DeltaSourceOffset).
SCHEMA_CHANGES = (-20, -19)
_PLAN_ANEW = (
    'plan it anew: --planned-batch drop (in a spec, "planned_batch": "drop"), if the sink does not '
    "have it; or start the job once where it is"
)
_READ_ON = (
    "let the job read on where it is until a batch ends with a version, or go back to such a batch "
    "as well (rewind)"
)


def delta_position(
    change: Reposition, endpoint: Endpoint, offsets: Mapping[int, JsonObject], opening: Opening
) -> NewPosition:
    """Return the position in the table that the change names."""
    source, location = endpoint.index, change.table or ""
    epoch = min(offsets)
    refusals: list[Finding] = []
    details = endpoint.details
    at = f"version {details['version']}"
    if details["starting_snapshot"]:
        fact = (
            f"source {source} still reads the first snapshot of its table ({at}), in an order that "
            "another table does not have"
        )
        hint = "let the job read that snapshot to its end where it is"
        refusals.append(refuse(fact, hint=hint))
    elif details["index"] in SCHEMA_CHANGES:
        fact = f"source {source} stands at a change of its table's schema ({at})"
        refusals.append(refuse(fact, hint=_READ_ON))
    elif details["index"] >= 0:
        fact = f"source {source} has read {at} of its table in part (up to file {details['index']})"
        refusals.append(refuse(fact, hint=_READ_ON))
    table = table_at(location, opening)
    if table.wrong is not None:
        fact = f"the Delta table {location} could not be asked: {table.wrong}"
        refusals.append(refuse(fact, hint=table.hint))
    old_id, old_version = endpoint.details["table_id"], endpoint.details["version"]
    is_same_table = table.id == old_id
    version = old_version if change.version is None and is_same_table else change.version
    if version is None and table.wrong is None and change.from_table is not None:
        version = _equal_version(change, table, old_version, opening)
    if version is None and table.wrong is None:
        refusals.append(
            refuse(
                f"{location} is another table (its id is {table.id}, and the job has read "
                f"{old_id}): which of its versions comes next is not known",
                hint=f"name the first one that the job reads (--version V): it has versions up "
                f"to {table.newest}; or the table that it has read (--from-table LOCATION): the "
                "version behind one with the same files is looked for",
            )
        )
    is_planned = len(offsets) > 1
    if is_planned and (not is_same_table or version != old_version):
        refusals.append(
            refuse(
                f"a batch is planned over the table of source {source}, whose versions are not "
                f"those of {location}",
                hint=_PLAN_ANEW,
            )
        )
    if refusals or version is None:
        return NewPosition(source, endpoint.kind, findings=tuple(refusals))
    counts, findings = _delta_proof(change, (old_version, version), is_same_table, opening)
    texts: dict[int, str] = {}
    if not is_same_table or version != old_version:
        new = {**offsets[epoch], "reservoirId": table.id, "reservoirVersion": version}
        texts[epoch] = json.dumps(new, separators=(",", ":"))
    details = {**details, "table_id": table.id, "version": version}
    return NewPosition(
        source,
        endpoint.kind,
        replace(endpoint, details=details),
        texts,
        (PositionChange(source, location, old_version, version, *counts),),
        findings,
    )


def _delta_proof(
    change: Reposition, versions: tuple[int, int], is_same_table: bool, opening: Opening
) -> tuple[Counts, tuple[Finding, ...]]:
    """Return the versions that are read again, and skipped, and the findings that prove it."""
    old_version, version = versions
    if is_same_table and version != old_version:
        return (max(0, old_version - version), max(0, version - old_version)), ()
    new = change.table or ""
    if change.from_table is None:
        if is_same_table:
            fact = f"{new} has the id of the table that the job has read, and was not compared"
            hint = 'name the table as it was: --from-table LOCATION (in a spec, "from_table")'
            return (0, 0), (warn(fact, hint=hint),)
        return (None, None), (_not_compared(f"{new} before version {version}"),)
    counts, finding = compare_tables(
        delta_at(change.from_table, old_version, opening, change.compare_rows),
        delta_at(new, version, opening, change.compare_rows),
        opening if change.compare_rows else None,
        "let the job read up to the version that was copied before, or name another version "
        "(--version V)",
    )
    return counts, (finding,)


def _equal_version(
    change: Reposition, table: TableFacts, old_version: int, opening: Opening
) -> int | None:
    """Return the version behind the newest that has what the job has read; None for none."""
    rows = change.compare_rows
    before = delta_at(change.from_table or "", old_version, opening, rows)
    for version in range(table.newest + 1, max(0, table.newest + 1 - SEARCHED_MAX), -1):
        try:
            after = delta_at(change.table or "", version, opening, rows)
        except MissingFile:
            return None  # the log does not lead further back
        if has_same_files(before, after):
            return version
        if rows and compare_tables(before, after, opening, "")[1].level == "note":
            return version
    return None


def delta_at(location: str, version: int, opening: Opening, rows: bool) -> TableState:
    """Return the table as it was before a version; its columns, too, if `rows` will be read."""
    storage = opening(location)
    columns: dict[str | int, str] = {}
    types: dict[str, object] = {}
    plain = json_or_text(table_at(location, opening).schema) if rows else None
    for item in plain.get("fields", ()) if isinstance(plain, dict) else ():
        match item:
            case {"name": str() as name, "type": kind, "metadata": dict() as metadata}:
                physical = str(metadata.get("delta.columnMapping.physicalName", name))
                columns[physical], types[name] = name, kind
    files = []
    for file in files_at(storage, version - 1):
        place = file.place if "://" in file.place else f"{location}/{file.place}"
        constants = [(columns.get(name, name), text) for name, text in file.constants]
        files.append(file._replace(place=locations.normal(place), constants=tuple(constants)))
    return TableState(f"{location} before version {version}", files, columns, types)


# ---- Iceberg

# Spark reads neither, and goes on only if the job says so (streaming-skip-…-snapshots).
SKIPPED_BY_OPTION = ("overwrite", "delete")


@dataclass(frozen=True, slots=True)
class _SnapshotSearch:
    """The snapshot that was read last, sought in the table where the job reads on; `old` is the
    table that it has read, where the spec names that.
    """

    change: Reposition
    source: str
    last: int
    position: int
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
            return (None, None), _not_compared(words)
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


def iceberg_position(
    change: Reposition, endpoint: Endpoint, offsets: Mapping[int, JsonObject], opening: Opening
) -> NewPosition:
    """Return the position in the table that the change names."""
    source, details, epoch = endpoint.index, endpoint.details, min(offsets)
    try:
        search = _search(change, endpoint, opening)
        snapshot = search.equal_snapshot()
        is_same = snapshot.id == search.last
        if not is_same:
            _refuse_within(search, details)
        planned = search.table.snapshot(offsets[max(offsets)].get("snapshot_id"))
        if len(offsets) > 1 and not (is_same and planned):
            raise RefusedError(
                f"a batch is planned over the table of source {source}, whose snapshots are not "
                f"those of {search.location}",
                _PLAN_ANEW,
            )
        counts, proof = search.proof(snapshot)
    except RefusedError as refused:
        return NewPosition(source, endpoint.kind, findings=(refused.finding,))
    texts: dict[int, str] = {}
    if not is_same:
        new = {"snapshot_id": snapshot.id, "position": snapshot.added_files}
        details = {**details, **new, "starting_snapshot": False}
        offset = {**offsets[epoch], **new, "scan_all_files": False}
        texts[epoch] = json.dumps(offset, separators=(",", ":"))
    return NewPosition(
        source,
        endpoint.kind,
        replace(endpoint, details=details),
        texts,
        (PositionChange(source, search.location, search.last, snapshot.id, *counts),),
        (proof, *_findings(search, snapshot)),
    )


def _search(change: Reposition, endpoint: Endpoint, opening: Opening) -> _SnapshotSearch:
    last, position = endpoint.details["snapshot_id"], endpoint.details["position"]
    if last < 0:
        hint = "start the job anew there, or let it read something where it is"
        raise RefusedError(f"source {endpoint.index} has read nothing of its table yet", hint)
    tables: list[IcebergTable | None] = []
    for location in (change.table or "", change.from_table):
        try:
            tables.append(None if location is None else iceberg_table(location, opening))
        except StateshiftError as error:
            fact = error.fact if not isinstance(error, FormatError) else str(error)
            fact = f"the Iceberg table {location} could not be asked: {fact}"
            raise RefusedError(fact, error.hint) from error
    table, old = tables
    assert table is not None, "a change that names one"
    if not table.line:
        raise RefusedError(f"{change.table} has no snapshot: it is empty")
    return _SnapshotSearch(change, endpoint.index, last, position, table, old, opening)


def _refuse_within(search: _SnapshotSearch, details: JsonObject) -> None:
    """Refuse a position within a snapshot: another table has other files, in another order."""
    read, source = search.last_read, search.source
    hint = "let the job read that snapshot to its end where it is"
    files = None if read is None else read.count("total-data-files")
    if details["starting_snapshot"] and files != search.position:
        fact = f"source {source} still reads the first snapshot of its table ({search.last})"
        raise RefusedError(fact, hint)
    if not details["starting_snapshot"] and read and read.added_files != search.position:
        raise RefusedError(
            f"source {source} has read snapshot {search.last} of its table in part "
            f"({search.position} of {read.added_files} files)",
            hint,
        )


def _findings(search: _SnapshotSearch, snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return the findings about a table in which Spark stops, or cannot read on."""
    findings = []
    if snapshot.operation in SKIPPED_BY_OPTION:
        fact = f"snapshot {snapshot.id} is of the operation {snapshot.operation}"
        hint = f"let the job have streaming-skip-{snapshot.operation}-snapshots=true"
        findings.append(warn(f"{fact}: Spark stops at it", hint=hint))
    newest = search.table.line[0].manifest_list
    try:
        opened = None if newest is None else search.opening(locations.parent(newest))
        is_there = opened is None or opened.stat(locations.name(newest or "")) is not None
    except StateshiftError:
        is_there = False
    if not is_there:
        fact = f"{search.location} names its files at {newest}, where there is none: nobody can "
        hint = "copy a table by Iceberg's rewrite_table_path, which rewrites those paths"
        findings.append(refuse(f"{fact}read the table", LOST, hint))
    return tuple(findings)


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

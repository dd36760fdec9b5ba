"""The rows of an answer: the first ones as plain values, or all of them in a file; and the rows of
such a file, read again.

Plain values are those of JSON: bytes in hexadecimal; decimals, dates, times and what no number can
be as text.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stateshift.engines.registry import absence, engine_of
from stateshift.engines.spill import storage_errors
from stateshift.engines.views import Opening, PreparedState, RowBatch, Wanted
from stateshift.errors import FormatError, NothingThere, PlanError, SpecError
from stateshift.plain import JsonObject
from stateshift.storage import locations
from stateshift.storage.protocol import CHUNK, Storage
from stateshift.table.query import ROWS, Answer, answer, is_question
from stateshift.table.tables import tables_of

FORMATS = (".parquet", ".arrow", ".jsonl")

LINES = 8192  # that are read together

Plain = dict[str, object]


def rows_of(answer: Answer, limit: int) -> tuple[list[Plain], bool]:
    """Return the first rows, and whether there are more."""
    rows: list[Plain] = []
    for batch in answer.batches:
        for row in batch.slice(0, limit + 1 - len(rows)).to_pylist():
            rows.append({name: plain(value) for name, value in row.items()})
        if len(rows) > limit:
            return rows[:limit], True
    return rows, False


def plain(value: object) -> object:
    """Return a value as JSON can have it."""
    match value:
        case bool() | int() | str() | None:
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case datetime() | date():
            return value.isoformat()
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case Decimal():
            return format(value, "f")
    return str(value)


def save(answer: Answer, to: str, opening: Opening) -> None:
    """Write all rows to a file, whole or not at all.

    Raises:
        SpecError: its name has none of the suffixes that say what to write.
        PlanError: the format cannot hold these columns.
        FormatError, StorageError: the state cannot be read, or the file not be written.
    """
    suffix = os.path.splitext(to)[1].lower()
    if suffix not in FORMATS:
        raise SpecError.of("--to", "the suffix decides the format", to, " or ".join(FORMATS))
    target = locations.normal(to, os.getcwd())
    storage = opening(locations.parent(target))
    with tempfile.TemporaryDirectory(prefix="stateshift-query-") as folder:
        made = Path(folder) / "rows"
        try:
            _write(answer, suffix, made)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            hint = f"write .jsonl: {error}"
            raise PlanError(f"{suffix} cannot hold these columns", hint=hint) from error
        storage.write(locations.name(target), lambda: _chunks(made))
    storage.sync()


def prepare_state(
    sources: Sequence[str], template: str, wanted: Wanted, into: Storage, opening: Opening
) -> PreparedState:
    """Write the files of state that the rows of files, or of the answer to one SELECT about the
    template, make.

    Raises:
        SpecError, PlanError, FormatError: as `Engine.import_rows` does.
    """
    place = locations.normal(template, os.getcwd())
    engine = engine_of(place, opening=opening)
    if len(sources) == 1 and is_question(sources[0]):
        with answer(sources[0], tables_of([template], opening), opening) as given:
            rows = number_rows("the answer", given.batches)
            return engine.import_rows(place, rows, wanted, into, opening)
    rows = chain.from_iterable(batches_in(source, opening) for source in sources)
    return engine.import_rows(place, rows, wanted, into, opening)


def batches_in(path: str, opening: Opening) -> Iterator[RowBatch]:
    """Yield the rows of a file, so many at once.

    Raises:
        SpecError: its name has none of the suffixes that say what is in it.
        NothingThere: there is no such file.
        FormatError: it is damaged; its line or row is told.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in FORMATS:
        expected = f"{', '.join(FORMATS)}, or one SELECT"
        raise SpecError.of("ROWS", "the suffix decides the format", path, expected)
    location = locations.normal(path, os.getcwd())
    storage, name = opening(locations.parent(location)), locations.name(location)
    if storage.stat(name) is None:
        hint = locations.look_above(location)
        raise NothingThere(absence(location, path), location=location, hint=hint)
    with tempfile.TemporaryFile() as file:
        with storage_errors():
            for chunk in storage.chunks(name):
                file.write(chunk)
            file.seek(0)
        if suffix == ".jsonl":
            yield from _lines_in(path, file)
            return
        try:
            if suffix == ".parquet":
                batches = pq.ParquetFile(file).iter_batches(ROWS, use_threads=False)
            else:
                reader = pa.ipc.open_file(file)
                batches = map(reader.get_batch, range(reader.num_record_batches))
            yield from number_rows(path, batches)
        except pa.ArrowInvalid as error:
            raise FormatError(f"it is not a complete {suffix} file: {error}", path) from error


def number_rows(source: str, batches: Iterable[pa.RecordBatch]) -> Iterator[RowBatch]:
    """Yield the batches of a source with the numbers of their rows, from 1 on."""
    first = 1
    for batch in batches:
        if len(batch):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield RowBatch(source, first, len(batch), columns)
        first += len(batch)


def _lines_in(path: str, file: Iterable[bytes]) -> Iterator[RowBatch]:
    rows: list[JsonObject] = []
    names = None
    for number, line in enumerate(file, start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"line {number}: it is not JSON: {error}", path) from error
        names = names or (isinstance(row, dict) and row.keys())
        if not isinstance(row, dict) or row.keys() != names:
            fact = "it is not an object with the fields of line 1"
            raise FormatError(f"line {number}: {fact}", path)
        rows.append(row)
        if len(rows) == LINES:
            yield _batch_of(path, number, rows)
            rows = []
    if rows:
        yield _batch_of(path, number, rows)


def _batch_of(path: str, last: int, rows: list[JsonObject]) -> RowBatch:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return RowBatch(path, last - len(rows) + 1, len(rows), columns)


def _write(answer: Answer, suffix: str, file: Path) -> None:
    if suffix == ".jsonl":
        with file.open("w") as out:
            out.writelines(_lines(answer.batches))
        return
    open_writer = pq.ParquetWriter if suffix == ".parquet" else pa.ipc.new_file
    with open_writer(str(file), answer.schema) as writer:
        for batch in answer.batches:
            writer.write_batch(batch)


def _lines(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    for batch in batches:
        for row in batch.to_pylist():
            yield json.dumps({name: plain(value) for name, value in row.items()}) + "\n"


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as content:
        while chunk := content.read(CHUNK):
            yield chunk

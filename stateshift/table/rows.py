"""The rows of an answer: the first ones as plain values, or all of them in a file.

Plain values are those of JSON: bytes in hexadecimal; decimals, dates, times and what no number can
be as text.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stateshift.engines.views import Opening
from stateshift.errors import PlanError, SpecError
from stateshift.storage import locations
from stateshift.storage.protocol import CHUNK
from stateshift.table.query import Answer

FORMATS = (".parquet", ".arrow", ".jsonl")

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

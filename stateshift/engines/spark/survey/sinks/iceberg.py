"""Which batches an Iceberg table has of a query: the snapshots that its metadata names.

Tables of a Hadoop catalog say themselves which metadata is the newest. Of other catalogs' tables
the file of the highest number is taken, if it is the only one of that number; the spec may name
the very file (`location` ends with .metadata.json).
"""

from __future__ import annotations

from collections.abc import Mapping

from stateshift.errors import FormatError, MissingFile, StorageError
from stateshift.formats.tables.iceberg_metadata import (
    FOLDER,
    METADATA_BYTES_MAX,
    VERSION_HINT,
    IcebergTable,
    decode_table,
    metadata_number,
    newest_metadata,
)
from stateshift.storage.protocol import Storage
from stateshift.survey import SinkLog


def read_iceberg_table(storage: Storage, queries: Mapping[str, int]) -> dict[str, SinkLog]:
    """Return what the table at the storage's location has of each query."""
    paths = [file.path for file in storage.list(FOLDER)]
    names = {path.rpartition("/")[2] for path in paths if path.count("/") == 1}
    name = _hinted(storage, names) or _newest(storage, names)
    return read_iceberg_metadata(storage, f"{FOLDER}/{name}", queries)


def read_iceberg_metadata(
    storage: Storage, path: str, queries: Mapping[str, int]
) -> dict[str, SinkLog]:
    """Return what the table that this metadata file describes has of each query."""
    try:
        table = decode_table(storage.read(path, METADATA_BYTES_MAX))
    except FormatError as error:
        raise error.at(path) from error
    return {query: _log_of(query, table) for query in queries}


def _log_of(query: str, table: IcebergTable) -> SinkLog:
    """Return the log of one query. Its snapshots come from the newest back, and the newest of a
    batch counts.
    """
    batches: dict[int, int] = {}
    for snapshot in table.streamed:
        if snapshot.query == query:
            batches.setdefault(snapshot.batch, snapshot.snapshot_id)
    return SinkLog(next(iter(batches), None), batches)


def _hinted(storage: Storage, names: set[str]) -> str | None:
    """Return the metadata file that the version hint leads to: a newer one may be there before the
    hint is.
    """
    number = _hint(storage) if VERSION_HINT in names else None
    by_number = {metadata_number(name): name for name in names if name.startswith("v")}
    if number is None or number not in by_number:
        return None
    while number + 1 in by_number:
        number += 1
    return by_number[number]


def _newest(storage: Storage, names: set[str]) -> str:
    """Return the metadata file of the highest number."""
    newest = newest_metadata(names)
    if not newest:
        raise MissingFile(
            f"{storage.location} is no Iceberg table: it has no {FOLDER} that names one"
        )
    if len(newest) > 1:
        raise StorageError(
            f"{storage.location} has {len(newest)} newest metadata files, and its catalog alone "
            f"knows which one counts: {', '.join(newest)}",
            hint="name that one: let `location` in `sink` end with its name",
        )
    return newest[0]


def _hint(storage: Storage) -> int | None:
    """Return the number in the version hint; None where it holds something else."""
    text = storage.read(f"{FOLDER}/{VERSION_HINT}", 1024).strip()
    return int(text) if text.isdigit() and len(text) <= 18 else None

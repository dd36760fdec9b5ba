"""One file of a checkpoint; where it lies in its checkpoint says which schema its rows have."""

from __future__ import annotations

import os

from stateshift.engines.spark.entries import single_file as decoding
from stateshift.engines.spark.entries.rows import RowSchema
from stateshift.engines.views import DecodedFile, Opening
from stateshift.errors import FormatError
from stateshift.storage import locations
from stateshift.storage.protocol import Storage

# A file longer than this is shown from its beginning only.
FILE_MAX = 256 * 1024 * 1024


def decoded(storage: Storage, name: str, location: str, opening: Opening) -> DecodedFile:
    """Return one file's content decoded, `name` in the storage and `location` in full; state files
    find their schema in the checkpoint around them.
    """
    path = locations.normal(location, os.getcwd())
    try:
        rows = _rows(opening, path)
        return decoding.decode_file(path, storage.read(name, FILE_MAX), rows)
    except FormatError as error:
        raise error.at(location) from error


def _rows(opening: Opening, path: str) -> RowSchema:
    """Return the schema that lies beside a state file, if there is one: a checkpoint starts without
    it, too.
    """
    inside = decoding.inside(path)
    schema = decoding.schema_path(inside)
    if schema is None:
        return RowSchema()
    storage = opening(path.removesuffix(inside).rstrip("/") or path)
    if storage.stat(schema) is None:
        return RowSchema()
    rocksdb = path.endswith((".zip", ".changelog", ".sst"))
    return RowSchema.of(storage.read(schema, FILE_MAX), "rocksdb" if rocksdb else None)

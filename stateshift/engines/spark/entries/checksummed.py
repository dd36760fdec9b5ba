"""State files read as Spark reads them: held against the checksum beside them.

    x, x.crc  Spark 4.1 and later refuse x where x.crc does not fit (ChecksumCheckpointFileManager)

A file that is read from its beginning to its end is checked. The tables of RocksDB have no such
checksum, and those of their blocks within.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.errors import FormatError, MissingFile
from stateshift.formats.crc32c import crc32c
from stateshift.formats.spark.crc import SparkChecksum, decode_spark_crc
from stateshift.storage.protocol import Storage
from stateshift.survey import Survey
from stateshift.world import ReadFrom

CHECKSUM_MAX = 1 << 16


def checked_chunks(storage: Storage, survey: Survey) -> ReadFrom:
    """Return the reader of a file, which fails at its end where its checksum does not fit. From an
    offset on, which tables alone are read, nothing is checked.
    """
    sidecars = frozenset(file.path for file in survey.files if file.path.endswith(".crc"))

    def chunks(path: str, offset: int = 0) -> Iterator[bytes]:
        sidecar = f"{path}.crc"
        wanted = _wanted(storage, sidecar) if sidecar in sidecars and not offset else None
        if wanted is None:
            return storage.chunks(path, offset)
        return _held_against(storage.chunks(path), wanted, path)

    return chunks


def _wanted(storage: Storage, path: str) -> SparkChecksum | None:
    """Return a checksum; None where it has gone meanwhile, which Spark does not mind."""
    try:
        return decode_spark_crc(storage.read(path, CHECKSUM_MAX))
    except MissingFile:
        return None
    except FormatError as error:
        raise error.at(path) from error


def _held_against(chunks: Iterator[bytes], wanted: SparkChecksum, path: str) -> Iterator[bytes]:
    value = size = 0
    for chunk in chunks:
        value = crc32c(chunk, value)
        size += len(chunk)
        yield chunk
    if (value, size) != (wanted.value, wanted.size):
        fact = "the checksum beside it does not fit: Spark refuses to read it"
        hint = f"if the file is intact otherwise, remove {path}.crc: Spark reads it without"
        raise FormatError(fact, path, hint=hint)

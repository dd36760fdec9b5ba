"""One column of a Delta checkpoint in Parquet, a file that may be large, read in pieces: `txn`, or
another kind of action.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from stateshift.errors import FormatError, MissingFile
from stateshift.formats.tables.delta_log import Transaction, transaction_of
from stateshift.plain import JsonObject
from stateshift.storage.protocol import Storage

ROWS = 16 * 1024


def transactions_in(storage: Storage, path: str) -> Iterator[Transaction]:
    """Yield the transactions of a checkpoint."""
    return map(transaction_of, actions_in(storage, path, "txn"))


def actions_in(storage: Storage, path: str, name: str) -> Iterator[JsonObject]:
    """Yield the actions of this name in a checkpoint. Other columns are not read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    info = storage.stat(path)
    if info is None:
        raise MissingFile(f"{path} is not there", location=storage.location)
    try:
        file = pq.ParquetFile(_Ranges(storage, path, info.size))
        if name not in file.schema_arrow.names:
            return
        for batch in file.iter_batches(ROWS, columns=[name]):
            yield from batch.column(0).drop_null().to_pylist()
    except (pa.ArrowException, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise FormatError(f"a checkpoint of a Delta table is not Parquet: {first_line}") from error


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

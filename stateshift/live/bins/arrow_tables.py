"""Tables of Arrow: as bytes, and several of them as one in which each key stands once.

    to_bytes, from_bytes   one table, as Arrow's own stream; no table as no bytes
    read_tables            tables that follow each other, as they were written
    latest, replace_rows   the last row of each key

A table is a bin's state, or its changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    import pyarrow
    from numpy.typing import NDArray

_LENGTH_AT, _HEAD = 4, 8  # a message begins with ff ff ff ff and the length of its metadata


def to_bytes(table: pyarrow.Table | None) -> bytes:
    """Return a table as bytes; none as no bytes."""
    if table is None:
        return b""
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_bytes(content: bytes) -> pyarrow.Table | None:
    """Return the table that bytes hold."""
    if not content:
        return None
    import pyarrow

    with pyarrow.ipc.open_stream(content) as reader:
        return reader.read_all()


def read_tables(pieces: Iterable[bytes]) -> Iterator[pyarrow.Table]:
    """Yield the tables that pieces hold. A bin has many small ones of one schema, and to read that
    takes longer than to read some rows: what begins with the same bytes as the one before has the
    same schema.
    """
    import pyarrow

    head, schema = b"", None
    for piece in pieces:
        if not piece:
            continue
        table = None
        if schema is not None and piece.startswith(head):
            table = _read_batches(pyarrow.py_buffer(piece).slice(len(head)), schema)
        if table is None:
            table = from_bytes(piece)
            assert table is not None, "there are bytes"
            # The schema's message is the first one, and has no body.
            end = _HEAD + int.from_bytes(piece[_LENGTH_AT:_HEAD], "little")
            head, schema = piece[:end], table.schema
        yield table


def _read_batches(content: pyarrow.Buffer, schema: pyarrow.Schema) -> pyarrow.Table | None:
    """Return the rows behind a schema; None where there is more than rows, as dictionaries."""
    import pyarrow

    batches = []
    for message in pyarrow.ipc.MessageReader.open_stream(content):
        if message.type != "record batch":
            return None
        batches.append(pyarrow.ipc.read_record_batch(message, schema))
    return pyarrow.Table.from_batches(batches, schema)


def replace_rows(
    table: pyarrow.Table | None, changed: Sequence[pyarrow.Table], key: Sequence[str]
) -> pyarrow.Table | None:
    """Return a table with the rows that have changed in the place of those of the same key. They
    stand behind the others, in the order in which they were written. Nulls count as equal.
    """
    import pyarrow
    import pyarrow.compute

    last = latest(changed, key)
    if last is None or table is None or table.num_rows == 0:
        return table if last is None else last
    if len(key) > 1:
        return latest((table, last), key)
    values = last.column(key[0]).combine_chunks()
    is_old = pyarrow.compute.is_in(table.column(key[0]), value_set=values)
    kept = table.filter(pyarrow.compute.invert(is_old))
    return pyarrow.concat_tables([kept, _fitting(last, table.schema)]).combine_chunks()


def latest(tables: Sequence[pyarrow.Table], key: Sequence[str]) -> pyarrow.Table | None:
    """Return the last row of each key of tables in order; one table alone is as it is."""
    if len(tables) < 2:
        return tables[0] if tables else None
    import numpy
    import pyarrow

    schema = tables[0].schema
    whole = pyarrow.concat_tables([_fitting(table, schema) for table in tables]).combine_chunks()
    numbers = _numbered([whole.column(name) for name in key], whole.num_rows)
    rows = numpy.arange(whole.num_rows)
    last = numpy.zeros(whole.num_rows, numpy.int64)
    last[numbers] = rows  # of rows of one number the last one stays
    return whole.filter(pyarrow.array(last[numbers] == rows)).combine_chunks()


def plain_values(column: pyarrow.ChunkedArray) -> list[object]:
    """Return a column's values as Python's; numbers by numpy, in a tenth of the time."""
    import pyarrow

    kind = column.type
    is_number = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)
    if is_number and column.null_count == 0:
        return list(column.to_numpy().tolist())
    return list(column.to_pylist())


def _fitting(table: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """Return a table with the columns of another; to ask is quicker than to cast."""
    return table if table.schema == schema else table.cast(schema)


def _numbered(columns: Sequence[pyarrow.ChunkedArray], count: int) -> NDArray[numpy.int64]:
    """Return a number of each row, below `count`: the same one where all columns are the same."""
    import numpy

    numbers = numpy.zeros(count, numpy.int64)
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        numbers = numbers * len(encoded.dictionary) + encoded.indices.to_numpy()
        if len(columns) > 1:
            _, numbers = numpy.unique(numbers, return_inverse=True)
    return numbers

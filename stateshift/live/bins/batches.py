"""Rows in the order of time: a batch of Arrow cut into bins, and what is held of a bin.

    Records   rows as Python objects: (moment, key, value)
    Columns   rows as an Arrow table

Both are cut at moments and put together again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stateshift.live.bins.hashing import key_kinds
from stateshift.live.bins.times import Moment
from stateshift.live.protocol.bins import HASH_BITS, bits_of
from stateshift.live.protocol.folded import Key, Value

if TYPE_CHECKING:
    import numpy
    import pyarrow

    from stateshift.live.bins.operators import Operator

Row = tuple[Moment, Key, Value]

HASH = "__stateshift_hash"  # the column that Spark adds: xxhash64 of the key


class Rows(Protocol):
    """Rows of one bin, in the order of time."""

    def __len__(self) -> int: ...

    def cut(self, moment: Moment) -> tuple[Rows, Rows]:
        """Return the rows before a moment, and those from it on."""
        ...

    def merged(self, later: Any) -> Rows:  # rows of the same class
        """Return these rows and others, in the order of time; at one moment these come first."""
        ...


@dataclass(frozen=True, slots=True)
class Records:
    """Rows as Python objects."""

    records: Sequence[Row]

    def __len__(self) -> int:
        return len(self.records)

    def cut(self, moment: Moment) -> tuple[Records, Records]:
        """Return the rows before a moment, and those from it on."""
        at = bisect_left(self.records, moment, key=lambda record: record[0])
        return Records(self.records[:at]), Records(self.records[at:])

    def merged(self, later: Records) -> Records:
        """Return these rows and others, in the order of time."""
        if not self.records or not later.records:
            return self if self.records else later
        both = [*self.records, *later.records]
        both.sort(key=lambda record: record[0])
        return Records(both)


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows as an Arrow table, beside their moments."""

    moments: Sequence[Moment]
    table: pyarrow.Table

    def __len__(self) -> int:
        return len(self.moments)

    def cut(self, moment: Moment) -> tuple[Columns, Columns]:
        """Return the rows before a moment, and those from it on."""
        at = bisect_left(self.moments, moment)
        before = Columns(self.moments[:at], self.table.slice(0, at))
        return before, Columns(self.moments[at:], self.table.slice(at))

    def merged(self, later: Columns) -> Columns:
        """Return these rows and others, in the order of time."""
        if not self.moments or not later.moments:
            return self if self.moments else later
        import pyarrow

        moments = [*self.moments, *later.moments]
        order = sorted(range(len(moments)), key=moments.__getitem__)
        table = pyarrow.concat_tables([self.table, later.table]).take(order)
        return Columns([moments[number] for number in order], table)


class Batch(NamedTuple):
    """A batch's rows by bin, and the last moment of each partition of the source. Rows that are not
    in this process are None: they are where their bin is. `key_kinds` says how the key's columns
    are hashed; nothing of it where there are no rows.
    """

    rows: Mapping[int, Rows | None]
    seen: dict[str, Moment]
    size: int
    earliest: Moment | None
    key_kinds: tuple[str, ...] = ()


NOTHING = Batch({}, {}, 0, None)


def read_batch(table: pyarrow.Table, operator: Operator, bins: int) -> Batch:
    """Return a table that has the column of hashes, in the order of time and by bin, of which there
    are so many.
    """
    import numpy

    if table.num_rows == 0:
        return NOTHING
    table = table.combine_chunks()
    columns = [integers(table, name) for name in operator.time]
    order = numpy.lexsort(columns[::-1])
    bin_of_row = bins_of(table, bins)[order]
    by_bin = numpy.argsort(bin_of_row, kind="stable")
    order, bin_of_row = order[by_bin], bin_of_row[by_bin]
    moments = list(zip(*(column[order].tolist() for column in columns), strict=True))
    seen = _seen(table, operator.promise.partition, columns)
    firsts = numpy.flatnonzero(numpy.diff(bin_of_row, prepend=-1)).tolist()
    starts = [*firsts, len(bin_of_row)]
    numbers = bin_of_row[starts[:-1]].tolist()
    whole = _whole(table.take(order), operator, moments)
    rows = {
        number: whole(start, end)
        for number, start, end in zip(numbers, starts, starts[1:], strict=False)
    }
    kinds = key_kinds(table.schema, operator.key)
    return Batch(rows, seen, table.num_rows, min(moments), kinds)


def _whole(table: pyarrow.Table, operator: Operator, moments: list[Moment]) -> Any:  # a function
    """Return what makes rows of a part of the sorted batch."""
    if operator.form == "columns":
        rows = table.drop_columns([HASH])
        return lambda start, end: Columns(moments[start:end], rows.slice(start, end - start))
    keys = list(keys_of(table, operator.key))
    values = list(operator.values_of(table))
    records = list(zip(moments, keys, values, strict=True))
    return lambda start, end: Records(records[start:end])


def keys_of(table: pyarrow.Table, names: Sequence[str]) -> Iterator[Key]:
    """Yield the key of each row: the column's value, or a tuple where there are several."""
    columns = [plain_values(table.column(name)) for name in names]
    return iter(columns[0]) if len(columns) == 1 else zip(*columns, strict=True)


def plain_values(column: pyarrow.ChunkedArray) -> list[object]:
    """Return a column's values as Python's: numbers by way of numpy, which is a tenth of the
    time.
    """
    import pyarrow

    kind = column.type
    is_number = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)
    if is_number and column.null_count == 0:
        return list(column.to_numpy().tolist())
    return list(column.to_pylist())


def integers(table: pyarrow.Table, name: str) -> numpy.ndarray[Any, Any]:
    """Return a column of times as integers: of a timestamp its microseconds."""
    import pyarrow

    column = table.column(name)
    if pyarrow.types.is_timestamp(column.type):
        kind = pyarrow.timestamp("us", column.type.tz)
        column = column.cast(kind).cast(pyarrow.int64())
    integers: numpy.ndarray[Any, Any] = column.to_numpy()
    return integers


def bins_of(table: pyarrow.Table, bins: int) -> numpy.ndarray[Any, Any]:
    """Return each row's bin: the leading bits of its hash."""
    import numpy

    hashes = table.column(HASH).to_numpy().view(numpy.uint64)
    bits = bits_of(bins)
    if bits == 0:
        return numpy.zeros(len(hashes), numpy.int64)
    leading: numpy.ndarray[Any, Any] = hashes >> numpy.uint64(HASH_BITS - bits)
    return leading.astype(numpy.int64)


def _seen(
    table: pyarrow.Table, partition: str | None, columns: Sequence[numpy.ndarray[Any, Any]]
) -> dict[str, Moment]:
    """Return the last moment of each partition."""
    if partition is None:
        return {"": max(zip(*(column.tolist() for column in columns), strict=True))}
    last: dict[str, Moment] = {}
    names = table.column(partition).to_pylist()
    for name, *moment in zip(names, *(column.tolist() for column in columns), strict=True):
        last[str(name)] = max(tuple(moment), last.get(str(name), tuple(moment)))
    return last

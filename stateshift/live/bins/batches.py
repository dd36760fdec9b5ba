"""Rows in the order of time: a batch of Arrow cut into bins, and what is held of a bin.

    Records   rows as Python objects: (moment, key, value)
    Columns   rows as an Arrow table

Both are cut at moments and put together again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from stateshift.live.bins.arrow_tables import plain_values
from stateshift.live.bins.hashing import HASH, key_kinds
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.times import Moment
from stateshift.live.protocol.applying import Key, Value
from stateshift.live.protocol.configuration import HASH_BITS, bits_of

if TYPE_CHECKING:
    import numpy
    import pyarrow
    from numpy.typing import NDArray

    Integers: TypeAlias = NDArray[numpy.int64]

Row = tuple[Moment, Key, Value]


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of one bin as Python objects, in the order of time."""

    records: Sequence[Row]

    def __len__(self) -> int:
        return len(self.records)

    @property
    def first(self) -> Moment:
        return self.records[0][0]

    def cut(self, moment: Moment) -> tuple[Records, Records]:
        """Return the rows before a moment, and those from it on."""
        at = bisect_left(self.records, moment, key=lambda record: record[0])
        return Records(self.records[:at]), Records(self.records[at:])

    def merged(self, later: Rows) -> Records:
        """Return these rows and others, in the order of time; at one moment these come first."""
        assert isinstance(later, Records), "rows of the same class"
        if not self.records or not later.records:
            return self if self.records else later
        both = [*self.records, *later.records]
        both.sort(key=lambda record: record[0])
        return Records(both)


@dataclass(frozen=True, slots=True)
class Columns:
    """The same as an Arrow table, beside their moments."""

    moments: Sequence[Moment]
    table: pyarrow.Table

    def __len__(self) -> int:
        return len(self.moments)

    @property
    def first(self) -> Moment:
        return self.moments[0]

    def cut(self, moment: Moment) -> tuple[Columns, Columns]:
        at = bisect_left(self.moments, moment)
        before = Columns(self.moments[:at], self.table.slice(0, at))
        return before, Columns(self.moments[at:], self.table.slice(at))

    def merged(self, later: Rows) -> Columns:
        assert isinstance(later, Columns), "rows of the same class"
        if not self.moments or not later.moments:
            return self if self.moments else later
        import pyarrow

        moments = [*self.moments, *later.moments]
        order = sorted(range(len(moments)), key=moments.__getitem__)
        table = pyarrow.concat_tables([self.table, later.table]).take(order)
        return Columns([moments[number] for number in order], table)


Rows = Records | Columns


class RowBatch(NamedTuple):
    """A batch's rows by bin, and the last moment of each partition of the source. Rows that are not
    in this process are None: they are where their bin is. Those that are `unread` are Python's
    once somebody says of which bins. `key_kinds` says how the key's columns are hashed; nothing of
    it where there are no rows.
    """

    rows: Mapping[int, Rows | None]
    seen: dict[str, Moment]
    size: int
    key_kinds: tuple[str, ...] = ()
    unread: UnreadRows | None = None

    def read(self, bins: Collection[int], frontier: Moment | None) -> RowBatch:
        """Return the batch with the rows of some bins, and with all from a frontier on."""
        if self.unread is None:
            return self
        return self._replace(rows=self.unread.rows(bins, frontier), unread=None)


NOTHING = RowBatch({}, {}, 0)


@dataclass(frozen=True, slots=True)
class UnreadRows:
    """The rows of a batch that has the column of hashes, as Arrow has them."""

    table: pyarrow.Table
    operator: BinOperator
    times: Sequence[Integers]
    bin_of_row: Integers

    @property
    def bins(self) -> list[int]:
        import numpy

        found: list[int] = numpy.unique(self.bin_of_row).tolist()
        return found

    def rows(self, bins: Collection[int], frontier: Moment | None) -> dict[int, Rows]:
        """Return the rows of some bins, and of all others those from a frontier on, in the order of
        time and by bin. No other row becomes one of Python's: each worker reads all rows, and most
        are of bins that others have.
        """
        import numpy

        table, times, bin_of_row = self.table, self.times, self.bin_of_row
        if frontier is not None:
            is_needed = numpy.isin(bin_of_row, numpy.fromiter(bins, numpy.int64, len(bins)))
            is_needed |= ~_are_before(times, frontier)
            if not is_needed.all():
                (chosen,) = numpy.nonzero(is_needed)
                table, bin_of_row = table.take(chosen), bin_of_row[chosen]
                times = [column[chosen] for column in times]
        if not len(bin_of_row):
            return {}
        order = numpy.lexsort([*times[::-1], bin_of_row])
        bin_of_row = bin_of_row[order]
        moments = list(zip(*(column[order].tolist() for column in times), strict=True))
        firsts = numpy.flatnonzero(numpy.diff(bin_of_row, prepend=-1)).tolist()
        ends = [*firsts[1:], len(bin_of_row)]
        whole = _whole(table.take(order), self.operator, moments)
        numbers = bin_of_row[firsts].tolist()
        return {
            number: whole(start, end)
            for number, start, end in zip(numbers, firsts, ends, strict=True)
        }


def unread_batch(table: pyarrow.Table, operator: BinOperator, bins: int) -> RowBatch:
    """Return a table that has the column of hashes as a batch of so many bins, its rows unread."""
    if table.num_rows == 0:
        return NOTHING
    table = table.combine_chunks()
    times = [integers(table, name) for name in operator.time]
    seen = _seen(table, operator.promise.partition, times)
    unread = UnreadRows(table, operator, times, bins_of(table, bins))
    return RowBatch({}, seen, table.num_rows, key_kinds(table.schema, operator.key), unread)


def _are_before(times: Sequence[Integers], moment: Moment) -> NDArray[numpy.bool_]:
    """Return a mask of the rows before a moment, compared column by column as tuples are."""
    import numpy

    are_before = numpy.zeros(len(times[0]), bool)
    are_equal = numpy.ones(len(times[0]), bool)
    for column, at in zip(times, moment, strict=False):
        are_before |= are_equal & (column < at)
        are_equal &= column == at
    return are_before | are_equal if len(moment) > len(times) else are_before


def _whole(
    table: pyarrow.Table, operator: BinOperator, moments: list[Moment]
) -> Callable[[int, int], Rows]:
    """Return a function that makes rows of a part of the sorted batch."""
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


def integers(table: pyarrow.Table, name: str) -> Integers:
    """Return a column of times as integers: of a timestamp its microseconds."""
    import pyarrow

    column = table.column(name)
    if pyarrow.types.is_timestamp(column.type):
        kind = pyarrow.timestamp("us", column.type.tz)
        column = column.cast(kind).cast(pyarrow.int64())
    numbers: Integers = column.to_numpy()
    return numbers


def bins_of(table: pyarrow.Table, bins: int) -> Integers:
    """Return each row's bin: the leading bits of its hash."""
    import numpy

    hashes = table.column(HASH).to_numpy().view(numpy.uint64)
    bits = bits_of(bins)
    if bits == 0:
        return numpy.zeros(len(hashes), numpy.int64)
    leading: NDArray[numpy.uint64] = hashes >> numpy.uint64(HASH_BITS - bits)
    return leading.astype(numpy.int64)


def _seen(
    table: pyarrow.Table, partition: str | None, times: Sequence[Integers]
) -> dict[str, Moment]:
    """Return the last moment of each partition."""
    if partition is None:
        return {"": _last(times)}
    encoded = table.column(partition).combine_chunks().dictionary_encode(null_encoding="encode")
    number_of_row = encoded.indices.to_numpy()
    last: dict[str, Moment] = {}
    for number, name in enumerate(encoded.dictionary.to_pylist()):
        last[str(name)] = _last([column[number_of_row == number] for column in times])
    return last


def _last(times: Sequence[Integers]) -> Moment:
    """Return the last moment of some rows."""
    last: list[int] = []
    left = list(times)
    for number in range(len(times)):
        greatest = left[number].max()
        are_last = left[number] == greatest
        left = [column[are_last] for column in left]
        last.append(int(greatest))
    return tuple(last)

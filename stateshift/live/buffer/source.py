"""A buffer as a source of Spark (4.0 and newer).

    spark.dataSource.register(live.BufferSource)
    rows = spark.readStream.format("stateshift-buffer").option("reader", "orders").load("/srv/in")

A row is a record: `number long, at timestamp, value binary`. An offset is the buffer's id and the
number of the next record. It is a frontier: nothing comes below it any more. A batch that is
planned again, in this application or in another one with the same checkpoint, has the same rows.

    path, address       the buffer's directory on this machine, or http://HOST:PORT
    reader              the name by which the buffer keeps what is not read yet (spark)
    value               binary, or string (UTF-8)
    start               where a query without a checkpoint begins: earliest, latest, reader (where
                        the reader of this name is), or a number (earliest)
    maxRecordsPerBatch  bounds a batch; in Spark 4.0 and 4.1 not the first one after a start
    partitions          tasks of a batch (1, which keeps the order)
    patienceSeconds     how long a buffer that does not answer is asked again (60)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from stateshift.errors import Complaint, FormatError, PlanError, SpecError
from stateshift.live.buffer.client import PATIENCE_SECONDS, Client
from stateshift.live.buffer.folder import check_reader
from stateshift.live.buffer.frames import BufferRecord

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader
    from pyspark.sql.streaming.datasource import ReadLimit

FORMAT = "stateshift-buffer"
VALUES = ("binary", "string")
STARTS = ("earliest", "latest", "reader")

# {"buffer": id, "number": of the next record}: what Spark keeps in its checkpoint, as JSON.
Offset = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a query that reads a buffer."""

    place: str
    reader: str = "spark"
    value: str = "binary"
    start: str = "earliest"
    records_max: int | None = None
    partitions: int = 1
    patience_seconds: float = PATIENCE_SECONDS

    @property
    def client(self) -> Client:
        return Client(self.place, self.patience_seconds)

    @property
    def schema(self) -> str:
        return f"number long, at timestamp, value {self.value}"


def parse_options(given: Mapping[str, str]) -> Options:
    """Return the options of a query; their names are in any case."""
    words = {key.lower(): value for key, value in given.items()}
    place = words.get("address") or words.get("path")
    if not place:
        complaint = Complaint("path", "no directory and no address of a buffer")
        raise SpecError((complaint,), hint='.load("/srv/in"), or .option("address", "http://…")')
    start = words.get("start", "earliest")
    if start not in STARTS and not start.isdecimal():
        raise _misfit("start", start, "earliest, latest, reader or a number")
    value = words.get("value", "binary")
    if value not in VALUES:
        raise _misfit("value", value, "binary or string")
    records_max = words.get("maxrecordsperbatch")
    return Options(
        place=place,
        reader=check_reader(words.get("reader", "spark")),
        value=value,
        start=start,
        records_max=None if records_max is None else _positive("maxRecordsPerBatch", records_max),
        partitions=_positive("partitions", words.get("partitions", "1")),
        patience_seconds=_positive("patienceSeconds", words.get("patienceseconds", "60")),
    )


def _positive(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise _misfit(name, text, "a number from 1 on")
    return int(text)


def _misfit(name: str, found: str, expected: str) -> SpecError:
    return SpecError((Complaint(name, f"{found!r} is not {expected}", found, expected),))


@dataclass(frozen=True, slots=True)
class Range:
    """The records that one task reads."""

    first: int
    until: int


class QueryReader:
    """A query's side of a buffer. It is asked by Spark's driver, but for `rows`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._client = options.client
        self._planned: int | None = None

    def initial(self) -> Offset:
        """Return the offset at which a query without a checkpoint begins."""
        status = self._client.status()
        readers = {reader.name: reader.next for reader in status.readers}
        starts = {
            "earliest": status.first,
            "latest": status.next,
            "reader": readers.get(self.options.reader, status.first),
        }
        start = self.options.start
        number = starts[start] if start in starts else int(start)
        self._client.set_position(self.options.reader, number)
        self._planned = number
        return {"buffer": status.id, "number": number}

    def latest(self, start: Offset | None, records_max: int | None) -> Offset:
        """Return the frontier that the buffer promises, or as far as a batch may reach."""
        status = self._client.status()
        number, before = status.next, self._planned
        if start is not None:
            self._check(start, status.id)
            before = start["number"]
        if records_max is not None and before is not None:
            number = min(number, before + records_max)
        return {"buffer": status.id, "number": number}

    def plan(self, start: Offset, end: Offset) -> list[Range]:
        """Return the ranges that tasks of a batch read. The buffer keeps them until it is done."""
        self._check(start, self._client.status().id)
        self._check(end, start["buffer"])
        first, until = start["number"], end["number"]
        self._client.set_position(self.options.reader, first)
        self._planned = until
        return split(Range(first, until), self.options.partitions)

    def commit(self, end: Offset) -> None:
        self._client.set_position(self.options.reader, end["number"])

    def _check(self, offset: Offset, buffer_id: str) -> None:
        """Refuse an offset of another buffer: its numbers mean other records."""
        if offset.get("buffer") != buffer_id:
            raise PlanError(
                f"the offset is of buffer {offset.get('buffer')}; {self.options.place} is "
                f"{buffer_id}",
                hint="read the buffer that the checkpoint is of, or begin with a new checkpoint",
            )


def split(whole: Range, count: int) -> list[Range]:
    """Return a range in parts of about the same size; none where there is nothing in it."""
    size = max(1, -(-(whole.until - whole.first) // count))
    firsts = range(whole.first, whole.until, size)
    return [Range(first, min(first + size, whole.until)) for first in firsts]


def arrow_batches(options: Options, part: Range) -> Iterator[object]:
    """Yield the rows of a task, as batches of Arrow."""
    import pyarrow

    schema = pyarrow.schema(
        [
            ("number", pyarrow.int64()),
            ("at", pyarrow.timestamp("us", "UTC")),
            ("value", pyarrow.string() if options.value == "string" else pyarrow.binary()),
        ]
    )
    for records in options.client.records(part.first, part.until):
        values: list[object] = [record.value for record in records]
        if options.value == "string":
            values = [_decode_text(record) for record in records]
        numbers = pyarrow.array([record.number for record in records], schema.field("number").type)
        times = pyarrow.array([record.at for record in records], schema.field("at").type)
        columns = [numbers, times, pyarrow.array(values, schema.field("value").type)]
        yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _decode_text(record: BufferRecord) -> str:
    try:
        return record.value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"record {record.number} is no UTF-8: {error.reason} at byte {error.start}",
            hint="read it with value=binary",
        ) from None


@cache
def _reader_class() -> type[DataSourceStreamReader]:
    """Return the reader of a query. Its base class comes with pyspark, which is imported late."""
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

    class BufferReader(DataSourceStreamReader):
        """A query that reads a buffer."""

        def __init__(self, options: Options) -> None:
            self._options = options
            self._reading = QueryReader(options)

        def initialOffset(self) -> Offset:
            return self._reading.initial()

        def getDefaultReadLimit(self) -> ReadLimit:
            from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

            bound = self._options.records_max
            return ReadAllAvailable() if bound is None else ReadMaxRows(bound)

        def latestOffset(self, start: Offset | None = None, limit: object = None) -> Offset:
            # Spark asks without a limit before 4.2
            bound = self._options.records_max if limit is None else None
            return self._reading.latest(start, getattr(limit, "max_rows", bound))

        def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
            return [InputPartition(part) for part in self._reading.plan(start, end)]

        def read(self, partition: InputPartition) -> Iterator[object]:
            return arrow_batches(self._options, partition.value)

        def commit(self, end: Offset) -> None:
            self._reading.commit(end)

    return BufferReader


@cache
def _source_class() -> type[DataSource]:
    """Return the data source, which a session registers."""
    from pyspark.sql.datasource import DataSource

    class BufferSource(DataSource):
        """A buffer as a source of streaming queries."""

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return parse_options(self.options).schema

        def streamReader(self, schema: object) -> DataSourceStreamReader:
            return _reader_class()(parse_options(self.options))  # type: ignore[call-arg]

    return BufferSource


def __getattr__(name: str) -> object:
    if name == "BufferSource":
        return _source_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""A PySpark file's queries are started without their sinks; whatever cannot be replaced is refused.
The writer here is none of Spark's: it remembers what was asked of it.
"""

from __future__ import annotations

from typing import Any

import pytest

from stateshift.job.one_batch import NoSink, NotReplacedError, is_within, refuse_writes

PLACE = "file:///b/orders-drill"


def writers() -> type[Any]:
    """A class of stream writers, as pyspark's: each method returns the writer."""

    class Writer:
        def __init__(self) -> None:
            self.asked: list[tuple[object, ...]] = []
            self._spark = None

        def start(self, *sink: object, **options: object) -> Query:
            return Query((*self.asked, ("start", *sink, *options)))

        toTable = start

        def trigger(self, **given: object) -> Writer:
            self.asked.append(("trigger", *given.items()))
            return self

    def remembers(name: str) -> Any:
        def method(writer: Writer, *arguments: object) -> Writer:
            writer.asked.append((name, *arguments))
            return writer

        return method

    for name in ("format", "option", "options", "outputMode", "queryName", "partitionBy"):
        setattr(Writer, name, remembers(name))
    for name in ("foreach", "foreachBatch"):
        setattr(Writer, name, remembers(name))
    return Writer


class Query:
    """A query that fails: nothing is noted of it."""

    def __init__(self, asked: tuple[tuple[object, ...], ...]) -> None:
        self.asked = asked

    def awaitTermination(self) -> None:
        raise RuntimeError


def without_sinks() -> tuple[type[Any], NoSink]:
    made = writers()
    no_sink = NoSink(made, PLACE, "the-tag")
    no_sink.install(made)
    return made, no_sink


NOTHING = (("format", "noop"), ("trigger", ("availableNow", True)), ("start",))
AT = ("option", "checkpointLocation", f"{PLACE}/7_a")


def test_a_query_writes_nothing_and_ends() -> None:
    made, no_sink = without_sinks()
    writer = made().outputMode("append").queryName("q").format("kafka").partitionBy("day")
    writer = writer.trigger(processingTime="1 minute").option(*AT[1:]).foreachBatch(print)
    assert writer.start("/out").asked == (
        *(("outputMode", "append"), ("queryName", "q"), AT),
        *NOTHING,
    )
    no_sink.wait()


def test_whatever_a_start_is_given_counts_but_for_the_sink() -> None:
    made, _ = without_sinks()
    options = {"checkpointLocation": f"{PLACE}/7_a", "topic": "orders"}
    query = made().start("/out", format="json", outputMode="update", queryName="q", **options)
    named = (("outputMode", "update"), ("queryName", "q"))
    assert query.asked == (AT, ("option", "topic", "orders"), *named, *NOTHING)
    assert made().options(**options).toTable("t").asked[-3:] == NOTHING


@pytest.mark.parametrize(
    "place", [None, "file:///a/orders/7_a", "/b/orders-drill2", "file:///b/orders"]
)
def test_a_query_with_another_checkpoint_is_refused(place: str | None) -> None:
    made, _ = without_sinks()
    writer = made() if place is None else made().option("checkpointlocation", place)
    with pytest.raises(NotReplacedError, match="drill"):
        writer.start()


def test_what_else_would_be_written_is_refused() -> None:
    class Frames:
        def parquet(self, path: str) -> None:
            raise AssertionError

        save = parquet

    refuse_writes(Frames)
    for write in (Frames().parquet, Frames().save):
        with pytest.raises(NotReplacedError, match="a drill writes nothing"):
            write("/out")


@pytest.mark.parametrize(
    ("location", "place", "within"),
    [
        ("/b/x", "file:///b/x", True),
        ("file:/b/x/7", "file:///b/x/", True),
        ("s3a://b/x/7", "s3a://b/x", True),
        ("s3a://b/xy", "s3a://b/x", False),
        ("file:///b/a%20b", "/b/a b", True),
    ],
)
def test_places_in_any_spelling_are_told_apart(location: str, place: str, within: bool) -> None:
    assert is_within(location, place) == within

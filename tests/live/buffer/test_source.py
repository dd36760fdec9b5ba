"""A query's side of a buffer, without Spark: offsets, batches, what the buffer keeps for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.errors import FormatError, PlanError, SpecError
from stateshift.live.buffer.buffer import Buffer
from stateshift.live.buffer.source import (
    Options,
    QueryReader,
    Range,
    arrow_batches,
    parse_options,
    split,
)
from tests.live.buffer.ground import put, serving


def test_a_batch_that_is_planned_again_by_another_application_has_the_same_rows(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as at_work:
        put(at_work.buffer, *(b"%d" % number for number in range(10)))
        options = Options(at_work.running.serves, value="string", partitions=2)
        before = QueryReader(options)
        start = before.initial()
        end = before.latest(start, 6)
        planned = before.plan(start, end)
        put(at_work.buffer, b"later")
        after = QueryReader(options)
        assert after.plan(start, end) == planned == [Range(0, 3), Range(3, 6)]
        values = [column(options, part) for part in planned]
        assert values == [["0", "1", "2"], ["3", "4", "5"]]
        assert after.latest(end, None)["number"] == 11


def column(options: Options, part: Range) -> list[object]:
    return [value for batch in arrow_batches(options, part) for value in batch["value"].to_pylist()]


def test_the_buffer_keeps_what_a_query_has_not_done(tmp_path: Path) -> None:
    with serving(tmp_path) as at_work:
        put(at_work.buffer, b"a", b"b", b"c")
        query = QueryReader(Options(at_work.running.serves, reader="orders"))
        start = query.initial()
        end = query.latest(start, None)
        query.plan(start, end)
        assert position(at_work.buffer) == 0
        query.commit(end)
        assert position(at_work.buffer) == 3
        rewound = {**end, "number": 1}
        query.plan(rewound, end)
        assert position(at_work.buffer) == 1, "a query that was rewound keeps what it reads again"


def position(buffer: Buffer) -> int:
    (reader,) = buffer.status().readers
    return reader.next


@pytest.mark.parametrize(
    ("start", "number"), [("earliest", 0), ("latest", 3), ("reader", 2), ("1", 1)]
)
def test_a_query_without_a_checkpoint_begins_where_it_is_told(
    tmp_path: Path, start: str, number: int
) -> None:
    with serving(tmp_path) as at_work:
        put(at_work.buffer, b"a", b"b", b"c")
        at_work.buffer.set_position("spark", 2)
        query = QueryReader(Options(at_work.running.serves, start=start))
        assert query.initial()["number"] == number


def test_an_older_spark_bounds_its_batches_by_the_last_one(tmp_path: Path) -> None:
    with serving(tmp_path) as at_work:
        put(at_work.buffer, *[b"x"] * 10)
        query = QueryReader(Options(at_work.running.serves))
        start = query.initial()
        end = query.latest(None, 4)
        query.plan(start, end)
        assert (end["number"], query.latest(None, 4)["number"]) == (4, 8)


def test_an_offset_of_another_buffer_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "one") as one, serving(tmp_path / "two") as two:
        foreign = QueryReader(Options(two.running.serves)).initial()
        with pytest.raises(PlanError, match=f"the offset is of buffer {two.buffer.id}"):
            QueryReader(Options(one.running.serves)).latest(foreign, None)


def test_a_value_that_is_no_text_is_named_by_its_number(tmp_path: Path) -> None:
    with serving(tmp_path) as at_work:
        put(at_work.buffer, b"good", b"\xff")
        options = Options(at_work.running.serves, value="string")
        with pytest.raises(FormatError, match="record 1 is no UTF-8") as caught:
            column(options, Range(0, 2))
        assert caught.value.hint == "read it with value=binary"


def test_a_range_is_split_without_gaps() -> None:
    assert split(Range(3, 3), 4) == []
    assert split(Range(0, 10), 4) == [Range(0, 3), Range(3, 6), Range(6, 9), Range(9, 10)]
    assert split(Range(0, 2), 4) == [Range(0, 1), Range(1, 2)]


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({}, "path"),
        ({"path": "/x", "start": "now"}, "start"),
        ({"path": "/x", "value": "json"}, "value"),
        ({"path": "/x", "reader": "a/b"}, "reader"),
        ({"path": "/x", "partitions": "0"}, "partitions"),
        ({"path": "/x", "maxRecordsPerBatch": "many"}, "maxRecordsPerBatch"),
    ],
)
def test_an_option_that_does_not_fit_is_named(given: dict[str, str], pointer: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_options(given)
    assert caught.value.complaints[0].pointer == pointer


def test_options_are_read_in_any_case() -> None:
    options = parse_options({"PATH": "/srv/in", "MaxRecordsPerBatch": "7", "value": "string"})
    assert (options.place, options.records_max) == ("/srv/in", 7)
    assert options.schema == "number long, at timestamp, value string"

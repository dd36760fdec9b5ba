"""NEXMark's events as a source: what is due, and that all of it is read once."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow
import pytest

from tests.support.nexmark import events, source

MARKET = events.Market(rate=100)


def stream(**options: object) -> source.Stream:
    said = {name: str(value) for name, value in options.items()}
    return source.Stream(source.Numbers.of({**MARKET.options(), **said}))


def numbers(reader: source.Stream, first: int, last: int) -> list[int]:
    parts = reader.partitions({"number": first}, {"number": last})
    batches = [batch for part in parts for batch in reader.read(part)]
    return pyarrow.Table.from_batches(batches)["number"].to_pylist()


def test_all_events_are_read_once_by_however_many_tasks() -> None:
    for count in (1, 2, 7):
        assert numbers(stream(end=100, partitions=count), 3, 57) == list(range(3, 57))


def test_a_batch_without_events_is_read_as_such() -> None:
    assert numbers(stream(end=100), 5, 5) == []


def test_a_micro_batch_ends_at_its_size_and_the_last_one_at_the_end() -> None:
    reader = stream(end=100, batch=40)
    ends = [reader.latestOffset({"number": first})["number"] for first in (0, 40, 80, 100)]
    assert ends == [40, 80, 100, 100]


def test_nothing_is_due_until_the_clock_is_there(tmp_path: Path) -> None:
    reader = stream(began=tmp_path / "began")
    assert reader.latestOffset(reader.initialOffset()) == {"number": 0}
    (tmp_path / "began").write_text("")
    assert reader.latestOffset({"number": 0}) == {"number": 0}


def test_what_is_due_does_not_wait_for_who_reads_it(tmp_path: Path) -> None:
    (tmp_path / "began").write_text(str(time.time() - 3600))
    due = stream(began=tmp_path / "began").latestOffset({"number": 7})["number"]
    assert due >= 3600 * MARKET.rate
    assert stream(began=tmp_path / "began", end=50).latestOffset({"number": 7}) == {"number": 50}


def test_an_offset_never_goes_back(tmp_path: Path) -> None:
    (tmp_path / "began").write_text(str(time.time() + 3600))
    assert stream(began=tmp_path / "began").latestOffset({"number": 7}) == {"number": 7}


def test_events_that_have_neither_an_end_nor_a_clock_are_refused() -> None:
    with pytest.raises(ValueError, match="say where the events end"):
        stream()

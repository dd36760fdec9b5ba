"""What is said of a migration that is not complete in time: who is behind, and where each stands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stateshift.live.bins.commits import Commit, HeldRows, Ledger
from stateshift.live.bins.migration import late_parts
from stateshift.live.bins.parts import OperatorStart
from stateshift.live.bins.watch import WorkerPart

ROWS = ": moves are made as rows come that are later"


def part(worker: str, at: int | None, awaited: tuple[int, ...] = ()) -> WorkerPart:
    """A worker that has come so far, and waits for the bins of moves at time 5."""
    runs = OperatorStart("count", worker, "fold", ("key",), ("time",), "out", "", "3.11", 0.0)
    if at is None:
        return WorkerPart(runs, 0, Ledger())
    last = Commit(0, 0, "", 0.0, 0.0, (float(at), 0), {}, 0)
    return WorkerPart(runs, 0, Ledger(last, held={bin: HeldRows(bin, 5, ()) for bin in awaited}))


def said(*running: WorkerPart, until: int | None = 8) -> str:
    bins: Any = SimpleNamespace(running=running, passed_by=lambda part: part.passed)
    return late_parts(bins, until, 60.0)


@pytest.mark.parametrize(
    ("behind", "stands", "end"),
    [
        (part("west", None), "has read no rows", ROWS),
        (part("west", 7), "stands at 7", ROWS),
        (part("west", 9, (3,)), "waits for a bin", ""),
        (part("west", 9, (3, 4)), "waits for 2 bins", ""),
    ],
)
def test_who_is_behind_is_named_with_what_it_waits_for(
    behind: WorkerPart, stands: str, end: str
) -> None:
    fact = f"count at west ({stands}) did not pass 8 within 60 s{end}"
    assert said(part("east", 9), behind) == fact


def test_that_rows_are_waited_for_is_said_where_one_of_several_waits_for_them() -> None:
    parts = "count at west (waits for a bin), count at east (stands at 7)"
    fact = f"{parts} did not pass 8 within 60 s{ROWS}"
    assert said(part("west", 9, (3,)), part("east", 7)) == fact


def test_where_nobody_is_behind_it_is_the_bins_or_the_first_step() -> None:
    assert said(part("west", 9)) == "not all bins came within 60 s"
    assert said(part("west", 9), until=None) == "no step could begin within 60 s"

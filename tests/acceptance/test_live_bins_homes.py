"""Bins in Spark's tasks, beside bins in the driver: the same rows, and bins go from one to the
other.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.support import job
from tests.live.bins.workers import BINS, alone, count_and_ask

pytestmark = [pytest.mark.spark, pytest.mark.slow]

END, KEYS = 600, 30
SECONDS_MAX = 800  # a batch in tasks took 10 s where the machine did something else


def test_bins_go_from_a_worker_in_tasks_to_one_in_the_driver_and_back(tmp_path: Path) -> None:
    words = (tmp_path / "group", str(END), str(KEYS))
    ran = job("two_homes.py", *words, cwd=tmp_path, seconds=SECONDS_MAX)
    printed = json.loads(ran.out)
    of_each = BINS // 4 * 2  # a half of its bins, there and back
    assert printed["moved"] == {"west": [of_each, of_each], "east": [of_each, of_each]}
    wanted = [list(row) for row in alone(count_and_ask, END, KEYS)]
    assert printed["rows"] == wanted


@pytest.mark.row("M-24", on="Spark")
def test_bins_are_split_and_merged_in_tasks_and_in_the_driver_while_both_read_on(
    tmp_path: Path,
) -> None:
    ran = job("split_bins.py", tmp_path / "group", str(KEYS), cwd=tmp_path, seconds=SECONDS_MAX)
    printed = json.loads(ran.out)
    assert printed["states"] == ["finished"] * 5
    numbers = [BINS, 4 * BINS, BINS // 2]
    assert printed["bins"] == {"west": numbers, "east": numbers}
    assert printed["here"] == list(range(BINS // 2))
    wanted = [list(row) for row in alone(count_and_ask, printed["end"], KEYS)]
    assert printed["rows"] == wanted

"""A judge that hangs, dies or eats memory is seen, and does not keep the others from their work."""

from __future__ import annotations

import os
import time

import pytest

from tests.damage import pool
from tests.damage.verdicts import Verdict

NAME = "spark-4.3.0/window-hdfs"


def judge(id_: str) -> Verdict:
    """As its number says."""
    match id_.rpartition("#")[2]:
        case "1":
            time.sleep(60)
        case "2":
            os._exit(9)
        case "3":
            held = bytearray(32 << 20)
            return Verdict(id_, "detected", about=str(len(held)))
    return Verdict(id_, "detected")


@pytest.mark.long
def test_a_hang_and_a_dead_process_are_verdicts_and_the_rest_goes_on() -> None:
    ids = [f"{NAME}#{number}" for number in range(6)]
    found = {one.id: one for one in pool.verdicts(ids, 2, judge, seconds_max=10)}
    assert {id_: one.result for id_, one in found.items()} == {
        id_: "hang" if id_ in ids[1:3] else "detected" for id_ in ids
    }
    assert "no end" in found[ids[1]].about and "died: 9" in found[ids[2]].about
    assert found[ids[1]].path and found[ids[1]].what


def test_the_growth_of_a_process_is_measured() -> None:
    (found,) = pool.verdicts([f"{NAME}#3"], 1, judge)
    assert 30 < found.mib < 200

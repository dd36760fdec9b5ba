"""A repaired checkpoint is the whole one at the batch that was told, whatever was damaged."""

from __future__ import annotations

import pytest

from tests.damage import images
from tests.damage.repairs import repaired

KINDS = (
    *("window-hdfs", "window-rocksdb", "window-rocksdb-changelog", "window-rocksdb-format2"),
    *("join-hdfs", "join-rocksdb-v4", "dedup-zstd", "session-hdfs", "groups-rocksdb", "tws-rows"),
)
NUMBERS = {"quick": 1, "default": 2, "full": 20}


@pytest.mark.row("W-20")
@pytest.mark.parametrize("also", [False, True], ids=["alone", "with a backup"])
def test_what_is_repaired_is_the_whole_image_at_that_batch_and_the_rest_is_refused(
    also: bool, how: str, seed: int
) -> None:
    there = set(images.names())
    names = [f"spark-4.3.0/{kind}" for kind in KINDS if f"spark-4.3.0/{kind}" in there]
    found = []
    for number in range(NUMBERS[how]):
        for name in names[number % 2 :: 1 if how == "full" else 2]:
            more = 0 if number % 2 == 0 else 2
            found.append(repaired(name, seed % 1000 + number, more, also))
    assert [one for one in found if one.result == "wrong"] == []
    results = {one.result for one in found}
    assert "repaired" in results
    if also:  # of two that contradict each other, a copy tells only where its offsets are the same
        lost = [one for one in found if "no batch" in one.told and "contradict" not in one.told]
        assert not lost

"""What the driver knows of a batch whose rows are in Spark's tasks."""

from __future__ import annotations

import pyarrow as pa

from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.types import Atomic
from stateshift.live.bins.batches import NOTHING
from stateshift.live.bins.homes import partition_numbers, surveyed_batch


def test_each_partition_has_a_number_that_sparks_hash_sends_there():
    for partitions in (1, 2, 3, 16, 100):
        places = [
            signed_hash([one], [Atomic("integer")]) % partitions
            for one in partition_numbers(partitions)
        ]
        assert places == list(range(partitions))


def test_a_survey_names_partitions_of_the_source_as_the_driver_does():
    table = pa.table(
        {
            "partition": [True, False],
            "size": [3, 2],
            "bins": [[1, 5], [5, 2]],
            "last0": [9, 8],
        }
    )
    batch = surveyed_batch(table, 1)
    assert batch.seen == {"True": (9,), "False": (8,)}
    assert (list(batch.rows), batch.size) == ([1, 2, 5], 5)
    assert set(batch.rows.values()) == {None}


def test_a_survey_of_no_rows_says_nothing():
    assert surveyed_batch(pa.table({"partition": pa.array([], pa.string())}), 1) == NOTHING

"""Real-time mode (`Trigger.RealTime`), as it shows in a checkpoint. Pure.

A batch lasts as long as the trigger says, five minutes unless the job says otherwise. Its records
go through as they come, and where it ends is known only when it is over:

    micro-batch   commits/N-1   ... waits ...          planned, offsets/N   ... runs ...   commits/N
    real time     commits/N-1   planned   ... runs for the whole batch ...   offsets/N   commits/N

`batchTimestampMs` of offsets/N is the time of the plan by the driver's clock; the times of files
are by the storage's. A copy that does not keep the times of files does not show the mode, unless an
aggregation was born in it: that is another operator then.

Source: Spark 4.3.0, MicroBatchExecution.markMicroBatchStart, populateBatchOffsetsForRTM,
markMicroBatchEnd; IncrementalExecution.isOperatorMetadataConvertible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stateshift.engines.spark.image import spark_image
from stateshift.formats.spark.operator_metadata import REAL_TIME_AGGREGATION
from stateshift.survey import Image

SECONDS_MIN = 4.0  # Spark takes no batches of less than 5 s (realTimeMode.minBatchDuration)
PLANNED_WITHIN = 0.25  # the part of a batch by which the two clocks may differ


def real_time_seconds(
    planned: Mapping[int, float], written: Mapping[int, float], committed: Mapping[int, float]
) -> float | None:
    """Return the length of the last batch in real-time mode; None if the last two were in none. Of
    each batch: the time of its plan, of its offset log, and of its commit.
    """
    for batch in sorted(planned.keys() & committed.keys(), reverse=True)[:2]:
        before = committed.get(batch - 1)
        if not before or not written.get(batch):
            continue
        seconds = written[batch] - before
        is_planned_first = abs(planned[batch] - before) <= PLANNED_WITHIN * seconds
        if seconds >= SECONDS_MIN and is_planned_first:
            return seconds
    return None


def is_in_real_time(image: Image) -> bool:
    """Whether the query's last batches were in real-time mode, as far as its checkpoint shows."""
    if spark_image(image).real_time_seconds is not None:
        return True
    return any(operator.name == REAL_TIME_AGGREGATION for operator in image.operators)


def longest_batch(images: Iterable[Image]) -> float:
    """Return the seconds that a batch in real-time mode takes; 0 where none is in that mode."""
    lengths = [spark_image(image).real_time_seconds or 0.0 for image in images]
    return max(lengths, default=0.0)

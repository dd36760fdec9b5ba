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
from stateshift.formats.spark.offsets import OffsetEntry
from stateshift.formats.spark.operator_metadata import REAL_TIME_AGGREGATION
from stateshift.survey import Image

SECONDS_MIN = 4.0  # Spark takes no batches of less than 5 s (realTimeMode.minBatchDuration)
SECONDS_DEFAULT = 300.0  # of Trigger.RealTime, where the job says nothing
PLANNED_WITHIN = 0.25  # the part of a batch by which the two clocks may differ
# The kinds of sinks, as a spec names them, that real-time mode takes. It also takes foreach and the
# console, which a spec does not name.
SINKS = ("kafka",)
LAST_BATCHES = 2  # the number of batches that show the mode


def real_time_lengths(
    entries: Mapping[int, OffsetEntry],
    written: Mapping[int, float],
    committed: Mapping[int, float],
) -> tuple[float, ...]:
    """Return the seconds of those of the last two batches that look like real-time mode, the newest
    first. `written` and `committed` are the times of the files of the two logs, by batch.
    """
    lengths = []
    for batch in sorted(entries.keys() & committed.keys(), reverse=True)[:LAST_BATCHES]:
        before = committed.get(batch - 1)
        if not before or not written.get(batch):
            continue
        planned = entries[batch].timestamp_ms / 1000
        seconds = written[batch] - before
        is_planned_first = abs(planned - before) <= PLANNED_WITHIN * seconds
        if seconds >= SECONDS_MIN and is_planned_first:
            lengths.append(seconds)
    return tuple(lengths)


def is_in_real_time(image: Image) -> bool:
    """Whether one of the query's last batches was in real-time mode, as far as its checkpoint
    shows. stateshift waits too long, or checks less, where that is wrong.
    """
    if spark_image(image).real_time_lengths:
        return True
    return any(operator.name == REAL_TIME_AGGREGATION for operator in image.operators)


def longest_batch(images: Iterable[Image]) -> float:
    """Return the seconds that a batch in real-time mode takes; 0 where none is in that mode."""
    lengths = [spark_image(image).real_time_seconds or 0.0 for image in images]
    return max(lengths, default=0.0)

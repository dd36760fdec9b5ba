"""State that Spark before 3.0 wrote, and what of it later versions refuse. Pure.

    join state format 1  goes on for inner joins; for any other "correctness issue is discovered.
                         Please discard the checkpoint and rerun the query"
                         (StreamingSymmetricHashJoinExec, SPARK-26154)
    sums of decimals     their buffer has had a second column since (SPARK-28067): the first row
                         that is read does not have the form, "the streaming query failed by state
                         format invalidation" (SPARK-31894)

Neither the kind of a join nor, before schemas were kept (3.1), the columns of a buffer can be read
off the state. A later Spark that wrote format 1 was asked to, and had let an inner join through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stateshift.survey import Operator

# Settings of the offset log that began with 3.0 and 3.1.
_SINCE_3 = (
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.stateStore.compression.codec",
)
_JOIN = "-keyWithIndexToValue"


def refused_since_3(operators: Sequence[Operator], settings: Mapping[str, str]) -> Iterator[str]:
    """Yield what a Spark from 3.0 on may refuse of the state, with its reason."""
    if not settings or any(key in settings for key in _SINCE_3):
        return
    for operator in operators:
        if any(store.name.endswith(_JOIN) for store in operator.stores):
            yield (
                f"operator {operator.id} keeps join state of format 1, written before "
                "Spark 3.0: later versions continue with an inner join, and refuse any other "
                '("correctness issue is discovered. Please discard the checkpoint and rerun '
                'the query", SPARK-26154)'
            )
        elif operator.stores:
            yield (
                f"operator {operator.id} keeps state written before Spark 3.0: where it "
                'holds sums of decimals, later versions refuse its rows ("the streaming query '
                'failed by state format invalidation", SPARK-31894)'
            )

"""Topics that the code no longer reads, and columns that a generator makes under another name.

Real Sparks do the same with them: tests/servers/test_check_on_kafka.py.
"""

from __future__ import annotations

import pytest

from stateshift.check.spark.query import Source
from stateshift.check.spark.rules import changed_lines, source_differences

STORED = Source(
    "kafka or event-hubs",
    topics=("orders", "returns"),
    partitions=frozenset(("orders-0", "orders-1", "returns-0")),
)


@pytest.mark.row("W-24", on="Spark")
@pytest.mark.parametrize(
    ("code", "gone"),
    [
        (Source("kafka", topics=("gifts", "orders", "returns")), ""),
        (Source("kafka", topics=("gifts", "orders")), "returns"),
        (Source("kafka", pattern="(orders|returns)"), ""),
        (Source("kafka", pattern="order"), "orders, returns"),
        (Source("kafka", pattern="ord.*"), "returns"),
        (Source("kafka", pattern=r"\p{Lower}+"), ""),  # Python does not know it
        (Source("kafka", topics=STORED.topics, partitions=STORED.partitions), ""),
        (
            Source("kafka", topics=STORED.topics, partitions=STORED.partitions - {"orders-1"}),
            "orders-1",
        ),
    ],
)
def test_spark_takes_offsets_that_the_code_does_not_read_for_lost_data(
    code: Source, gone: str
) -> None:
    found = list(source_differences("source 0", STORED, code))
    assert [(each.level, each.rule) for each in found] == [("starts-after", "source-topics")] * (
        gone != ""
    )
    assert all(f"offsets of {gone}, which" in each.message for each in found)


def test_a_column_that_a_generator_makes_is_the_same_under_another_name() -> None:
    old = [
        "HashAggregate(keys=[word], functions=[count(1)])",
        "Filter isnotnull(word)",
        "Generate explode(split(value,  , -1)), false, [word]",
        "Project [cast(value as string) AS value]",
    ]
    new = [line.replace("word", "term") for line in old]
    assert not list(changed_lines(old, new))
    assert [line.rule for line in changed_lines(old, [*new[:1], *new[2:]])] == ["filter"]
    other = [line.replace("split(value,  ,", "split(value, -,") for line in new]
    assert list(changed_lines(old, other))

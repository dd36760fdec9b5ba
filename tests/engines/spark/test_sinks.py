"""What is known of a job's sink: from the spec alone, and from the sink's own log."""

from __future__ import annotations

import pytest

from stateshift.engines.spark.sinks.kinds import named_sink
from stateshift.spec import SinkSpec
from stateshift.survey import SinkFacts, SinkLog


@pytest.mark.parametrize(
    ("sink", "knows_batches", "skips_plan"),
    [
        (SinkSpec("delta", "s3a://lake/t"), True, True),
        (SinkSpec("file", "s3a://lake/t"), True, True),
        (SinkSpec("iceberg", "s3a://lake/t"), True, False),
        (SinkSpec("kafka"), False, False),
        (SinkSpec("foreach-batch"), None, None),
        (SinkSpec("foreach-batch", None, True), True, True),
        (SinkSpec("foreach-batch", None, False), False, False),
        (SinkSpec("foreach-batch", "s3a://lake/t", None, "orders"), True, True),
    ],
)
def test_a_kind_of_sink_says_what_it_makes_of_a_repeated_batch(
    sink: SinkSpec, knows_batches: bool | None, skips_plan: bool | None
) -> None:
    assert named_sink(sink) == SinkFacts(sink.kind, sink.location, knows_batches, skips_plan)


def test_what_a_sink_has_is_told_by_query_and_batch() -> None:
    sink = SinkFacts("delta", "s3a://lake/t", True, True, True, {"q": SinkLog(6, {3: 4, 5: 6, 6: 8})})
    assert sink.last_batch("q") == 6
    assert [sink.has_batch("q", batch) for batch in (5, 6, 7)] == [True, True, False]
    assert [sink.version_to_restore("q", batch) for batch in (2, 3, 4, 5)] == [None, 4, 4, 6]
    assert sink.last_batch("another") is None
    assert sink.has_batch("another", 0) is False


def test_nothing_is_known_of_a_log_that_was_not_read() -> None:
    sink = named_sink(SinkSpec("delta", "s3a://lake/t"))
    assert sink.last_batch("q") is None
    assert sink.has_batch("q", 0) is None
    assert sink.version_to_restore("q", 0) is None

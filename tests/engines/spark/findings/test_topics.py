"""Are the topics at the brokers those that the job has read?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stateshift.engines.spark.findings.inputs import Wanted, of_offsets
from stateshift.engines.spark.image import spark_image
from stateshift.plan import Plan
from stateshift.survey import Finding, TopicRecord, Topics
from tests.support.checkpoints import Checkpoint
from tests.support.ground import facts_of, plan_of, spec_of, surveyed

NOW = 1_800_000_000_000
BATCH = NOW - 86_400_000  # the last batch was planned a day ago
OFFSET = 80
WANTED = Wanted({"orders": {0: OFFSET, 1: OFFSET}}, BATCH, NOW)
SPANS = {"orders": {0: (0, 200), 1: (0, 200)}}


def records(
    shift: int = 0, first: int = 77, end: int = 81, at: int = BATCH - 10_000, **more: Any
) -> tuple[TopicRecord, ...]:
    """Those of one partition: record n of the job's topic is at offset n + shift."""
    return tuple(
        TopicRecord(
            n, at + n - shift, more.get("appended", False), f"k{n - shift}", f"v{n - shift}"
        )
        for n in range(first, end)
    )


def at_both(
    here: tuple[TopicRecord, ...], there: tuple[TopicRecord, ...], partitions: int = 2
) -> list[Finding]:
    source = Topics("old:9092", {}, records={"orders": dict.fromkeys(range(partitions), there)})
    topics = Topics(
        "new:9092", SPANS, records={"orders": dict.fromkeys(range(partitions), here)}, source=source
    )
    return list(of_offsets(WANTED, topics))


def at_target(here: tuple[TopicRecord, ...] | None, wanted: Wanted = WANTED) -> list[Finding]:
    read = None if here is None else {"orders": {0: here, 1: here}}
    return list(of_offsets(wanted, Topics("new:9092", SPANS, records=read)))


def refusals(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.level == "refuse"]


def test_the_same_records_at_both_brokers_are_told_as_that() -> None:
    found = at_both(records(), records())
    assert not refusals(found)
    assert found[-1].message == (
        "the records around the job's offsets are the same at new:9092 and at old:9092 (2 "
        "partitions)"
    )


def test_a_topic_whose_offsets_are_shifted_is_refused_though_it_has_the_offset() -> None:
    """The offset is in range at both: Spark reads 35 records twice, and no error tells."""
    (finding,) = refusals(at_both(records(shift=35), records()))
    assert finding.message.startswith(
        "orders/0, orders/1: new:9092 has other records than old:9092, as orders/0 at"
    )
    assert (finding.waive, "old:9092" in str(finding.hint)) == ("other-records", True)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"key": None}, "another key"),
        ({"value": "w"}, "another value"),
        ({"timestamp": 7}, "another timestamp"),
    ],
)
@pytest.mark.parametrize("which", [0, 2, 3])
def test_one_record_that_differs_in_one_thing_is_enough(
    changed: dict[str, Any], told: str, which: int
) -> None:
    other = tuple(
        record._replace(**changed) if n == which else record for n, record in enumerate(records())
    )
    (finding,) = refusals(at_both(other, records()))
    assert f"at offset {77 + which} ({told})" in finding.message


def test_a_time_that_a_broker_has_set_is_another_one_in_every_copy() -> None:
    copied = tuple(record._replace(timestamp=BATCH - 1, appended=True) for record in records())
    assert not refusals(at_both(copied, records()))
    assert not refusals(at_both(records(), copied))


def test_offsets_that_have_no_record_are_passed_over() -> None:
    """Compaction and the ends of transactions leave gaps, and not the same ones at two brokers."""
    assert not refusals(at_both(records()[::2], records()))


def test_partitions_of_which_nothing_can_be_compared_are_named() -> None:
    (finding,) = [one for one in at_both((), records()) if one.level == "warn"]
    assert finding.message.startswith(
        "orders/0, orders/1: no record around the job's offset is at both"
    )


def test_source_brokers_that_could_not_be_asked_are_refused_with_the_reason() -> None:
    source = Topics("old:9092", {}, "it does not answer", "is it up?")
    topics = Topics(
        "new:9092", SPANS, records={"orders": {0: records(), 1: records()}}, source=source
    )
    (finding,) = refusals(list(of_offsets(WANTED, topics)))
    assert (
        "old:9092 could not be asked for the records that the job has read: it does not answer"
        in finding.message
    )
    assert str(finding.hint).startswith("is it up?; ")


def test_records_that_the_job_has_read_cannot_be_newer_than_the_batch_that_read_them() -> None:
    (finding,) = refusals(at_target(records(at=NOW - 3_600_000)))
    assert (
        "orders/0, orders/1 at new:9092: the records before the job's offset were written after"
        in finding.message
    )
    assert (finding.waive, "source_bootstrap_servers" in str(finding.hint)) == (
        "other-records",
        True,
    )


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (records(at=BATCH - 500), "just before the batch"),
        (records(at=BATCH + 500_000), "a producer's clock is minutes ahead"),
        (records(at=NOW + 1_000_000), "times ahead of now are the producer's own"),
        (records(at=0), "times that say nothing"),
        (tuple(one._replace(timestamp=None) for one in records()), "no times"),
        (records(first=80), "nothing before the offset is left"),
        ((), "nothing is left at all"),
        (
            (*records(end=79), records(first=79, end=80, at=BATCH + 700_000)[0]),
            "one late record among others",
        ),
    ],
)
def test_what_may_be_the_job_s_own_topic_is_not_refused(
    here: tuple[TopicRecord, ...], why: str
) -> None:
    found = at_target(here)
    assert not refusals(found), why
    assert "was asked of their times alone" in found[-1].message


@pytest.mark.parametrize("batch_ms", [None, 1003])
def test_a_batch_whose_time_is_not_known_refuses_nothing(batch_ms: int | None) -> None:
    checkpoint = surveyed(Checkpoint())  # its batches were planned a second after 1970 began
    image = replace(
        checkpoint.images[0],
        details=replace(spark_image(checkpoint.images[0]), batch_timestamp_ms=batch_ms),
    )
    topics = Topics(
        "new:9092", {"topic": {0: (0, 99)}}, records={"topic": {0: records(at=NOW - 9)}}
    )
    facts = facts_of(replace(checkpoint, images=(image,)), topics=topics)
    plan = plan_of(spec_of(), replace(facts, at=NOW / 1000))
    assert not plan.refusals


def test_without_records_it_is_told_that_nobody_asked_and_how_to() -> None:
    found = at_target(None)
    assert found[-1].level == "note"
    assert found[-1].message == "whether these are the records that the job has read was not asked"
    assert "source_bootstrap_servers" in str(found[-1].hint)


@pytest.mark.parametrize(
    ("spans", "level", "told"),
    [
        (
            {0: (0, 200), 1: (0, 200), 2: (0, 53)},
            "warn",
            "orders/2: the job reads it from the beginning (53 records)",
        ),
        (
            {0: (0, 200), 1: (0, 200), 2: (0, 0)},
            "note",
            "orders/2: the job reads it from the beginning (0 records)",
        ),
        (
            {0: (0, 200), 1: (0, 200), 2: (4, 9)},
            "warn",
            "one that begins behind offset 0 counts as lost data",
        ),
        (
            dict.fromkeys(range(9), (0, 200)),
            "warn",
            "orders/2, orders/3, orders/4 and 4 more: the job reads it from",
        ),
    ],
)
def test_a_partition_that_the_checkpoint_does_not_name_is_read_from_its_beginning(
    spans: dict[int, tuple[int, int]], level: str, told: str
) -> None:
    found = list(of_offsets(WANTED, Topics("new:9092", {"orders": spans})))
    (finding,) = [one for one in found if "from the beginning" in one.message]
    assert (finding.level, told in finding.message) == (level, True)


def planned(topics: Topics, **keys: Any) -> Plan:
    return plan_of(spec_of(**keys), facts_of(surveyed(Checkpoint()), topics=topics))


def test_other_records_can_be_waived() -> None:
    mine = TopicRecord(19, 5, False, "k", "v")
    source = Topics("old:1", {}, records={"topic": {0: (mine._replace(value="w"),)}})
    topics = Topics(
        "new:1", {"topic": {0: (0, 99)}}, records={"topic": {0: (mine,)}}, source=source
    )
    assert [one.waive for one in planned(topics).refusals] == ["other-records"]
    assert not planned(topics, waive=["other-records"]).refusals

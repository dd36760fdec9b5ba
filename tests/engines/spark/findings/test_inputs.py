"""Does the job get its input again, once and whole?"""

from __future__ import annotations

from typing import Any

import pytest

from stateshift.plan import Plan
from stateshift.survey import FileInfo, Finding, Survey, Topics
from tests.support.checkpoints import Checkpoint
from tests.support.ground import facts_of, plan_of, spec_of, surveyed

# Three batches were committed: the next one reads `topic`, partition 0, from offset 20.
OURS = 20


def planned(topics: Topics | None, **keys: Any) -> Plan:
    return plan_of(spec_of(**keys), facts_of(surveyed(Checkpoint()), topics=topics))


def topics(spans: dict[str, dict[int, tuple[int, int]]]) -> Topics:
    return Topics("broker:9092", spans)


def about_kafka(plan: Plan) -> list[Finding]:
    return [
        one
        for one in plan.findings
        if any(word in one.message for word in ("topic", "broker:9092", "Kafka"))
    ]


@pytest.mark.parametrize("span", [(0, 20), (20, 20), (20, 500), (0, 500)])
def test_offsets_that_are_still_there_are_told_as_that(span: tuple[int, int]) -> None:
    plan = planned(topics({"topic": {0: span}}))
    (finding,) = about_kafka(plan)
    assert (finding.level, finding.waive) == ("note", None)
    assert (
        finding.message
        == "broker:9092 still has every offset from which the job reads on, of topic"
    )


@pytest.mark.parametrize(
    ("spans", "told"),
    [
        ({}, "broker:9092 has no topic topic"),
        ({"other": {0: (0, 50)}}, "has no topic topic"),
        ({"topic": {1: (0, 50)}}, "topic has no partition 0"),
        ({"topic": {0: (21, 50)}}, "topic/0 begins at offset 21: 1 records from 20 on are gone"),
        (
            {"topic": {0: (0, 19)}},
            "topic/0 ends at offset 19, and the job has read up to 20: 1 records are missing; the "
            "topic is a mirror that is late, was recreated",
        ),
    ],
)
def test_offsets_that_are_gone_are_refused_by_partition_and_can_be_waived(
    spans: dict[str, dict[int, tuple[int, int]]], told: str
) -> None:
    (finding,) = planned(topics(spans)).refusals
    assert told in finding.message
    assert (finding.waive, "failOnDataLoss" in (finding.hint or "")) == ("lost-offsets", True)
    waived = planned(topics(spans), waive=["lost-offsets"])
    assert not waived.refusals
    assert "(waived: lost-offsets)" in about_kafka(waived)[0].message


def test_brokers_that_could_not_be_asked_are_refused_with_the_reason() -> None:
    (finding,) = planned(
        Topics("broker:9092", {}, "kafka-python is not there", "pip install it")
    ).refusals
    assert "broker:9092 could not be asked for topic: kafka-python is not there" in finding.message
    assert (finding.hint or "").startswith("pip install it; ")
    assert finding.waive == "lost-offsets"


def test_without_brokers_it_is_told_that_nobody_was_asked_and_how_to() -> None:
    (finding,) = about_kafka(planned(None))
    assert finding.level == "note"
    assert '"kafka": {"bootstrap_servers"' in (finding.hint or "")


def test_a_job_that_reads_no_kafka_is_told_nothing_of_it() -> None:
    spec = spec_of(waive=["paths-stay"])
    assert not about_kafka(plan_of(spec, facts_of(surveyed(Checkpoint(inputs="file:///in")))))


@pytest.mark.row("IS-14")
@pytest.mark.parametrize(("batches", "told"), [(3, False), (4, True)])
def test_output_of_batches_that_the_checkpoint_has_not_planned_is_told(
    batches: int, told: bool
) -> None:
    log = tuple(FileInfo(f"_spark_metadata/{batch}", 10) for batch in range(batches))
    here = Survey("file:///out", None, "data", log)
    there = Survey("file:///new", None, "empty", ())
    spec = spec_of(data=[{"source": "file:///out", "target": "file:///new"}])
    plan = plan_of(spec, facts_of(surveyed(Checkpoint()), data=((here, there),)))
    found = [
        f.message for f in plan.findings if f.level == "warn" and "file sink drops" in f.message
    ]
    assert bool(found) is told
    if told:
        assert (
            "holds the output of batches up to 3, and the checkpoint has planned none after 2"
            in found[0]
        )

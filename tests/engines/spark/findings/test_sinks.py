"""What the sink's own log means for a move: said before it, from what the spec and the log tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.engines.spark.survey.sinks import named_sink
from stateshift.plan import Plan
from stateshift.specification import SinkSpec
from stateshift.survey import ClusterFacts, Finding, SinkFacts, SinkLog
from tests.support.checkpoints import QUERY, Checkpoint
from tests.support.ground import Ground, facts_of, plan_of, plans_of, spec_of, surveyed

TABLE = "s3://lake/orders"


def sink_with(
    kind: str, last: int | None, versions: dict[int, int] | None = None, of: str = QUERY
) -> SinkFacts:
    facts = named_sink(SinkSpec(kind, TABLE))  # type: ignore[arg-type]
    return replace(facts, read=True, logs={of: SinkLog(last, versions or {})})


def planned(sink: SinkFacts | None, checkpoint: Checkpoint | None = None, **keys: Any) -> Plan:
    return plan_of(spec_of(**keys), facts_of(surveyed(checkpoint or Checkpoint()), sink=sink))


def about_the_sink(plan: Plan) -> Finding:
    words = (
        "Delta table",
        "Iceberg table",
        "file sink",
        "Kafka sink",
        "foreach-batch",
        "idempotent sink",
    )
    (finding,) = [one for one in plan.findings if any(word in one.message for word in words)]
    return finding


@pytest.mark.row("W-4")
@pytest.mark.parametrize(
    ("last", "told"),
    [
        (3, "the sink (delta) has it"),
        (2, "the sink (delta) does not have it"),
    ],
)
def test_whether_the_planned_batch_was_delivered_is_said(last: int, told: str) -> None:
    plan = planned(sink_with("delta", last, {2: 8, 3: 11}), Checkpoint(planned=True))
    finding = about_the_sink(plan)
    assert finding.level == "note"
    (only,) = [
        each.message for each in plan.findings if "planned and not committed" in each.message
    ]
    assert "batch 3 was planned and not committed" in only
    assert told in only
    assert (
        f"the batches of the job up to {last} (version {8 if last == 2 else 11})" in finding.message
    )


@pytest.mark.row("W-4")
def test_a_sink_that_is_ahead_of_the_checkpoint_is_refused_with_the_version_to_restore() -> None:
    sink = sink_with("delta", 7, {1: 3, 2: 5, 7: 12})
    plan = planned(sink)
    (finding,) = plan.refusals
    assert "has the batches of the job up to 7" in finding.message
    assert (
        "planned none after 2: what the job puts out in batches 3 to 7 is dropped"
        in finding.message
    )
    assert "the job fails at the batch behind them" in finding.message
    assert "restore the table to version 5" in (finding.hint or "")
    assert not planned(sink, waive=["sink-ahead"]).refusals


def test_an_iceberg_sink_that_is_ahead_drops_output_and_the_job_goes_on() -> None:
    (finding,) = planned(sink_with("iceberg", 7, {2: 991, 7: 992})).refusals
    assert "what the job puts out in batches 3 to 7 is dropped" in finding.message
    assert "fails" not in finding.message


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (1, "the output of batches 2 to 2 is not there"),
        (None, f"has no batch of the job (query {QUERY})"),
    ],
)
def test_a_sink_that_lacks_committed_batches_is_a_warning(last: int | None, told: str) -> None:
    finding = about_the_sink(planned(sink_with("delta", last)))
    assert finding.level == "warn"
    assert told in finding.message


def test_a_fork_is_given_every_batch_where_the_sink_goes_by_the_query_and_not_where_it_goes_by_numbers() -> (
    None
):
    by_query = about_the_sink(planned(sink_with("delta", 7), mode="fork"))
    assert by_query.level == "note"
    assert "the fork has an id of its own" in by_query.message
    by_number = about_the_sink(planned(sink_with("file", 7, of=""), mode="fork"))
    assert by_number.level == "warn"
    assert "goes by their numbers alone" in by_number.message
    function = about_the_sink(
        planned(named_sink(SinkSpec("foreach-batch", None, True)), mode="fork")
    )
    assert function.level == "warn"
    assert "is not given the output of batches whose numbers the job has had" in function.message


def test_of_a_job_that_runs_it_is_said_how_far_the_sink_is() -> None:
    spec = spec_of(
        spec_clusters={"ours": {"kind": "command", "find": "f", "stop": "t"}},
        source_cluster="ours",
        target_cluster="ours",
    )
    running = ClusterFacts("ours", "command", "4.0.1", "running", "1")
    facts = facts_of(surveyed(Checkpoint()), sink=sink_with("delta", 9), source_cluster=running)
    move = plans_of(spec, facts)[-1]
    assert about_the_sink(move) == Finding(
        "note", f"the Delta table {TABLE} has the batches up to 9 of the job so far"
    )


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        (
            SinkSpec("kafka"),
            "the Kafka sink is at least once: a batch that runs twice is there twice",
        ),
        (SinkSpec("foreach-batch"), "only the author of the foreach-batch function knows"),
        (SinkSpec("foreach-batch", None, True), "drops a batch that it is given twice"),
        (SinkSpec("foreach-batch", None, False), "is at least once"),
    ],
)
def test_a_sink_without_a_log_is_told_by_what_the_spec_says_of_it(
    sink: SinkSpec, told: str
) -> None:
    finding = about_the_sink(planned(named_sink(sink)))
    assert finding.level == "note"
    assert told in finding.message


def test_without_a_sink_in_the_spec_it_is_told_how_to_name_it() -> None:
    assert '"sink": {"kind": ' in (about_the_sink(planned(None)).hint or "")


def test_a_log_that_cannot_be_read_is_a_warning_with_the_reason() -> None:
    sink = replace(
        named_sink(SinkSpec("delta", TABLE)),
        wrong=f"{TABLE} is no Delta table: it has no _delta_log",
    )
    finding = about_the_sink(planned(sink))
    assert finding.level == "warn"
    assert "is no Delta table" in finding.message


def test_the_plan_reads_the_log_of_the_sink_that_the_spec_names(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(planned=True))
    for batch in range(4):
        ground.put(
            f"file:///lake/t/_delta_log/{batch:020d}.json",
            b'{"commitInfo":{}}\n{"txn":{"appId":"%s","version":%d}}\n' % (QUERY.encode(), batch),
        )
    proposal = ground.propose(spec_of(sink={"kind": "delta", "location": "file:///lake/t"}))
    finding = about_the_sink(proposal.plans[-1])
    assert "has the batches of the job up to 3 (version 3)" in finding.message

"""What the plan of a rewind says of the sink, and what a rewind under new numbers brings to the
target.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import look
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.engines.spark.survey.sinks import named_sink, read_sink
from stateshift.formats.spark.state_files import decode_snapshot
from stateshift.plan import Plan
from stateshift.specification import SinkSpec, Spec
from stateshift.step import AwaitProgress, FenceSource
from stateshift.storage.opening import open_storage
from stateshift.survey import Finding, SinkFacts, SinkLog, Survey
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.checkpoints import QUERY, Checkpoint, put
from tests.support.ground import (
    SOURCE,
    TARGET,
    Ground,
    changes_of,
    facts_of,
    plan_of,
    running_spec,
    spec_of,
)

TABLES = Path(__file__).resolve().parents[3] / "golden" / "tables"
EXPECTED = json.loads((TABLES / "expected.json").read_text())
SIX = Checkpoint(batches=6)


def rewind(batch: int, **more: Any) -> list[dict[str, Any]]:
    return [{"kind": "rewind", "batch": batch, **more}]


def renumbered(batch: int = 2, *others: dict[str, Any], **keys: Any) -> Spec:
    return spec_of(transform=[*rewind(batch, renumber=True), *others], **keys)


def planned(spec: Spec, checkpoint: Checkpoint = SIX, sink: SinkFacts | None = None) -> Plan:
    storage = MemoryDisk().open(SOURCE)
    checkpoint.write(storage)
    found = survey.survey(storage, changes=spec.jobs[0].transform)
    return plan_of(spec, facts_of(found, sink=sink))


def going_back(plan: Plan) -> Finding:
    (finding,) = [one for one in plan.findings if "goes back from batch" in one.message]
    return finding


def refusals(plan: Plan) -> str:
    return "\n".join(finding.message for finding in plan.refusals)


# ---- which table version is to be restored, by real logs


def at_golden(kind: str, batch: int, **keys: Any) -> Finding:
    """What the plan of a rewind says of a real checkpoint, whose job wrote to a real table."""
    changes = rewind(batch, renumber=keys.pop("renumber", False))
    tables = {"delta": "delta/sink", "iceberg": "iceberg/db/sink"}
    place = f"file://{TABLES}/{tables[kind]}"
    source = survey.survey(
        open_storage(f"file://{TABLES}/{kind}/checkpoint"), changes=changes_of(*changes)
    )
    sink = read_sink(SinkSpec(kind, place), open_storage, {source.images[0].identity or "": batch})  # type: ignore[arg-type]
    spec = spec_of(source.location, transform=changes, **keys)
    return going_back(plan_of(spec, facts_of(source, sink=sink)))


@pytest.mark.row("W-1")
@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize(
    ("keys", "level"),
    [({}, "refuse"), ({"renumber": True}, "warn"), ({"mode": "fork"}, "warn")],
    ids=["refused", "renumbered", "fork"],
)
def test_the_version_that_ends_with_the_batch_is_named_from_a_real_delta_log(
    batch: int, keys: dict[str, Any], level: str
) -> None:
    finding = at_golden("delta", batch, **keys)
    version = EXPECTED["delta"]["versions"][str(batch)]
    assert finding.level == level
    assert f"TO VERSION AS OF {version}, which ends with batch {batch}" in (finding.hint or "")


def test_the_snapshot_that_ends_with_the_batch_is_named_from_real_iceberg_metadata() -> None:
    finding = at_golden("iceberg", 1, renumber=True)
    snapshot = EXPECTED["iceberg"]["versions"]["1"]
    assert f"back to snapshot {snapshot}, which ends with batch 1" in (finding.hint or "")
    assert "what others have written since is taken back, too" in (finding.hint or "")


def test_a_file_sinks_log_is_emptied_entry_by_entry() -> None:
    sink = replace(
        named_sink(SinkSpec("file", "s3://lake/orders")), read=True, logs={"": SinkLog(5)}
    )
    hint = going_back(planned(renumbered(), sink=sink)).hint or ""
    assert "leave of each of the entries 3 to 5 of s3://lake/orders/_spark_metadata" in hint


# ---- new numbers


def brought(tmp_path: Path, spec: Spec, checkpoint: Checkpoint = SIX) -> Ground:
    ground = Ground(tmp_path)
    ground.write(checkpoint)
    ground.apply(spec)
    return ground


@pytest.mark.row("W-1")
def test_a_batch_gets_the_newest_number_and_its_state_the_version_after(tmp_path: Path) -> None:
    ground = brought(tmp_path, renumbered())
    here, there = ground.held(SOURCE), ground.held(TARGET)
    state = {"state/0/0/6.snapshot", "state/0/1/6.snapshot"}
    logs = {
        "offsets/4": "offsets/1",
        "offsets/5": "offsets/2",
        "offsets/6": "offsets/3",
        "commits/5": "commits/2",
    }
    assert there.keys() == {"metadata", *logs, *state}
    for new, old in logs.items():
        assert there[new] == here[old], new
    for path in state:
        values = {record.value for record in decode_snapshot([there[path]])}
        assert values == {(3).to_bytes(8, "little")}, "what batch 2 has put"
    judged = look.restartable(TARGET, ground.open, thorough=True)
    assert (judged.restartable, judged.epoch) == (True, 5), judged.findings


def test_a_run_under_new_numbers_can_be_taken_back(tmp_path: Path) -> None:
    ground = brought(tmp_path, renumbered())
    ground.rollback()
    assert ground.held(TARGET) == {}
    judged = look.restartable(SOURCE, ground.open, thorough=True)
    assert judged.epoch == 5


def test_the_next_batch_is_planned_anew_where_the_spec_drops_it(tmp_path: Path) -> None:
    ground = brought(tmp_path, renumbered(planned_batch="drop"))
    offsets = {path for path in ground.held(TARGET) if path.startswith("offsets/")}
    assert offsets == {"offsets/4", "offsets/5"}


@pytest.mark.parametrize(
    ("checkpoint", "last", "number"),
    [
        (SIX, None, 5),
        (replace(SIX, planned=True, written=True), None, 6),
        (SIX, 5, 5),
        (SIX, 9, 9),
        (SIX, 1, 5),
    ],
    ids=["committed", "planned", "sink-has-the-same", "sink-ahead", "sink-behind"],
)
def test_the_number_is_one_that_no_batch_has_passed(
    checkpoint: Checkpoint, last: int | None, number: int
) -> None:
    sink = None
    if last is not None:
        sink = replace(
            named_sink(SinkSpec("delta", "s3://lake/t")), read=True, logs={QUERY: SinkLog(last)}
        )
    plan = planned(renumbered(), checkpoint, sink)
    assert plan.epoch == number
    assert (
        f"Batch 2 gets the number {number}, so that the next is batch {number + 1}"
        in going_back(plan).message
    )


def test_the_fence_stands_behind_the_newest_batch_and_the_job_is_awaited_under_the_new_numbers(
    tmp_path: Path,
) -> None:
    spec = running_spec(transform=rewind(2, renumber=True))
    storage = MemoryDisk().open(SOURCE)
    SIX.write(storage)
    plan = plan_of(spec, facts_of(survey.survey(storage, changes=spec.jobs[0].transform)))
    assert [step.paths for step in plan if isinstance(step, FenceSource)] == [
        ("offsets/6", "commits/6")
    ]
    (confirm,) = [step for step in plan if isinstance(step, AwaitProgress)]
    assert (confirm.commits, confirm.epoch) == (("commits/6",), 5)


def test_where_the_sink_has_none_of_the_batches_nothing_is_cleared() -> None:
    sink = replace(
        named_sink(SinkSpec("delta", "s3://lake/t")), read=True, logs={QUERY: SinkLog(2)}
    )
    assert going_back(planned(renumbered(), sink=sink)).hint == "nothing has to be cleared"


# ---- what cannot be done so


def test_batch_0_has_none_before_it() -> None:
    assert "batch 0 has none before it" in refusals(planned(renumbered(0)))


def test_a_workflow_is_refused() -> None:
    disk = MemoryDisk()
    for name in ("a", "b"):
        SIX.write(disk.open(SOURCE), name)
    spec = renumbered()
    found: Survey = survey.survey(disk.open(SOURCE), changes=spec.jobs[0].transform)
    assert found.kind == "workflow"
    assert "each has numbers of its own" in refusals(plan_of(spec, facts_of(found)))


def test_a_merge_beside_it_is_refused() -> None:
    merge = {"kind": "merge", "locations": ["file:///other"]}
    storage = MemoryDisk().open(SOURCE)
    SIX.write(storage)
    spec = renumbered(2, merge)
    found = survey.survey(storage, changes=spec.jobs[0].transform)
    plan = plan_of(spec, facts_of(found, others=(replace(found, location="file:///other"),)))
    assert "under new numbers beside a merge" in refusals(plan)


def test_a_source_that_is_not_known_and_keeps_files_is_refused() -> None:
    """They may be numbered by batch."""
    spec = renumbered()
    for kept, refuses in ((b"{}", True), (None, False)):
        storage = MemoryDisk().open(SOURCE)
        for path, content in SIX.files().items():
            if path.startswith("offsets/"):
                content = content.rpartition(b"\n")[0] + b'\n{"shard":"7"}'
            put(storage, path, content)
        if kept is not None:
            put(storage, "sources/0/shards/3", kept)
        found = survey.survey(storage, changes=spec.jobs[0].transform)
        plan = plan_of(spec, facts_of(found))
        assert ("source 0 is none that stateshift knows" in refusals(plan)) is refuses


def test_where_a_file_sink_writes_to_another_folder_its_log_goes_along() -> None:
    """Without it the job fails at the next compaction of the log."""
    sink = replace(named_sink(SinkSpec("file", "s3://lake/t")), read=True, logs={"": SinkLog(5)})
    forked = planned(spec_of(transform=rewind(2), mode="fork"), sink=sink)
    assert "needs its log there, too: name both folders in `data`" in (
        going_back(forked).hint or ""
    )
    assert "leave of each of the entries 3 to 5" in (going_back(forked).hint or "")


@pytest.mark.row("W-1")
def test_a_fork_beside_a_function_that_goes_by_numbers_is_refused_without_new_ones() -> None:
    """The fork runs the same function, under the same application id."""
    function = named_sink(SinkSpec("foreach-batch", None, True))
    for mode in ("fork", "move"):
        finding = going_back(planned(spec_of(transform=rewind(2), mode=mode), sink=function))
        assert (finding.level, finding.waive) == ("refuse", "repeated-batches")
        assert "rewind in a fork" not in (finding.hint or "")
        assert "rewind under new numbers" in (finding.hint or "")
    assert not planned(renumbered(mode="fork"), sink=function).refusals
    at_least_once = named_sink(SinkSpec("foreach-batch", None, False))
    assert not planned(spec_of(transform=rewind(2), mode="fork"), sink=at_least_once).refusals


def test_a_planned_batch_that_such_a_function_may_have_is_not_dropped_in_a_fork() -> None:
    function = named_sink(SinkSpec("foreach-batch", None, True))
    plan = planned(spec_of(mode="fork", planned_batch="drop"), KILLED, function)
    assert "loses the next one's input" in refusals(plan)


# ---- back to the newest batch, with another one planned

KILLED = replace(SIX, planned=True, written=True)


def test_back_to_the_newest_batch_is_a_move_that_takes_the_planned_batch_along() -> None:
    """Its state, too: a sink that has the batch skips it."""
    plan = planned(spec_of(transform=rewind(5)), KILLED)
    names = {name for step in plan for _, name in getattr(step, "named", ())}
    assert {"offsets/6", "state/0/0/7.delta", "state/0/1/7.delta"} <= names
    assert any(
        "the state that it wrote goes along (2 files)" in one.message for one in plan.findings
    )


def test_under_a_new_number_the_planned_batch_runs_again_and_its_old_state_stays(
    tmp_path: Path,
) -> None:
    plan = planned(renumbered(5), KILLED)
    assert not plan.refusals
    assert "goes back from batch 6 to batch 5" in going_back(plan).message
    assert "Batch 5 gets the number 6" in going_back(plan).message
    ground = brought(tmp_path, renumbered(5), KILLED)
    here, there = ground.held(SOURCE), ground.held(TARGET)
    assert {path for path in there if path.startswith("state/")} == {
        "state/0/0/7.snapshot",
        "state/0/1/7.snapshot",
    }
    assert there["offsets/7"] == here["offsets/6"]


def test_a_sink_that_is_ahead_is_no_hindrance_to_new_numbers() -> None:
    sink = replace(
        named_sink(SinkSpec("delta", "s3://lake/t")), read=True, logs={QUERY: SinkLog(9, {5: 7})}
    )
    plan = planned(renumbered(5), SIX, sink)
    assert not plan.refusals
    assert "Batch 5 gets the number 9" in going_back(plan).message
    assert "TO VERSION AS OF 7" in (going_back(plan).hint or "")

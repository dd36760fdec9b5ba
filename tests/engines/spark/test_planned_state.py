"""The state of a batch that was planned and not committed goes along: a sink that has the batch
skips it (W-1).

Real checkpoints stand for the crash: without their newest commit they are what a job leaves behind
that is killed between its sink's commit and Spark's. What Spark does at the target is simple then:
it writes that commit. The image must be whole at that batch, and hold what the original does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import look, migration
from stateshift.documents.survey import image_document
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.errors import PlanError
from stateshift.plan import Plan
from stateshift.specification import Spec
from stateshift.survey import ClusterFacts, Image, SinkFacts, SinkLog
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.spark.test_transforms_golden import source_of
from tests.formats.golden import CASES
from tests.support.checkpoints import QUERY, Checkpoint, put
from tests.support.ground import (
    SOURCE,
    TARGET,
    Ground,
    changes_of,
    facts_of,
    plan_of,
    spec_of,
    surveyed,
)

KILLED = Checkpoint(batches=3, planned=True, written=True)  # batch 3 wrote version 4 of both shards

Entries = Counter[tuple[object, ...]]


def image_at(ground: Ground, location: str) -> Image:
    (image,) = survey.survey(ground.open(location)).images
    return image


def entries_at(ground: Ground, location: str) -> Entries:
    """What the image holds, by its operators' ids."""
    image, storage, found = image_at(ground, location), ground.open(location), Entries()
    for shard in image.shards:
        for store, block in fold_shard(storage.chunks, shard, image.settings):
            found.update(
                (shard.operator, shard.shard, store, *record) for record in block.records()
            )
    return found


def without_commit(ground: Ground, location: str) -> bytes:
    """Take the newest commit away, with its checksums, as if the job had been killed before it.
    Return its bytes.
    """
    storage, epoch = ground.open(location), image_at(ground, location).epoch
    content = storage.read(f"commits/{epoch}", 1 << 20)
    for name in (f"commits/{epoch}", f"commits/.{epoch}.crc"):
        storage.remove(name)
    return content


def killed(ground: Ground, case: Path) -> tuple[str, bytes, Entries]:
    """A real checkpoint whose newest batch was not committed; what its commit was, and what the
    state is after it.
    """
    location = source_of(ground, case)
    entries = entries_at(ground, location)
    return location, without_commit(ground, location), entries


def is_stateful(case: Path) -> bool:
    """Whether there is state, and a batch before the newest one to go back to."""
    return (
        any((case / "checkpoint").glob("state/*/*"))
        and len([*(case / "checkpoint" / "commits").glob("[0-9]*")]) > 1
    )


STATEFUL = [case for case in CASES if is_stateful(case)]
BY_NUMBER = [case for case in STATEFUL if not [*(case / "checkpoint").glob("state/*/*/[0-9]*_*")]]
FORMAT_2 = [case for case in STATEFUL if case not in BY_NUMBER]
NEWEST = [case for case in BY_NUMBER if case.parent.name == "spark-4.3.0"]
ALONE = {"waive": ["paths-stay"]}


def ids(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


@pytest.mark.parametrize("case", BY_NUMBER, ids=ids)
def test_the_target_is_whole_once_spark_commits_the_batch_that_its_sink_skips(
    tmp_path: Path, case: Path
) -> None:
    ground = Ground(tmp_path)
    location, commit, entries = killed(ground, case)
    planned = image_at(ground, location).planned
    ground.apply(spec_of(location, TARGET, **ALONE))
    assert migration.verify(ground.workdir(), ground.adapters).broken == ()
    put(ground.open(TARGET), f"commits/{planned}", commit)
    assert look.restartable(TARGET, ground.open, thorough=True).restartable
    assert (image_at(ground, TARGET).epoch, entries_at(ground, TARGET)) == (planned, entries)


@pytest.mark.sample(20)
@pytest.mark.parametrize("case", NEWEST, ids=ids)
def test_a_compaction_leaves_the_later_version_as_it_is(tmp_path: Path, case: Path) -> None:
    ground = Ground(tmp_path)
    location, commit, entries = killed(ground, case)
    planned = image_at(ground, location).planned
    ground.apply(spec_of(location, TARGET, transform=[{"kind": "compact"}], **ALONE))
    put(ground.open(TARGET), f"commits/{planned}", commit)
    assert look.restartable(TARGET, ground.open, thorough=True).restartable
    assert entries_at(ground, TARGET) == entries


@pytest.mark.sample(20)
@pytest.mark.parametrize("case", NEWEST, ids=ids)
def test_a_compaction_in_place_does_not_take_the_later_version_apart(
    tmp_path: Path, case: Path
) -> None:
    ground = Ground(tmp_path)
    location, commit, entries = killed(ground, case)
    planned = image_at(ground, location).planned
    ground.apply(spec_of(location, None, transform=[{"kind": "compact", "in_place": True}]))
    put(ground.open(location), f"commits/{planned}", commit)
    assert look.restartable(location, ground.open, thorough=True).restartable
    assert entries_at(ground, location) == entries


def test_an_operator_that_gets_another_number_takes_its_later_version_along(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(KILLED)
    ground.apply(spec_of(transform=[{"kind": "rename", "operators": {"0": "3"}}]))
    held = ground.held(TARGET)
    assert {path for path in held if path.endswith("/4.delta")} == {
        "state/3/0/4.delta",
        "state/3/1/4.delta",
    }


@pytest.mark.parametrize("case", FORMAT_2, ids=ids)
def test_under_checkpoint_format_2_no_restart_finds_it_and_the_plan_says_so(
    tmp_path: Path, case: Path
) -> None:
    ground = Ground(tmp_path)
    location, _, _ = killed(ground, case)
    state = image_at(ground, location).planned_state
    assert state is not None and state.unnamed and state.files == ()
    with pytest.raises(PlanError, match="CheckpointInfo length: 0"):
        ground.apply(spec_of(location, TARGET, **ALONE))
    ground.apply(spec_of(location, TARGET, waive=["paths-stay", "repeated-batches"]), "waived")


# ---- whole, or none of it


def test_state_of_some_shards_only_is_left_behind() -> None:
    files = KILLED.files()
    del files["state/0/1/4.delta"]
    image = image_of(files)
    assert image.planned_state is None
    assert image.needed_files == image.needed


def test_the_changes_are_enough_where_a_snapshot_is_beside_them() -> None:
    """Where the batch does run again, Spark overwrites the changes and would prefer the stale
    snapshot.
    """
    files = replace(KILLED, snapshots=(4,)).files()
    state = image_of(files).planned_state
    assert state is not None and state.files == ("state/0/0/4.delta", "state/0/1/4.delta")


def test_a_checksum_of_spark_goes_with_its_file() -> None:
    files = KILLED.files()
    files["state/0/0/4.delta.crc"] = b"{}"
    files["state/0/0/.4.delta.crc"] = b"crc\0"
    state = image_of(files).planned_state
    assert state is not None
    assert state.files == ("state/0/0/4.delta", "state/0/0/4.delta.crc", "state/0/1/4.delta")


def test_what_is_needed_counts_it() -> None:
    image = image_of(KILLED.files())
    assert "state/0/0/4.delta" in image.needed_files
    assert image_document(image)["needed"] == len(image.needed) + 2


def damaged(ground: Ground) -> None:
    """Half of a file that the planned batch has written is gone."""
    ground.write(KILLED)
    content = ground.open(SOURCE).read("state/0/1/4.delta", 1 << 20)
    put(ground.open(SOURCE), "state/0/1/4.delta", content[: len(content) // 2])


def test_a_damaged_file_of_it_is_warned_of_for_a_sink_may_have_the_batch(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    damaged(ground)
    judged = look.restartable(SOURCE, ground.open, thorough=True)
    assert judged.restartable, "where the batch runs again, Spark writes its state anew"
    (said,) = [finding for finding in judged.findings if finding.level == "warn"]
    assert said.path == "state/0/1/4.delta"
    assert "a sink that has the batch" in said.message and said.hint is not None


@pytest.mark.parametrize(("gone", "level"), [("state/0/1/4.delta", "warn"), ("/4.delta", "note")])
def test_state_that_is_not_whole_is_said_by_verify(gone: str, level: str) -> None:
    ground = Ground(Path("nowhere"))
    for path, content in KILLED.files().items():
        if gone not in path:
            put(ground.open(SOURCE), path, content)
    judged = look.restartable(SOURCE, ground.open, thorough=True)
    assert judged.restartable
    assert level in [f.level for f in judged.findings if "batch 3 was planned" in f.message]


# ---- where the sink is known


DELTA = {"kind": "delta", "location": "file:///table"}


def delta_has(ground: Ground, last: int, query: str = QUERY) -> None:
    """A Delta table whose newest versions are of these batches."""
    for batch in range(last + 1):
        txn = json.dumps({"txn": {"appId": query, "version": batch}})
        put(ground.open(DELTA["location"]), f"_delta_log/{batch:020}.json", txn.encode())


def test_damage_is_refused_where_the_sink_has_the_batch_and_nowhere_else(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    damaged(ground)
    delta_has(ground, 3)
    with pytest.raises(PlanError, match=r"4.delta is damaged.*The sink \(delta\) has"):
        ground.apply(spec_of(sink=DELTA))
    ground.apply(spec_of(sink={"kind": "kafka"}), "taken-again")
    assert ground.held(TARGET)


def test_damage_is_no_loss_where_the_sink_does_not_have_the_batch(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    damaged(ground)
    delta_has(ground, 2)
    ground.apply(spec_of(sink=DELTA))
    assert "state/0/0/4.delta" in ground.held(TARGET)


def known(last: int | None) -> SinkFacts:
    return SinkFacts("delta", "/table", True, True, read=True, logs={QUERY: SinkLog(last)})


@pytest.mark.parametrize(
    ("sink", "level"),
    [
        (known(3), "refuse"),
        (known(2), "note"),
        (None, "warn"),
        (SinkFacts("kafka", None, knows_batches=False, skips_plan=False), "note"),
        (SinkFacts("foreach-batch", None, knows_batches=True, skips_plan=True), "warn"),
    ],
)
def test_what_missing_state_means_is_the_sinks_matter(sink: SinkFacts | None, level: str) -> None:
    plan = planned(spec_of(), Checkpoint(planned=True), sink=sink)
    about = [f for f in plan.findings if "batch 3 was planned and not committed" in f.message]
    assert about[0].level == level
    if level == "refuse":
        assert about[0].hint is not None and "fork" in about[0].hint
        assert "would fail at batch 4" in about[0].message


def test_a_batch_whose_state_is_lost_is_not_dropped_where_the_sink_has_it() -> None:
    spec = spec_of(planned_batch="drop")
    assert refused(planned(spec, Checkpoint(planned=True), sink=known(3))) != []


def test_a_fork_runs_the_batch_again_whatever_the_table_has_of_the_job() -> None:
    plan = planned(spec_of(mode="fork"), Checkpoint(planned=True), sink=known(3))
    assert refused(plan) == []


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "repartition", "partitions": 3},
        {"kind": "convert", "codec": "zstd"},
        {"kind": "convert", "provider": "rocksdb"},
    ],
    ids=lambda change: "-".join(map(str, change.values())),
)
@pytest.mark.parametrize("name", ["window-hdfs", "window-rocksdb", "join-hdfs", "limit-rocksdb"])
def test_both_versions_are_rewritten_where_the_sink_has_the_batch(
    tmp_path: Path, name: str, change: dict[str, object]
) -> None:
    """As much as the same change makes of the checkpoint after its commit."""
    ground = Ground(tmp_path)
    (case,) = [case for case in NEWEST if case.name == name]
    location = source_of(ground, case)
    whole = "file:///whole"
    if change.get("provider") == image_at(ground, location).operators[0].provider:
        change = {**change, "provider": "hdfs-backed"}  # the other one
    ground.apply(spec_of(location, whole, transform=[change], mode="fork", **ALONE), "whole")
    commit = without_commit(ground, location)
    image = image_at(ground, location)
    delta_has(ground, image.planned or 0, image.identity or "")
    ground.apply(spec_of(location, TARGET, transform=[change], sink=DELTA, **ALONE), "killed")
    assert migration.verify(ground.workdir("killed"), ground.adapters).broken == ()
    put(ground.open(TARGET), f"commits/{image.planned}", commit)
    assert look.restartable(TARGET, ground.open, thorough=True).restartable
    assert entries_at(ground, TARGET) == entries_at(ground, whole)
    for path in (f"commits/{image.planned}", f"offsets/{image.planned}"):
        ground.open(TARGET).remove(path)
    assert look.restartable(TARGET, ground.open, thorough=True).restartable


# ---- the evidence


def test_spark_may_overwrite_it_and_the_run_still_holds_but_not_remove_it(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(KILLED)
    ground.apply(spec_of())
    put(ground.open(TARGET), "state/0/0/4.delta", b"written again by the batch")
    assert migration.verify(ground.workdir(), ground.adapters).broken == ()
    ground.open(TARGET).remove("state/0/0/4.delta")
    (broken,) = migration.verify(ground.workdir(), ground.adapters).broken
    assert broken.discrepancy.place == "state/0/0/4.delta"


def test_a_rollback_removes_it(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(KILLED)
    ground.apply(spec_of())
    ground.rollback()
    assert ground.held(TARGET) == {}


# ---- what else may happen to a planned batch

STATE_IS_REWRITTEN = (
    {"kind": "repartition", "partitions": 3},
    {"kind": "convert", "provider": "rocksdb"},
    {"kind": "convert", "codec": "zstd"},
    {"kind": "split", "by": 2, "part": 0},
)


def image_of(files: Mapping[str, bytes]) -> Image:
    ground = Ground(Path("nowhere"))
    for path, content in files.items():
        put(ground.open(SOURCE), path, content)
    return image_at(ground, SOURCE)


def planned(
    spec: Spec,
    checkpoint: Checkpoint = KILLED,
    sink: SinkFacts | None = None,
    running: bool = False,
) -> Plan:
    facts = facts_of(surveyed(checkpoint))
    cluster = ClusterFacts("ours", "memory", "4.3.0", "running", "orders-0") if running else None
    return plan_of(spec, replace(facts, sink=sink, source_cluster=cluster))


def refused(plan: Plan) -> list[tuple[str | None, str]]:
    return [(finding.waive, finding.message) for finding in plan.refusals]


def brought(plan: Plan) -> set[str]:
    phase = plan.phase("copy")
    steps = phase.steps if phase is not None else ()
    return {
        name
        for step in steps
        for _, name in getattr(step, "named", ())
        if name.endswith("/4.delta")
    }


@pytest.mark.parametrize(
    "change", STATE_IS_REWRITTEN, ids=lambda change: "-".join(map(str, change.values()))
)
def test_state_that_is_written_anew_has_no_later_version_and_the_move_is_refused(
    change: dict[str, object],
) -> None:
    ((waive, message),) = [
        one for one in refused(planned(spec_of(transform=[change]))) if one[0] is not None
    ]
    assert waive == "repeated-batches"
    assert "this change writes the state of batch 2 alone" in message
    takes_again = SinkFacts("kafka", None, knows_batches=False, skips_plan=False)
    runs_again = SinkFacts("iceberg", "/table", knows_batches=True, skips_plan=False)
    for sink in (takes_again, runs_again):
        assert [
            one for one in refused(planned(spec_of(transform=[change]), sink=sink)) if one[0]
        ] == []


def test_a_batch_that_is_dropped_though_the_sink_may_have_it_is_refused() -> None:
    spec = spec_of(planned_batch="drop")
    ((waive, message),) = refused(planned(spec))
    assert waive == "repeated-batches"
    assert "batch 3 was planned and not committed; it is dropped" in message
    assert refused(planned(spec, Checkpoint(planned=True))) == [], (
        "its tasks had not ended: no sink has it"
    )
    assert refused(planned(spec_of(planned_batch="drop", mode="fork"))) == [], (
        "a fork is another query"
    )


@pytest.mark.parametrize(("last", "refuses"), [(3, True), (2, False), (None, False)])
def test_a_sink_that_was_asked_says_whether_it_has_the_batch(
    last: int | None, refuses: bool
) -> None:
    sink = SinkFacts("delta", "/table", True, True, read=True, logs={QUERY: SinkLog(last)})
    plan = planned(spec_of(planned_batch="drop"), sink=sink)
    assert bool(refused(plan)) is refuses


def test_it_goes_along_and_the_plan_says_so() -> None:
    plan = planned(spec_of())
    assert brought(plan) == {"state/0/0/4.delta", "state/0/1/4.delta"}
    notes = [finding.message for finding in plan.findings if finding.level == "note"]
    assert any("the state that it wrote goes along (2 files)" in note for note in notes)


def test_of_a_job_that_runs_it_is_not_copied_yet() -> None:
    """Its files are written at this moment; the plan of the stopped job brings them."""
    spec = spec_of(
        spec_clusters={"ours": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}},
        source_cluster="ours",
        mode="fork",
    )
    assert brought(planned(spec, running=True)) == set()


def test_a_rewind_does_not_bring_what_its_batch_wrote_before() -> None:
    changes, storage = [{"kind": "rewind", "batch": 1}], MemoryDisk().open(SOURCE)
    KILLED.write(storage)
    facts = facts_of(survey.survey(storage, changes=changes_of(*changes)))
    spec = spec_of(transform=changes, mode="fork")
    assert facts.source.images[0].planned_state is None
    assert not [name for name in _names(plan_of(spec, facts)) if name.endswith("/3.delta")]


def _names(plan: Plan) -> list[str]:
    return [name for step in plan for _, name in getattr(step, "named", ())]

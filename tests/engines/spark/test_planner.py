"""Plans as values: spec and survey in, phases and steps out."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from stateshift.engines.bundles import BYTES_MAX, FILES_MAX, bundle_items
from stateshift.engines.spark import layout
from stateshift.engines.spark.findings import moves
from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.formats import uid
from stateshift.formats.marks import INDEX, decode_index, encode_index, fence_text
from stateshift.plan import Estimate, Plan, decode_plan, encode_plan
from stateshift.specification import parse_spec
from stateshift.step import (
    AwaitProgress,
    CompareImages,
    CopyFiles,
    FenceSource,
    MoveFiles,
    StopJob,
    SubmitJob,
    TransformShard,
    WriteFile,
)
from stateshift.survey import (
    ClusterFacts,
    Facts,
    FileInfo,
    Finding,
    SinkFacts,
    SinkLog,
    Survey,
)
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.checkpoints import QUERY, Checkpoint, put
from tests.support.ground import (
    SOURCE,
    TARGET,
    empty,
    facts_of,
    plan_of,
    plans_of,
    running_spec,
    spec_of,
    surveyed,
)

RUNNING = ClusterFacts("ours", "memory", "4.3.0", "running", "orders-0")
STOPPED = ClusterFacts("ours", "memory", "4.3.0", "absent")


def names(plan: Plan) -> list[str]:
    return [phase.name for phase in plan.phases]


def copied(plan: Plan, phase: str = "copy") -> list[str]:
    """Every path that the phase copies, in its order."""
    found = plan.phase(phase)
    steps = found.steps if found else ()
    return [item.path for step in steps if isinstance(step, CopyFiles) for item in step.items]


def fences(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    return [(step.location, step.paths) for step in plan if isinstance(step, FenceSource)]


def refusals(plan: Plan) -> str:
    return "\n".join(finding.message for finding in plan.refusals)


def said(plan: Plan, level: str) -> str:
    return "\n".join(finding.message for finding in plan.findings if finding.level == level)


def from_files(files: dict[str, bytes], location: str = SOURCE) -> Survey:
    storage = MemoryDisk().open(location)
    for path, content in files.items():
        put(storage, path, content)
    return replace(survey.survey(storage), traits={"renames": True, "keeps_times": True})


# ---- the consistent cut


@pytest.mark.row("IS-5")
def test_only_what_the_last_committed_batch_needs_is_taken_along() -> None:
    files = Checkpoint(batches=6, snapshots=(3,)).files()
    files["state/0/0/7.delta"] = files["state/0/0/6.delta"]  # of a batch that never committed
    files["state/0/0/.7.delta.aaaa.TID3.tmp"] = b"torn"
    files[".metadata.crc"] = files["state/0/0/.6.delta.crc"] = b"crc\0"
    plan = plan_of(spec_of(), facts_of(from_files(files)))
    assert copied(plan) == sorted(
        f"state/0/{shard}/{name}"
        for shard in (0, 1)
        for name in ("3.snapshot", "4.delta", "5.delta", "6.delta")
    )
    assert copied(plan, "publish") == ["metadata", "offsets/4", "offsets/5", "commits/5"]
    assert plan.epoch == 5


def test_the_last_two_offset_files_go_along_because_spark_reads_both() -> None:
    assert copied(plan_of(spec_of(), facts_of(surveyed(Checkpoint()))), "publish")[1:3] == [
        "offsets/1",
        "offsets/2",
    ]


def test_a_job_with_a_single_batch_has_a_single_offset_file() -> None:
    plan = plan_of(spec_of(), facts_of(surveyed(Checkpoint(batches=1))))
    assert copied(plan, "publish") == ["metadata", "offsets/0", "commits/0"]


def test_a_planned_batch_is_kept_so_that_it_runs_again_over_the_same_input() -> None:
    plan = plan_of(spec_of(), facts_of(surveyed(Checkpoint(planned=True))))
    assert copied(plan, "publish") == [
        "metadata",
        "offsets/1",
        "offsets/2",
        "offsets/3",
        "commits/2",
    ]
    assert "batch 3 was planned and not committed; it runs again on the target" in said(
        plan, "warn"
    )


def test_a_planned_batch_is_dropped_where_the_spec_says_so_and_no_sink_has_it() -> None:
    plan = plan_of(spec_of(planned_batch="drop"), facts_of(surveyed(Checkpoint(planned=True))))
    assert copied(plan, "publish") == ["metadata", "offsets/1", "offsets/2", "commits/2"]
    assert "offsets/3" not in copied(plan)
    assert "its state is not whole, so that no sink has it" in said(plan, "warn")


def test_batches_planned_far_ahead_of_the_commits_are_planned_anew_and_it_is_said() -> None:
    files = Checkpoint(batches=6).files()
    for batch in (4, 5):
        del files[f"commits/{batch}"]
    plan = plan_of(spec_of(), facts_of(from_files(files)))
    assert "batches 4 to 5 were planned" in refusals(plan), (
        "a sink that has batch 4 skips another of that number"
    )
    plan = plan_of(spec_of(waive=["repeated-batches"]), facts_of(from_files(files)))
    assert copied(plan, "publish") == ["metadata", "offsets/2", "offsets/3", "commits/3"]
    assert "batches 4 to 5 were planned and none of them committed" in said(plan, "warn")
    assert fences(plan) == [(SOURCE, ("commits/4", "commits/5"))], (
        "its zombie commits the last one it planned"
    )


# ---- the fence


@pytest.mark.parametrize(
    ("planned", "paths"),
    [(False, ("offsets/3", "commits/3")), (True, ("commits/3",))],
    ids=("idle", "planned"),
)
def test_the_fence_takes_what_a_zombie_would_have_to_create(
    planned: bool, paths: tuple[str, ...]
) -> None:
    plan = plan_of(spec_of(), facts_of(surveyed(Checkpoint(planned=planned))))
    assert names(plan)[0] == "halt"
    assert fences(plan) == [(SOURCE, paths)]
    assert plan.phases[0].ordered


def test_a_fenced_source_is_not_moved_a_second_time() -> None:
    files = Checkpoint().files() | {
        f"{log}/3": fence_text("run-1").encode() for log in ("offsets", "commits")
    }
    plan = plan_of(spec_of(), facts_of(from_files(files)))
    assert "was moved away by run run-1" in refusals(plan)
    assert not plan.phases
    assert "stateshift rollback run-1 " in (plan.refusals[0].hint or "")


# ---- publishing


def test_the_commit_is_published_last_and_nothing_of_it_earlier() -> None:
    plan = plan_of(spec_of(operators=["Count (5)"]), facts_of(surveyed(Checkpoint())))
    publish = plan.phase("publish")
    assert publish is not None
    assert publish.ordered
    assert [type(step) for step in publish.steps] == [WriteFile, CopyFiles, CopyFiles]
    assert [
        [file.path for file in step.items] for step in publish.steps if isinstance(step, CopyFiles)
    ] == [
        ["metadata", "offsets/1", "offsets/2"],
        ["commits/2"],
    ]
    assert not {"metadata", "offsets/1", "offsets/2", "commits/2"} & set(copied(plan))


@pytest.mark.row("IS-6")
def test_a_workflow_publishes_every_commit_after_all_other_files() -> None:
    storage = MemoryDisk().open(SOURCE)
    Checkpoint(batches=4).write(storage, "a")
    Checkpoint(batches=2).write(storage, "b")
    plan = plan_of(spec_of(), facts_of(survey.survey(storage)))
    paths = copied(plan, "publish")
    assert [step.files for step in plan.phase("publish").steps] == [6, 2], (
        "none of a commit's step is of another kind"
    )
    assert paths[-2:] == ["a/commits/3", "b/commits/1"]
    assert sorted(paths[:-2]) == [
        "a/metadata",
        "a/offsets/2",
        "a/offsets/3",
        "b/metadata",
        "b/offsets/0",
        "b/offsets/1",
    ]


def test_every_phase_comes_in_the_one_order_there_is() -> None:
    plan = plan_of(
        running_spec(operators=["x"]), facts_of(surveyed(Checkpoint()), source_cluster=STOPPED)
    )
    assert names(plan) == ["halt", "copy", "compare", "publish", "submit", "confirm"]


# ---- bundles


def test_bundles_are_bounded_in_files_and_bytes_and_lose_nothing() -> None:
    small = [FileInfo(f"s{n:05}", 10) for n in range(3 * FILES_MAX + 1)]
    large = [FileInfo(f"l{n}", BYTES_MAX // 2 + 1) for n in range(5)] + [
        FileInfo("huge", 10 * BYTES_MAX)
    ]
    bundles = list(bundle_items(small + large))
    assert [file for bundle in bundles for file in bundle] == small + large
    assert all(len(bundle) <= FILES_MAX for bundle in bundles)
    assert all(len(bundle) == 1 or sum(f.size for f in bundle) <= BYTES_MAX for bundle in bundles)
    assert len(bundles) == 4 + 5, "the first large one still fits behind the last small one"


def test_many_small_files_become_few_steps() -> None:
    plan = plan_of(spec_of(), facts_of(surveyed(Checkpoint(batches=40, shards=16, keys=1))))
    copy = plan.phase("copy")
    assert copy is not None
    assert copy.files == 640
    assert len(copy.steps) == -(-640 // FILES_MAX)


# ---- merging: Algorithm 5


@pytest.mark.row("IS-4")
def test_merge_directories_are_fenced_and_then_moved_by_rename_in_their_order() -> None:
    merges = ("file:///here/north", "file:///here/south")
    spec = spec_of(merge_jobs=list(merges))
    source = surveyed(Checkpoint(), prefix="own")
    there = tuple(surveyed(Checkpoint(batches=n + 2), m, f"m{n}") for n, m in enumerate(merges))
    plan = plan_of(spec, facts_of(source, merges=there))
    assert not plan.refusals, refusals(plan)
    halt = plan.phases[0]
    assert halt.ordered
    assert [(type(s), getattr(s, "location", "")) for s in halt.steps] == [
        (FenceSource, SOURCE),
        (FenceSource, merges[0]),
        (MoveFiles, "file:///here"),
        (FenceSource, merges[1]),
        (MoveFiles, "file:///here"),
    ]
    first = next(step for step in halt.steps if isinstance(step, MoveFiles))
    assert ("north/m0/commits/1", "orders/m0/commits/1") in [
        (i.path, i.target_path) for i in first.items
    ]
    assert copied(plan, "publish")[-3:] == ["own/commits/2", "m0/commits/1", "m1/commits/2"]
    assert {p.split("/")[0] for p in copied(plan)} == {"own", "m0", "m1"}, (
        "after the rename all is in the source"
    )


def test_merging_two_things_of_one_name_is_refused_before_anything_moves() -> None:
    spec = spec_of(merge_jobs=["file:///here/north"])
    facts = facts_of(
        surveyed(Checkpoint(), prefix="a"),
        merges=(surveyed(Checkpoint(), "file:///here/north", "a"),),
    )
    plan = plan_of(spec, facts)
    assert "a is both in file:///here/orders and in file:///here/north" in refusals(plan)
    assert not plan.phases


def test_a_merge_where_renaming_is_not_free_is_refused() -> None:
    spec = spec_of(merge_jobs=["file:///here/north"])
    source = replace(surveyed(Checkpoint(), prefix="a"), traits={"renames": False})
    facts = replace(
        facts_of(source), source=source, merges=(surveyed(Checkpoint(), "file:///here/north", "b"),)
    )
    assert "cannot rename" in refusals(plan_of(spec, facts))


def test_an_empty_merge_directory_is_refused() -> None:
    spec = spec_of(merge_jobs=["file:///here/north"])
    assert "nothing to merge" in refusals(
        plan_of(
            spec,
            facts_of(surveyed(Checkpoint(), prefix="a"), merges=(empty("file:///here/north"),)),
        )
    )


@pytest.mark.parametrize(
    ("first", "second", "root"),
    [
        ("file:///a/b", "file:///a/c", "file:///a"),
        ("file:///a", "file:///b", "file:///"),
        ("file:///a/bc", "file:///a/b", "file:///a"),
        ("hdfs://nn/a/x", "hdfs://nn/b/y/z", "hdfs://nn"),
    ],
)
def test_the_deepest_place_above_both_is_found_by_whole_names(
    first: str, second: str, root: str
) -> None:
    assert layout.deepest_above((first, second)) == root


# ---- names


@pytest.mark.row("IS-7")
def test_a_workflow_carries_its_names_and_those_the_spec_adds() -> None:
    storage = MemoryDisk().open(SOURCE)
    Checkpoint().write(storage, "123_abc")
    put(storage, INDEX, encode_index({"Old": "123_abc"}))
    spec = spec_of(operators=["New (5)"])
    plan = plan_of(spec, facts_of(survey.survey(storage)))
    index = next(step for step in plan if isinstance(step, WriteFile))
    assert (index.target, index.path) == (TARGET, INDEX)
    profile = spec.uid_hash
    hashed = uid.directory_name("New (5)", profile.p, profile.m, profile.offset, profile.signed)
    assert decode_index(index.content) == {"Old": "123_abc", "New (5)": hashed}


def test_an_adopted_directory_that_is_not_there_is_refused() -> None:
    spec = spec_of(operators={"Union": "9123223_mytest"})
    plan = plan_of(spec, facts_of(surveyed(Checkpoint(), prefix="other")))
    assert "'Union' is mapped to 9123223_mytest, which is not in" in refusals(plan)


@pytest.mark.row("IS-8")
def test_two_operators_with_one_directory_are_refused_naming_both() -> None:
    spec = spec_of(operators=["New"])
    directory = uid.directory_name("New", 31, 1_000_000_009, -96, False)
    storage = MemoryDisk().open(SOURCE)
    Checkpoint().write(storage, directory)
    put(storage, INDEX, encode_index({"Old": directory}))
    assert "operators 'Old' and 'New' have the same directory" in refusals(
        plan_of(spec, facts_of(survey.survey(storage)))
    )


# ---- fork, in place, first start


def test_a_fork_gets_an_id_of_its_own_no_fence_and_leaves_its_source_alone() -> None:
    source = surveyed(Checkpoint())
    spec = spec_of(mode="fork")
    plan = plan_of(spec, facts_of(source))
    assert not fences(plan)
    assert names(plan) == ["copy", "compare", "publish"]
    written = next(step for step in plan if isinstance(step, WriteFile))
    identity = json.loads(written.content)["id"]
    assert written.path == "metadata"
    assert identity != QUERY
    again = next(step for step in plan_of(spec, facts_of(source)) if isinstance(step, WriteFile))
    assert json.loads(again.content)["id"] == identity, "the same fork has the same id"
    elsewhere = facts_of(source, empty("file:///there/other"))
    other = next(
        s
        for s in plan_of(spec_of(target="file:///there/other", mode="fork"), elsewhere)
        if isinstance(s, WriteFile)
    )
    assert json.loads(other.content)["id"] != identity
    assert all(getattr(step, "target", TARGET) == TARGET for step in plan)


def test_where_a_rename_is_sooner_nothing_of_a_fork_is_written_at_its_end() -> None:
    there = replace(empty(), traits={"renames_sooner": True})
    plan = plan_of(spec_of(mode="fork"), facts_of(surveyed(Checkpoint()), there))
    written = next(step for step in plan if isinstance(step, WriteFile))
    copy, published = plan.phase("copy"), plan.phase("publish")
    assert copy is not None and published is not None
    assert written in copy.steps and (written.path, json.loads(written.content)["id"] != QUERY) == (
        "metadata",
        True,
    )
    assert [type(step) for step in published.steps] == [CopyFiles, CopyFiles]
    assert all(isinstance(step, CopyFiles) and step.staged for step in published.steps)
    assert "metadata" not in {
        file.path for step in plan if isinstance(step, CopyFiles) for file in step.items
    }


def test_a_fork_never_stops_its_source() -> None:
    spec = running_spec(mode="fork")
    plans = plans_of(spec, facts_of(surveyed(Checkpoint()), source_cluster=RUNNING))
    assert [plan.purpose for plan in plans] == ["move"]
    assert not [step for plan in plans for step in plan if isinstance(step, StopJob)]
    assert plans[0].provisional, "its source may commit until it is carried out"


def test_a_fork_of_a_job_that_commits_meanwhile_is_not_stale() -> None:
    spec = spec_of(mode="fork")
    earlier, later = (plan_of(spec, facts_of(surveyed(Checkpoint(batches=n)))) for n in (3, 4))
    assert earlier.facts == later.facts


def test_a_job_that_stays_is_not_fenced_and_nothing_is_copied() -> None:
    plan = plan_of(
        running_spec(target=None), facts_of(surveyed(Checkpoint()), source_cluster=STOPPED)
    )
    assert names(plan) == ["submit", "confirm"]
    submit = next(step for step in plan if isinstance(step, SubmitJob))
    assert (submit.location, plan.source, plan.target) == (SOURCE, SOURCE, SOURCE)


@pytest.mark.row("IS-2")
def test_restart_false_moves_nothing_and_starts_the_job() -> None:
    spec = running_spec(spec_restart=False, operators=["Count"])
    plan = plan_of(spec, Facts(empty(SOURCE), empty(TARGET)))
    assert names(plan) == ["publish", "submit"], "a first start has no batch to wait for"
    assert not plan.refusals


def test_a_running_job_is_stopped_first_and_the_move_plan_is_provisional() -> None:
    halt, move = plans_of(running_spec(), facts_of(surveyed(Checkpoint()), source_cluster=RUNNING))
    assert (halt.purpose, names(halt)) == ("halt", ["halt"])
    (stop,) = halt
    assert isinstance(stop, StopJob)
    assert stop.restart == {"command": "back"}
    assert move.provisional and not halt.provisional
    assert halt.facts == move.facts


def test_the_plan_of_a_running_job_does_not_notice_its_commits_but_that_of_a_stopped_one_does() -> (
    None
):
    for cluster, same in ((RUNNING, True), (STOPPED, False)):
        plans = [
            plans_of(
                running_spec(), facts_of(surveyed(Checkpoint(batches=n)), source_cluster=cluster)
            )[-1]
            for n in (3, 4)
        ]
        assert (plans[0].facts == plans[1].facts) is same


def test_the_job_is_awaited_at_the_batch_after_the_cut_of_every_query() -> None:
    storage = MemoryDisk().open(SOURCE)
    Checkpoint(batches=4).write(storage, "a")
    Checkpoint(batches=2).write(storage, "b")
    plan = plan_of(running_spec(), facts_of(survey.survey(storage), source_cluster=STOPPED))
    awaited = next(step for step in plan if isinstance(step, AwaitProgress))
    assert awaited.commits == ("a/commits/4", "b/commits/2")
    assert awaited.idle == ("a/_stateshift/idle", "b/_stateshift/idle")


# ---- comparing


def compared(verify: str) -> tuple[set[tuple[str, int]], set[str]]:
    plan = plan_of(spec_of(verify=verify), facts_of(surveyed(Checkpoint(inputs=None))))
    steps = [step for step in plan if isinstance(step, CompareImages)]
    shards = {(shard.operator, shard.shard) for step in steps for shard in step.source_shards}
    return shards, {path for step in steps for path in step.paths}


def test_verify_entries_folds_every_shard_and_compares_the_rest_byte_for_byte() -> None:
    assert compared("entries") == ({("0", 0), ("0", 1)}, set())


def test_verify_digests_compares_every_copied_file() -> None:
    shards, paths = compared("digests")
    assert not shards
    assert paths == set(copied(plan_of(spec_of(), facts_of(surveyed(Checkpoint())))))


def test_verify_none_compares_nothing() -> None:
    assert compared("none") == (set(), set())


# ---- data that moves along


def with_data(copy: bool = True, there: tuple[FileInfo, ...] = (), **keys: object) -> Plan:
    source = surveyed(Checkpoint(inputs="file:///data/in%20put"))
    here = Survey(
        "file:///data/in put",
        None,
        "data",
        (FileInfo("f0.json", 3, 5.0), FileInfo(".f0.json.crc", 12, 5.0)),
    )
    target = Survey(
        "file:///new/in", None, "data" if there else "empty", there, traits={"keeps_times": True}
    )
    spec = spec_of(data=[{"source": "/data/in put", "target": "/new/in", "copy": copy}], **keys)
    return plan_of(spec, facts_of(source, data=((here, target),)))


def test_data_is_copied_with_its_times_and_without_hadoops_checksums() -> None:
    step = next(s for s in with_data() if isinstance(s, CopyFiles) and s.target == "file:///new/in")
    assert step.keep_times
    assert [item.path for item in step.items] == ["f0.json"]


def test_source_logs_are_rewritten_not_copied_where_their_data_moves() -> None:
    plan = with_data()
    rewritten = [step for step in plan if isinstance(step, TransformShard)]
    assert [step.outputs for step in rewritten] == [
        ("sources/0/0",),
        ("sources/0/1",),
        ("sources/0/2",),
    ]
    assert ["file:///data/in put", "file:///new/in"] in rewritten[0].options["mapping"]
    assert not [path for path in copied(plan) if path.startswith("sources/")]


def test_data_that_is_there_already_is_only_rewritten() -> None:
    plan = with_data(copy=False, there=(FileInfo("f0.json", 3),))
    assert not plan.refusals
    assert not [s for s in plan if isinstance(s, CopyFiles) and s.target == "file:///new/in"]
    assert [s for s in plan if isinstance(s, TransformShard)]


def test_data_said_to_be_there_and_not_there_is_refused() -> None:
    assert "nothing is at file:///new/in" in refusals(with_data(copy=False))


def test_a_place_for_data_that_is_not_empty_is_refused() -> None:
    assert "the place file:///new/in is not empty" in refusals(with_data(there=(FileInfo("z", 1),)))


def test_a_source_log_whose_data_stays_behind_is_refused_unless_it_is_waived() -> None:
    facts = facts_of(surveyed(Checkpoint(inputs="file:///data/in")))
    plan = plan_of(spec_of(), facts)
    assert "names 3 files under file:///data/in" in refusals(plan)
    assert '"waive": ["paths-stay"]' in (plan.refusals[0].hint or "")
    waived = plan_of(spec_of(waive=["paths-stay"]), facts)
    assert not waived.refusals
    assert "(waived: paths-stay)" in said(waived, "warn")
    assert "sources/0/2" in copied(waived)


def test_a_waiver_waives_only_what_it_names() -> None:
    facts = facts_of(surveyed(Checkpoint(inputs="file:///data/in")))
    assert plan_of(spec_of(waive=["older-target"]), facts).refusals


@pytest.mark.row("IS-18")
def test_an_older_target_is_refused_and_can_be_waived() -> None:
    old = ClusterFacts("old", "memory", "3.5.9", "absent")
    facts = facts_of(surveyed(Checkpoint()), source_cluster=STOPPED, target_cluster=old)
    assert "runs Spark 3.5.9, older than 4.3.0" in refusals(plan_of(running_spec(), facts))
    assert not plan_of(running_spec(waive=["older-target"]), facts).refusals


# ---- what stops a plan


def test_a_target_that_holds_an_image_is_refused_and_the_image_named() -> None:
    plan = plan_of(
        spec_of(), facts_of(surveyed(Checkpoint()), surveyed(Checkpoint(batches=9), TARGET))
    )
    assert "is not empty: it holds an image at epoch 8" in refusals(plan)


@pytest.mark.parametrize("age", [5.0, -3.0], ids=("just written", "by a clock ahead of ours"))
def test_a_source_that_was_written_a_moment_ago_is_doubted(age: float) -> None:
    source = surveyed(Checkpoint())
    fresh = replace(
        source, files=(*source.files, FileInfo("state/0/0/9.delta", 1, 1_000_000.0 - age))
    )
    assert "is the job stopped?" in said(plan_of(spec_of(), facts_of(fresh)), "warn")
    assert "is the job stopped?" not in said(plan_of(spec_of(), facts_of(source)), "warn")


@pytest.mark.parametrize(
    ("mode", "age", "level", "words"),
    [
        (
            "warm",
            3.0,
            "refuse",
            "knows no job over file:///here/orders that is named 'orders', and the newest file",
        ),
        ("warm", 900.0, "warn", "it is moved as one that was stopped before"),
        ("move", 3.0, "warn", "is the job stopped?"),
        ("move", 900.0, "warn", ""),
    ],
)
def test_a_job_that_its_cluster_does_not_know_is_doubted(
    mode: str, age: float, level: str, words: str
) -> None:
    source = surveyed(Checkpoint())
    source = replace(
        source, files=tuple(file._replace(modified=1_000_000.0 - age) for file in source.files)
    )
    facts = facts_of(source, source_cluster=STOPPED)
    (plan,) = plans_of(running_spec(mode=mode), facts)
    found = [
        f
        for f in plan.findings
        if "is the job stopped" in f.message or "stopped before" in f.message
    ]
    assert [one.level for one in found] == ([level] if words else [])
    assert all(words in one.message and one.hint for one in found)
    waived = plans_of(running_spec(mode=mode, waive=["job-stopped"]), facts)[0]
    assert not waived.refusals and waived.phases
    (behind,) = plans_of(running_spec(mode=mode), replace(facts, stopped=True))
    assert not [f for f in behind.findings if "stopped" in f.message], "by us, a moment ago"


def test_of_jobs_that_share_a_source_the_one_that_is_stopped_is_doubted() -> None:
    source = surveyed(Checkpoint())
    source = replace(
        source, files=tuple(file._replace(modified=999_999.0) for file in source.files)
    )
    jobs = [
        {
            "name": name,
            "checkpoint_location": SOURCE,
            "remote_location": f"file:///there/{name}",
            "operators": [name],
            "mode": "warm",
            "source_cluster": "ours",
            "target_cluster": "ours",
            "submit": {"command": "go"},
        }
        for name in ("first", "second")
    ]
    clusters = {"ours": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}}
    spec = parse_spec(
        json.dumps({"version": 1, "engine": "spark", "clusters": clusters, "jobs": jobs})
    )
    facts = facts_of(source, source_cluster=STOPPED)
    doubted = [bool(list(moves.of_stopping(Move(spec, job, facts)))) for job in spec.jobs]
    assert doubted == [True, False]


def test_several_refusals_are_all_told_at_once() -> None:
    files = Checkpoint().files()
    for path in ("offsets/1", "state/0/1/2.delta", "metadata"):
        del files[path]
    found = refusals(plan_of(spec_of(), facts_of(from_files(files))))
    for path in ("offsets/1", "state/0/1/2.delta", "metadata"):
        assert path in found


# ---- the fingerprint


def test_the_same_facts_give_the_same_plan_byte_for_byte() -> None:
    one, two = (
        plan_of(spec_of(), facts_of(surveyed(Checkpoint(batches=5, inputs=None)))) for _ in range(2)
    )
    assert json.dumps(encode_plan(one)) == json.dumps(encode_plan(two))
    assert decode_plan(encode_plan(one)) == one


def test_other_facts_give_another_fingerprint() -> None:
    checkpoints = (Checkpoint(), Checkpoint(batches=4), Checkpoint(keys=4))
    plans = [plan_of(spec_of(), facts_of(surveyed(checkpoint))) for checkpoint in checkpoints]
    assert all(a.fingerprint != b.fingerprint for a, b in pairwise(plans))


def test_a_sink_that_has_moved_on_makes_a_plan_stale() -> None:
    source = surveyed(Checkpoint())
    sinks = [
        SinkFacts("delta", "/table", True, True, read=True, logs={QUERY: SinkLog(last)})
        for last in (3, 4, None)
    ]
    unread = SinkFacts("delta", "/table", True, True, wrong="no answer")
    stale = {plan_of(spec_of(), replace(facts_of(source), sink=sink)).facts for sink in sinks}
    assert len(stale) == 3
    other = replace(sinks[0], logs={QUERY: SinkLog(3), "other": SinkLog(9)})
    assert plan_of(spec_of(), replace(facts_of(source), sink=other)).facts in stale
    without = plan_of(spec_of(), facts_of(source))
    assert plan_of(spec_of(), replace(facts_of(source), sink=unread)).facts == without.facts


def test_estimates_findings_and_the_time_of_day_are_outside_the_fingerprint() -> None:
    source = surveyed(Checkpoint())
    now = plan_of(spec_of(), facts_of(source))
    later = plan_of(spec_of(), replace(facts_of(source), at=2_000_000.0))
    told = replace(now, estimate=Estimate(9, 9, "guess"), findings=(Finding("note", "x"),))
    assert now.fingerprint == later.fingerprint == told.fingerprint


@pytest.mark.long
def test_the_fingerprint_does_not_depend_on_the_order_in_which_python_hashes() -> None:
    program = (
        "from tests.engines.spark.test_planner import *\n"
        "found = facts_of(surveyed(Checkpoint(batches=9, shards=5)))\n"
        "print(plan_of(spec_of(operators=['a','b','c']), found).fingerprint)\n"
        "print(with_data().fingerprint)"
    )
    root = Path(__file__).resolve().parents[3]
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(told) == 1

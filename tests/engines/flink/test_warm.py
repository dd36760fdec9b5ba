"""Jobs of Flink that are brought over while they run: on a disk and a cluster in memory, with
checkpoints that come and go in between, and kills at every effect. The real thing is in
tests/servers/test_flink_warm.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.cli.views import run_html as render_html
from stateshift.cli.views import run_text as render_run
from stateshift.cli.views.text import plain_text
from stateshift.clusters.protocol import Gone
from stateshift.documents.run import RunFacts
from stateshift.errors import ClusterError, PlanError, SpecError
from tests.contracts.faulty import Effects, Faulty, Killed, at
from tests.engines.flink import golden
from tests.support.checkpoints import put
from tests.support.living_flink import SAVEPOINTS, TARGET, LivingFlinkGround, warm_spec


@pytest.mark.row("T-1", "T-5", "IF-2")
def test_all_but_the_last_checkpoint_s_own_files_is_brought_before_the_job_ends(
    tmp_path: Path,
) -> None:
    ground = LivingFlinkGround(tmp_path)
    report = ground.warm()
    assert report.state == "finished"
    ground.arrived()
    names = [phase.name for phase in report.jobs[0].phases]
    assert names[:3] == ["round 1", "halt", "copy"]
    brought, copied = report.jobs[0].phases[0], report.jobs[0].phases[2]
    assert brought.files == 15 and 0 < copied.files < 12, "some shared files were new, and its own"
    assert ground.flink.savepoints and not ground.held(SAVEPOINTS)
    assert not migration.verify(ground.workdir(), ground.adapters).broken


def test_the_plan_says_what_there_is_to_bring(tmp_path: Path) -> None:
    ground = LivingFlinkGround(tmp_path)
    warm, halt, move = ground.propose(warm_spec()).plans
    assert [plan.purpose for plan in (warm, halt, move)] == ["warm", "halt", "move"]
    assert (warm.files, [step.kind for step in halt]) == (15, ["TakeCheckpoint"])
    assert move.provisional and move.epoch == 7 and not move.refusals
    assert any("since its last checkpoint" in finding.message for finding in move.findings)


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(30))
def test_whatever_checkpoints_come_and_go_meanwhile_the_last_one_arrives(
    tmp_path: Path, seed: int
) -> None:
    ground = LivingFlinkGround(tmp_path, seed, mood=0.02)
    assert ground.warm(rounds=3).state == "finished"
    ground.arrived()
    assert not migration.verify(ground.workdir(), ground.adapters).broken


@pytest.mark.parametrize("seed", range(10))
def test_taken_back_nothing_is_left_and_the_job_is_started_from_its_last_checkpoint(
    tmp_path: Path, seed: int
) -> None:
    ground = LivingFlinkGround(tmp_path, seed, mood=0.02)
    ground.warm(rounds=2)
    ground.rollback(discard_progress=True)
    assert ground.held(TARGET) == {}
    assert ground.flink.submissions[-1].location == ground.job.location
    assert ground.flink.submissions[-1].options == {"command": "back"}
    assert not ground.locks()


def test_a_run_killed_at_any_effect_ends_with_one_checkpoint_and_one_job(
    tmp_path: Path, moments: Callable[[int], range]
) -> None:
    unharmed, counted = LivingFlinkGround(tmp_path / "unharmed"), Effects()
    unharmed.wrap = lambda storage: Faulty(storage, counted)
    unharmed.warm()
    assert len(counted.seen) > 30
    for number in moments(len(counted.seen)):
        ground = LivingFlinkGround(tmp_path / str(number))
        effects = Effects(at(number, Killed))
        ground.wrap = lambda storage, effects=effects: Faulty(storage, effects)  # type: ignore[misc]
        with pytest.raises(Killed):
            ground.warm()
        ground.wrap = lambda storage: storage
        ground.resume()
        ground.arrived()
        assert len(ground.flink.savepoints) == 1, f"killed at effect {number}"


def test_a_standby_can_be_started_from_at_any_time_and_follows_the_job(tmp_path: Path) -> None:
    ground, seen = LivingFlinkGround(tmp_path), list[int]()

    def sleep() -> None:
        if "_metadata" not in ground.held(TARGET):
            return
        found = golden.looked_at(ground.disk, TARGET)[1].images[0]
        assert found.epoch is not None and not [f for f in found.findings if f.level == "refuse"]
        if found.epoch not in seen:
            seen.append(found.epoch)
            ground.flink.latest = ground.job.complete()
        if len(seen) > 3:
            ground.workdir().steering.ask_cutover(False)

    ground.clock.on_sleep = sleep
    assert ground.warm(cutover="never").state == "finished"
    assert seen == sorted(seen) and len(seen) > 3
    ground.arrived()


def test_of_a_checkpoint_that_goes_while_it_is_looked_at_nothing_is_brought(tmp_path: Path) -> None:
    ground = LivingFlinkGround(tmp_path)
    shared = ground.disk.open(f"{ground.job.folder}/shared")
    for file in list(shared.list())[:3]:
        shared.remove(file.path)
    warm, _, move = ground.propose(warm_spec()).plans
    assert warm.files == 0 and any("is missing" in finding.message for finding in move.refusals)


def test_a_checkpoint_that_is_gone_by_the_time_it_is_looked_at_is_asked_for_again(
    tmp_path: Path,
) -> None:
    ground = LivingFlinkGround(tmp_path)
    answers = [ground.job.location, ground.job.complete()]
    ground.flink.latest_checkpoint = lambda job_id: (
        answers.pop(0) if len(answers) > 1 else answers[0]
    )  # type: ignore[method-assign]
    warm, _, move = ground.propose(warm_spec()).plans
    assert warm.files == 15 and move.epoch == ground.job.number == 8


@pytest.mark.parametrize("listed", [True, False])
def test_a_checkpoint_that_is_completed_while_the_job_is_cancelled_is_its_image(
    tmp_path: Path, listed: bool
) -> None:
    """The cluster's list of them is some seconds old. One that was written and never listed was
    not completed.
    """
    ground = LivingFlinkGround(tmp_path)

    def complete() -> str:
        first = ground.job.complete()
        if listed:
            answers.extend([first, first, ground.job.complete()])
        else:
            put(
                ground.disk.open(ground.job.folder),
                f"chk-{ground.job.number + 2}/_metadata",
                b"half",
            )
            answers.append(first)
        ground.job.running = False
        return first

    answers = list[str]()
    ground.flink.complete = complete
    usual, ground.flink.latest_checkpoint = (
        ground.flink.latest_checkpoint,
        lambda job_id: (  # type: ignore[method-assign]
            usual(job_id) if not answers else answers.pop(0) if len(answers) > 1 else answers[0]
        ),
    )
    assert ground.warm().state == "finished"
    ground.arrived()


@pytest.mark.parametrize("told", ["before it went", "never"])
@pytest.mark.parametrize("later", ["none", "whole", "half"])
def test_a_cluster_that_goes_with_its_job_leaves_its_last_checkpoint(
    tmp_path: Path, told: str, later: str
) -> None:
    """It lies beside the one that was known before, and what is no whole one was not completed."""
    ground = LivingFlinkGround(tmp_path)

    def gone() -> Gone:
        ground.flink.jobs.clear()
        ground.flink.latest_checkpoint = lambda job_id: lost()  # type: ignore[method-assign]
        return Gone("its cluster is gone", 0.0, known, cluster="old")

    def lost() -> str:
        raise Gone("its cluster is gone", 0.0, cluster="old")

    def complete() -> str:
        nonlocal known
        known = ground.job.complete()
        if later == "whole":
            ground.job.complete()
        elif later == "half":
            place = ground.disk.open(ground.job.folder)
            put(
                place,
                f"chk-{ground.job.number + 1}/_metadata",
                place.read(f"chk-{ground.job.number}/_metadata")[:900],
            )
        ground.job.running = False
        error = gone()
        if told == "never":
            raise error
        return known

    known = ""
    ground.flink.checkpoint = lambda request: complete()  # type: ignore[method-assign]
    assert ground.warm().state == "finished"
    ground.arrived()


def not_confirmed(ground: LivingFlinkGround) -> None:
    """A job that runs on the target, and that a run has waited for in vain."""
    ground.flink.epoch = 0
    with pytest.raises(ClusterError, match="has completed no checkpoint"):
        ground.warm()


def test_a_checkpoint_that_the_job_has_completed_since_is_not_thrown_away(tmp_path: Path) -> None:
    ground = LivingFlinkGround(tmp_path)
    not_confirmed(ground)
    ground.flink.epoch = 99
    with pytest.raises(PlanError, match="would throw them away"):
        ground.rollback()
    assert [job.location for job in ground.flink.jobs if job.status.state.alive] == [TARGET]
    assert ground.resume().state == "finished"


def test_nor_one_that_it_completes_while_a_rollback_is_interrupted(tmp_path: Path) -> None:
    ground = LivingFlinkGround(tmp_path)
    not_confirmed(ground)
    stop = ground.flink.stop

    def silent(request: Any) -> Any:
        raise ClusterError("no answer", cluster="old", job=request.job)

    ground.flink.stop = silent  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="no answer"):
        ground.rollback()
    ground.flink.stop = stop  # type: ignore[method-assign]
    ground.flink.epoch = 99
    with pytest.raises(PlanError, match="has completed a checkpoint on the target since"):
        ground.resume()
    assert migration.status(ground.workdir()).state == "failed"
    assert [job.location for job in ground.flink.jobs if job.status.state.alive] == [TARGET]
    assert ground.resume().state == "finished"
    assert len(ground.flink.submissions) == 1
    assert ground.rollback(discard_progress=True).state == "rolled-back"


def test_a_lost_answer_is_asked_for_again_and_the_same_checkpoint_counts(tmp_path: Path) -> None:
    ground = LivingFlinkGround(tmp_path)
    ground.flink.lose_savepoints()
    with pytest.raises(ClusterError, match="no answer"):
        ground.warm()
    assert ground.resume().state == "finished"
    ground.arrived()


def test_a_job_whose_checkpoints_go_with_it_is_not_ended(tmp_path: Path) -> None:
    ground = LivingFlinkGround(tmp_path)
    ground.flink.complete = None
    with pytest.raises(ClusterError, match="deleted when it is cancelled"):
        ground.warm()
    assert ground.flink.running("orders-id")[0].state == "running"
    ground.rollback()
    assert ground.held(TARGET) == {} and ground.flink.submissions == []


@pytest.mark.parametrize(
    ("image", "words", "way"),
    [
        ("flink-2.3.0/count-checkpoint-rocksdb", "are written again each time", "incremental"),
        ("flink-2.3.0/kinds-checkpoint-hashmap", "are written again each time", "incremental"),
        (
            "flink-2.3.0/count-merging-incremental",
            "are parts of files that still grow",
            "file-merging",
        ),
    ],
)
def test_checkpoints_of_which_nothing_lasts_are_refused_with_the_way_out(
    tmp_path: Path, image: str, words: str, way: str
) -> None:
    ground = LivingFlinkGround(tmp_path, image=image)
    with pytest.raises(PlanError, match=words) as refused:
        ground.warm()
    assert way in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"job_ids": ["a" * 32, "b" * 32]}, "2 jobs at once"),
        ({"cancel_job": True}, "'cancel_job' with a warm move"),
        ({"stop": {"drain": True}}, "'drain' with a warm move"),
        ({"submit": {"command": "go", "prepare": True}}, "a job of Flink that is prepared"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_spec(more: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        warm_spec(**more)


def test_what_was_taken_back_is_followed_until_somebody_says_so(tmp_path: Path) -> None:
    class Waits(Exception):
        pass

    def sleep() -> None:
        if ground.clock.time > until:
            raise Waits

    ground = LivingFlinkGround(tmp_path)
    until = ground.clock.time + 10**6
    ground.clock.on_sleep = sleep
    ground.flink.fail(1)
    ground.workdir().steering.ask_cutover(True)
    with pytest.raises(ClusterError, match="refused"):
        ground.warm(on_failure="finish", cutover="manual")
    [again] = [one for one in ground.flink.jobs if one.status.state.alive]
    ground.job.running, until = True, ground.clock.time + 100
    with pytest.raises(Waits):
        ground.resume()
    assert [one for one in ground.flink.jobs if one.status.state.alive] == [again]
    until += 10**6
    ground.workdir().steering.ask_cutover(True)
    assert ground.resume().state == "finished"
    assert [one.location for one in ground.flink.jobs if one.status.state.alive] == [TARGET]


def test_what_was_taken_back_moves_with_what_the_old_job_has_done_since(tmp_path: Path) -> None:
    ground = LivingFlinkGround(tmp_path)
    ground.flink.fail(1)
    with pytest.raises(ClusterError, match="refused"):
        ground.warm(on_failure="finish")
    [again] = [one for one in ground.flink.jobs if one.status.state.alive]
    assert again.location == ground.job.location
    before = ground.job.number
    ground.flink.submissions.clear()
    ground.job.running = True
    ground.flink.latest = ground.job.complete()
    assert ground.resume().state == "finished"
    assert ground.job.number > before
    assert [one.location for one in ground.flink.jobs if one.status.state.alive] == [TARGET]
    ground.arrived()


def test_a_warm_report_counts_all_that_was_compared_whole_and_says_what_came_after_the_last_look(
    tmp_path: Path,
) -> None:
    ground = LivingFlinkGround(tmp_path)
    report = ground.warm()
    (job,) = report.jobs
    copied = sum(phase.files for phase in job.phases if phase.name == "copy")
    assert copied and job.rounds
    said = f"copied with the job stopped: {copied} file"
    assert said in plain_text(
        render_run.report(RunFacts(report, "run"))
    ) and said in render_html.page(RunFacts(report, "run"))
    written_last = sum(
        phase.files for phase in job.phases if phase.name in ("transform", "publish")
    )
    assert job.files_compared == job.files - written_last, "by rounds, or with the job stopped"
    assert job.entries is None and f"{job.files_compared} files compared whole" in render_html.page(
        RunFacts(report, "run")
    )

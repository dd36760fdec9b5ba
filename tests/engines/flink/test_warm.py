"""Jobs of Flink that are brought over while they run: on a disk and a cluster in memory, with
checkpoints that come and go in between, and kills at every effect. The real thing is in
tests/servers/test_flink_warm.py.
"""

from __future__ import annotations

import json
import random
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
from stateshift.report import Report
from stateshift.specification import Spec, parse_spec
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_flink import MemoryFlink
from tests.contracts.faulty import Effects, Faulty, Killed, at
from tests.engines.flink import golden
from tests.support.checkpoints import put
from tests.support.ground import Ground
from tests.support.living_flink import LivingFlinkJob

TARGET = "file:///there/orders"
CLUSTERS = {"old": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}}
SAVEPOINTS = "file:///taken"


def spec_of(on_failure: str = "stop", **more: Any) -> Spec:
    job = {
        "name": "orders",
        "job_ids": ["orders-id"],
        "source_cluster": "old",
        "target_cluster": "old",
        "mode": "warm",
        "target_directory": SAVEPOINTS,
        "new_savepoint_path": TARGET,
        "submit": {"command": "go"},
        "source_submit": {"command": "back"},
        **more,
    }
    beside = {"clusters": CLUSTERS, "on_failure": on_failure}
    return parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": [job], **beside}))


class Stage:
    """A job that completes a checkpoint now and then while somebody looks; what it is taken for in
    the end is held against its last one.
    """

    def __init__(
        self, folder: Path, seed: int = 1, mood: float = 0.0, image: str | None = None
    ) -> None:
        self.ground, self.random, self.mood = Ground(folder), random.Random(seed), mood
        self.job = LivingFlinkJob(self.ground.disk, self.random, *([image] if image else []))
        self.flink = MemoryFlink(lambda location: None)
        self.flink.run("orders", "orders-id")
        self.flink.latest, self.flink.complete = self.job.location, self._complete
        self.ground.cluster = self.flink
        self.ground.clock.time += 600
        self.ground.wrap = lambda storage: Watched(storage, self)  # type: ignore[assignment,return-value]

    def _complete(self) -> str:
        self.flink.latest = self.job.complete()
        self.job.running = False
        return self.job.location

    def happens(self) -> None:
        if self.job.running and self.random.random() < self.mood:
            self.flink.latest = self.job.complete()

    def apply(self, **keys: Any) -> Report:
        return self.ground.apply(spec_of(**keys))

    @property
    def workdir(self) -> Any:
        return self.ground.workdir()

    def arrived(self) -> None:
        """What is there is the job's last checkpoint, operator for operator and file for file,
        and no more.
        """
        wanted = golden.looked_at(self.ground.disk, self.job.location)[1]
        found = golden.looked_at(self.ground.disk, TARGET)[1]
        assert found.images[0].epoch == wanted.images[0].epoch == self.job.number
        assert not [f for f in found.images[0].findings if f.level == "refuse"]
        assert content(self.ground, wanted) == content(self.ground, found)
        named = {path for path in found.images[0].needed if path != "_metadata"}
        assert {path for path in self.ground.held(TARGET) if path != "_metadata"} == named
        assert [submission.location for submission in self.flink.submissions] == [TARGET]


def content(ground: Ground, survey: Any) -> list[bytes]:
    storage = ground.disk.open(survey.location)
    needed = survey.images[0].needed
    return sorted(storage.read(path) for path in needed if not path.endswith("_metadata"))


class Watched:
    """A storage beside which the job goes on."""

    def __init__(self, storage: Storage, stage: Stage) -> None:
        self._storage, self._stage = storage, stage

    def __getattr__(self, name: str) -> Any:
        if name in ("list", "stat", "chunks", "write"):
            self._stage.happens()
        return getattr(self._storage, name)


@pytest.mark.row("T-1", "T-5", "IF-2")
def test_all_but_the_last_checkpoint_s_own_files_is_brought_before_the_job_ends(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    report = stage.apply()
    assert report.state == "finished"
    stage.arrived()
    names = [phase.name for phase in report.jobs[0].phases]
    assert names[:3] == ["round 1", "halt", "copy"]
    brought, copied = report.jobs[0].phases[0], report.jobs[0].phases[2]
    assert brought.files == 15 and 0 < copied.files < 12, "some shared files were new, and its own"
    assert stage.flink.savepoints and not stage.ground.held(SAVEPOINTS)
    assert not migration.verify(stage.workdir, stage.ground.adapters).broken


def test_the_plan_says_what_there_is_to_bring(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    warm, halt, move = stage.ground.propose(spec_of()).plans
    assert [plan.purpose for plan in (warm, halt, move)] == ["warm", "halt", "move"]
    assert (warm.files, [step.kind for step in halt]) == (15, ["TakeCheckpoint"])
    assert move.provisional and move.epoch == 7 and not move.refusals
    assert any("since its last checkpoint" in finding.message for finding in move.findings)


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(30))
def test_whatever_checkpoints_come_and_go_meanwhile_the_last_one_arrives(
    tmp_path: Path, seed: int
) -> None:
    stage = Stage(tmp_path, seed, mood=0.02)
    assert stage.apply(rounds=3).state == "finished"
    stage.arrived()
    assert not migration.verify(stage.workdir, stage.ground.adapters).broken


@pytest.mark.parametrize("seed", range(10))
def test_taken_back_nothing_is_left_and_the_job_is_started_from_its_last_checkpoint(
    tmp_path: Path, seed: int
) -> None:
    stage = Stage(tmp_path, seed, mood=0.02)
    stage.apply(rounds=2)
    stage.ground.rollback(discard_progress=True)
    assert stage.ground.held(TARGET) == {}
    assert stage.flink.submissions[-1].location == stage.job.location
    assert stage.flink.submissions[-1].options == {"command": "back"}
    assert not stage.ground.locks()


def test_a_run_killed_at_any_effect_ends_with_one_checkpoint_and_one_job(
    tmp_path: Path, moments: Callable[[int], range]
) -> None:
    unharmed, counted = Stage(tmp_path / "unharmed"), Effects()
    unharmed.ground.wrap = lambda storage: Faulty(storage, counted)
    unharmed.apply()
    assert len(counted.seen) > 30
    for number in moments(len(counted.seen)):
        stage = Stage(tmp_path / str(number))
        effects = Effects(at(number, Killed))
        stage.ground.wrap = lambda storage, effects=effects: Faulty(storage, effects)  # type: ignore[misc]
        with pytest.raises(Killed):
            stage.apply()
        stage.ground.wrap = lambda storage: storage
        stage.ground.resume()
        stage.arrived()
        assert len(stage.flink.savepoints) == 1, f"killed at effect {number}"


def test_a_standby_can_be_started_from_at_any_time_and_follows_the_job(tmp_path: Path) -> None:
    stage, seen = Stage(tmp_path), list[int]()

    def sleep(seconds: float) -> None:
        stage.ground.clock.time += seconds
        if "_metadata" not in stage.ground.held(TARGET):
            return
        found = golden.looked_at(stage.ground.disk, TARGET)[1].images[0]
        assert found.epoch is not None and not [f for f in found.findings if f.level == "refuse"]
        if found.epoch not in seen:
            seen.append(found.epoch)
            stage.flink.latest = stage.job.complete()
        if len(seen) > 3:
            stage.workdir.steering.ask_cutover(False)

    stage.ground.clock.sleep = sleep  # type: ignore[method-assign]
    assert stage.apply(cutover="never").state == "finished"
    assert seen == sorted(seen) and len(seen) > 3
    stage.arrived()


def test_of_a_checkpoint_that_goes_while_it_is_looked_at_nothing_is_brought(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    shared = stage.ground.disk.open(f"{stage.job.folder}/shared")
    for file in list(shared.list())[:3]:
        shared.remove(file.path)
    warm, _, move = stage.ground.propose(spec_of()).plans
    assert warm.files == 0 and any("is missing" in finding.message for finding in move.refusals)


def test_a_checkpoint_that_is_gone_by_the_time_it_is_looked_at_is_asked_for_again(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    answers = [stage.job.location, stage.job.complete()]
    stage.flink.latest_checkpoint = lambda job_id: (
        answers.pop(0) if len(answers) > 1 else answers[0]
    )  # type: ignore[method-assign]
    warm, _, move = stage.ground.propose(spec_of()).plans
    assert warm.files == 15 and move.epoch == stage.job.number == 8


@pytest.mark.parametrize("listed", [True, False])
def test_a_checkpoint_that_is_completed_while_the_job_is_cancelled_is_its_image(
    tmp_path: Path, listed: bool
) -> None:
    """The cluster's list of them is some seconds old. One that was written and never listed was
    not completed.
    """
    stage = Stage(tmp_path)

    def complete() -> str:
        first = stage.job.complete()
        if listed:
            answers.extend([first, first, stage.job.complete()])
        else:
            put(
                stage.ground.disk.open(stage.job.folder),
                f"chk-{stage.job.number + 2}/_metadata",
                b"half",
            )
            answers.append(first)
        stage.job.running = False
        return first

    answers = list[str]()
    stage.flink.complete = complete
    usual, stage.flink.latest_checkpoint = (
        stage.flink.latest_checkpoint,
        lambda job_id: (  # type: ignore[method-assign]
            usual(job_id) if not answers else answers.pop(0) if len(answers) > 1 else answers[0]
        ),
    )
    assert stage.apply().state == "finished"
    stage.arrived()


@pytest.mark.parametrize("told", ["before it went", "never"])
@pytest.mark.parametrize("later", ["none", "whole", "half"])
def test_a_cluster_that_goes_with_its_job_leaves_its_last_checkpoint(
    tmp_path: Path, told: str, later: str
) -> None:
    """It lies beside the one that was known before, and what is no whole one was not completed."""
    stage = Stage(tmp_path)

    def gone() -> Gone:
        stage.flink.jobs.clear()
        stage.flink.latest_checkpoint = lambda job_id: lost()  # type: ignore[method-assign]
        return Gone("its cluster is gone", 0.0, known, cluster="old")

    def lost() -> str:
        raise Gone("its cluster is gone", 0.0, cluster="old")

    def complete() -> str:
        nonlocal known
        known = stage.job.complete()
        if later == "whole":
            stage.job.complete()
        elif later == "half":
            place = stage.ground.disk.open(stage.job.folder)
            put(
                place,
                f"chk-{stage.job.number + 1}/_metadata",
                place.read(f"chk-{stage.job.number}/_metadata")[:900],
            )
        stage.job.running = False
        error = gone()
        if told == "never":
            raise error
        return known

    known = ""
    stage.flink.checkpoint = lambda request: complete()  # type: ignore[method-assign]
    assert stage.apply().state == "finished"
    stage.arrived()


def not_confirmed(stage: Stage) -> None:
    """A job that runs on the target, and that a run has waited for in vain."""
    stage.flink.epoch = 0
    with pytest.raises(ClusterError, match="has completed no checkpoint"):
        stage.apply()


def test_a_checkpoint_that_the_job_has_completed_since_is_not_thrown_away(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    not_confirmed(stage)
    stage.flink.epoch = 99
    with pytest.raises(PlanError, match="would throw them away"):
        stage.ground.rollback()
    assert [job.location for job in stage.flink.jobs if job.status.state.alive] == [TARGET]
    assert stage.ground.resume().state == "finished"


def test_nor_one_that_it_completes_while_a_rollback_is_interrupted(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    not_confirmed(stage)
    stop = stage.flink.stop

    def silent(request: Any) -> Any:
        raise ClusterError("no answer", cluster="old", job=request.job)

    stage.flink.stop = silent  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="no answer"):
        stage.ground.rollback()
    stage.flink.stop = stop  # type: ignore[method-assign]
    stage.flink.epoch = 99
    with pytest.raises(PlanError, match="has completed a checkpoint on the target since"):
        stage.ground.resume()
    assert migration.status(stage.workdir).state == "failed"
    assert [job.location for job in stage.flink.jobs if job.status.state.alive] == [TARGET]
    assert stage.ground.resume().state == "finished"
    assert len(stage.flink.submissions) == 1
    assert stage.ground.rollback(discard_progress=True).state == "rolled-back"


def test_a_lost_answer_is_asked_for_again_and_the_same_checkpoint_counts(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.flink.lose_savepoints()
    with pytest.raises(ClusterError, match="no answer"):
        stage.apply()
    assert stage.ground.resume().state == "finished"
    stage.arrived()


def test_a_job_whose_checkpoints_go_with_it_is_not_ended(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.flink.complete = None
    with pytest.raises(ClusterError, match="deleted when it is cancelled"):
        stage.apply()
    assert stage.flink.running("orders-id")[0].state == "running"
    stage.ground.rollback()
    assert stage.ground.held(TARGET) == {} and stage.flink.submissions == []


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
    stage = Stage(tmp_path, image=image)
    with pytest.raises(PlanError, match=words) as refused:
        stage.apply()
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
        spec_of(**more)


def test_what_was_taken_back_is_followed_until_somebody_says_so(tmp_path: Path) -> None:
    class Waits(Exception):
        pass

    def sleep(seconds: float) -> None:
        stage.ground.clock.time += seconds
        if stage.ground.clock.time > until:
            raise Waits

    stage = Stage(tmp_path)
    until = stage.ground.clock.time + 10**6
    stage.ground.clock.sleep = sleep  # type: ignore[method-assign]
    stage.flink.fail(1)
    stage.ground.workdir().steering.ask_cutover(True)
    with pytest.raises(ClusterError, match="refused"):
        stage.apply(on_failure="finish", cutover="manual")
    [again] = [one for one in stage.flink.jobs if one.status.state.alive]
    stage.job.running, until = True, stage.ground.clock.time + 100
    with pytest.raises(Waits):
        stage.ground.resume()
    assert [one for one in stage.flink.jobs if one.status.state.alive] == [again]
    until += 10**6
    stage.ground.workdir().steering.ask_cutover(True)
    assert stage.ground.resume().state == "finished"
    assert [one.location for one in stage.flink.jobs if one.status.state.alive] == [TARGET]


def test_what_was_taken_back_moves_with_what_the_old_job_has_done_since(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.flink.fail(1)
    with pytest.raises(ClusterError, match="refused"):
        stage.apply(on_failure="finish")
    [again] = [one for one in stage.flink.jobs if one.status.state.alive]
    assert again.location == stage.job.location
    before = stage.job.number
    stage.flink.submissions.clear()
    stage.job.running = True
    stage.flink.latest = stage.job.complete()
    assert stage.ground.resume().state == "finished"
    assert stage.job.number > before
    assert [one.location for one in stage.flink.jobs if one.status.state.alive] == [TARGET]
    stage.arrived()


def test_a_warm_report_counts_all_that_was_compared_whole_and_says_what_came_after_the_last_look(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    report = stage.apply()
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

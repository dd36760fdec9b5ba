"""StopJob, FenceSource, SubmitJob, AwaitProgress: they look before they act; a second attempt
knows the first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest

from stateshift.clusters.protocol import JobState, JobStatus, Silent, StopRequest
from stateshift.errors import AlreadyThere, ClusterError, Interrupted, StalePlan, StorageError
from stateshift.formats import marks
from stateshift.formats.marks import encode_idle, encode_stop, fence_text
from stateshift.step import AwaitProgress, FenceSource, ReadyFence, StopJob, SubmitJob
from stateshift.step.marks import tag_of
from stateshift.testing.memory_cluster import MemoryCluster, MemoryJob
from stateshift.testing.memory_flink import MemoryFlink
from stateshift.testing.memory_storage import MemoryStorage
from stateshift.world import World
from tests.support.checkpoints import put
from tests.support.steps import SOURCE, TARGET, Stage, StepClock

STOP = StopJob("halt/stop", "ours", "orders", SOURCE, restart={"application": "job.py"})
FENCE = FenceSource("halt/fence", SOURCE, ("offsets/2", "commits/2"))
SUBMIT = SubmitJob(
    "submit/job", "ours", "orders", TARGET, None, {"application": "job.py"}, {"A": "1"}
)
OTHER = fence_text("the-other-run").encode()
COMMITS, IDLES = ("a/commits/2", "b/commits/5"), ("a/idle", "b/idle")
AWAIT = AwaitProgress("confirm", "ours", "orders", TARGET, COMMITS, IDLES, 1, 10.0)


@pytest.fixture
def stage() -> Stage:
    return Stage()


IMAGE = {"metadata": b"what the job is started from"}


@pytest.fixture
def image(stage: Stage) -> None:
    put(stage.source, "metadata", IMAGE["metadata"])


def tag(stage: Stage) -> str:
    return tag_of(stage.world, "orders")


def restarts(stage: Stage) -> list[str]:
    return [
        submission.tag for submission in stage.cluster.submissions if submission.location == SOURCE
    ]


# ---- StopJob


def test_a_job_is_not_started_again_over_nothing(stage: Stage) -> None:
    """It would begin anew, and write everything again."""
    stage.cluster.run("orders", SOURCE)
    evidence = STOP.run(stage.world)
    put(stage.source, "_stateshift/idle", b"ours")
    with pytest.raises(ClusterError, match="nothing is at memory://m/source any more"):
        STOP.undo(stage.world, evidence)
    assert restarts(stage) == []


def test_a_running_job_is_stopped_and_what_it_was_is_told(stage: Stage) -> None:
    stage.cluster.run("orders", SOURCE)
    evidence = STOP.run(stage.world)
    assert (evidence.state_before, evidence.state) == ("running", "finished")
    assert STOP.holds(stage.world, evidence) == []
    assert STOP.run(stage.world).state_before == "finished", "stopping it again changes nothing"
    assert len(stage.cluster.stops) == 1


def test_a_job_that_runs_again_breaks_the_evidence(stage: Stage) -> None:
    evidence = STOP.run(stage.world)
    stage.cluster.run("orders", SOURCE)
    assert [d.found for d in STOP.holds(stage.world, evidence)] == ["running"]


class Stubborn(MemoryCluster):
    def stop(self, request: StopRequest) -> JobStatus:
        return self.find_source(request)


def test_a_job_that_does_not_stop_is_an_error() -> None:
    stage = Stage(cluster=Stubborn())
    stage.cluster.run("orders", SOURCE)
    with pytest.raises(ClusterError, match="orders is still running after it was asked to stop"):
        STOP.run(stage.world)


@pytest.mark.usefixtures("image")
def test_taking_a_stop_back_starts_the_job_once(stage: Stage) -> None:
    stage.cluster.run("orders", SOURCE)
    evidence = STOP.run(stage.world)
    for _ in range(2):
        assert STOP.undo(stage.world, evidence) == []
    assert restarts(stage) == [f"{tag_of(stage.world, SOURCE)}.restart"]


def test_a_job_that_did_not_run_is_not_started(stage: Stage) -> None:
    assert STOP.undo(stage.world, STOP.run(stage.world)) == []
    assert restarts(stage) == []


@pytest.mark.usefixtures("image")
def test_a_job_that_an_attempt_stopped_which_was_cut_short_is_started_again(stage: Stage) -> None:
    """Killed between the stop and its record: the second attempt finds it stopped."""
    stage.cluster.run("orders", SOURCE)
    STOP.run(stage.world)
    evidence = replace(STOP.run(stage.world), repeated=True)  # as the executor marks it
    assert evidence.state_before == "finished"
    assert STOP.undo(stage.world, evidence) == []
    assert len(restarts(stage)) == 1


@pytest.mark.usefixtures("image")
def test_a_job_whose_stop_was_cut_short_is_started_again(stage: Stage) -> None:
    stage.cluster.run("orders", SOURCE)
    STOP.run(stage.world)
    assert STOP.undo(stage.world, None) == []
    assert len(restarts(stage)) == 1


def cut_short_while_it_stops(stage: Stage, until: float = 1e12) -> None:
    """The marker is up, as an attempt leaves it that is killed meanwhile."""
    put(stage.source, marks.STOP, encode_stop("orders", None, until))


@pytest.mark.usefixtures("image")
def test_a_job_that_is_being_stopped_when_that_is_taken_back_is_stopped_and_started_again(
    stage: Stage,
) -> None:
    """It may have read the marker already: else it would end once everything is taken back."""
    stage.cluster.run("orders", SOURCE)
    cut_short_while_it_stops(stage)
    assert STOP.undo(stage.world, None) == []
    assert (len(stage.cluster.stops), len(restarts(stage))) == (1, 1)
    assert stage.disk.snapshot(SOURCE) == IMAGE


def test_without_a_way_to_start_it_a_job_that_is_being_stopped_is_named(stage: Stage) -> None:
    stage.cluster.run("orders", SOURCE)
    cut_short_while_it_stops(stage)
    (left,) = replace(STOP, restart=None).undo(stage.world, None)
    assert left == f"orders was being asked to stop: if it ends, start it again from {SOURCE}"
    assert stage.cluster.stops == [] and stage.disk.snapshot(SOURCE) == {}


def test_a_job_that_no_marker_stops_any_more_runs_on(stage: Stage) -> None:
    stage.cluster.run("orders", SOURCE)
    cut_short_while_it_stops(stage, until=1.0)
    assert STOP.undo(stage.world, None) == []
    assert stage.cluster.stops == [] and restarts(stage) == []


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize("takes_back", [False, True])
def test_the_marker_of_a_stop_that_was_cut_short_does_not_stop_the_job_that_is_started_next(
    stage: Stage, takes_back: bool
) -> None:
    stage.cluster.run("orders", SOURCE)
    STOP.run(stage.world)
    cut_short_while_it_stops(stage)
    put(stage.source, marks.STOPPING, encode_stop("orders", None, 1e12))
    if takes_back:
        replace(STOP, restart=None).undo(stage.world, None)
    else:
        STOP.run(stage.world)
    assert stage.disk.snapshot(SOURCE) == IMAGE


def test_a_marker_that_a_person_has_made_stays(stage: Stage) -> None:
    put(stage.source, marks.STOP, b"")
    STOP.run(stage.world)
    assert list(stage.disk.snapshot(SOURCE)) == [marks.STOP]


class Forgetful(MemoryCluster):
    """A cluster that cannot tell what runs."""

    def find_source(self, request: StopRequest) -> JobStatus:
        return JobStatus(JobState.UNKNOWN)


def test_a_job_that_may_still_run_is_not_started_beside_itself() -> None:
    stage = Stage(cluster=Forgetful())
    (told,) = STOP.undo(stage.world, None)
    assert "may have been stopped or not" in told
    assert restarts(stage) == []


@pytest.mark.usefixtures("image")
def test_a_job_stopped_for_the_second_time_is_started_for_the_second_time(stage: Stage) -> None:
    """The halt was taken back once (the plan was stale), and the run was resumed and taken back."""
    stage.cluster.run("orders", SOURCE)
    for _ in range(3):
        assert STOP.undo(stage.world, STOP.run(stage.world)) == []
        assert stage.cluster.find_source(STOP.request).state is JobState.RUNNING
    first = f"{tag_of(stage.world, SOURCE)}.restart"
    assert restarts(stage) == [first, f"{first}.2", f"{first}.3"]
    assert set(stage.cluster.started.values()) == {1}


@pytest.mark.usefixtures("image")
def test_a_restart_whose_answer_was_lost_starts_one_job(stage: Stage) -> None:
    stage.cluster.run("orders", SOURCE)
    evidence = STOP.run(stage.world)
    stage.cluster.lose_answers()
    with pytest.raises(ClusterError):
        STOP.undo(stage.world, evidence)
    assert STOP.undo(stage.world, evidence) == []
    assert len(restarts(stage)) == 1


def test_a_job_that_another_run_has_moved_away_is_not_started_again(stage: Stage) -> None:
    stage.cluster.run("orders", SOURCE)
    evidence = STOP.run(stage.world)
    world = replace(stage.world, fence=lambda location: "the-other-run")
    assert STOP.undo(world, evidence) == [
        (
            "orders is stopped, and not started again: run the-other-run has moved it away "
            f"from {SOURCE}"
        )
    ]
    assert restarts(stage) == []


@pytest.mark.usefixtures("image")
def test_without_a_way_to_start_it_a_person_is_told(stage: Stage) -> None:
    stage.cluster.run("orders", SOURCE)
    step = replace(STOP, restart=None)
    (told,) = step.undo(stage.world, step.run(stage.world))
    assert told.startswith(f"orders is stopped: start it again from {SOURCE}")


# ---- FenceSource


def test_a_fence_takes_the_names_a_zombie_would_need(stage: Stage) -> None:
    evidence = FENCE.run(stage.world)
    assert FENCE.run(stage.world) == evidence
    assert FENCE.holds(stage.world, evidence) == []
    for path in FENCE.paths:
        with pytest.raises(AlreadyThere):
            stage.source.create(path, b"a batch")
    assert FENCE.undo(stage.world, evidence) == []
    assert stage.disk.snapshot(SOURCE) == {}


def test_a_fence_outlives_a_power_cut(stage: Stage) -> None:
    evidence = FENCE.run(stage.world)
    stage.disk.crash(random.Random(1))
    assert FENCE.holds(stage.world, evidence) == []


@pytest.mark.parametrize("earlier", [False, True])
def test_a_fence_that_somebody_was_quicker_than_takes_its_own_part_away(
    stage: Stage, earlier: bool
) -> None:
    """Also the part that an attempt put up which was killed."""
    if earlier:
        stage.source.create("offsets/2", fence_text("the-run").encode())
    stage.source.create("commits/2", b"v1\n{}")
    with pytest.raises(StalePlan, match="commits/2 was written after the plan was made") as caught:
        FENCE.run(stage.world)
    assert caught.value.exit_code == 4
    assert stage.disk.snapshot(SOURCE) == {"commits/2": b"v1\n{}"}


def test_another_runs_fence_is_named_and_left_standing(stage: Stage) -> None:
    for path in FENCE.paths:
        stage.source.create(path, OTHER)
    with pytest.raises(StalePlan, match="fenced by run the-other-run"):
        FENCE.run(stage.world)
    assert FENCE.undo(stage.world, None) == []
    assert set(stage.disk.snapshot(SOURCE).values()) == {OTHER}


@pytest.mark.parametrize("path", FENCE.paths)
def test_a_directory_in_a_fences_place_ends_the_step(stage: Stage, path: str) -> None:
    stage.source.create(f"{path}/x", b"")
    with pytest.raises(StorageError, match=f"{path} is taken, and holds no file") as caught:
        FENCE.run(stage.world)
    assert f"move {SOURCE}/{path} away" in (caught.value.hint or "")


def two_at_once(stage: Stage, *theirs: str) -> World:
    """Another run puts up these of its fence after we have looked and before we put up ours."""

    class Raced(MemoryStorage):
        def create(self, path: str, content: bytes) -> None:
            for one in theirs:
                with suppress(AlreadyThere):
                    stage.source.create(one, OTHER)
            super().create(path, content)

    raced = Raced(stage.disk, SOURCE)
    return replace(stage.world, storage=lambda location: raced)


def test_of_two_runs_that_fence_at_once_the_one_with_the_first_file_waits_for_the_other(
    stage: Stage,
) -> None:
    def theirs_is_taken_away() -> None:
        world.storage(SOURCE).create = MemoryStorage(stage.disk, SOURCE).create  # type: ignore[method-assign]
        if stage.clock.time > 1002 and stage.source.stat("commits/2") is not None:
            stage.source.remove("commits/2")

    stage.clock.on_sleep = theirs_is_taken_away
    world = two_at_once(stage, "commits/2")
    evidence = FENCE.run(world)
    assert FENCE.holds(stage.world, evidence) == []


def test_of_two_runs_that_have_made_a_fence_ready_each_puts_up_its_own(stage: Stage) -> None:
    other = replace(stage.world, run="the-other-run")
    ready, fence = ReadyFence("halt/ready-fence", SOURCE, 2), replace(FENCE, ready=2)
    assert [ready.run(world).ready for world in (stage.world, other)] == [2, 2]
    evidence = fence.run(stage.world)
    assert fence.holds(stage.world, evidence) == []
    with pytest.raises(StalePlan, match=f"fenced by run {stage.world.run}"):
        fence.run(other)
    ready.undo(other, {"ready": 2})
    assert fence.holds(stage.world, evidence) == [] and set(stage.disk.snapshot(SOURCE)) == set(
        FENCE.paths
    )
    assert fence.undo(other, None) == []


def test_one_that_does_not_take_its_part_away_is_named_after_a_while(stage: Stage) -> None:
    with pytest.raises(StalePlan, match="commits/2 was fenced by run the-other-run"):
        FENCE.run(two_at_once(stage, "commits/2"))
    assert stage.disk.snapshot(SOURCE) == {"commits/2": OTHER}
    assert 1030 <= stage.clock.time < 1031


@pytest.mark.parametrize("theirs", [("offsets/2",), ("offsets/2", "commits/2")])
def test_the_one_without_the_first_file_gives_way_at_once(
    stage: Stage, theirs: tuple[str, ...]
) -> None:
    with pytest.raises(StalePlan, match="offsets/2 was fenced by run the-other-run"):
        FENCE.run(two_at_once(stage, *theirs))
    assert stage.disk.snapshot(SOURCE) == dict.fromkeys(theirs, OTHER)
    assert stage.clock.time == 1000


def test_a_fence_that_is_gone_or_another_breaks_the_evidence(stage: Stage) -> None:
    evidence = FENCE.run(stage.world)
    stage.source.remove("offsets/2")
    stage.give(SOURCE, commits_2=b"v1\n{}")
    assert len(FENCE.holds(stage.world, evidence)) == 2
    (told,) = FENCE.undo(stage.world, evidence)
    assert told == f"{SOURCE}/commits/2 is no longer our fence: left as it is"
    assert stage.disk.snapshot(SOURCE) == {"commits/2": b"v1\n{}"}


# ---- SubmitJob


def test_a_job_is_submitted_once_with_what_the_spec_says(stage: Stage) -> None:
    evidence = SUBMIT.run(stage.world)
    assert SUBMIT.run(stage.world).job == evidence.job
    (submission,) = stage.cluster.submissions
    assert (submission.tag, submission.location, submission.environment) == (
        tag(stage),
        TARGET,
        {"A": "1"},
    )
    assert SUBMIT.holds(stage.world, evidence) == []


def test_another_job_and_another_run_have_tags_of_their_own(stage: Stage) -> None:
    again = replace(stage.world, run="the-other-run")
    assert len({tag(stage), tag_of(stage.world, "payments"), tag_of(again, "orders")}) == 3


@pytest.mark.parametrize("fault", ["lose_answers", "delay"])
def test_a_submission_without_an_answer_is_found_by_its_tag(stage: Stage, fault: str) -> None:
    getattr(stage.cluster, fault)()
    with pytest.raises(ClusterError):
        SUBMIT.run(stage.world)
    assert SUBMIT.run(stage.world).tag == tag(stage)
    assert stage.cluster.started == {tag(stage): 1}


def test_a_submission_that_was_refused_is_made_again(stage: Stage) -> None:
    stage.cluster.fail()
    with pytest.raises(ClusterError):
        SUBMIT.run(stage.world)
    SUBMIT.run(stage.world)
    assert stage.cluster.started == {tag(stage): 1}


def test_a_job_that_failed_is_not_submitted_again_behind_anybodys_back(stage: Stage) -> None:
    evidence = SUBMIT.run(stage.world)
    stage.cluster.set_state(tag(stage), JobState.FAILED, "out of memory")
    SUBMIT.run(stage.world)
    assert stage.cluster.started == {tag(stage): 1}
    assert [d.found for d in SUBMIT.holds(stage.world, evidence)] == ["failed (out of memory)"]


def test_taking_a_submission_back_stops_the_job_also_one_that_was_never_written_down(
    stage: Stage,
) -> None:
    SUBMIT.run(stage.world)
    for _ in range(2):
        assert SUBMIT.undo(stage.world, None) == []
    assert stage.cluster.find(tag(stage)).state is JobState.FINISHED
    assert len(stage.cluster.stops) == 1


def test_taking_back_a_submission_under_way_stops_the_job_it_starts(stage: Stage) -> None:
    stage.cluster.delay()
    with pytest.raises(ClusterError):
        SUBMIT.run(stage.world)
    assert SUBMIT.undo(stage.world, None) == []
    assert not stage.cluster.find(tag(stage)).state.alive


def test_what_was_never_submitted_is_not_stopped(stage: Stage) -> None:
    assert SUBMIT.undo(stage.world, None) == []
    assert stage.cluster.stops == []


def test_the_image_is_not_pulled_from_under_a_job_that_does_not_stop() -> None:
    stage = Stage(cluster=Stubborn())
    evidence = SUBMIT.run(stage.world)
    with pytest.raises(
        ClusterError, match="still running on ours after it was asked to stop"
    ) as caught:
        SUBMIT.undo(stage.world, evidence)
    assert "resume WORKDIR" in (caught.value.hint or "")


# ---- AwaitProgress


def committing(stage: Stage, **files: bytes) -> Stage:
    """A job that writes these when somebody has waited for it for a while."""
    stage.clock = StepClock(
        lambda: stage.give(TARGET, **files) if stage.clock.time > 1001 else None
    )
    SUBMIT.run(stage.world)
    return stage


def test_a_batch_of_every_query_is_waited_for(stage: Stage) -> None:
    evidence = AWAIT.run(committing(stage, a_commits_2=b"v1", b_commits_5=b"v1").world)
    assert (evidence.committed, evidence.idle) == (("a/commits/2", "b/commits/5"), ())
    assert 0 < evidence.seconds < 2
    assert AWAIT.holds(stage.world, evidence) == AWAIT.undo(stage.world, evidence) == []


class Restarting(MemoryCluster):
    """A cluster that answers nothing until it is `back`."""

    back: Callable[[], bool] = staticmethod(lambda: True)

    def find(self, tag: str) -> JobStatus:
        if not self.back():
            raise Silent("no answer", cluster=self.name)
        return super().find(tag)


def test_a_cluster_that_restarts_meanwhile_is_waited_for(stage: Stage) -> None:
    cluster = stage.cluster = Restarting()
    SUBMIT.run(stage.world)
    cluster.back = lambda: stage.clock.time > 1040
    stage.give(TARGET, a_commits_2=b"v1", b_commits_5=b"v1")
    patient = replace(AWAIT, seconds_max=600.0)
    assert patient.run(stage.world).committed == COMMITS
    assert stage.clock.time > 1040


@pytest.mark.parametrize(("seconds_max", "given_up"), [(600.0, 1060), (10.0, 1010)])
def test_a_cluster_that_stays_silent_is_named_once_that_is_too_long(
    stage: Stage, seconds_max: float, given_up: int
) -> None:
    cluster = stage.cluster = Restarting()
    SUBMIT.run(stage.world)
    cluster.back = lambda: False
    began = stage.clock.time
    with pytest.raises(Silent, match="no answer"):
        replace(AWAIT, seconds_max=seconds_max).run(stage.world)
    assert given_up - 1000 < stage.clock.time - began < given_up - 1000 + 5


def test_a_query_that_has_nothing_to_read_counts_and_is_told(stage: Stage) -> None:
    idle = encode_idle(tag(stage), 4)
    evidence = AWAIT.run(committing(stage, a_commits_2=b"v1", b_idle=idle).world)
    assert (evidence.committed, evidence.idle) == (("a/commits/2",), ("b/commits/5",))


def test_a_note_of_idleness_that_another_job_left_does_not_count(stage: Stage) -> None:
    stage.give(TARGET, a_commits_2=b"v1", b_idle=encode_idle("an-older-run", 4))
    SUBMIT.run(stage.world)
    with pytest.raises(ClusterError, match="has committed nothing in 10 s"):
        AWAIT.run(stage.world)


def test_a_job_that_ended_well_when_one_of_two_queries_had_nothing_to_read_has_made_progress(
    stage: Stage,
) -> None:
    stage.give(TARGET, a_commits_2=b"v1")
    SUBMIT.run(stage.world)
    stage.cluster.set_state(tag(stage), JobState.FINISHED)
    assert AWAIT.run(stage.world).idle == ("b/commits/5",)


def test_a_job_that_ended_well_without_a_batch_has_proved_nothing(stage: Stage) -> None:
    SUBMIT.run(stage.world)
    stage.cluster.set_state(tag(stage), JobState.FINISHED)
    with pytest.raises(ClusterError, match="orders ended before it committed a batch"):
        AWAIT.run(stage.world)


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.ABSENT])
def test_a_job_that_dies_first_is_an_error_with_the_end_of_its_log(
    stage: Stage, state: JobState
) -> None:
    SUBMIT.run(stage.world)
    stage.cluster.set_state(tag(stage), state, "line 1\nOutOfMemoryError: Java heap space")
    why = "before it committed a batch: OutOfMemoryError: Java heap space; its log ends"
    with pytest.raises(ClusterError, match=why) as caught:
        AWAIT.run(stage.world)
    assert caught.value.fact.endswith("Java heap space")
    assert "rollback WORKDIR" in (caught.value.hint or "")


def test_the_stack_frames_of_a_jvm_do_not_hide_what_failed(stage: Stage) -> None:
    SUBMIT.run(stage.world)
    frames = "\n".join(
        f"\tat org.apache.spark.sql.Dataset$$anonfun$1.apply(Dataset.scala:{n})" for n in range(60)
    )
    log = (
        f"starting\njava.lang.OutOfMemoryError: Java heap space\n{frames}\n\t... 61 more\nat "
        "last: done"
    )
    stage.cluster.set_state(tag(stage), JobState.FAILED, log)
    with pytest.raises(ClusterError) as caught:
        AWAIT.run(stage.world)
    assert caught.value.fact.endswith(
        "starting\njava.lang.OutOfMemoryError: Java heap space\nat last: done"
    )


def test_a_job_that_died_after_its_batches_has_made_progress(stage: Stage) -> None:
    """The image works: that it died later is told by `holds` of the submission, and is not a
    reason to go back.
    """
    stage.give(TARGET, a_commits_2=b"v1", b_commits_5=b"v1")
    evidence = SUBMIT.run(stage.world)
    stage.cluster.set_state(tag(stage), JobState.FAILED, "later")
    assert len(AWAIT.run(stage.world).committed) == 2
    assert SUBMIT.holds(stage.world, evidence)


def test_a_job_that_dies_when_one_of_two_queries_has_committed_is_an_error(stage: Stage) -> None:
    stage.give(TARGET, a_commits_2=b"v1")
    SUBMIT.run(stage.world)
    stage.cluster.set_state(tag(stage), JobState.FAILED)
    with pytest.raises(ClusterError):
        AWAIT.run(stage.world)


def test_waiting_is_bounded_and_may_be_repeated(stage: Stage) -> None:
    SUBMIT.run(stage.world)
    with pytest.raises(ClusterError, match="is running and has committed nothing in 10 s"):
        AWAIT.run(stage.world)
    stage.give(TARGET, a_commits_2=b"v1", b_commits_5=b"v1")
    assert AWAIT.run(stage.world).committed


@pytest.mark.parametrize(
    ("told", "given", "is_one"),
    [
        ("hdfs://nn:8020/sp/a", "hdfs:///sp/a", True),
        ("s3a://shop/sp/a/_metadata", "s3://shop/sp/a", True),
        ("file:/sp/a", "file:///sp/a", True),
        ("hdfs://nn:8020/sp/a", "hdfs://other:8020/sp/a", False),
        ("s3://other/sp/a", "s3://shop/sp/a", False),
        ("hdfs://nn:8020/sp/a", "hdfs:///a", False),
    ],
)
def test_an_image_is_known_as_an_engine_spells_its_place(
    told: str, given: str, is_one: bool
) -> None:
    """Flink fills in the host that its default file system has."""
    flink = MemoryFlink(take=lambda location: None)
    stage = Stage(cluster=flink)
    status = JobStatus(JobState.RUNNING, "id")
    flink.jobs.append(MemoryJob("orders", told, tag(stage), status))
    wait = replace(AWAIT, location=given, commits=(), idle=())
    with nullcontext() if is_one else pytest.raises(ClusterError, match="was restored from"):
        wait.run(stage.world)


def test_why_nothing_is_known_of_a_job_that_is_waited_for_is_told(stage: Stage) -> None:
    SUBMIT.run(stage.world)
    stage.cluster.set_state(tag(stage), JobState.UNKNOWN, "it was forgotten")
    with pytest.raises(ClusterError, match=r"is unknown \(it was forgotten\) and has committed"):
        AWAIT.run(stage.world)


def test_waiting_can_be_interrupted(stage: Stage) -> None:
    stage.clock = StepClock(stage.stop.set)
    SUBMIT.run(stage.world)
    with pytest.raises(Interrupted):
        AWAIT.run(stage.world)


def test_no_job_is_started_beside_an_old_one_that_has_got_past_its_fence(stage: Stage) -> None:
    """On a store where the engine's own creation is not exclusive, a zombie may write over the
    fence.
    """
    fence = FenceSource("halt/fence", SOURCE, ("offsets/2", "commits/2"))
    fence.run(stage.world)
    fenced = replace(SUBMIT, fences=(fence,))
    stage.world.storage(SOURCE).write("offsets/2", lambda: iter((b"v1\n{}",)))
    with pytest.raises(StalePlan, match="offsets/2 is no longer our fence"):
        fenced.run(stage.world)
    assert not stage.cluster.submissions
    stage.world.storage(SOURCE).remove("offsets/2")
    stage.world.storage(SOURCE).remove("commits/2")
    fence.run(stage.world)
    fenced.run(stage.world)
    assert len(stage.cluster.submissions) == 1


def test_a_job_that_failed_is_started_again_where_a_person_asks_for_it_and_once(
    stage: Stage,
) -> None:
    SUBMIT.run(stage.world)
    assert SUBMIT.again(stage.world).tag == tag(stage), "it runs"
    stage.cluster.set_state(tag(stage), JobState.FAILED, "out of memory")
    again = [SUBMIT.again(stage.world) for _ in range(2)]
    assert [one.tag for one in again] == [f"{tag(stage)}.again2"] * 2
    assert SUBMIT.run(stage.world).tag == f"{tag(stage)}.again2"
    stage.cluster.set_state(f"{tag(stage)}.again2", JobState.FAILED)
    assert SUBMIT.again(stage.world).tag == f"{tag(stage)}.again3"
    assert SUBMIT.undo(stage.world, None) == []
    assert not any(job.status.state.alive for job in stage.cluster.jobs)
    assert replace(SUBMIT, attempt=2).run(stage.world).tag == f"{tag(stage)}.2"

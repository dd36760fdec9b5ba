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
from tests.support.ground import SOURCE, TARGET, Clock, Ground

STOP = StopJob("halt/stop", "ours", "orders", SOURCE, restart={"application": "job.py"})
FENCE = FenceSource("halt/fence", SOURCE, ("offsets/2", "commits/2"))
SUBMIT = SubmitJob(
    "submit/job", "ours", "orders", TARGET, None, {"application": "job.py"}, {"A": "1"}
)
OTHER = fence_text("the-other-run").encode()
COMMITS, IDLES = ("a/commits/2", "b/commits/5"), ("a/idle", "b/idle")
AWAIT = AwaitProgress("confirm", "ours", "orders", TARGET, COMMITS, IDLES, 1, 10.0)


@pytest.fixture
def ground() -> Ground:
    return Ground(clock=Clock(1000.0))


IMAGE = {"metadata": b"what the job is started from"}


@pytest.fixture
def image(ground: Ground) -> None:
    put(ground.source, "metadata", IMAGE["metadata"])


def tag(ground: Ground) -> str:
    return tag_of(ground.world, "orders")


def restarts(ground: Ground) -> list[str]:
    return [
        submission.tag for submission in ground.cluster.submissions if submission.location == SOURCE
    ]


# ---- StopJob


def test_a_job_is_not_started_again_over_nothing(ground: Ground) -> None:
    """It would begin anew, and write everything again."""
    ground.cluster.run("orders", SOURCE)
    evidence = STOP.run(ground.world)
    put(ground.source, "_stateshift/idle", b"ours")
    with pytest.raises(ClusterError, match=f"nothing is at {SOURCE} any more"):
        STOP.undo(ground.world, evidence)
    assert restarts(ground) == []


def test_a_running_job_is_stopped_and_what_it_was_is_told(ground: Ground) -> None:
    ground.cluster.run("orders", SOURCE)
    evidence = STOP.run(ground.world)
    assert (evidence.state_before, evidence.state) == ("running", "finished")
    assert STOP.holds(ground.world, evidence) == []
    assert STOP.run(ground.world).state_before == "finished", "stopping it again changes nothing"
    assert len(ground.cluster.stops) == 1


def test_a_job_that_runs_again_breaks_the_evidence(ground: Ground) -> None:
    evidence = STOP.run(ground.world)
    ground.cluster.run("orders", SOURCE)
    assert [d.found for d in STOP.holds(ground.world, evidence)] == ["running"]


class Stubborn(MemoryCluster):
    def stop(self, request: StopRequest) -> JobStatus:
        return self.find_source(request)


def test_a_job_that_does_not_stop_is_an_error() -> None:
    ground = Ground(clock=Clock(1000.0), cluster=Stubborn())
    ground.cluster.run("orders", SOURCE)
    with pytest.raises(ClusterError, match="orders is still running after it was asked to stop"):
        STOP.run(ground.world)


@pytest.mark.usefixtures("image")
def test_taking_a_stop_back_starts_the_job_once(ground: Ground) -> None:
    ground.cluster.run("orders", SOURCE)
    evidence = STOP.run(ground.world)
    for _ in range(2):
        assert STOP.undo(ground.world, evidence) == []
    assert restarts(ground) == [f"{tag_of(ground.world, SOURCE)}.restart"]


def test_a_job_that_did_not_run_is_not_started(ground: Ground) -> None:
    assert STOP.undo(ground.world, STOP.run(ground.world)) == []
    assert restarts(ground) == []


@pytest.mark.usefixtures("image")
def test_a_job_that_an_attempt_stopped_which_was_cut_short_is_started_again(ground: Ground) -> None:
    """Killed between the stop and its record: the second attempt finds it stopped."""
    ground.cluster.run("orders", SOURCE)
    STOP.run(ground.world)
    evidence = replace(STOP.run(ground.world), repeated=True)  # as the executor marks it
    assert evidence.state_before == "finished"
    assert STOP.undo(ground.world, evidence) == []
    assert len(restarts(ground)) == 1


@pytest.mark.usefixtures("image")
def test_a_job_whose_stop_was_cut_short_is_started_again(ground: Ground) -> None:
    ground.cluster.run("orders", SOURCE)
    STOP.run(ground.world)
    assert STOP.undo(ground.world, None) == []
    assert len(restarts(ground)) == 1


def cut_short_while_it_stops(ground: Ground, until: float = 1e12) -> None:
    """The marker is up, as an attempt leaves it that is killed meanwhile."""
    put(ground.source, marks.STOP, encode_stop("orders", None, until))


@pytest.mark.usefixtures("image")
def test_a_job_that_is_being_stopped_when_that_is_taken_back_is_stopped_and_started_again(
    ground: Ground,
) -> None:
    """It may have read the marker already: else it would end once everything is taken back."""
    ground.cluster.run("orders", SOURCE)
    cut_short_while_it_stops(ground)
    assert STOP.undo(ground.world, None) == []
    assert (len(ground.cluster.stops), len(restarts(ground))) == (1, 1)
    assert ground.disk.snapshot(SOURCE) == IMAGE


def test_without_a_way_to_start_it_a_job_that_is_being_stopped_is_named(ground: Ground) -> None:
    ground.cluster.run("orders", SOURCE)
    cut_short_while_it_stops(ground)
    (left,) = replace(STOP, restart=None).undo(ground.world, None)
    assert left == f"orders was being asked to stop: if it ends, start it again from {SOURCE}"
    assert ground.cluster.stops == [] and ground.disk.snapshot(SOURCE) == {}


class Slow(MemoryCluster):
    """Its jobs take their time to end once they are killed."""

    def is_stopping(self, request: StopRequest) -> bool:
        return not self.stops


def test_a_job_that_was_killed_and_has_not_ended_yet_is_stopped_and_started_again() -> None:
    """It would end once everything is taken back, and nothing would run."""
    ground = Ground(clock=Clock(1000.0), cluster=Slow())
    put(ground.source, "metadata", IMAGE["metadata"])
    ground.cluster.run("orders", SOURCE)
    assert STOP.undo(ground.world, None) == []
    assert (len(ground.cluster.stops), len(restarts(ground))) == (1, 1)


def test_a_job_that_no_marker_stops_any_more_runs_on(ground: Ground) -> None:
    ground.cluster.run("orders", SOURCE)
    cut_short_while_it_stops(ground, until=1.0)
    assert STOP.undo(ground.world, None) == []
    assert ground.cluster.stops == [] and restarts(ground) == []


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize("takes_back", [False, True])
def test_the_marker_of_a_stop_that_was_cut_short_does_not_stop_the_job_that_is_started_next(
    ground: Ground, takes_back: bool
) -> None:
    ground.cluster.run("orders", SOURCE)
    STOP.run(ground.world)
    cut_short_while_it_stops(ground)
    put(ground.source, marks.STOPPING, encode_stop("orders", None, 1e12))
    if takes_back:
        replace(STOP, restart=None).undo(ground.world, None)
    else:
        STOP.run(ground.world)
    assert ground.disk.snapshot(SOURCE) == IMAGE


def test_a_marker_that_a_person_has_made_stays(ground: Ground) -> None:
    put(ground.source, marks.STOP, b"")
    STOP.run(ground.world)
    assert list(ground.disk.snapshot(SOURCE)) == [marks.STOP]


class Forgetful(MemoryCluster):
    """A cluster that cannot tell what runs."""

    def find_source(self, request: StopRequest) -> JobStatus:
        return JobStatus(JobState.UNKNOWN)


def test_a_job_that_may_still_run_is_not_started_beside_itself() -> None:
    ground = Ground(clock=Clock(1000.0), cluster=Forgetful())
    (told,) = STOP.undo(ground.world, None)
    assert "may have been stopped or not" in told
    assert restarts(ground) == []


@pytest.mark.usefixtures("image")
def test_a_job_stopped_for_the_second_time_is_started_for_the_second_time(ground: Ground) -> None:
    """The halt was taken back once (the plan was stale), and the run was resumed and taken back."""
    ground.cluster.run("orders", SOURCE)
    for _ in range(3):
        assert STOP.undo(ground.world, STOP.run(ground.world)) == []
        assert ground.cluster.find_source(STOP.request).state is JobState.RUNNING
    first = f"{tag_of(ground.world, SOURCE)}.restart"
    assert restarts(ground) == [first, f"{first}.2", f"{first}.3"]
    assert set(ground.cluster.started.values()) == {1}


@pytest.mark.usefixtures("image")
def test_a_restart_whose_answer_was_lost_starts_one_job(ground: Ground) -> None:
    ground.cluster.run("orders", SOURCE)
    evidence = STOP.run(ground.world)
    ground.cluster.lose_answers()
    with pytest.raises(ClusterError):
        STOP.undo(ground.world, evidence)
    assert STOP.undo(ground.world, evidence) == []
    assert len(restarts(ground)) == 1


def test_a_job_that_another_run_has_moved_away_is_not_started_again(ground: Ground) -> None:
    ground.cluster.run("orders", SOURCE)
    evidence = STOP.run(ground.world)
    world = replace(ground.world, fence=lambda location: "the-other-run")
    assert STOP.undo(world, evidence) == [
        (
            "orders is stopped, and not started again: run the-other-run has moved it away "
            f"from {SOURCE}"
        )
    ]
    assert restarts(ground) == []


@pytest.mark.usefixtures("image")
def test_without_a_way_to_start_it_a_person_is_told(ground: Ground) -> None:
    ground.cluster.run("orders", SOURCE)
    step = replace(STOP, restart=None)
    (told,) = step.undo(ground.world, step.run(ground.world))
    assert told.startswith(f"orders is stopped: start it again from {SOURCE}")


# ---- FenceSource


def test_a_fence_takes_the_names_a_zombie_would_need(ground: Ground) -> None:
    evidence = FENCE.run(ground.world)
    assert FENCE.run(ground.world) == evidence
    assert FENCE.holds(ground.world, evidence) == []
    for path in FENCE.paths:
        with pytest.raises(AlreadyThere):
            ground.source.create(path, b"a batch")
    assert FENCE.undo(ground.world, evidence) == []
    assert ground.disk.snapshot(SOURCE) == {}


def test_a_fence_that_an_earlier_version_of_ours_put_up_is_this_runs(ground: Ground) -> None:
    """A run goes on with a later version: its fence is told by the run that it names."""
    old = b"stateshift fence v1\nthe-run\nThe state of this job was moved. To undo: stateshift rollback\n"
    ground.source.create(FENCE.paths[0], old)
    evidence = FENCE.run(ground.world)
    assert FENCE.holds(ground.world, evidence) == []
    assert ground.disk.snapshot(SOURCE)[FENCE.paths[0]] == old
    assert FENCE.undo(ground.world, evidence) == []
    assert ground.disk.snapshot(SOURCE) == {}


def test_a_fence_outlives_a_power_cut(ground: Ground) -> None:
    evidence = FENCE.run(ground.world)
    ground.disk.crash(random.Random(1))
    assert FENCE.holds(ground.world, evidence) == []


@pytest.mark.parametrize("earlier", [False, True])
def test_a_fence_that_somebody_was_quicker_than_takes_its_own_part_away(
    ground: Ground, earlier: bool
) -> None:
    """Also the part that an attempt put up which was killed."""
    if earlier:
        ground.source.create("offsets/2", fence_text("the-run").encode())
    ground.source.create("commits/2", b"v1\n{}")
    with pytest.raises(StalePlan, match="commits/2 was written after the plan was made") as caught:
        FENCE.run(ground.world)
    assert caught.value.exit_code == 4
    assert ground.disk.snapshot(SOURCE) == {"commits/2": b"v1\n{}"}


def test_another_runs_fence_is_named_and_left_standing(ground: Ground) -> None:
    for path in FENCE.paths:
        ground.source.create(path, OTHER)
    with pytest.raises(StalePlan, match="fenced by run the-other-run"):
        FENCE.run(ground.world)
    assert FENCE.undo(ground.world, None) == []
    assert set(ground.disk.snapshot(SOURCE).values()) == {OTHER}


@pytest.mark.parametrize("path", FENCE.paths)
def test_a_directory_in_a_fences_place_ends_the_step(ground: Ground, path: str) -> None:
    ground.source.create(f"{path}/x", b"")
    with pytest.raises(StorageError, match=f"{path} is taken, and holds no file") as caught:
        FENCE.run(ground.world)
    assert f"move {SOURCE}/{path} away" in (caught.value.hint or "")


def two_at_once(ground: Ground, *theirs: str) -> World:
    """Another run puts up these of its fence after we have looked and before we put up ours."""

    class Raced(MemoryStorage):
        def create(self, path: str, content: bytes) -> None:
            for one in theirs:
                with suppress(AlreadyThere):
                    ground.source.create(one, OTHER)
            super().create(path, content)

    raced = Raced(ground.disk, SOURCE)
    return replace(ground.world, storage=lambda location: raced)


def test_another_runs_fence_that_is_still_empty_is_waited_for(ground: Ground) -> None:
    """Some storages show a new file before its content."""

    def theirs_is_taken_away() -> None:
        if ground.clock.time > 1002 and ground.source.stat("commits/2") is not None:
            ground.source.remove("commits/2")

    class Raced(MemoryStorage):
        def create(self, path: str, content: bytes) -> None:
            with suppress(AlreadyThere):
                if ground.clock.time <= 1002:
                    ground.source.create("commits/2", b"")
            super().create(path, content)

    ground.clock.on_sleep = theirs_is_taken_away
    raced = Raced(ground.disk, SOURCE)
    evidence = FENCE.run(replace(ground.world, storage=lambda location: raced))
    assert FENCE.holds(ground.world, evidence) == []


def test_of_two_runs_that_fence_at_once_the_one_with_the_first_file_waits_for_the_other(
    ground: Ground,
) -> None:
    def theirs_is_taken_away() -> None:
        world.storage(SOURCE).create = MemoryStorage(ground.disk, SOURCE).create  # type: ignore[method-assign]
        if ground.clock.time > 1002 and ground.source.stat("commits/2") is not None:
            ground.source.remove("commits/2")

    ground.clock.on_sleep = theirs_is_taken_away
    world = two_at_once(ground, "commits/2")
    evidence = FENCE.run(world)
    assert FENCE.holds(ground.world, evidence) == []


def test_of_two_runs_that_have_made_a_fence_ready_each_puts_up_its_own(ground: Ground) -> None:
    other = replace(ground.world, run="the-other-run")
    ready, fence = ReadyFence("halt/ready-fence", SOURCE, 2), replace(FENCE, ready=2)
    assert [ready.run(world).ready for world in (ground.world, other)] == [2, 2]
    evidence = fence.run(ground.world)
    assert fence.holds(ground.world, evidence) == []
    with pytest.raises(StalePlan, match=f"fenced by run {ground.world.run}"):
        fence.run(other)
    ready.undo(other, {"ready": 2})
    assert fence.holds(ground.world, evidence) == [] and set(ground.disk.snapshot(SOURCE)) == set(
        FENCE.paths
    )
    assert fence.undo(other, None) == []


def test_one_that_does_not_take_its_part_away_is_named_after_a_while(ground: Ground) -> None:
    with pytest.raises(StalePlan, match="commits/2 was fenced by run the-other-run"):
        FENCE.run(two_at_once(ground, "commits/2"))
    assert ground.disk.snapshot(SOURCE) == {"commits/2": OTHER}
    assert 1030 <= ground.clock.time < 1031


@pytest.mark.parametrize("theirs", [("offsets/2",), ("offsets/2", "commits/2")])
def test_the_one_without_the_first_file_gives_way_at_once(
    ground: Ground, theirs: tuple[str, ...]
) -> None:
    with pytest.raises(StalePlan, match="offsets/2 was fenced by run the-other-run"):
        FENCE.run(two_at_once(ground, *theirs))
    assert ground.disk.snapshot(SOURCE) == dict.fromkeys(theirs, OTHER)
    assert ground.clock.time == 1000


def test_a_fence_that_is_gone_or_another_breaks_the_evidence(ground: Ground) -> None:
    evidence = FENCE.run(ground.world)
    ground.source.remove("offsets/2")
    ground.give(SOURCE, commits_2=b"v1\n{}")
    assert len(FENCE.holds(ground.world, evidence)) == 2
    (told,) = FENCE.undo(ground.world, evidence)
    assert told == f"{SOURCE}/commits/2 is no longer our fence: left as it is"
    assert ground.disk.snapshot(SOURCE) == {"commits/2": b"v1\n{}"}


# ---- SubmitJob


def test_a_job_is_submitted_once_with_what_the_spec_says(ground: Ground) -> None:
    evidence = SUBMIT.run(ground.world)
    assert SUBMIT.run(ground.world).job == evidence.job
    (submission,) = ground.cluster.submissions
    assert (submission.tag, submission.location, submission.environment) == (
        tag(ground),
        TARGET,
        {"A": "1"},
    )
    assert SUBMIT.holds(ground.world, evidence) == []


def test_another_job_and_another_run_have_tags_of_their_own(ground: Ground) -> None:
    again = replace(ground.world, run="the-other-run")
    assert len({tag(ground), tag_of(ground.world, "payments"), tag_of(again, "orders")}) == 3


@pytest.mark.parametrize("fault", ["lose_answers", "delay"])
def test_a_submission_without_an_answer_is_found_by_its_tag(ground: Ground, fault: str) -> None:
    getattr(ground.cluster, fault)()
    with pytest.raises(ClusterError):
        SUBMIT.run(ground.world)
    assert SUBMIT.run(ground.world).tag == tag(ground)
    assert ground.cluster.started == {tag(ground): 1}


def test_a_submission_that_was_refused_is_made_again(ground: Ground) -> None:
    ground.cluster.fail()
    with pytest.raises(ClusterError):
        SUBMIT.run(ground.world)
    SUBMIT.run(ground.world)
    assert ground.cluster.started == {tag(ground): 1}


def test_a_job_that_failed_is_not_submitted_again_behind_anybodys_back(ground: Ground) -> None:
    evidence = SUBMIT.run(ground.world)
    ground.cluster.set_state(tag(ground), JobState.FAILED, "out of memory")
    SUBMIT.run(ground.world)
    assert ground.cluster.started == {tag(ground): 1}
    assert [d.found for d in SUBMIT.holds(ground.world, evidence)] == ["failed (out of memory)"]


def test_taking_a_submission_back_stops_the_job_also_one_that_was_never_written_down(
    ground: Ground,
) -> None:
    SUBMIT.run(ground.world)
    for _ in range(2):
        assert SUBMIT.undo(ground.world, None) == []
    assert ground.cluster.find(tag(ground)).state is JobState.FINISHED
    assert len(ground.cluster.stops) == 1


def test_taking_back_a_submission_under_way_stops_the_job_it_starts(ground: Ground) -> None:
    ground.cluster.delay()
    with pytest.raises(ClusterError):
        SUBMIT.run(ground.world)
    assert SUBMIT.undo(ground.world, None) == []
    assert not ground.cluster.find(tag(ground)).state.alive


def test_what_was_never_submitted_is_not_stopped(ground: Ground) -> None:
    assert SUBMIT.undo(ground.world, None) == []
    assert ground.cluster.stops == []


def test_the_image_is_not_pulled_from_under_a_job_that_does_not_stop() -> None:
    ground = Ground(clock=Clock(1000.0), cluster=Stubborn())
    evidence = SUBMIT.run(ground.world)
    with pytest.raises(
        ClusterError, match="still running on ours after it was asked to stop"
    ) as caught:
        SUBMIT.undo(ground.world, evidence)
    assert "resume WORKDIR" in (caught.value.hint or "")


# ---- AwaitProgress


def committing(ground: Ground, **files: bytes) -> Ground:
    """A job that writes these when somebody has waited for it for a while."""
    ground.clock = Clock(
        1000.0, lambda: ground.give(TARGET, **files) if ground.clock.time > 1001 else None
    )
    SUBMIT.run(ground.world)
    return ground


def test_a_batch_of_every_query_is_waited_for(ground: Ground) -> None:
    evidence = AWAIT.run(committing(ground, a_commits_2=b"v1", b_commits_5=b"v1").world)
    assert (evidence.committed, evidence.idle) == (("a/commits/2", "b/commits/5"), ())
    assert 0 < evidence.seconds < 2
    assert AWAIT.holds(ground.world, evidence) == AWAIT.undo(ground.world, evidence) == []


class Restarting(MemoryCluster):
    """A cluster that answers nothing until it is `back`."""

    back: Callable[[], bool] = staticmethod(lambda: True)

    def find(self, tag: str) -> JobStatus:
        if not self.back():
            raise Silent("no answer", cluster=self.name)
        return super().find(tag)


def test_a_cluster_that_restarts_meanwhile_is_waited_for(ground: Ground) -> None:
    cluster = ground.cluster = Restarting()
    SUBMIT.run(ground.world)
    cluster.back = lambda: ground.clock.time > 1040
    ground.give(TARGET, a_commits_2=b"v1", b_commits_5=b"v1")
    patient = replace(AWAIT, seconds_max=600.0)
    assert patient.run(ground.world).committed == COMMITS
    assert ground.clock.time > 1040


@pytest.mark.parametrize(("seconds_max", "given_up"), [(600.0, 1060), (10.0, 1010)])
def test_a_cluster_that_stays_silent_is_named_once_that_is_too_long(
    ground: Ground, seconds_max: float, given_up: int
) -> None:
    cluster = ground.cluster = Restarting()
    SUBMIT.run(ground.world)
    cluster.back = lambda: False
    began = ground.clock.time
    with pytest.raises(Silent, match="no answer"):
        replace(AWAIT, seconds_max=seconds_max).run(ground.world)
    assert given_up - 1000 < ground.clock.time - began < given_up - 1000 + 5


def test_a_query_that_has_nothing_to_read_counts_and_is_told(ground: Ground) -> None:
    idle = encode_idle(tag(ground), 4)
    evidence = AWAIT.run(committing(ground, a_commits_2=b"v1", b_idle=idle).world)
    assert (evidence.committed, evidence.idle) == (("a/commits/2",), ("b/commits/5",))


def test_a_note_of_idleness_that_another_job_left_does_not_count(ground: Ground) -> None:
    ground.give(TARGET, a_commits_2=b"v1", b_idle=encode_idle("an-older-run", 4))
    SUBMIT.run(ground.world)
    with pytest.raises(ClusterError, match="has committed nothing in 10 s"):
        AWAIT.run(ground.world)


def test_a_job_that_ended_well_when_one_of_two_queries_had_nothing_to_read_has_made_progress(
    ground: Ground,
) -> None:
    ground.give(TARGET, a_commits_2=b"v1")
    SUBMIT.run(ground.world)
    ground.cluster.set_state(tag(ground), JobState.FINISHED)
    assert AWAIT.run(ground.world).idle == ("b/commits/5",)


def test_a_job_that_ended_well_without_a_batch_has_proved_nothing(ground: Ground) -> None:
    SUBMIT.run(ground.world)
    ground.cluster.set_state(tag(ground), JobState.FINISHED)
    with pytest.raises(ClusterError, match="orders ended before it committed a batch"):
        AWAIT.run(ground.world)


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.ABSENT])
def test_a_job_that_dies_first_is_an_error_with_the_end_of_its_log(
    ground: Ground, state: JobState
) -> None:
    SUBMIT.run(ground.world)
    ground.cluster.set_state(tag(ground), state, "line 1\nOutOfMemoryError: Java heap space")
    why = "before it committed a batch: OutOfMemoryError: Java heap space; its log ends"
    with pytest.raises(ClusterError, match=why) as caught:
        AWAIT.run(ground.world)
    assert caught.value.fact.endswith("Java heap space")
    assert "rollback WORKDIR" in (caught.value.hint or "")


def test_the_stack_frames_of_a_jvm_do_not_hide_what_failed(ground: Ground) -> None:
    SUBMIT.run(ground.world)
    frames = "\n".join(
        f"\tat org.apache.spark.sql.Dataset$$anonfun$1.apply(Dataset.scala:{n})" for n in range(60)
    )
    log = (
        f"starting\njava.lang.OutOfMemoryError: Java heap space\n{frames}\n\t... 61 more\nat "
        "last: done"
    )
    ground.cluster.set_state(tag(ground), JobState.FAILED, log)
    with pytest.raises(ClusterError) as caught:
        AWAIT.run(ground.world)
    assert caught.value.fact.endswith(
        "starting\njava.lang.OutOfMemoryError: Java heap space\nat last: done"
    )


def test_a_job_that_died_after_its_batches_has_made_progress(ground: Ground) -> None:
    """The image works: that it died later is told by `holds` of the submission, and is not a
    reason to go back.
    """
    ground.give(TARGET, a_commits_2=b"v1", b_commits_5=b"v1")
    evidence = SUBMIT.run(ground.world)
    ground.cluster.set_state(tag(ground), JobState.FAILED, "later")
    assert len(AWAIT.run(ground.world).committed) == 2
    assert SUBMIT.holds(ground.world, evidence)


def test_a_job_that_dies_when_one_of_two_queries_has_committed_is_an_error(ground: Ground) -> None:
    ground.give(TARGET, a_commits_2=b"v1")
    SUBMIT.run(ground.world)
    ground.cluster.set_state(tag(ground), JobState.FAILED)
    with pytest.raises(ClusterError):
        AWAIT.run(ground.world)


def test_waiting_is_bounded_and_may_be_repeated(ground: Ground) -> None:
    SUBMIT.run(ground.world)
    with pytest.raises(ClusterError, match="is running and has committed nothing in 10 s"):
        AWAIT.run(ground.world)
    ground.give(TARGET, a_commits_2=b"v1", b_commits_5=b"v1")
    assert AWAIT.run(ground.world).committed


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
    ground = Ground(clock=Clock(1000.0), cluster=flink)
    status = JobStatus(JobState.RUNNING, "id")
    flink.jobs.append(MemoryJob("orders", told, tag(ground), status))
    wait = replace(AWAIT, location=given, commits=(), idle=())
    with nullcontext() if is_one else pytest.raises(ClusterError, match="was restored from"):
        wait.run(ground.world)


def test_why_nothing_is_known_of_a_job_that_is_waited_for_is_told(ground: Ground) -> None:
    SUBMIT.run(ground.world)
    ground.cluster.set_state(tag(ground), JobState.UNKNOWN, "it was forgotten")
    with pytest.raises(ClusterError, match=r"is unknown \(it was forgotten\) and has committed"):
        AWAIT.run(ground.world)


def test_waiting_can_be_interrupted(ground: Ground) -> None:
    ground.clock = Clock(1000.0, ground.stop.set)
    SUBMIT.run(ground.world)
    with pytest.raises(Interrupted):
        AWAIT.run(ground.world)


def test_no_job_is_started_beside_an_old_one_that_has_got_past_its_fence(ground: Ground) -> None:
    """On a store where the engine's own creation is not exclusive, a zombie may write over the
    fence.
    """
    fence = FenceSource("halt/fence", SOURCE, ("offsets/2", "commits/2"))
    fence.run(ground.world)
    fenced = replace(SUBMIT, fences=(fence,))
    ground.world.storage(SOURCE).write("offsets/2", lambda: iter((b"v1\n{}",)))
    with pytest.raises(StalePlan, match="offsets/2 is no longer our fence"):
        fenced.run(ground.world)
    assert not ground.cluster.submissions
    ground.world.storage(SOURCE).remove("offsets/2")
    ground.world.storage(SOURCE).remove("commits/2")
    fence.run(ground.world)
    fenced.run(ground.world)
    assert len(ground.cluster.submissions) == 1


def test_a_job_that_failed_is_started_again_where_a_person_asks_for_it_and_once(
    ground: Ground,
) -> None:
    SUBMIT.run(ground.world)
    assert SUBMIT.again(ground.world).tag == tag(ground), "it runs"
    ground.cluster.set_state(tag(ground), JobState.FAILED, "out of memory")
    again = [SUBMIT.again(ground.world) for _ in range(2)]
    assert [one.tag for one in again] == [f"{tag(ground)}.again2"] * 2
    assert SUBMIT.run(ground.world).tag == f"{tag(ground)}.again2"
    ground.cluster.set_state(f"{tag(ground)}.again2", JobState.FAILED)
    assert SUBMIT.again(ground.world).tag == f"{tag(ground)}.again3"
    assert SUBMIT.undo(ground.world, None) == []
    assert not any(job.status.state.alive for job in ground.cluster.jobs)
    assert replace(SUBMIT, attempt=2).run(ground.world).tag == f"{tag(ground)}.2"

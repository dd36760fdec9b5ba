"""The calls that everything else makes, on a disk and clusters in memory."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import migration, plain
from stateshift.clusters.protocol import JobState, StopRequest, Submission
from stateshift.errors import ClusterError, Interrupted, JournalError, PlanError, SpecError
from stateshift.formats.marks import INDEX, decode_index, fence_owner
from stateshift.specification import parse_spec
from stateshift.step import CompareImages
from tests.clusters.test_spark_causes import SCHEMA, began, ended
from tests.support.checkpoints import QUERY, Checkpoint
from tests.support.ground import SOURCE, TARGET, Ground, running_spec, spec_of


def commit(ground: Ground, location: str, batch: int) -> None:
    """What a job does that goes on."""
    extra = Checkpoint(batches=batch + 1).files()
    state = [f"state/0/{shard}/{batch + 1}.delta" for shard in (0, 1)]
    for path in (f"offsets/{batch}", *state, f"commits/{batch}"):
        ground.put(f"{location}/{path}", extra[path])


def going_on(ground: Ground) -> None:
    """From now on a job that is started from the target commits its next batch."""

    def start(submission: Submission) -> None:
        if submission.location == TARGET:
            commit(ground, TARGET, 3)

    ground.cluster._on_start = start


@pytest.mark.row("IS-5")
def test_a_stopped_job_moves_and_its_source_is_fenced_and_otherwise_as_it_was(
    ground: Ground,
) -> None:
    ground.write()
    report = ground.apply(spec_of(operators=["Count (5)"]))
    assert (report.state, report.failure) == ("finished", None)
    files = Checkpoint().files()
    there = ground.held(TARGET)
    assert {"metadata", "offsets/1", "offsets/2", "commits/2"} <= there.keys()
    assert all(there[path] == files[path] for path in there)
    source = ground.held(SOURCE)
    assert {fence_owner(source.pop(path)) for path in ("offsets/3", "commits/3")} == {"run-run"}
    assert source == files
    assert "Count (5)" in decode_index(ground.disk.snapshot(TARGET)[INDEX])
    assert not ground.locks()


def test_proposing_changes_nothing(ground: Ground) -> None:
    ground.write()
    before = ground.disk.snapshot(temporaries=True)
    proposal = ground.propose(spec_of())
    assert proposal.plans[0].estimate is not None
    assert ground.disk.snapshot(temporaries=True) == before
    assert not (ground.folder / "planning").exists()


def test_a_saved_proposal_is_applied_as_if_it_had_not_been_saved(ground: Ground) -> None:
    ground.write()
    proposal = ground.propose(spec_of())
    saved = json.loads(json.dumps(migration.encode_proposal(proposal)))
    assert migration.decode_proposal(saved) == proposal
    assert ground.apply(migration.decode_proposal(saved)).state == "finished"


def test_a_saved_proposal_in_words_of_an_earlier_version_is_read_in_todays() -> None:
    proposal = migration.Proposal(running_spec(mode="warm", cutover="manual"), ())
    saved = migration.encode_proposal(proposal)
    text = json.dumps(saved["spec"])
    earlier = json.loads(text.replace('"manual"', '"told"'))
    assert earlier != json.loads(text), "the spec names the word"
    fingerprint = plain.fingerprint([earlier, []])
    read = migration.decode_proposal({**saved, "spec": earlier, "fingerprint": fingerprint})
    assert read == proposal
    with pytest.raises(PlanError, match="does not match its fingerprint"):
        migration.decode_proposal({**saved, "spec": earlier})


@pytest.mark.row("IS-13")
def test_a_running_job_is_stopped_moved_and_started_once_with_its_downtime_told(
    ground: Ground,
) -> None:
    ground.write()
    ground.cluster.run("orders", SOURCE)
    going_on(ground)
    report = ground.apply(running_spec())
    assert [request.location for request in ground.cluster.stops] == [SOURCE]
    assert [submission.location for submission in ground.cluster.submissions] == [TARGET]
    assert report.downtime_seconds is not None
    assert report.jobs[0].downtime_from == "halt"


def test_a_running_job_that_commits_until_it_stops_moves_at_its_last_epoch(ground: Ground) -> None:
    ground.write()
    ground.cluster.run("orders", SOURCE)
    ground.cluster._on_stop = lambda request: commit(ground, SOURCE, 3)
    proposal = ground.propose(running_spec())
    ground.cluster._on_start = lambda submission: commit(ground, TARGET, 4)
    assert ground.apply(proposal).state == "finished"
    assert "commits/3" in ground.held(TARGET)


def test_a_fork_leaves_a_running_source_alone_and_has_another_id(ground: Ground) -> None:
    ground.write()
    proposal = ground.propose(spec_of(mode="fork"))
    commit(ground, SOURCE, 3)  # it goes on while we plan
    before = ground.held(SOURCE)
    ground.apply(proposal)
    assert ground.held(SOURCE) == before
    there = ground.held(TARGET)
    assert json.loads(there["metadata"])["id"] != QUERY
    assert "commits/3" in there, "the newest commit at the time of the copy"


@pytest.mark.row("IS-4")
def test_merge_directories_end_in_the_target_and_a_rollback_puts_everything_back(
    ground: Ground,
) -> None:
    ground.write(prefix="own")
    ground.write(location="file:///here/north", prefix="other")
    before = ground.disk.snapshot()
    ground.apply(spec_of(merge_jobs=["file:///here/north"]))
    assert {path.split("/")[0] for path in ground.held(TARGET)} == {"own", "other"}
    assert {path.split("/")[0] for path in ground.held(SOURCE)} == {"own", "other"}
    report = ground.rollback()
    assert report.state == "rolled-back"
    assert ground.disk.snapshot() == before


def test_jobs_move_one_after_the_other_in_the_order_of_the_spec(ground: Ground) -> None:
    jobs = [
        {"name": n, "checkpoint_location": f"/here/{n}", "remote_location": f"/there/{n}"}
        for n in ("b", "a")
    ]
    for job in jobs:
        ground.write(location=job["checkpoint_location"])
    spec = parse_spec(json.dumps({"version": 1, "engine": "spark", "jobs": jobs}))
    report = ground.apply(spec)
    assert [job.job for job in report.jobs] == ["b", "a"]
    assert ground.held("file:///there/a") and ground.held("file:///there/b")


@pytest.mark.row("IS-3")
def test_one_job_of_several_is_chosen_by_its_name(ground: Ground) -> None:
    ground.write()
    proposal = migration.propose(spec_of(), ground.adapters, ground.workdir(), ["orders"])
    assert [plan.job for plan in proposal.plans] == ["orders"]
    with pytest.raises(SpecError, match="has no job 'other'") as caught:
        migration.propose(spec_of(), ground.adapters, ground.workdir(), ["other"])
    assert "orders" in (caught.value.hint or "")


def test_of_a_saved_plan_only_what_was_planned_is_carried_out(ground: Ground) -> None:
    ground.write()
    ground.write(location="file:///here/second")
    jobs = [
        {"name": name, "checkpoint_location": source, "remote_location": f"file:///there/{name}"}
        for name, source in (("orders", SOURCE), ("second", "file:///here/second"))
    ]
    spec = parse_spec(json.dumps({"version": 1, "engine": "spark", "jobs": jobs}))
    saved = migration.propose(spec, ground.adapters, ground.workdir(), ["second"])
    with pytest.raises(PlanError, match="nothing was planned for 'orders'"):
        saved.jobs(["orders"])
    assert [job.job for job in ground.apply(saved).jobs] == ["second"]
    assert ground.held("file:///there/second") and not ground.held("file:///there/orders")
    both = migration.propose(
        spec, ground.adapters, ground.workdir("planning"), ["orders", "second"]
    )
    assert [job.name for job in both.jobs()] == ["orders", "second"]
    assert [plan.job for plan in both.of_jobs(["orders"]).plans] == ["orders"]


# ---- resume, roll back, verify


def test_an_interrupted_run_says_how_to_go_on_and_does(ground: Ground) -> None:
    ground.write()
    proposal, adapters = ground.propose(spec_of()), ground.adapters
    adapters.stop.set()
    with pytest.raises(Interrupted) as caught:
        migration.apply(proposal, "r", ground.workdir(), adapters)
    assert caught.value.exit_code == 130
    place = ground.workdir().path
    back = f"or, to take it back: stateshift rollback {place}"
    assert caught.value.hint == f"stateshift resume {place}; {back}"
    assert migration.status(ground.workdir()).state == "interrupted"
    assert ground.resume().state == "finished"


def test_resuming_a_finished_run_does_nothing_again(ground: Ground) -> None:
    ground.write()
    ground.apply(spec_of())
    before, journal = ground.disk.snapshot(), ground.workdir().lines.read()
    assert ground.resume().state == "finished"
    assert (ground.disk.snapshot(), ground.workdir().lines.read()) == (before, journal)


def test_a_rollback_leaves_everything_as_it_was_and_can_be_repeated(ground: Ground) -> None:
    ground.write()
    before = ground.disk.snapshot()
    ground.apply(spec_of(operators=["x"]))
    assert ground.rollback().left == ()
    assert ground.disk.snapshot() == before
    assert ground.rollback().state == "rolled-back"
    assert ground.resume().state == "rolled-back"


def test_after_a_rollback_the_same_spec_can_be_applied_again(ground: Ground) -> None:
    ground.write()
    ground.apply(spec_of())
    ground.rollback()
    assert ground.apply(spec_of(), "second").state == "finished"


def test_a_rollback_leaves_what_somebody_else_put_there_and_says_so(ground: Ground) -> None:
    ground.write()
    ground.apply(spec_of())
    ground.put(f"{TARGET}/notes.txt", b"mine")
    ground.put(f"{TARGET}/state/0/0/2.delta", b"changed")
    report = ground.rollback()
    assert ground.held(TARGET) == {"notes.txt": b"mine", "state/0/0/2.delta": b"changed"}
    assert any("state/0/0/2.delta: changed since" in line for line in report.jobs[0].left)
    assert any("2 files that this run did not write" in line for line in report.left)


def test_a_rollback_of_a_job_that_has_committed_since_asks_first(ground: Ground) -> None:
    ground.write()
    ground.cluster.run("orders", SOURCE)
    going_on(ground)
    ground.apply(running_spec())
    before = ground.disk.snapshot()
    with pytest.raises(PlanError, match="would throw them away") as caught:
        ground.rollback()
    assert caught.value.hint == (
        f"if that is what you want: stateshift rollback {ground.workdir().path} --discard-progress"
    )
    assert ground.disk.snapshot() == before
    assert ground.rollback(discard_progress=True).state == "rolled-back"
    assert ground.cluster.submissions[-1].location == SOURCE, "the old job runs again"
    assert ground.held(SOURCE) == Checkpoint().files()


def test_evidence_of_another_version_is_not_taken_for_a_job_that_has_committed_nothing(
    ground: Ground,
) -> None:
    ground.write()
    ground.cluster.run("orders", SOURCE)
    going_on(ground)
    ground.apply(running_spec())
    journal = ground.workdir().path / "journal"
    lines = []
    for line in journal.read_bytes().splitlines(keepends=True):
        text = line[9:-1].replace(b'"committed":', b'"committed_as_of_9.0":')
        lines.append(b"%08x %s\n" % (zlib.crc32(text), text))
    journal.write_bytes(b"".join(lines))
    before = ground.disk.snapshot()
    with pytest.raises(JournalError, match=r"does not know: at, committed_as_of_9\.0") as caught:
        ground.rollback()
    assert "another version of stateshift: use that one" in (caught.value.hint or "")
    assert ground.disk.snapshot() == before


@pytest.mark.parametrize("killed", [False, True])
def test_a_rollback_starts_the_job_where_it_was_before_it_tidies_up(
    ground: Ground, killed: bool
) -> None:
    """A large image takes long to remove, and nobody can see it any more. Whoever is interrupted
    there starts no second job when it goes on.
    """
    ground.write()
    ground.cluster.run("orders", SOURCE)
    going_on(ground)
    ground.apply(running_spec())
    there: list[set[str]] = []

    def look(submission: Submission) -> None:
        assert ground.held(SOURCE) == Checkpoint().files(), (
            "nothing keeps the job from its next batch"
        )
        there.append(set(ground.held(TARGET)))
        if killed:
            adapters.stop.set()

    ground.cluster._on_start, adapters = look, ground.adapters
    if killed:
        with pytest.raises(Interrupted):
            migration.rollback(ground.workdir(), adapters, True)
        assert ground.held(TARGET)
        ground.resume()
    else:
        ground.rollback(discard_progress=True)
    (seen,) = there
    state = {
        path
        for path in Checkpoint().files()
        if path.startswith("state/") and path.endswith(".delta")
    }
    assert seen & state and not seen & {"metadata", "commits/2"}
    assert not ground.held(TARGET) and not ground.locks()


def stopped_in_its_first_batch(ground: Ground) -> None:
    """A job that ends its batch before it stops, and a run that waits for that batch in vain."""
    ground.write()
    ground.cluster.run("orders", SOURCE)

    def end_the_batch(request: StopRequest) -> None:
        if request.location == TARGET:
            commit(ground, TARGET, 3)

    ground.cluster._on_stop = end_the_batch
    with pytest.raises(ClusterError, match="has committed nothing"):
        ground.apply(running_spec(spec_on_failure="stop"))


def test_what_a_job_commits_while_it_is_stopped_for_a_rollback_is_not_thrown_away(
    ground: Ground,
) -> None:
    stopped_in_its_first_batch(ground)
    before = ground.held(TARGET)
    with pytest.raises(
        PlanError, match="has committed on the target while it was being stopped"
    ) as caught:
        ground.rollback()
    where = ground.workdir().path
    assert caught.value.hint == (
        f"`stateshift resume {where}` starts it there again; if it may be thrown away: "
        f"stateshift rollback {where} --discard-progress"
    )
    kept = ground.held(TARGET)
    assert kept.items() >= before.items() and "commits/3" in kept
    assert migration.status(ground.workdir()).state == "failed" and ground.locks()
    with pytest.raises(PlanError, match="would throw them away"):
        ground.rollback()
    assert ground.held(TARGET) == kept


def test_it_is_started_there_again_by_a_resume(ground: Ground) -> None:
    stopped_in_its_first_batch(ground)
    with pytest.raises(PlanError):
        ground.rollback()
    assert ground.resume().state == "finished"
    assert [one.location for one in ground.cluster.submissions] == [TARGET, TARGET]
    assert ground.cluster.find_source(StopRequest("orders", TARGET)).state is JobState.RUNNING
    assert not ground.locks() and not migration.verify(ground.workdir(), ground.adapters).broken
    with pytest.raises(PlanError, match="would throw them away"):
        ground.rollback()
    assert ground.rollback(discard_progress=True).state == "rolled-back"
    assert not ground.held(TARGET) and ground.cluster.submissions[-1].location == SOURCE
    assert not any(job.status.state.alive for job in ground.cluster.jobs if job.location == TARGET)


def test_a_start_whose_answer_was_lost_is_taken_back_as_any_other(ground: Ground) -> None:
    stopped_in_its_first_batch(ground)
    with pytest.raises(PlanError):
        ground.rollback()
    ground.cluster.lose_answers(1)
    with pytest.raises(ClusterError, match="the answer was lost"):
        ground.resume()
    assert ground.rollback(discard_progress=True).state == "rolled-back"
    assert [job.location for job in ground.cluster.jobs if job.status.state.alive] == [SOURCE]


def test_a_start_that_was_refused_is_tried_again(ground: Ground) -> None:
    stopped_in_its_first_batch(ground)
    with pytest.raises(PlanError):
        ground.rollback()
    ground.cluster.fail(1)
    with pytest.raises(ClusterError, match="refused"):
        ground.resume()
    assert ground.resume().state == "finished"
    assert [job.location for job in ground.cluster.jobs if job.status.state.alive] == [TARGET]


def test_or_it_is_thrown_away_where_that_is_said(ground: Ground) -> None:
    stopped_in_its_first_batch(ground)
    with pytest.raises(PlanError):
        ground.rollback()
    assert ground.rollback(discard_progress=True).state == "rolled-back"
    assert not ground.held(TARGET) and not ground.locks()
    assert (
        ground.cluster.submissions[-1].location == SOURCE
        and ground.held(SOURCE) == Checkpoint().files()
    )


def test_a_rollback_also_asks_where_a_person_started_the_job(ground: Ground) -> None:
    """No cluster in the spec: only the image itself tells that it went on."""
    ground.write()
    ground.apply(spec_of())
    commit(ground, TARGET, 3)
    with pytest.raises(PlanError, match="would throw them away"):
        ground.rollback()
    assert "commits/2" in ground.held(TARGET)


def test_a_run_whose_journal_was_emptied_is_not_taken_for_one_that_has_done_nothing(
    ground: Ground,
) -> None:
    ground.write()
    ground.apply(spec_of())
    (ground.workdir().path / "journal").write_bytes(b"")
    before = ground.disk.snapshot()
    for ask in (ground.rollback, ground.resume):
        with pytest.raises(JournalError, match="is empty, and its run had adopted plans"):
            ask()
    assert ground.disk.snapshot() == before


def test_the_evidence_of_a_finished_run_holds_until_somebody_changes_a_file(ground: Ground) -> None:
    ground.write()
    ground.apply(spec_of())
    assert migration.verify(ground.workdir(), ground.adapters).broken == ()
    ground.put(f"{TARGET}/offsets/2", b"changed")
    ground.remove(f"{SOURCE}/commits/3")
    broken = migration.verify(ground.workdir(), ground.adapters).broken
    assert {found.step for found in broken} == {"publish/0", "halt/fence"}


def test_verify_leaves_a_line_alone_that_another_process_is_just_writing(ground: Ground) -> None:
    ground.write()
    ground.apply(spec_of())
    journal = ground.workdir().path / "journal"
    journal.write_bytes(journal.read_bytes() + b'0badc0de {"at":')
    before = journal.read_bytes()
    migration.verify(ground.workdir(), ground.adapters)
    migration.status(ground.workdir())
    assert journal.read_bytes() == before


@pytest.mark.parametrize("verify", ["entries", "twice", "digests", "none"])
def test_every_way_to_verify_moves_the_same_image(ground: Ground, verify: str) -> None:
    ground.write()
    proposal = ground.propose(spec_of(verify=verify))
    assert any(isinstance(step, CompareImages) for step in proposal.plans[0]) is (verify != "none")
    ground.apply(proposal)
    assert ground.held(TARGET)["commits/2"] == Checkpoint().files()["commits/2"]


def test_a_run_goes_on_with_a_corrected_submit_and_nothing_else_of_the_spec(tmp_path: Path) -> None:
    """What failed when the job was started is mended in the same run: its image is there
    already.
    """
    ground = Ground(tmp_path)
    ground.write()
    spec = running_spec(spec_on_failure="stop")
    ground.cluster.fail()
    with pytest.raises(ClusterError):
        ground.apply(spec)
    before = spec.jobs[0]
    assert before.submit is not None
    mended = replace(
        before, submit=replace(before.submit, options={"command": "go on"}, environment={"A": "1"})
    )
    other = replace(mended, target="file:///else/where", stop={"seconds_max": 5.0})
    with pytest.raises(SpecError) as raised:
        migration.resume(ground.workdir(), ground.adapters, replace(spec, jobs=(other,)))
    told = raised.value.complaints[0].message
    assert "/jobs/0/remote_location" in told and "/jobs/0/stop" in told and "/submit" not in told
    assert "rollback" in str(raised.value.hint)
    ground.cluster.fail()
    with pytest.raises(ClusterError):
        migration.resume(ground.workdir(), ground.adapters, replace(spec, jobs=(mended,)))
    with suppress(ClusterError):  # nothing in memory commits a batch
        ground.resume()  # it was kept: later commands of the run go by it
    assert [(s.options, s.environment) for s in ground.cluster.submissions] == [
        ({"command": "go on"}, {"A": "1"})
    ]


def loses_its_query_once(ground: Ground) -> Callable[[Submission], None]:
    """Return what the cluster does with a job: the first driver lives on without its query, the
    next one commits.
    """
    log = began(QUERY) + ended(SCHEMA, query=QUERY)

    def start(submission: Submission) -> None:
        if len(ground.cluster.submissions) == 1:
            ground.cluster.set_state(submission.tag, JobState.RUNNING, log)
        else:
            commit(ground, TARGET, 3)

    return start


def test_a_driver_whose_query_has_ended_is_stopped_and_started_again_by_a_resume(
    ground: Ground,
) -> None:
    """It lives on without its query, and would be found running by every resume."""
    ground.write()
    ground.cluster._on_start = loses_its_query_once(ground)
    with pytest.raises(
        ClusterError, match=r"a query of it has ended .*SCHEMA_NOT_COMPATIBLE"
    ) as raised:
        ground.apply(running_spec(spec_on_failure="stop"))
    assert "resume" in str(raised.value.hint) and "--spec FILE" in str(raised.value.hint)
    assert ground.resume().state == "finished"
    alive = [job.tag for job in ground.cluster.jobs if job.status.state.alive]
    assert alive == [ground.cluster.submissions[-1].tag] and len(ground.cluster.stops) == 1
    assert any("gets no further: it is started again" in line for line in ground.said)


def test_a_resume_that_is_killed_between_the_stop_and_the_start_is_made_good_by_the_next(
    ground: Ground,
) -> None:
    ground.write()

    def killed(submission: Submission) -> str:
        raise KeyboardInterrupt

    ground.cluster._on_start = loses_its_query_once(ground)
    with pytest.raises(ClusterError, match="a query of it has ended"):
        ground.apply(running_spec(spec_on_failure="stop"))
    submit, ground.cluster.submit = ground.cluster.submit, killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        ground.resume()
    assert not any(job.status.state.alive for job in ground.cluster.jobs)
    ground.cluster.submit = submit  # type: ignore[method-assign]
    assert ground.resume().state == "finished"
    assert [job.tag for job in ground.cluster.jobs if job.status.state.alive] == [
        ground.cluster.submissions[-1].tag
    ]


def test_a_job_that_ended_without_a_batch_is_started_again_by_a_resume(ground: Ground) -> None:
    ground.write()

    def start(submission: Submission) -> None:
        first = len(ground.cluster.submissions) == 1
        ground.cluster.set_state(submission.tag, JobState.FINISHED if first else JobState.RUNNING)
        if not first:
            commit(ground, TARGET, 3)

    ground.cluster._on_start = start
    with pytest.raises(ClusterError, match="orders ended before it committed a batch"):
        ground.apply(running_spec(spec_on_failure="stop"))
    assert ground.resume().state == "finished"
    assert len(ground.cluster.submissions) == 2


def test_how_to_go_on_is_said_only_when_the_journal_holds_what_was_begun(ground: Ground) -> None:
    """Said before, `resume` behind a kill in between would go on with the move that was to be
    taken back.
    """
    states: list[str] = []

    def begun() -> None:
        states.append(migration.status(ground.workdir()).state)

    ground.write()
    ground.apply(spec_of())
    workdir = ground.workdir()
    migration.rollback(workdir, ground.adapters, True, begun)
    assert states == ["rolling-back"]
    migration.resume(workdir, ground.adapters, begun=begun)
    assert states == ["rolling-back"], "nothing is begun in a run that has ended"

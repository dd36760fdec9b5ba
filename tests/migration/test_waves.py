"""Several jobs in one run: which move together, and what becomes of the others when one fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.clusters.protocol import JobState, StopRequest, Submission
from stateshift.errors import ClusterError, PlanError, StateshiftError
from stateshift.formats.marks import IDLE, INDEX, decode_index, encode_idle, fence_owner
from stateshift.formats.uid import directory_name
from stateshift.journal import StepFinished, StepStarted, StepUndone, decode_records
from stateshift.migration.adapters import world_of
from stateshift.report import Report
from stateshift.specification import Spec, parse_spec
from stateshift.specification.dataflow.document import Opened
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import ProcessGone
from tests.support.checkpoints import Checkpoint
from tests.support.ground import Around, Ground

NAMES = ("first", "second", "third")
FLOW = "file:///here/flow"
# More changes than a run of three jobs makes.
CHANGES_MAX = 1000
COMMAND = {"kind": "command", "find": "f", "submit": "s", "stop": "t"}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return made(tmp_path)


def made(folder: Path) -> Ground:
    """Three jobs that run."""
    ground = Ground(folder)
    for name in NAMES:
        ground.write(location=f"file:///here/{name}")
        ground.cluster.run(name, f"file:///here/{name}")
    return ground


def asked(*names: str, opened: Opened | None = None, **beside: Any) -> Spec:
    """Each job stops on a cluster, moves, and starts there again; a rollback starts it where it
    was.
    """
    jobs = [
        {"name": name, "checkpoint_location": f"/here/{name}", "remote_location": f"/there/{name}"}
        for name in names or NAMES
    ]
    common = {
        "source_cluster": "ours",
        "target_cluster": "ours",
        "submit": {"command": "go"},
        "source_submit": {"command": "back"},
    }
    return parse_spec(
        json.dumps({"version": 1, "clusters": {"ours": COMMAND}, **common, "jobs": jobs, **beside}),
        opened=opened,
    )


def commit(ground: Ground, location: str) -> None:
    extra = Checkpoint(batches=4).files()
    for path in ("offsets/3", "state/0/0/4.delta", "state/0/1/4.delta", "commits/3"):
        ground.put(f"{location}/{path}", extra[path])


def going_on(ground: Ground, *, without: str = "") -> None:
    """What is started on the target commits its next batch; the job `without` dies instead."""

    def start(submission: Submission) -> None:
        if submission.job == without and submission.location.startswith("file:///there"):
            ground.cluster.set_state(submission.tag, JobState.FAILED, "no such class")
        elif submission.location.startswith("file:///there") and submission.job in NAMES:
            commit(ground, submission.location)

    ground.cluster._on_start = start


def failed(
    ground: Ground, spec: Spec, error: type[StateshiftError] = ClusterError
) -> StateshiftError:
    with pytest.raises(error) as caught:
        ground.apply(spec)
    return caught.value


def states(report: Report) -> dict[str, str]:
    return {job.job: job.state for job in report.jobs}


def running(ground: Ground) -> set[str]:
    """Where jobs run now."""
    return {
        job.location.removeprefix("file:///")
        for job in ground.cluster.jobs
        if job.status.state.alive
    }


def told(ground: Ground, *kinds: type) -> list[Any]:
    records, _ = decode_records(ground.workdir().lines.read())
    return [record for record in records if isinstance(record, kinds)]


# ---- waves


def test_without_waves_a_job_is_done_before_the_next_is_stopped(ground: Ground) -> None:
    going_on(ground)
    assert ground.apply(asked()).state == "finished"
    assert [one.plan for one in told(ground, StepFinished)] == sorted(
        one.plan for one in told(ground, StepFinished)
    )
    assert running(ground) == {"there/first", "there/second", "there/third"}


def test_the_jobs_of_a_wave_go_through_each_phase_together(ground: Ground) -> None:
    going_on(ground)
    assert ground.apply(asked(waves=[["third", "first"], ["second"]])).state == "finished"
    begun = [(one.phase, one.step.split("/")[0]) for one in told(ground, StepStarted)]
    phases = [
        phase
        for (phase, _), before in zip(begun, [None, *begun], strict=False)
        if (phase, _) != before
    ]
    one_wave = ["halt", "copy", "compare", "publish", "submit", "confirm"]
    assert [phase for phase in phases if phase in one_wave] == one_wave * 2


def test_the_jobs_of_a_wave_are_all_stopped_before_anything_of_one_is_published(
    ground: Ground,
) -> None:
    going_on(ground)
    proposal = ground.propose(asked("first", "second", waves=[["first", "second"]]))
    assert {plan.purpose for plan in proposal.plans} == {"halt", "move"}
    assert ground.apply(proposal).state == "finished"
    begun = [one.step for one in told(ground, StepStarted)]
    assert begun.count("halt/stop") == 2
    stopped = max(index for index, step in enumerate(begun) if step == "halt/stop")
    assert stopped < min(index for index, step in enumerate(begun) if step.startswith("publish/"))


@pytest.mark.parametrize(
    ("strategy", "waves"),
    [("all-at-once", 1), ("batched(2)", 2), ("optimised", 3)],  # they share both disks
)
def test_a_strategy_says_how_many_waves_there_are(
    ground: Ground, strategy: str, waves: int
) -> None:
    going_on(ground)
    assert ground.apply(asked(strategy=strategy)).state == "finished"
    phases = [one.phase for one in told(ground, StepStarted)]
    assert (
        sum(now == "halt" != before for before, now in zip([None, *phases], phases, strict=False))
        == waves
    )
    assert running(ground) == {"there/first", "there/second", "there/third"}


@pytest.mark.parametrize(
    ("waves", "complaint"),
    [
        ([["first", "second"]], "'third' is in no wave"),
        ([["first", "second"], ["third", "first"]], "'first' is in two waves"),
        (
            [["first", "second"], ["thrid", "third"]],
            "there is no job 'thrid', did you mean 'third'?",
        ),
        ([["first", "second", "third"], []], "a wave without jobs"),
        ("first", "a list of waves"),
    ],
)
def test_every_job_is_in_exactly_one_wave(waves: Any, complaint: str) -> None:
    with pytest.raises(StateshiftError) as caught:
        asked(waves=waves)
    told = "\n".join(f"{c.message} {c.expected}" for c in caught.value.complaints)  # type: ignore[attr-defined]
    assert complaint in told


def test_one_job_of_a_wave_that_is_no_longer_as_planned_keeps_none_of_it_halted(
    ground: Ground,
) -> None:
    going_on(ground)
    proposal = ground.propose(asked("first", "second", waves=[["first", "second"]]))
    ground.cluster._on_stop = lambda request: ground.put(
        f"{request.location.replace('here', 'there')}/somebody"
    )
    with pytest.raises(PlanError):
        ground.apply(proposal)
    assert running(ground) >= {"here/first", "here/second"}
    assert not ground.locks()


# ---- on_failure


def test_stop_leaves_everything_to_a_person(ground: Ground) -> None:
    going_on(ground, without="second")
    failed(ground, asked(on_failure="stop"))
    report = migration.status(ground.workdir())
    assert (report.state, states(report)) == (
        "failed",
        {"first": "finished", "second": "unfinished"},
    )
    assert running(ground) == {"there/first", "here/third"}


def test_finish_takes_the_failed_job_back_and_carries_out_the_others(ground: Ground) -> None:
    going_on(ground, without="second")
    error = failed(ground, asked(on_failure="finish"))
    report = migration.status(ground.workdir())
    assert (report.state, states(report)) == (
        "failed",
        {"first": "finished", "second": "rolled-back", "third": "finished"},
    )
    assert running(ground) == {"there/first", "here/second", "there/third"}
    assert "second was taken back" in (error.hint or "") and "no such class" in error.fact
    assert report.jobs[1].failure is not None and "no such class" in report.jobs[1].failure.message
    assert not ground.locks()
    assert not ground.held("file:///there/second")


def test_what_was_taken_back_is_tried_again_by_a_resume(ground: Ground) -> None:
    going_on(ground, without="second")
    failed(ground, asked(on_failure="finish"))
    commit(ground, "file:///here/second")  # it has gone on where it was

    def start(submission: Submission) -> None:
        extra = Checkpoint(batches=5).files()
        for path in ("offsets/4", "state/0/0/5.delta", "state/0/1/5.delta", "commits/4"):
            ground.put(f"{submission.location}/{path}", extra[path])

    ground.cluster._on_start = start
    report = ground.resume()
    assert (report.state, set(states(report).values())) == ("finished", {"finished"})
    assert {"commits/3", "commits/4"} <= ground.held("file:///there/second").keys()
    assert running(ground) == {"there/first", "there/second", "there/third"}
    assert report.jobs[1].failure is None


@pytest.mark.parametrize("on_failure", ["rollback", "discard"])
def test_a_wave_that_fails_before_a_job_has_committed_is_taken_back_whole(
    ground: Ground, on_failure: str
) -> None:
    going_on(ground)
    ground.cluster.fail(6)
    before = {name: ground.held(f"file:///here/{name}") for name in NAMES}
    error = failed(ground, asked(on_failure=on_failure, waves=[list(NAMES)]))
    ground.cluster._faults.clear()
    report = migration.status(ground.workdir())
    if report.state == "rolling-back":  # starting the old jobs again failed as well
        assert "goes on with that" in (error.hint or "")
        report = ground.resume()
    assert report.state == "rolled-back"
    assert report.failure is not None, "why, is still told"
    assert {name: ground.held(f"file:///here/{name}") for name in NAMES} == before
    assert running(ground) == {"here/first", "here/second", "here/third"}
    assert not any(ground.held(f"file:///there/{name}") for name in NAMES)


def test_rollback_leaves_alone_what_has_committed_since_and_says_how_to_take_it_back(
    ground: Ground,
) -> None:
    going_on(ground, without="second")
    error = failed(ground, asked(on_failure="rollback"))
    report = migration.status(ground.workdir())
    assert (report.state, states(report)) == (
        "failed",
        {"first": "finished", "second": "rolled-back"},
    )
    assert running(ground) == {"there/first", "here/second", "here/third"}
    assert "first has committed batches on the target since" in (error.hint or "")


def test_discard_takes_that_back_too(ground: Ground) -> None:
    going_on(ground, without="third")
    error = failed(ground, asked(on_failure="discard"))
    report = migration.status(ground.workdir())
    assert (report.state, set(states(report).values())) == ("rolled-back", {"rolled-back"})
    assert running(ground) == {"here/first", "here/second", "here/third"}
    assert "on_failure" in (error.hint or "")
    assert len(told(ground, StepUndone)) > 10


def test_a_wave_half_of_which_has_committed_is_not_torn_apart_again(ground: Ground) -> None:
    going_on(ground, without="second")
    error = failed(ground, asked(on_failure="finish", waves=[["first", "second"], ["third"]]))
    assert running(ground) == {"there/first", "there/third"}
    assert "was not taken back: first has committed" in (error.hint or "")
    going_on(ground)
    assert ground.resume().state == "finished"
    assert running(ground) == {"there/first", "there/second", "there/third"}


@pytest.mark.parametrize("on_failure", ["finish", "rollback"])
def test_a_wave_whose_job_commits_while_it_is_stopped_is_not_taken_back(
    ground: Ground, on_failure: str
) -> None:
    """The second dies, so that the first is stopped in its first batch, which it ends."""
    going_on(ground, without="second")
    start = ground.cluster._on_start
    assert start is not None
    ground.cluster._on_start = lambda submission: (
        start(submission) if submission.job == "second" else None
    )
    ground.cluster._on_stop = lambda request: (
        commit(ground, request.location) if request.location == "file:///there/first" else None
    )
    error = failed(
        ground, asked("first", "second", on_failure=on_failure, waves=[["first", "second"]])
    )
    assert "was not taken back: first has committed on the target while it was being stopped" in (
        error.hint or ""
    )
    assert "resume" in (error.hint or "") and "commits/3" in ground.held("file:///there/first")
    assert migration.status(ground.workdir()).state == "failed"
    ground.cluster._on_stop = None
    going_on(ground)
    assert ground.resume().state == "finished"
    assert running(ground) == {"there/first", "there/second", "here/third"}


def idle(ground: Ground, *, ends_at_stop: str) -> None:
    """No job has anything to read; one of them has a batch to end when it is stopped."""

    def start(submission: Submission) -> None:
        if submission.location.startswith("file:///there"):
            ground.put(f"{submission.location}/{IDLE}", encode_idle(submission.tag, None))

    ground.cluster._on_start = start
    ground.cluster._on_stop = lambda request: (
        commit(ground, request.location)
        if request.location == f"file:///there/{ends_at_stop}"
        else None
    )


@pytest.mark.parametrize(
    "waves", [[["first", "second"]], [["first"], ["second"]]], ids=["together", "one by one"]
)
@pytest.mark.parametrize("name", ["first", "second"])
def test_no_job_is_taken_back_where_one_of_them_cannot_be(
    ground: Ground, name: str, waves: list[list[str]]
) -> None:
    idle(ground, ends_at_stop=name)
    ground.apply(asked("first", "second", waves=waves))
    held = {other: ground.held(f"file:///there/{other}") for other in NAMES[:2]}
    with pytest.raises(
        PlanError, match=f"{name} has committed on the target while it was being stopped"
    ):
        ground.rollback()
    assert running(ground) == {"here/third"}
    assert all(
        ground.held(f"file:///there/{other}").keys() >= files.keys()
        for other, files in held.items()
    )
    assert ground.resume().state == "finished"
    assert running(ground) == {"there/first", "there/second", "here/third"}
    assert ground.rollback(discard_progress=True).state == "rolled-back"
    assert running(ground) == {"here/first", "here/second", "here/third"}


@pytest.mark.parametrize("starts_again", [True, False])
def test_jobs_that_an_automatic_rollback_has_stopped_in_vain_are_started_again(
    ground: Ground, starts_again: bool
) -> None:
    """The first two have moved and are idle; the third dies. Asked to stop, the first ends a
    batch.
    """
    idle(ground, ends_at_stop="first")
    start, tries = ground.cluster._on_start, list[str]()
    assert start is not None

    def started(submission: Submission) -> None:
        tries.append(submission.job)
        if submission.job == "third" or (tries.count(submission.job) > 1 and not starts_again):
            ground.cluster.set_state(submission.tag, JobState.FAILED, "no such class")
        else:
            start(submission)

    ground.cluster._on_start = started
    error = failed(ground, asked(on_failure="rollback"))
    hint = error.hint or ""
    assert "no such class" in error.fact and "was not taken back: first has committed" in hint
    report = migration.status(ground.workdir())
    assert report.state == "failed" and report.failure is not None and report.failure.hint == hint
    if starts_again:
        assert (
            running(ground) == {"there/first", "there/second"}
            and "started there again: first and second" in hint
        )
        assert states(report) == {"first": "finished", "second": "finished", "third": "unfinished"}
    else:
        assert not running(ground) and "to start first and second there again failed, too" in hint
    ground.cluster._on_start = start
    assert ground.resume().state == "finished"
    assert running(ground) == {"there/first", "there/second", "there/third"}


def test_a_job_that_somebody_starts_behind_a_refused_rollback_is_seen(ground: Ground) -> None:
    idle(ground, ends_at_stop="first")
    ground.apply(asked("first"))
    with pytest.raises(PlanError, match="while it was being stopped"):
        ground.rollback()
    ground.cluster.run("first", "file:///there/first")
    for again in (ground.resume, lambda: ground.rollback(discard_progress=True)):
        with pytest.raises(PlanError, match="this run did not start it"):
            again()
    assert running(ground) == {"there/first", "here/second", "here/third"}


def test_nor_is_an_image_taken_away_from_under_a_job_that_somebody_starts_in_between(
    ground: Ground,
) -> None:
    idle(ground, ends_at_stop="")
    ground.apply(asked("first"))

    def cut(request: StopRequest) -> None:
        ground.cluster._on_stop = None
        raise ClusterError("no answer", cluster="ours", job=request.job)

    ground.cluster._on_stop = cut
    with pytest.raises(ClusterError, match="no answer"):
        ground.rollback()
    ground.cluster.run("first", "file:///there/first")
    with pytest.raises(PlanError, match="this run did not start it"):
        ground.resume()
    assert running(ground) == {"there/first", "here/second", "here/third"}


def test_a_rollback_that_is_under_way_may_be_told_to_discard(ground: Ground) -> None:
    idle(ground, ends_at_stop="first")
    ground.apply(asked("first"))
    stop = ground.cluster._on_stop
    assert stop is not None

    def cut(request: StopRequest) -> None:
        stop(request)
        ground.cluster._on_stop = None
        raise ClusterError("no answer", cluster="ours", job=request.job)

    ground.cluster._on_stop = cut
    with pytest.raises(ClusterError, match="no answer"):
        ground.rollback()
    assert migration.status(ground.workdir()).state == "rolling-back"
    assert ground.rollback(discard_progress=True).state == "rolled-back"
    assert running(ground) == {"here/first", "here/second", "here/third"}


def test_a_refused_job_keeps_none_of_the_others_from_moving(ground: Ground) -> None:
    going_on(ground)
    proposal = ground.propose(asked(on_failure="finish"))
    ground.put("file:///there/second/somebody")
    with pytest.raises(PlanError, match="no longer what the plan was made from"):
        ground.apply(proposal)
    report = migration.status(ground.workdir())
    assert states(report) == {"first": "finished", "second": "not begun", "third": "finished"}
    assert not ground.locks()


def test_a_job_that_failed_is_started_again_by_a_resume_and_only_then(ground: Ground) -> None:
    going_on(ground, without="second")
    failed(ground, asked("second", on_failure="stop"))
    with pytest.raises(ClusterError, match="no such class"):
        ground.resume()
    tags = [one.tag for one in ground.cluster.submissions if one.job == "second"]
    assert len(tags) == len(set(tags)) == 2
    going_on(ground)
    assert ground.resume().state == "finished"
    assert set(ground.cluster.started.values()) == {1}
    assert ground.rollback(discard_progress=True).state == "rolled-back"
    assert running(ground) >= {"here/second"} and "there/second" not in running(ground)


# ---- jobs that divide a workflow


def divided(**keys: Any) -> dict[str, Any]:
    common = {
        "source_cluster": "ours",
        "target_cluster": "ours",
        "submit": {"command": "go"},
        "source_submit": {"command": "back"},
    }
    jobs = [
        {
            "name": "left",
            "checkpoint_location": "/here/flow",
            "remote_location": "/there/left",
            "operators": ["A"],
        },
        {
            "name": "right",
            "checkpoint_location": "/here/flow",
            "remote_location": "/there/right",
            "operators": [{"name": "B", "directory": "other"}],
        },
    ]
    return {"version": 1, "clusters": {"ours": COMMAND}, **common, "jobs": jobs, **keys}


@pytest.fixture
def flow(tmp_path: Path) -> Ground:
    """Workflow 1: two operators, one job."""
    made = Ground(tmp_path)
    for prefix in (directory_name("A"), "other"):
        made.write(location=FLOW, prefix=prefix)
    made.cluster.run("left", FLOW)

    def start(submission: Submission) -> None:
        extra = Checkpoint(batches=4).files()
        for prefix in (directory_name("A"), "other"):
            if submission.location.startswith("file:///there") and made.held(
                f"{submission.location}/{prefix}"
            ):
                for path in ("offsets/3", "state/0/0/4.delta", "state/0/1/4.delta", "commits/3"):
                    made.put(f"{submission.location}/{prefix}/{path}", extra[path])

    made.cluster._on_start = start
    return made


@pytest.mark.row("IS-4", "IS-16")
def test_a_workflow_is_divided_between_two_jobs_by_their_operators(flow: Ground) -> None:
    report = flow.apply(parse_spec(json.dumps(divided())))
    assert report.state == "finished"
    left, right = flow.held("file:///there/left"), flow.held("file:///there/right")
    assert {path.split("/")[0] for path in left} == {directory_name("A")}
    assert {path.split("/")[0] for path in right} == {"other"}
    index = flow.disk.snapshot("file:///there/right")[INDEX]
    assert decode_index(index) == {"B": "other"}
    assert [job.downtime_from for job in report.jobs] == ["halt", "halt"]
    assert len(flow.cluster.stops) == 1, "it is one job that both take apart"
    fences = [path for path, content in flow.held(FLOW).items() if fence_owner(content)]
    assert {path.split("/")[0] for path in fences} == {directory_name("A"), "other"}


@pytest.mark.row("IS-16")
def test_a_divided_workflow_that_is_taken_back_is_started_again_once(flow: Ground) -> None:
    before = flow.held(FLOW)
    flow.apply(parse_spec(json.dumps(divided())))
    assert flow.rollback(discard_progress=True).state == "rolled-back"
    assert flow.held(FLOW) == before
    assert [s.location for s in flow.cluster.submissions if s.location == FLOW] == [FLOW]
    assert [job.location for job in flow.cluster.jobs if job.status.state.alive] == [FLOW]


def test_an_operator_that_no_job_takes_is_named_and_may_be_waived(flow: Ground) -> None:
    flow.write(location=FLOW, prefix="third")
    with pytest.raises(PlanError, match="flow/third is taken along by none of the jobs"):
        flow.apply(parse_spec(json.dumps(divided())))
    assert (
        flow.apply(parse_spec(json.dumps(divided(waive=["operators-stay"]))), "again").state
        == "finished"
    )


def test_jobs_that_divide_a_workflow_do_not_move_alone(flow: Ground) -> None:
    spec = parse_spec(json.dumps(divided()))
    with pytest.raises(PlanError, match="'left' shares its source with 'right'"):
        migration.propose(spec, flow.adapters, flow.workdir(), ["left"])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda jobs: jobs[0].pop("operators"), "this job names no operators"),
        (lambda jobs: jobs[0].pop("remote_location"), "this job stays there"),
        (lambda jobs: jobs[0].update(merge_jobs=["/here/more"]), "a merge would be divided"),
    ],
)
def test_jobs_that_divide_a_workflow_say_what_is_theirs(
    change: Callable[[Any], Any], complaint: str
) -> None:
    plain = divided()
    change(plain["jobs"])
    with pytest.raises(StateshiftError) as caught:
        parse_spec(json.dumps(plain))
    assert complaint in "\n".join(c.message for c in caught.value.complaints)  # type: ignore[attr-defined]


def test_jobs_that_divide_a_workflow_are_in_one_wave() -> None:
    with pytest.raises(StateshiftError, match="have one source, and are in two waves"):
        parse_spec(json.dumps(divided(waves=[["left"], ["right"]])))


def test_one_query_cannot_be_divided_by_operators(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(location=FLOW)
    with pytest.raises(PlanError, match="jobs cannot divide it by operators") as caught:
        ground.apply(parse_spec(json.dumps(divided())))
    assert "split" in (caught.value.hint or "")


# ---- killed anywhere


class Dying(Around):
    """A storage whose process is killed before its n-th change of anything."""

    def __init__(self, inner: Storage, left: list[int]) -> None:
        super().__init__(inner)
        self._left = left

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name not in ("write", "create", "move", "remove"):
            return found

        def change(*args: Any, **more: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] < 0:
                raise ProcessGone
            return found(*args, **more)

        return change


@pytest.mark.parametrize("on_failure", ["finish", "rollback", "discard"])
def test_killed_at_any_change_a_run_with_a_failing_job_ends_as_if_it_had_not_been(
    tmp_path: Path, on_failure: str, moments: Callable[[int], range]
) -> None:
    """Killed once before each change, and resumed."""
    expected, _ = ended(tmp_path / "whole", on_failure, 10_000)
    for at in moments(CHANGES_MAX):
        found, killed = ended(tmp_path / str(at), on_failure, at - 1)
        assert found == expected, f"killed at change {at}"
        if not killed:
            break
    assert not killed
    assert at > 40


def ended(folder: Path, on_failure: str, at: int) -> tuple[Any, bool]:
    """What is where in the end, and whether anybody was killed."""
    ground, left = made(folder), [10_000]
    ground.wrap = lambda storage: Dying(storage, left)  # type: ignore[return-value]
    going_on(ground, without="second")
    proposal = ground.propose(asked(on_failure=on_failure, parallel=1))
    left[0] = at
    killed = False
    try:
        ground.apply(proposal)
    except ProcessGone:
        killed, left[0] = True, 10_000
        with suppress(StateshiftError):
            ground.resume()
    except ClusterError:
        pass
    report = migration.status(ground.workdir())
    held = {
        place: ground.held(f"file:///{place}")
        for name in NAMES
        for place in (f"here/{name}", f"there/{name}")
    }
    return (report.state, states(report), running(ground), held, ground.locks()), killed


def test_who_has_fenced_a_source_is_found_out_whatever_the_pace(tmp_path: Path) -> None:
    """A job that is to be started again is down meanwhile; what is to be slow is the copy."""
    ground = made(tmp_path)
    spec = asked("first", throttle={"bytes_per_second": 10, "operations_per_second": 0.1})
    world, began = world_of(spec, "run", ground.workdir(), ground.adapters), ground.clock.time
    assert world.fence("file:///here/first") is None
    assert ground.clock.time == began
    world.storage("file:///here/first").read("metadata")
    world.storage("file:///here/first").read("metadata")
    assert ground.clock.time > began, "the pace is kept to elsewhere"

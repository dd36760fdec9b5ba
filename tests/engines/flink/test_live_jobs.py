"""A move of files alone asks the source cluster whether their job still runs: no plan starts a
second job beside it from an older state. The cluster is one that answers as a real Flink does; the
real one is in tests/servers/test_flink_moves.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.flink.cluster import FlinkRest
from stateshift.clusters.protocol import Submission
from stateshift.errors import ClusterError, StalePlan
from stateshift.formats.uid import flink_operator_id
from stateshift.migration import Proposal
from stateshift.specification import Spec, parse_spec
from stateshift.survey import Finding
from stateshift.testing.memory_flink import MemoryFlink
from tests.clusters.fake_flink import COUNT, SOURCE, FakeFlink, serving
from tests.clusters.test_flink_rest import cluster
from tests.engines.flink import golden
from tests.engines.flink.test_running import TARGET, TWO, spec_of
from tests.support.ground import Around, Ground

OLD, OTHER = "855f135f6dce258a1e21144b7d6a8064", "0b9d135f6dce258a1e21144b7d6a8000"
SAVEPOINT = "file:///taken/savepoint-855f13-ca07d844cdfb"
PLAIN = "file:///taken/by-hand"  # named by nobody's id
REFUSED = "it would run on, beside a job that starts from what it was before"


@pytest.fixture
def server() -> Iterator[FakeFlink]:
    with serving() as flink:
        yield flink


def ground_of(tmp_path: Path, server: FakeFlink, place: str = SAVEPOINT) -> Ground:
    ground = Ground(tmp_path)
    source = golden.write(ground.disk, TWO)
    survey = ground.disk.open(source)
    for file in survey.list():
        ground.put(f"{place}/{file.path}", survey.read(file.path))
    ground.cluster = cluster(server, tmp_path)
    return ground


def planned(ground: Ground, place: str = SAVEPOINT, **more: Any) -> Proposal:
    asked = {
        "name": "moved",
        "existing_savepoint_paths": [place],
        "source_cluster": "old",
        "new_savepoint_path": TARGET,
        **more,
    }
    return ground.propose(spec_of({key: each for key, each in asked.items() if each is not None}))


def beside(proposal: Proposal) -> list[Finding]:
    """What is said of jobs that run."""
    found = [finding for plan in proposal.plans for finding in plan.findings]
    return [one for one in found if " on old" in one.message or "does not tell" in one.message]


def no_answer(_: FlinkRest) -> None:
    raise ClusterError("HTTP 403", hint="ask for the right")


def starting(tmp_path: Path, server: FakeFlink) -> tuple[Ground, MemoryFlink]:
    """The files of a job of one cluster, that is to be started on another one."""
    ground = ground_of(tmp_path, server)
    new = MemoryFlink(lambda location: None)
    ground.clusters = {"new": new, "old": ground.cluster}
    return ground, new


def started() -> Spec:
    job = {"name": "moved", "existing_savepoint_paths": [SAVEPOINT], "new_savepoint_path": TARGET}
    start = {"source_cluster": "old", "target_cluster": "new", "submit": {"command": "go"}}
    kind = {"kind": "command", "find": "f", "submit": "s", "stop": "t"}
    plain = {"version": 1, "engine": "flink", "clusters": {"old": kind, "new": kind}}
    return parse_spec(json.dumps({**plain, "jobs": [{**job, **start}], "on_failure": "stop"}))


class Killed(Around):
    """A storage at which the process dies when the new image is about to be seen."""

    def write(self, path: str, *words: Any, **more: Any) -> Any:
        if self.inner.location.startswith("file:///there") and path.endswith("_metadata"):
            raise KeyboardInterrupt
        return self.inner.write(path, *words, **more)


def test_a_savepoint_of_a_job_that_runs_is_refused_with_both_ways_out(
    tmp_path: Path, server: FakeFlink
) -> None:
    server.begin(OLD)
    (refusal,) = planned(ground_of(tmp_path, server)).refusals
    assert refusal.message == (
        f"orders ({OLD}) runs on old, and this image is named for it: {REFUSED}"
    )
    assert refusal.waive == "job-stopped"
    assert f'"job_ids": ["{OLD}"] in place of "existing_savepoint_paths"' in (refusal.hint or "")
    assert '"mode": "fork"' in (refusal.hint or "")


@pytest.mark.parametrize("state", ["FINISHED", "CANCELED", "FAILED"])
def test_a_job_that_was_stopped_before_is_moved_without_a_word(
    tmp_path: Path, server: FakeFlink, state: str
) -> None:
    server.begin(OLD, state=state).checkpointed(7, SAVEPOINT, "SYNC_SAVEPOINT")
    ground = ground_of(tmp_path, server)
    proposal = planned(ground)
    assert beside(proposal) == [] and not proposal.refusals
    assert ground.apply(proposal).state == "finished"


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ("savepoint", "this image is one of its own"),
        ("checkpoint", "this image is one of its own"),
        ("restored", "it was started from this image"),
    ],
)
def test_a_job_is_known_by_the_images_that_flink_remembers_of_it(
    tmp_path: Path, server: FakeFlink, known: str, why: str
) -> None:
    """Also where the folder has another name by now, and the job another one than the spec's."""
    job = server.begin(OTHER)
    if known == "restored":
        job.restored = {"id": 7, "external_path": PLAIN.replace("file://", "file:")}
    else:
        job.checkpointed(7, PLAIN, "SAVEPOINT" if known == "savepoint" else "CHECKPOINT")
    (refusal,) = planned(ground_of(tmp_path, server, PLAIN), PLAIN).refusals
    assert refusal.message == f"orders ({OTHER}) runs on old, and {why}: {REFUSED}"


def test_a_checkpoint_in_the_folder_of_a_job_that_runs_is_its_own(
    tmp_path: Path, server: FakeFlink
) -> None:
    place = f"file:///checkpoints/{OLD}/chk-7"
    server.begin(OLD, state="RESTARTING")
    server.begin(OTHER)
    (refusal,) = planned(ground_of(tmp_path, server, place), place).refusals
    assert f"orders ({OLD}) runs on old, and this image is named for it" in refusal.message


def test_a_savepoint_that_was_copied_by_hand_keeps_its_name(
    tmp_path: Path, server: FakeFlink
) -> None:
    server.begin(OTHER).checkpointed(7, "s3://far/away/savepoint-c0ffee-ca07d844cdfb", "SAVEPOINT")
    place = "file:///copied/savepoint-c0ffee-ca07d844cdfb"
    (refusal,) = planned(ground_of(tmp_path, server, place), place).refusals
    assert "this image is one of its own" in refusal.message


@pytest.mark.parametrize("more", [{"name": "orders"}, {"stop": {"job_id": OTHER}}])
def test_the_job_that_the_spec_means_may_not_run_on_either(
    tmp_path: Path, server: FakeFlink, more: dict[str, Any]
) -> None:
    server.begin(OTHER)
    (refusal,) = planned(ground_of(tmp_path, server, PLAIN), PLAIN, **more).refusals
    why = "the spec names it" if "stop" in more else "it has the job's name"
    assert f"orders ({OTHER}) runs on old, and {why}: {REFUSED}" == refusal.message


def test_a_job_of_the_same_operators_is_a_warning_and_another_one_is_nothing(
    tmp_path: Path, server: FakeFlink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of one program have one another's operators."""
    server.begin(OTHER)
    ground = ground_of(tmp_path, server, PLAIN)
    assert beside(planned(ground, PLAIN)) == []
    for name, uid in (("SOURCE", "orders-source"), ("COUNT", "orders-count")):
        monkeypatch.setattr(f"tests.clusters.fake_flink.{name}", flink_operator_id(uid))
    proposal = planned(ground, PLAIN)
    (warning,) = beside(proposal)
    assert not proposal.refusals and warning.level == "warn"
    assert "runs on old with the operators of this image" in warning.message
    assert SOURCE != flink_operator_id("orders-source") != COUNT


def test_a_job_that_tells_nothing_is_a_warning(tmp_path: Path, server: FakeFlink) -> None:
    server.begin(OTHER, name="silent")
    server.miscounts = 1_000
    (warning,) = beside(planned(ground_of(tmp_path, server, PLAIN), PLAIN))
    assert warning.level == "warn" and "silent" in warning.message
    assert "whether this image is its own is not known" in warning.message


def test_a_cluster_that_does_not_tell_which_jobs_run_is_a_warning(
    tmp_path: Path, server: FakeFlink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FlinkRest, "live", no_answer)
    proposal = planned(ground_of(tmp_path, server))
    (warning,) = beside(proposal)
    assert not proposal.refusals and (warning.level, warning.hint) == ("warn", "ask for the right")
    assert "old does not tell which jobs run there: HTTP 403. If moved does" in warning.message


@pytest.mark.parametrize("more", [{"mode": "fork"}, {"cancel_job": False}])
def test_whoever_wants_both_to_run_is_not_kept_from_it(
    tmp_path: Path, server: FakeFlink, more: dict[str, Any]
) -> None:
    server.begin(OLD)
    proposal = planned(ground_of(tmp_path, server), **more)
    assert not proposal.refusals
    warned = [finding for finding in beside(proposal) if "both write" in finding.message]
    assert len(warned) == ("cancel_job" in more)


def test_the_waiver_says_that_it_is_another_job(tmp_path: Path, server: FakeFlink) -> None:
    server.begin(OLD)
    proposal = planned(ground_of(tmp_path, server), waive=["job-stopped"])
    assert not proposal.refusals
    assert "this image is named for it" in beside(proposal)[0].message


def test_without_a_source_cluster_the_target_is_asked_for_the_images_own_job(
    tmp_path: Path, server: FakeFlink
) -> None:
    server.begin(OLD)
    ground = ground_of(tmp_path, server)
    start = {"target_cluster": "old", "submit": {"command": "go"}}
    (refusal,) = planned(ground, source_cluster=None, **start).refusals
    assert "this image is named for it" in refusal.message
    server.jobs.clear()
    server.begin(OTHER, restored={"id": 7, "external_path": SAVEPOINT})
    assert not planned(ground, source_cluster=None, **start).refusals


def test_jobs_of_one_spec_may_start_from_one_image(tmp_path: Path, server: FakeFlink) -> None:
    server.begin(OTHER, restored={"id": 7, "external_path": SAVEPOINT})
    ground = ground_of(tmp_path, server)
    both = [
        {
            "name": name,
            "existing_savepoint_paths": [SAVEPOINT],
            "source_cluster": "old",
            "new_savepoint_path": f"file:///there/{name}",
        }
        for name in ("one", "other")
    ]
    assert not ground.propose(spec_of(*both)).refusals


@pytest.mark.parametrize(("kind", "age", "warned"), [("chk", 3, 1), ("chk", 90, 0), ("one", 3, 0)])
def test_where_nobody_can_be_asked_the_age_of_a_checkpoint_is_told(
    ground: Ground, kind: str, age: int, warned: int
) -> None:
    """A job that is stopped with a savepoint has always written it just now: nothing is said."""
    name = "flink-2.3.0/count-checkpoint-incremental" if kind == "chk" else TWO
    source = golden.write(ground.disk, name)
    newest = max(file.modified for file in golden.looked_at(ground.disk, source)[1].files)
    ground.clock.time = newest + age
    asked = {"source_cluster": None, "new_savepoint_path": TARGET}
    found = [
        finding
        for plan in planned(ground, source, **asked).plans
        for finding in plan.findings
        if "is the job stopped?" in finding.message
    ]
    assert [finding.level for finding in found] == ["warn"] * warned


# ---- what a run finds after its plan was shown


def test_a_job_begun_since_the_plan_stops_the_run_right_before_the_start(tmp_path: Path) -> None:
    """Also in a resume: a run that was killed once its plan was adopted does not ask for one."""
    with serving() as server:
        ground, new = starting(tmp_path, server)
        ground.wrap = Killed
        with pytest.raises(KeyboardInterrupt):
            ground.apply(started())
        ground.wrap = lambda storage: storage
        server.begin(OLD)
        with pytest.raises(StalePlan) as refused:
            ground.resume()
        assert f"orders ({OLD}) runs on old, and this image is named for it" in str(refused.value)
        assert "stateshift resume" in (refused.value.hint or "") and new.submissions == []
        assert "stateshift rollback" in (refused.value.hint or "")
        assert ground.disk.open(TARGET).stat("_metadata") is not None
        server.jobs[OLD].state = "FINISHED"
        assert ground.resume().state == "finished"
        assert [submission.location for submission in new.submissions] == [TARGET]


def test_a_new_job_that_is_there_already_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    """It has begun from the very image, on the cluster that is asked, before the run was killed."""
    with serving() as server:
        ground, new = starting(tmp_path, server)
        submit = new.submit

        def killed(submission: Submission) -> str:
            submit(submission)
            server.begin(OTHER, name="moved", restored={"id": 7, "external_path": SAVEPOINT})
            raise KeyboardInterrupt

        new.submit = killed  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            ground.apply(started())
        assert ground.resume().state == "finished" and len(new.submissions) == 1


@pytest.mark.parametrize("kind", ["silent", "closed", "initializing"])
def test_a_warning_that_the_shown_plan_had_not_is_told_and_reported(
    tmp_path: Path, server: FakeFlink, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    ground = ground_of(tmp_path, server, PLAIN)
    proposal = planned(ground, PLAIN)
    if kind == "closed":
        monkeypatch.setattr(FlinkRest, "live", no_answer)
    elif kind == "silent":
        server.begin(OTHER).checkpointed(7, PLAIN)
        server.miscounts = 1_000
    else:
        begun = {"id": 7, "external_path": PLAIN}
        server.begin(OTHER, state="INITIALIZING", restored=begun)
        server.initializes = 1_000
    report = ground.apply(proposal)
    assert report.state == "finished"
    (note,) = report.jobs[0].notes
    assert "does not tell" in note and f"moved: {note}" in ground.said


def test_a_job_that_is_initializing_is_not_known(tmp_path: Path, server: FakeFlink) -> None:
    """It may have failed over: no page tells what it was restored from."""
    begun = {"id": 7, "external_path": PLAIN}
    server.begin(OTHER, state="INITIALIZING", restored=begun)
    server.initializes = 1_000
    (warning,) = beside(planned(ground_of(tmp_path, server, PLAIN), PLAIN))
    assert (warning.level, "whether this image is its own" in warning.message) == ("warn", True)


def test_a_suspended_job_is_one_that_runs(tmp_path: Path, server: FakeFlink) -> None:
    """Flink calls a job so whose JobManager has lost its leadership: another takes it up."""
    server.begin(OLD, state="SUSPENDED")
    (refusal,) = planned(ground_of(tmp_path, server)).refusals
    assert "this image is named for it" in refusal.message


def test_while_its_job_is_down_a_run_asks_nothing_about_others(
    tmp_path: Path, server: FakeFlink, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(tmp_path)
    top = golden.FOLDER / TWO / golden.told(TWO)["image"]
    taken, answer = FakeFlink._taken, FakeFlink.answer
    asked: list[str] = []

    def take(flink: FakeFlink, *words: Any) -> Any:
        made = taken(flink, *words)
        place = "file:///" + made["location"].removeprefix("file:").lstrip("/")
        for file in sorted(top.iterdir()):
            ground.put(f"{place}/{file.name}", file.read_bytes())
        return made

    def noted(flink: FakeFlink, method: str, path: str, *words: Any) -> Any:
        if flink.jobs[OLD].state == "FINISHED":
            asked.append(path)
        return answer(flink, method, path, *words)

    monkeypatch.setattr(FakeFlink, "_taken", take)
    monkeypatch.setattr(FakeFlink, "answer", noted)
    server.begin(OLD)
    server.begin(OTHER, name="another")
    ground.cluster = cluster(server, tmp_path)
    job = {"name": "orders", "job_ids": [OLD], "source_cluster": "old"}
    more = {"target_directory": "file:///taken", "new_savepoint_path": TARGET}
    assert ground.apply(spec_of({**job, **more})).state == "finished"
    assert asked and not [path for path in asked if OTHER in path]


def test_many_jobs_are_asked_at_once(
    tmp_path: Path, server: FakeFlink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that hangs is waited for once: here, until another job is asked for its own."""
    both, answer = threading.Barrier(2), FakeFlink.answer

    def waiting(flink: FakeFlink, method: str, path: str, *words: Any) -> Any:
        if path.endswith("/checkpoints"):
            both.wait(20)
        return answer(flink, method, path, *words)

    monkeypatch.setattr(FakeFlink, "answer", waiting)
    server.begin(OTHER, name="one")
    server.begin("1" * 32, name="another")
    assert beside(planned(ground_of(tmp_path, server))) == []


# ---- ids and names that say little


@pytest.mark.parametrize("id", ["0" * 32, "ffffffff8a1b2c3d" + "0" * 16])
def test_an_id_that_every_application_has_is_a_warning(
    tmp_path: Path, server: FakeFlink, id: str
) -> None:
    server.begin(id, name="payments")
    place = f"file:///taken/savepoint-{id[:6]}-ca07d844cdfb"
    (warning,) = beside(planned(ground_of(tmp_path, server, place), place))
    assert warning.level == "warn" and "an id that many jobs have" in warning.message


def test_a_name_that_a_person_gave_is_no_tie(tmp_path: Path, server: FakeFlink) -> None:
    begun = {"id": 7, "external_path": "s3://b/payments/savepoint-new"}
    server.begin(OTHER, name="payments", restored=begun)
    place = "file:///orders/savepoint-new"
    assert beside(planned(ground_of(tmp_path, server, place), place)) == []


def test_a_fork_of_the_image_is_not_the_first_to_be_ended(
    tmp_path: Path, server: FakeFlink
) -> None:
    server.begin(OLD, state="FINISHED")
    server.begin(OTHER, name="fork", restored={"id": 7, "external_path": SAVEPOINT})
    (refusal,) = planned(ground_of(tmp_path, server)).refusals
    hint = refusal.hint or ""
    assert hint.startswith('if that is another job, "waive": ["job-stopped"]; if it is this one')
    assert hint.index("waive") < hint.index(f'"job_ids": ["{OTHER}"]')


def test_a_job_that_the_spec_names_beside_its_files_may_not_run(
    tmp_path: Path, server: FakeFlink
) -> None:
    server.begin(OLD)
    server.begin(OTHER)
    ground = ground_of(tmp_path, server, PLAIN)
    (refusal,) = planned(ground, PLAIN, job_ids=[OTHER]).refusals
    assert f"({OTHER}) runs on old, and the spec names it" in refusal.message
    assert (refusal.hint or "").startswith('"job_ids"')


def test_a_target_that_hides_its_jobs_still_tells_of_jars(
    tmp_path: Path, server: FakeFlink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FlinkRest, "live", no_answer)
    start = {"target_cluster": "old", "submit": {"jar_id": "nope.jar"}}
    proposal = planned(ground_of(tmp_path, server), source_cluster=None, **start)
    assert [finding.message for finding in proposal.refusals] == ["flink has no jar 'nope.jar'"]
    (warning,) = beside(proposal)[-1:]
    assert "does not tell which jobs run there" in warning.message

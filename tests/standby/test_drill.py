"""The start of a standby is rehearsed beside whoever feeds it, and thrown away: on a disk and a
cluster in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import api, migration
from stateshift.api.drills import plan_drill, spec_of_drill, with_drills
from stateshift.api.failovers import standby_at
from stateshift.cli.commands.metrics import observe_run
from stateshift.cli.views import plan_text, standby_text
from stateshift.cli.views.run_html import page
from stateshift.cli.views.run_text import report
from stateshift.clusters.protocol import JobState, Submission
from stateshift.documents.metrics import families
from stateshift.documents.plan import plan_facts
from stateshift.documents.run import RunFacts
from stateshift.documents.standby import StandbyFacts
from stateshift.errors import (
    ClusterError,
    FormatError,
    JournalError,
    LastCopyError,
    PlanError,
    SpecError,
    StateshiftError,
    UnknownVersion,
)
from stateshift.formats.standby import (
    DRILLS,
    DRILLS_KEPT,
    STATE,
    Drill,
    DrillHistory,
    decode_drills,
    encode_drills,
)
from stateshift.journal import Journal, PlanAdopted, Rehearsed, RollbackStarted, StepStarted
from stateshift.report import DrillReport, Report
from stateshift.specification import parse_spec, to_plain_spec
from stateshift.specification.model import Spec
from stateshift.standby.location import failover_spec
from stateshift.step.claims import drills_at
from tests.migration.test_last_copy import gone, standby
from tests.migration.test_warm import Ended, Standby
from tests.standby.test_failover import Dying, Gone, fail_over, nothing, refuse
from tests.support.ground import SOURCE, TARGET, running_spec, spec_of
from tests.support.living import LivingJob, state_at

Moment = Callable[[Any], bool]
PLACE = f"{TARGET}-drill"
DRILL: Mapping[str, Any] = {"submit": {"command": "try"}}


def with_drill(ground: Standby, drill: object = DRILL, **keys: object) -> Standby:
    """What the standby's spec says of drills, as a round has carried it there."""
    state = json.loads(ground.target.read(STATE))
    (job,) = state["spec"]["jobs"]
    if drill is not None:
        job["drill"] = drill
    job.update(keys)
    ground.put(f"{TARGET}/{STATE}", json.dumps(state).encode())
    return ground


def rehearsed(folder: Path, drill: object = DRILL) -> Standby:
    """A standby that can be rehearsed, and whose feeder is not at work just now."""
    ground = with_drill(standby(folder, nothing), drill)
    ground.looks = 10**6
    ground.drilled = []  # type: ignore[attr-defined]
    ground.cluster._on_start = lambda submission: start(ground, submission)
    return ground


def start(ground: Standby, submission: Submission) -> None:
    """The copy is a state that the job once had, and the job goes on from it."""
    epoch, state = state_at(ground.disk.open(submission.location))
    assert epoch is not None and state in ground.job.ever[epoch]
    assert submission.location == PLACE and submission.options == {"command": "try"}
    there = LivingJob(ground.disk, PLACE, ground.job.dice, ground.job.shards, ground.job.keys)
    there.epoch, there.states = epoch, dict(ground.job.states)
    there.batch()
    ground.drilled.append(epoch)  # type: ignore[attr-defined]


def spec_at(ground: Standby) -> Spec:
    return spec_of_drill(standby_at(TARGET, ground.adapters))


def drill(ground: Standby, workdir: str = "drill") -> Report:
    return ground.apply(plan_drill(spec_at(ground), ground.adapters), workdir)


def shown(done: Report) -> DrillReport:
    (job,) = done.jobs
    assert job.drill is not None
    return job.drill


def is_thrown_away(ground: Standby) -> bool:
    """Whether nothing is at the scratch place, nobody holds it, and no job of it runs."""
    alive = [job for job in ground.cluster.jobs if job.location == PLACE and job.status.state.alive]
    locks = [lock for lock in ground.locks() if "drill" in lock]
    return not ground.disk.snapshot(PLACE) and not locks and not alive


def image(ground: Standby) -> dict[str, bytes]:
    """The standby, but for the history of its drills."""
    found = ground.disk.snapshot(TARGET)
    return {path: content for path, content in found.items() if path != DRILLS}


def standby_facts(ground: Standby) -> StandbyFacts:
    """What `status LOCATION` shows."""
    facts = StandbyFacts(standby_at(TARGET, ground.adapters), ground.clock.now())
    return with_drills(facts, ground.target)


def history(ground: Standby) -> DrillHistory:
    return drills_at(ground.target)


@pytest.mark.row("W-23")
def test_the_start_is_rehearsed_and_the_standby_is_as_it_was(tmp_path: Path) -> None:
    ground = rehearsed(tmp_path)
    before, source = image(ground), ground.disk.snapshot(SOURCE)
    done = drill(ground)
    assert done.state == "rolled-back" and done.failure is None and not done.left
    assert shown(done).good and shown(done).epoch == 11 and shown(done).seconds > 0
    names = [stage.name for stage in shown(done).stages]
    assert names == ["plan", "copy", "publish", "submit", "confirm"]
    assert image(ground) == before and ground.disk.snapshot(SOURCE) == source
    assert is_thrown_away(ground)
    (noted,) = history(ground).drills
    assert noted.is_good and (noted.run, noted.epoch, noted.host) == ("run-drill", 11, "here")
    queries = [json.loads(ground.held(place)["metadata"])["id"] for place in (SOURCE, TARGET)]
    assert len(set(queries)) == 1 and ground.cluster.submissions[0].job == "orders"


@pytest.mark.row("W-23")
def test_the_copy_is_another_query(tmp_path: Path) -> None:
    """A sink that goes by the query's id takes nothing of it for the job's own."""
    ground = rehearsed(tmp_path)
    ids: list[str] = []
    begin = ground.cluster._on_start

    def start(submission: Submission) -> None:
        ids.append(json.loads(ground.held(PLACE)["metadata"])["id"])
        assert begin is not None
        begin(submission)

    ground.cluster._on_start = start
    drill(ground)
    assert ids and ids[0] != json.loads(ground.held(TARGET)["metadata"])["id"]


def at_record(monkeypatch: pytest.MonkeyPatch, moment: Moment, act: Callable[[], None]) -> None:
    """Do something once, when the journal of the drill gets this record."""
    append, left = Journal.append, [1]

    def appended(journal: Journal, record: Any) -> None:
        append(journal, record)
        if journal.progress.rehearses and moment(record):
            left[0] -= 1
            if left[0] == 0:
                act()

    monkeypatch.setattr(Journal, "append", appended)


def adopts(purpose: str) -> Moment:
    return lambda record: isinstance(record, PlanAdopted) and record.purpose == purpose


def begins(phase: str) -> Moment:
    return lambda record: isinstance(record, StepStarted) and record.phase == phase


@pytest.mark.row("W-23")
@pytest.mark.parametrize(
    ("moment", "epoch", "again"),
    [
        (adopts("warm"), 47, False),
        (adopts("move"), 47, True),
        (begins("copy"), 47, False),
        (begins("publish"), 47, True),
        (begins("submit"), 11, False),
        (lambda record: isinstance(record, Rehearsed), 11, False),
        (lambda record: isinstance(record, RollbackStarted), 11, False),
    ],
)
def test_a_standby_that_is_fed_meanwhile_is_copied_as_it_is_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: Moment, epoch: int, again: bool
) -> None:
    """Rounds of the feeder come in between, which remove what the image before them needed."""
    ground = rehearsed(tmp_path)
    ground.look = lambda: None  # type: ignore[method-assign]

    def feed() -> None:
        ground.job.running = True
        for _ in range(3):  # the newest two are kept
            ground.looks = 300
            for _ in range(12):
                ground.job.batch()
            ground.job.tidy()
            with pytest.raises(Ended):
                ground.resume()
        ground.looks = 10**6

    at_record(monkeypatch, moment, feed)
    done = drill(ground)
    assert state_at(ground.target)[0] == 47, "it was fed"
    assert shown(done).good and shown(done).epoch == epoch
    assert ground.drilled == [epoch] and is_thrown_away(ground)  # type: ignore[attr-defined]
    assert any("is planned again" in line for line in ground.said) == again
    assert history(ground).drills[-1].epoch == epoch


@pytest.mark.row("W-23")
@pytest.mark.parametrize("way", ["resume", "rollback"])
@pytest.mark.parametrize("moment", range(1, 48))
def test_killed_at_any_change_it_is_thrown_away(tmp_path: Path, moment: int, way: str) -> None:
    ground = rehearsed(tmp_path)
    before = image(ground)
    wrap, moments = ground.wrap, [moment]
    ground.wrap = lambda storage: Dying(wrap(storage), moments)  # type: ignore[assignment, return-value]
    try:
        done = drill(ground)
    except Gone:
        ground.wrap = wrap
        done = ground.resume("drill") if way == "resume" else ground.rollback("drill")
    assert done.state == "rolled-back" and is_thrown_away(ground)
    assert image(ground) == before
    assert len(ground.cluster.submissions) <= 1
    if way == "resume":
        assert shown(done).good
        assert [noted.run for noted in history(ground).drills] == ["run-drill"]


@pytest.mark.row("W-23")
@pytest.mark.parametrize("moment", range(1, 40))
def test_killed_at_any_record_it_is_thrown_away(
    tmp_path: Path, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = rehearsed(tmp_path)
    append, left = Journal.append, [moment]

    def dying(journal: Journal, record: Any) -> None:
        append(journal, record)
        left[0] -= 1
        if left[0] == 0:
            raise Gone

    monkeypatch.setattr(Journal, "append", dying)
    try:
        done = drill(ground)
    except Gone:
        done = ground.resume("drill")
    assert done.state == "rolled-back" and is_thrown_away(ground) and shown(done).good
    assert len(ground.cluster.submissions) == 1
    assert [noted.is_good for noted in history(ground).drills] == [True]


@pytest.mark.row("W-23")
def test_a_job_that_does_not_start_fails_the_drill_and_leaves_nothing(tmp_path: Path) -> None:
    ground = rehearsed(tmp_path)
    before = image(ground)

    def fail(submission: Submission) -> None:
        ground.clock.on_sleep = lambda: ground.cluster.set_state(
            submission.tag, JobState.FAILED, "its jar is not there"
        )

    ground.cluster._on_start = fail
    with pytest.raises(ClusterError) as caught:
        drill(ground)
    assert caught.value.exit_code == 7 and "its jar is not there" in caught.value.fact
    assert f"stateshift drill {TARGET}" in (caught.value.hint or "")
    assert is_thrown_away(ground) and image(ground) == before
    (noted,) = history(ground).drills
    assert "its jar is not there" in noted.failure and not noted.is_good
    done = migration.status(ground.workdir("drill"))
    assert done.state == "rolled-back" and not shown(done).good
    assert done.failure is not None and done.failure.exit_code == 7
    ground.cluster._on_start = lambda submission: start(ground, submission)
    ground.clock.on_sleep = lambda: None
    assert shown(drill(ground, "again")).good
    facts = standby_facts(ground)
    assert facts.last_drill is not None and facts.last_drill == facts.last_good_drill


def test_a_cluster_that_refuses_fails_the_drill_and_leaves_nothing(tmp_path: Path) -> None:
    ground = rehearsed(tmp_path)
    ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(ClusterError):
        drill(ground)
    assert is_thrown_away(ground) and not history(ground).drills[-1].is_good
    facts = standby_facts(ground)
    words = " ".join(f"{block}" for block in standby_text.standby(facts))
    assert "failed" in words and "no answer" in words and "last good drill" not in words


@pytest.mark.row("W-23")
def test_a_scratch_place_that_holds_something_else_is_refused_and_left_alone(
    tmp_path: Path,
) -> None:
    ground = rehearsed(tmp_path)
    proposal = plan_drill(spec_at(ground), ground.adapters)
    ground.put(f"{PLACE}/mine", b"of somebody")
    with pytest.raises(PlanError) as caught:
        drill(ground)
    assert caught.value.exit_code == 4
    with pytest.raises(PlanError, match="holds something since it was planned"):
        ground.apply(proposal, "later")
    assert ground.disk.snapshot(PLACE) == {"mine": b"of somebody"}
    assert not ground.cluster.submissions
    assert not [lock for lock in ground.locks() if "drill" in lock]


@pytest.mark.row("W-23")
def test_of_two_drills_at_once_the_second_is_refused(tmp_path: Path) -> None:
    ground = rehearsed(tmp_path)
    proposal = plan_drill(spec_at(ground), ground.adapters)
    refused: list[JournalError] = []
    begin = ground.cluster._on_start

    def second(submission: Submission) -> None:
        for begun in (lambda: drill(ground, "second"), lambda: ground.apply(proposal, "third")):
            with pytest.raises(JournalError) as caught:
                begun()
            refused.append(caught.value)
        assert begin is not None
        begin(submission)

    ground.cluster._on_start = second
    assert shown(drill(ground)).good
    assert [error.exit_code for error in refused] == [8, 8]
    assert [noted.run for noted in history(ground).drills] == ["run-drill"]
    assert is_thrown_away(ground) and len(ground.cluster.submissions) == 1


@pytest.mark.row("W-23")
def test_a_failover_does_not_wait_for_a_drill(tmp_path: Path) -> None:
    ground = rehearsed(tmp_path)
    begin = ground.cluster._on_start

    def fail_over_meanwhile(submission: Submission) -> None:
        assert begin is not None
        begin(submission)
        ground.job.running = False
        ground.cluster._on_start = None
        spec = failover_spec(standby_at(TARGET, ground.adapters), primary_is_down=True)
        ground.cluster._on_start = ground._start
        ground.job.epoch = 11
        assert ground.apply(spec, "failover").state == "finished"

    ground.cluster._on_start = fail_over_meanwhile
    assert shown(drill(ground)).good and is_thrown_away(ground)
    assert ground.there is not None, "the job that was started in earnest runs on"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", FormatError),
        (b"\xff" * 9, FormatError),
        (b'{"version": 1, "drills": [{}]}', FormatError),
        (b'{"version": 2, "drills": []}', UnknownVersion),
    ],
)
def test_a_history_that_cannot_be_read_is_told_and_stays(
    tmp_path: Path, content: bytes, error: type[Exception]
) -> None:
    ground = rehearsed(tmp_path)
    ground.put(f"{TARGET}/{DRILLS}", content)
    assert shown(drill(ground)).good and is_thrown_away(ground)
    assert ground.target.read(DRILLS) == content
    assert any("not in the history" in line for line in ground.said)
    with pytest.raises(error):
        history(ground)
    facts = standby_facts(ground)
    assert "cannot be read" in " ".join(f"{block}" for block in standby_text.standby(facts))


def test_a_history_keeps_the_last_drills_each_run_once() -> None:
    one = Drill("a", 1.0, 3, "", {"plan": 1.0}, "here", "/w")
    kept = DrillHistory()
    for number in range(2 * DRILLS_KEPT):
        kept = kept.with_drill(replace(one, run=f"run-{number}", failure="no" * (number % 2)))
    assert len(kept.drills) == DRILLS_KEPT
    assert kept.last is not None and kept.last.failure
    assert kept.last_good is not None and kept.last_good.run == f"run-{2 * DRILLS_KEPT - 2}"
    assert kept.with_drill(kept.drills[-1]) == kept
    assert decode_drills(encode_drills(kept)) == kept


def test_a_standby_that_is_lost_meanwhile_leaves_the_copy(tmp_path: Path) -> None:
    """It may be the last one by then."""
    ground = rehearsed(tmp_path)
    kept = ground.held(TARGET)
    begin = ground.cluster._on_start

    def lose(submission: Submission) -> None:
        assert begin is not None
        begin(submission)
        for path in list(ground.held(TARGET)):
            ground.target.remove(path)

    ground.cluster._on_start = lose
    with pytest.raises(LastCopyError):
        drill(ground)
    assert state_at(ground.disk.open(PLACE))[0] == 12
    assert not history(ground).drills[-1].failure
    assert not [job for job in ground.cluster.jobs if job.tag and job.status.state.alive]
    for path, content in kept.items():
        ground.put(f"{TARGET}/{path}", content)
    assert ground.resume("drill").state == "rolled-back"
    assert is_thrown_away(ground) and len(ground.cluster.submissions) == 1


@pytest.mark.parametrize(
    ("drill_keys", "job_keys", "fact"),
    [
        (None, {}, "no `drill`"),
        ({}, {}, "no PySpark file"),
        ({}, {"submit": None}, "does not say how"),
    ],
)
def test_without_a_start_of_its_own_a_drill_is_refused(
    tmp_path: Path, drill_keys: object, job_keys: dict[str, object], fact: str
) -> None:
    """The job's own `submit` would write to its sink."""
    ground = with_drill(standby(tmp_path, nothing), drill_keys, **job_keys)
    with pytest.raises(PlanError, match=fact) as caught:
        spec_at(ground)
    if "not say" not in fact:
        assert '"drill"' in (caught.value.hint or "")


def test_a_pyspark_file_is_started_by_the_program_itself(tmp_path: Path) -> None:
    ground = with_drill(standby(tmp_path, nothing), {})
    state = json.loads(ground.target.read(STATE))
    (job,) = state["spec"]["jobs"]
    job["submit"] = {"application": "/jobs/orders.py", "arguments": ["--in", 1], "conf": {"a": "b"}}
    state["spec"]["clusters"] = [
        {"name": "ours", "kind": "spark_submit", "master": "yarn", "deploy_mode": "cluster"}
    ]
    ground.put(f"{TARGET}/{STATE}", json.dumps(state).encode())
    spec = spec_at(ground)
    (made,), (cluster,) = spec.jobs, spec.clusters
    assert made.submit is not None and cluster.options["master"] == "local[2]"
    assert cluster.options["deploy_mode"] == "client"
    assert made.submit.options["arguments"] == ["/jobs/orders.py", "--in", 1]
    assert made.submit.options["conf"] == {"a": "b"}
    assert Path(str(made.submit.options["application"])).name == "one_batch.py"
    assert parse_spec(json.dumps(to_plain_spec(spec))) == spec


def test_a_standby_that_was_begun_without_a_drill_is_rehearsed_by_another_spec(
    tmp_path: Path,
) -> None:
    ground = rehearsed(tmp_path, None)
    given = running_spec(mode="warm", cutover="never", drill=DRILL)
    spec = spec_of_drill(standby_at(TARGET, ground.adapters), given)
    assert shown(ground.apply(plan_drill(spec, ground.adapters), "drill")).good
    other = running_spec(mode="warm", cutover="never", remote_location="file:///else", drill=DRILL)
    with pytest.raises(PlanError, match="no job of the spec"):
        spec_of_drill(standby_at(TARGET, ground.adapters), other)


@pytest.mark.row("W-23")
def test_a_job_that_runs_at_its_standby_is_not_rehearsed(tmp_path: Path) -> None:
    ground = with_drill(standby(tmp_path, gone))
    fail_over(ground)
    with pytest.raises(PlanError, match="the job runs there"):
        spec_at(ground)


def test_what_drills_have_shown_goes_with_the_standby(tmp_path: Path) -> None:
    ground = rehearsed(tmp_path)
    drill(ground)
    ground.cluster._on_start = ground._start
    ground.job.running = True
    ground.workdir().steering.ask_cutover(True)
    assert ground.resume().state == "finished"
    assert DRILLS not in ground.disk.snapshot(TARGET)


@pytest.mark.parametrize(
    ("drill_keys", "job_keys", "pointer"),
    [
        ({}, {"mode": "move"}, "/jobs/0/drill"),
        ({"cluster": "other"}, {}, "/jobs/0/drill/cluster"),
        ({"submit": {"command": "try", "prepare": True}}, {}, "/jobs/0/drill/submit/prepare"),
        ({"submit": {"command": "try"}}, {"target_cluster": None}, "/jobs/0/drill/submit"),
        ({"location": f"{TARGET}/scratch"}, {}, "/jobs/0/drill/location"),
        ({"location": SOURCE}, {}, "/jobs/0/drill/location"),
        ({}, {"rehearses": True}, "/jobs/0/rehearses"),
    ],
)
def test_a_drill_that_does_not_fit_its_job_is_refused(
    drill_keys: object, job_keys: dict[str, object], pointer: str
) -> None:
    keys: dict[str, Any] = {"mode": "warm", "cutover": "never", "target_cluster": "ours"}
    keys |= {"drill": drill_keys, **job_keys}
    with pytest.raises(SpecError) as caught:
        spec_of(spec_clusters={"ours": {"kind": "command", "submit": "s"}}, **keys)
    assert pointer in [complaint.pointer for complaint in caught.value.complaints]


def test_a_program_rehearses_as_the_command_does(tmp_path: Path) -> None:
    ground = rehearsed(tmp_path)
    done = api.drill(TARGET, workdir=tmp_path / "w", adapters=ground.adapters)
    assert done.state == "rolled-back" and shown(done.report).good
    facts = RunFacts(done.report, str(tmp_path / "w"))
    assert "went on from epoch 11" in " ".join(f"{block}" for block in report(facts))
    assert "<h3>Drill</h3>" in page(facts)


def test_its_plan_says_what_it_does(tmp_path: Path) -> None:
    ground = rehearsed(tmp_path)
    facts = plan_facts(plan_drill(spec_at(ground), ground.adapters))
    words = " ".join(f"{block}" for block in plan_text.proposal(facts, False))
    assert "start it from a copy of its standby, and throw that away" in words
    assert "the standby is fed meanwhile" in words and "the source may run on" not in words


def test_metrics_tell_the_last_good_drill_and_show_the_standby_as_before(tmp_path: Path) -> None:
    ground = rehearsed(tmp_path)
    drill(ground, "good")
    ground.clock.time += 100
    ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(StateshiftError):
        drill(ground, "bad")
    runs = [observe_run(str(tmp_path / name)) for name in ("run", "good", "bad")]
    values: dict[str, float] = {}
    for family in families(runs, ground.clock.time):
        values.setdefault(family.name, family.samples[0].value)
        if family.name == "stateshift_job_info":
            assert dict(family.samples[0].labels)["run"] == "run-run"
    good, bad = (run.progress.rehearsed for run in runs[1:] if run.progress)
    assert good is not None and bad is not None
    name = "stateshift_standby_drill"
    assert values[f"{name}_success"] == 0 and values[f"{name}_timestamp_seconds"] == bad.at
    assert values[f"{name}_success_timestamp_seconds"] == good.at
    assert values["stateshift_standby_epoch"] == 11

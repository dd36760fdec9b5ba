"""A job is started from its standby, and reads on there at other brokers: those that it has read
are lost, and what was kept of their records is all there is. On a disk, a cluster and brokers in
memory.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.api.failovers import standby_at, with_waivers
from stateshift.errors import PlanError
from stateshift.formats.standby import STATE
from stateshift.migration import Adapters
from stateshift.migration.proposal import proposal_of
from stateshift.report import Report
from stateshift.standby.location import failback_spec, failover_spec
from stateshift.standby.rehearsal import drill_spec
from stateshift.step import WriteFile
from tests.migration.test_last_copy import unreachable
from tests.migration.test_warm import Ended, Standby
from tests.standby.test_failover import Dying, Gone
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import SOURCE, TARGET, running_spec
from tests.support.kafka import MemoryKafka, record

OLD, NEW = "old:9092", "new:9092"
SHIFT = 7
pytestmark = pytest.mark.row("W-5", "W-22")


class Elsewhere(Standby):
    """A standby whose region has brokers of its own."""

    kafka: MemoryKafka

    @property
    def adapters(self) -> Adapters:
        return replace(super().adapters, open_topics=self.kafka.open_topics)


def elsewhere(folder: Path, brought: int = 200, is_planned: bool = False, **keys: Any) -> Elsewhere:
    """A standby that has an image of batch 11, which has read 110 records; its source and its
    brokers are lost. The mirror has brought so many.
    """
    ground = Elsewhere(folder, 1, 60)
    if is_planned:
        put(ground.disk.open(SOURCE), "offsets/12", Checkpoint(shards=2).offsets(12))
    ground.kafka = MemoryKafka()
    records = [record(number, str(number), 1000 * number) for number in range(200)]
    ground.kafka.add(OLD).topics["topic"] = {0: records}
    mirrored = [each._replace(offset=each.offset + SHIFT) for each in records]
    ground.kafka.add(NEW).topics["moved"] = {0: mirrored}
    ground.job.moods, ground.job.retained = {}, 100
    change = {"kind": "reposition", "topics": {"topic": "moved"}, "by": "records", **keys}
    kafka = {"bootstrap_servers": NEW, "source_bootstrap_servers": OLD}
    with pytest.raises(Ended):
        spec = running_spec(mode="warm", cutover="never", transform=[change], kafka=kafka)
        ground.apply(spec)
    del mirrored[brought:]
    ground.job.running = False
    unreachable(ground)
    ground.cluster.jobs.clear()
    del ground.kafka.clusters[OLD]
    ground.looks = 10**6
    return ground


def fail_over(ground: Elsewhere, *waive: str) -> Report:
    spec = failover_spec(standby_at(TARGET, ground.adapters), primary_is_down=True)
    return ground.apply(with_waivers(spec, waive), "failover")


def offsets_of(ground: Elsewhere, place: str = TARGET) -> dict[str, Any]:
    """The last lines of the offset logs."""
    held = ground.held(place)
    logs = [path for path in held if path.startswith("offsets/1")]
    return {path: json.loads(held[path].rpartition(b"\n")[2]) for path in logs}


def test_the_job_goes_on_where_the_mirror_has_its_records(tmp_path: Path) -> None:
    ground = elsewhere(tmp_path)
    assert offsets_of(ground)["offsets/11"] == {"topic": {"0": 110}}, "rounds copy what is there"
    assert b'"records"' in ground.target.read(STATE)
    report = fail_over(ground)
    assert report.state == "finished" and ground.there is not None
    assert [tuple(each) for each in report.jobs[0].positions] == [
        ("0", "moved/0", 110, 110 + SHIFT, 0, 0)
    ]
    for batch in ("10", "11"):
        assert offsets_of(ground)[f"offsets/{batch}"] == {"moved": {"0": 110 + SHIFT}}


def test_taken_back_the_standby_is_as_it_was(tmp_path: Path) -> None:
    ground = elsewhere(tmp_path)
    before = offsets_of(ground)
    fail_over(ground)
    ground.rollback("failover", discard_progress=True)
    assert {path: offsets_of(ground)[path] for path in before} == before


@pytest.mark.parametrize(("brought", "told"), [(108, "2 records"), (60, "at least 5 records")])
def test_records_that_the_mirror_never_gets_are_told_and_waived(
    tmp_path: Path, brought: int, told: str
) -> None:
    ground = elsewhere(tmp_path, brought, timeout="3s")
    before = ground.disk.snapshot(TARGET)
    with pytest.raises(PlanError) as caught:
        fail_over(ground)
    assert f"the mirror lags, and {told} that the job has read in topic" in caught.value.fact
    assert ground.disk.snapshot(TARGET) == before
    assert fail_over(ground, "other-records").state == "finished"
    assert offsets_of(ground)["offsets/11"] == {"moved": {"0": brought + SHIFT}}


def test_a_mirror_that_is_late_is_waited_for(tmp_path: Path) -> None:
    ground = elsewhere(tmp_path, 108)
    topics, waited = ground.kafka.clusters[NEW].topics["moved"], ground.clock.on_sleep

    def brings() -> None:
        waited()
        last = len(topics[0])
        topics[0].append(record(last + SHIFT, str(last), 1000 * last))

    ground.clock.on_sleep = brings
    assert fail_over(ground).state == "finished"
    assert offsets_of(ground)["offsets/11"] == {"moved": {"0": 110 + SHIFT}}


@pytest.mark.parametrize(("brought", "end"), [(200, 120), (115, 115)])
def test_a_planned_batch_is_planned_there_as_far_as_its_records_are(
    tmp_path: Path, brought: int, end: int
) -> None:
    ground = elsewhere(tmp_path, brought, is_planned=True, timeout="3s")
    if brought < 120:
        with pytest.raises(PlanError, match="and 5 records of it are not in moved yet"):
            fail_over(ground)
    assert fail_over(ground, "other-records").state == "finished"
    # Its job has done the batch by now; the plan says how it was begun.
    steps = chain.from_iterable(proposal_of(ground.workdir("failover")).plans)
    written = {step.path: step.text for step in steps if isinstance(step, WriteFile)}
    assert (written["offsets/11"] or "").endswith('{"moved":{"0":117}}')
    assert (written["offsets/12"] or "").endswith(f'{{"moved":{{"0":{end + SHIFT}}}}}')


@pytest.mark.parametrize("moment", range(1, 8))
@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_killed_at_any_change_it_is_resumed_or_taken_back(
    tmp_path: Path, moment: int, way: str
) -> None:
    ground = elsewhere(tmp_path)
    before, wrap, moments = offsets_of(ground), ground.wrap, [moment]
    ground.wrap = lambda storage: Dying(wrap(storage), moments)  # type: ignore[assignment, return-value]
    try:
        fail_over(ground)
    except Gone:
        ground.wrap = wrap
        if not ground.workdir("failover").exists:
            fail_over(ground)
        elif way == "rollback" and ground.there is None:
            ground.rollback("failover")
            assert offsets_of(ground) == before
            ground.apply(failover_spec(standby_at(TARGET, ground.adapters), True), "again")
        else:
            ground.resume("failover")
    assert ground.there is not None and len(ground.cluster.submissions) == 1
    assert offsets_of(ground)["offsets/11"] == {"moved": {"0": 110 + SHIFT}}


def test_a_drill_reads_on_there_too_and_leaves_the_standby(tmp_path: Path) -> None:
    ground = elsewhere(tmp_path)
    before = offsets_of(ground)
    state = standby_at(TARGET, ground.adapters)
    held = state.state.spec
    job = dict(held["jobs"][0], drill={"submit": {"command": "rehearse"}})
    state = replace(state, state=replace(state.state, spec={**held, "jobs": [job]}))
    spec = drill_spec(state, "one-batch")
    plan = migration.propose(spec, ground.adapters, ground.workdir("drill")).plans[-1]
    assert [each.after for each in plan.positions] == [110 + SHIFT]
    assert not plan.refusals
    assert offsets_of(ground) == before


def test_the_way_home_reads_on_at_the_old_brokers(tmp_path: Path) -> None:
    ground = elsewhere(tmp_path)
    fail_over(ground)
    job = failback_spec(standby_at(TARGET, ground.adapters)).jobs[0]
    (change,) = job.transform
    assert job.kafka is not None and job.kafka.bootstrap_servers == OLD
    assert (job.source, job.target) == (TARGET, SOURCE)
    assert (change.topics, change.by) == ({"moved": "topic"}, "records")  # type: ignore[union-attr]

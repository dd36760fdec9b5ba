"""A checkpoint whose source reads on from elsewhere: what is written, what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.errors import PlanError, SpecError, StalePlan, TransientStorageError
from stateshift.migration import Adapters
from stateshift.specification import Spec
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import SOURCE, TARGET, Around, Ground, refusals, spec_of
from tests.support.kafka import MemoryKafka, offset_sync, record
from tests.support.living import LivingGround, warm_spec

OLD, NEW = "old:9092", "new:9092"
BROKERS = {"bootstrap_servers": NEW, "source_bootstrap_servers": OLD}
FIRST_OFFSET = b'\x00v1\n{"topic":{"0":0}}'


def kafka(shift: int = 7, count: int = 40) -> MemoryKafka:
    """The topic of the checkpoints, and the same records elsewhere: three were read and are gone
    there, and others are before them.
    """
    made = MemoryKafka()
    records = [record(number, str(number), 1000 * number) for number in range(count)]
    made.add(OLD).topics["topic"] = {0: records}
    others = [record(number, f"other-{number}", 10 * number) for number in range(shift + 3)]
    moved = [each._replace(offset=each.offset + shift) for each in records[3:]]
    made.add(NEW).topics["moved"] = {0: [*others, *moved]}
    return made


@dataclass
class KafkaGround(Ground):
    """A ground beside brokers in memory."""

    kafka: MemoryKafka = None  # type: ignore[assignment]

    @property
    def adapters(self) -> Adapters:
        return replace(
            super().adapters,
            open_topics=self.kafka.open_topics,
            open_groups=self.kafka.open_groups,
            ask_topics=lambda kafka, topics: {name: {0: (0, 99)} for name in topics},
        )


class LivingKafkaGround(LivingGround):
    """The same, of a job that is moved while it runs."""

    kafka: MemoryKafka

    @property
    def adapters(self) -> Adapters:
        return replace(super().adapters, open_topics=self.kafka.open_topics)


def ground_of(folder: Path, checkpoint: Checkpoint | None = None) -> KafkaGround:
    ground = KafkaGround(folder, kafka=kafka())
    ground.write(checkpoint)
    put(ground.source, "sources/0/0", FIRST_OFFSET)
    ground.source.sync()
    ground.clock.time += 600
    return ground


@pytest.fixture
def ground(tmp_path: Path) -> KafkaGround:
    return ground_of(tmp_path)


def moved(**keys: Any) -> Spec:
    """A job whose topic is another one, by its records unless more is said."""
    of_job = {name: keys.pop(name) for name in ("mode", "waive", "planned_batch") if name in keys}
    change = {"kind": "reposition", "topics": {"topic": "moved"}, "by": "records", **keys}
    return spec_of(transform=[change], kafka=BROKERS, **of_job)


def written(ground: Ground) -> dict[str, str]:
    """The last line of each offset log at the target, and the first offset."""
    held = ground.held(TARGET)
    wanted = [path for path in held if path.startswith(("offsets/", "sources/"))]
    return {path: held[path].decode().rpartition("\n")[2] for path in wanted}


@pytest.mark.row("W-5")
@pytest.mark.parametrize("mode", ["move", "fork"])
def test_all_offsets_of_a_restart_are_the_new_ones_and_all_else_stays(
    tmp_path: Path, mode: str
) -> None:
    ground = ground_of(tmp_path)
    source = ground.held(SOURCE)
    report = ground.apply(moved(mode=mode))
    target = ground.held(TARGET)
    line = b'{"moved":{"0":27}}'
    for batch in (1, 2):
        head = Checkpoint().offsets(batch).rpartition(b"\n")[0]
        assert target.pop(f"offsets/{batch}") == head + b"\n" + line
    assert target.pop("sources/0/0") == b"\x00v1\n" + line
    if mode == "fork":
        assert target.pop("metadata") != source["metadata"]
    assert target.items() <= source.items()
    assert [tuple(each) for each in report.jobs[0].positions] == [("0", "moved/0", 20, 27, 0, 0)]
    survey = ground.propose(spec_of(source=TARGET, target="file:///third/orders")).plans[-1]
    (end,) = [end for end in survey.endpoints if end.role == "source"]
    assert end.details["offsets"] == {"moved": {"0": 27}}


def test_a_planned_batch_is_planned_there_as_it_was(tmp_path: Path) -> None:
    ground = ground_of(tmp_path, Checkpoint(planned=True))
    ground.apply(moved())
    assert written(ground) == {
        "offsets/1": '{"moved":{"0":27}}',
        "offsets/2": '{"moved":{"0":27}}',
        "offsets/3": '{"moved":{"0":37}}',
        "sources/0/0": '{"moved":{"0":27}}',
    }


def test_a_planned_batch_whose_end_is_not_found_is_refused_or_dropped(tmp_path: Path) -> None:
    ground = ground_of(tmp_path, Checkpoint(planned=True))
    topics = ground.kafka.clusters[NEW].topics["moved"]
    topics[0] = topics[0][:32]
    (refusal,) = refusals(ground, moved())
    assert "a batch is planned that reads topic/0 up to 30" in refusal.message
    assert "offsets/3" not in written_after(ground, moved(planned_batch="drop"))


def written_after(ground: Ground, spec: Spec) -> dict[str, str]:
    spec = replace(spec, jobs=(replace(spec.jobs[0], waive=("repeated-batches",)),))
    ground.apply(spec)
    return written(ground)


def test_a_rewind_goes_back_before_the_offsets_are_looked_for(ground: KafkaGround) -> None:
    spec = moved()
    rewind = spec_of(transform=[{"kind": "rewind", "batch": 1}], waive=["repeated-batches"])
    changes = (*rewind.jobs[0].transform, *spec.jobs[0].transform)
    job = replace(spec.jobs[0], transform=changes, waive=("repeated-batches",))
    ground.apply(replace(spec, jobs=(job,)))
    assert written(ground)["offsets/1"] == '{"moved":{"0":17}}'


def test_what_is_read_again_or_skipped_is_accepted_by_its_number(ground: KafkaGround) -> None:
    (again,) = refusals(ground, moved(by="earliest"))
    assert again.message == "source 0: 27 records would be read again (moved/0: 27)"
    assert again.waive is None and "--accept-again 27" in (again.hint or "")
    (skipped,) = refusals(ground, moved(by="latest", accept_skipped=19))
    assert "source 0: 20 records would be skipped" in skipped.message
    report = ground.apply(moved(by="latest", accept_skipped=20))
    assert written(ground)["offsets/2"] == '{"moved":{"0":47}}'
    assert [tuple(each) for each in report.jobs[0].positions] == [("0", "moved/0", 20, 47, 0, 20)]


def test_offsets_come_from_a_file_beside_which_the_records_are_compared(
    ground: KafkaGround,
) -> None:
    ground.put("file:///desk/offsets.csv", b"topic,partition,offset\nmoved,0,27\n")
    spec = moved(by="offsets", offsets="file:///desk/offsets.csv")
    ground.apply(spec)
    assert written(ground)["offsets/2"] == '{"moved":{"0":27}}'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"moved,0,29\n", "source 0: 2 records would be skipped"),
        (b"moved,0,48\n", "moved/0 would be read from 48 on, and new:9092 has 0 to 47"),
        (b"moved,0,-1\n", "-1 is no offset"),
        (b"moved,0,27\nmoved,1,5\n", "names moved/1, and moved has no such partition"),
        (b"topic,0,27\n", "names the topic topic, which the job does not read"),
    ],
)
def test_a_file_that_does_not_fit_leaves_everything_as_it_was(
    ground: KafkaGround, content: bytes, says: str
) -> None:
    ground.put("file:///desk/offsets.csv", content)
    found = refusals(ground, moved(by="offsets", offsets="file:///desk/offsets.csv"))
    assert [says in finding.message for finding in found] == [True], found


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"source": "3"}, "the job has no source 3"),
        ({"topics": {"others": "moved"}}, "source 0 reads no topic others"),
        ({"topics": {"topic": "nowhere"}}, "new:9092 has no topic nowhere"),
        (
            {"by": None, "topics": None, "table": "/lake/a"},
            "no source of the job reads a table of Delta",
        ),
    ],
)
def test_a_source_or_a_topic_that_is_not_there(
    ground: KafkaGround, keys: Mapping[str, Any], says: str
) -> None:
    found = refusals(ground, moved(**keys))
    assert [says in finding.message for finding in found] == [True], found


def test_brokers_that_do_not_answer_stop_the_plan(ground: KafkaGround) -> None:
    del ground.kafka.clusters[OLD]
    (refusal,) = refusals(ground, moved())
    assert refusal.message.startswith("old:9092 does not answer as Kafka does")


@pytest.mark.parametrize("side", [OLD, NEW])
@pytest.mark.parametrize("reads", [0, 1])
def test_a_login_that_ends_half_way_leaves_everything_as_it_was(
    ground: KafkaGround, monkeypatch: pytest.MonkeyPatch, side: str, reads: int
) -> None:
    topics, left = ground.kafka.clusters[side], [reads]
    read = topics.read

    def expires(topic: str, windows: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise TransientStorageError(f"{side} does not answer as Kafka does", location=side)
        return read(topic, windows)

    monkeypatch.setattr(topics, "read", expires)
    (refusal,) = refusals(ground, moved(by="latest", accept_skipped=99))
    assert refusal.message == f"{side} does not answer as Kafka does"


def test_the_source_of_another_kind_or_of_several(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    head = Checkpoint().offsets(2).rpartition(b"\n")[0]
    both = b'\n{"topic":{"0":20}}\n{"users":{"0":5}}'
    put(ground.source, "offsets/1", Checkpoint().offsets(1) + b'\n{"users":{"0":1}}')
    put(ground.source, "offsets/2", head + both)
    ground.source.sync()
    ground.clock.time += 600
    (several,) = refusals(ground, moved())
    assert "2 sources of the job read a topic of Kafka" in several.message
    assert "--source 0" in (several.hint or "")
    ground.apply(moved(source="0"))
    tail = ground.held(TARGET)["offsets/2"].decode().split("\n")[2:]
    assert tail == ['{"moved":{"0":27}}', '{"users":{"0":5}}']


OTHERS = {
    "kinesis": '{"metadata":{"streamName":"s","batchId":"1"},"shardId-000":{"iteratorType":"x"}}',
    "hudi": '{"offsetCommitTime":"20260102030405678"}',
    "paimon": '{"snapshotId":3,"index":1,"scanSnapshot":false}',
    "auto loader": '{"seqNum":12,"sourceVersion":1,"lastBackfillStartTimeMs":0}',
    "event-hubs": '{"endpoint":"sb://n/","consumerGroup":"c","partitionToSeqNos":{"hub":{"0":2}}}',
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_source_of_another_kind_says_what_is_not_known(tmp_path: Path, kind: str) -> None:
    ground = ground_of(tmp_path)
    for batch in (1, 2):
        head = Checkpoint().offsets(batch).rpartition(b"\n")[0]
        put(ground.source, f"offsets/{batch}", head + b"\n" + OTHERS[kind].encode())
    (refusal,) = refusals(ground, moved())
    assert "no source of the job reads a topic of Kafka" in refusal.message
    assert f"0 ({kind})" in (refusal.hint or "") and f"{kind}: it" in (refusal.hint or "")
    ground.apply(spec_of())  # copied whole
    assert ground.held(TARGET)["offsets/2"].endswith(OTHERS[kind].encode())


def test_a_repositioned_source_may_get_another_name_as_well(ground: KafkaGround) -> None:
    spec = moved()
    rename = spec_of(transform=[{"kind": "rename", "sources": {"0": "1"}}]).jobs[0].transform
    job = replace(spec.jobs[0], transform=(*spec.jobs[0].transform, *rename))
    ground.apply(replace(spec, jobs=(job,)))
    target = ground.held(TARGET)
    assert target["offsets/2"].endswith(b'\n-\n{"moved":{"0":27}}')
    assert target["sources/1/0"] == b'\x00v1\n{"moved":{"0":27}}'


def test_a_repositioned_source_may_get_a_name_and_is_called_by_it(tmp_path: Path) -> None:
    ground = ground_of(tmp_path / "numbered")
    spec = moved()
    rename = spec_of(transform=[{"kind": "rename", "sources": {"0": "orders"}}]).jobs[0].transform
    job = replace(spec.jobs[0], transform=(*spec.jobs[0].transform, *rename))
    ground.apply(replace(spec, jobs=(job,)))
    named = ground.held(TARGET)
    assert named["offsets/2"].endswith(b'\norders:{"moved":{"0":27}}')
    assert named["sources/orders/0"] == b'\x00v1\n{"moved":{"0":27}}'

    ground = KafkaGround(tmp_path / "named", kafka=kafka())
    for path, content in named.items():
        ground.put(
            f"{SOURCE}/{path}", content.replace(b'{"moved":{"0":27}}', b'{"topic":{"0":20}}')
        )
    ground.clock.time += 600
    (unknown,) = refusals(ground, moved(source="0"))
    assert "has no source 0" in unknown.message and "orders (kafka" in (unknown.hint or "")
    ground.apply(moved(source="orders"))
    assert ground.held(TARGET)["offsets/2"] == named["offsets/2"]


class _Dead(BaseException):
    """The process is gone: nothing of it runs any more."""


class _Dying(Around):
    """A storage of a process that dies before, or after, one of its writes."""

    def __init__(self, inner: Any, left: list[int], after: bool) -> None:
        super().__init__(inner)
        self.left, self.after = left, after

    def write(self, path: str, *more: Any) -> Any:
        self.left[0] -= 1
        dies = self.left[0] == 0
        if dies and not self.after:
            raise _Dead
        self.inner.write(path, *more)
        if dies:
            raise _Dead


def killed(folder: Path, at: int, after: bool) -> KafkaGround | None:
    """A ground on which a run died at this write; None if it had ended before."""
    ground = ground_of(folder, Checkpoint(planned=True))
    proposal = ground.propose(moved(by="latest", accept_skipped=100, planned_batch="drop"))
    left = [at]
    ground.wrap = lambda storage: _Dying(storage, left, after)  # type: ignore[assignment, return-value]
    try:
        ground.apply(proposal)
    except _Dead:
        ground.wrap = lambda storage: storage
        # Meanwhile somebody writes on: the offsets of the plan that was adopted count.
        ground.kafka.clusters[NEW].topics["moved"][0].append(record(47, "later", 99_000))
        return ground
    return None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_that_dies_at_any_write_is_finished_or_taken_back(
    tmp_path: Path, after: bool
) -> None:
    whole = ground_of(tmp_path / "whole", Checkpoint(planned=True))
    before = whole.held(SOURCE)
    whole.apply(moved(by="latest", accept_skipped=100, planned_batch="drop"))
    expected = whole.held(TARGET)
    deaths = 0
    while (ground := killed(tmp_path / f"{deaths}-resumed", deaths + 1, after)) is not None:
        deaths += 1
        report = migration.resume(ground.workdir(), ground.adapters)
        assert report.state == "finished"
        held = ground.held(TARGET)
        (position,) = report.jobs[0].positions
        assert held["offsets/2"].endswith(b'{"moved":{"0":%d}}' % position.after)
        assert position.after in (47, 48)
        assert {**held, "offsets/1": b"", "offsets/2": b"", "sources/0/0": b""} == {
            **expected,
            "offsets/1": b"",
            "offsets/2": b"",
            "sources/0/0": b"",
        }
        other = killed(tmp_path / f"{deaths}-taken-back", deaths, after)
        assert other is not None
        assert other.rollback().state == "rolled-back"
        assert (other.held(SOURCE), other.held(TARGET)) == (before, {})
    assert deaths >= 10


def test_json_of_a_plan_tells_each_partition(ground: KafkaGround) -> None:
    from stateshift.documents.plan import plan_document, plan_facts

    document = plan_document(plan_facts(ground.propose(moved())))
    (source,) = document["sources"]
    expected = {"source": "0", "partition": "moved/0", "from": 20, "to": 27, "job": "orders"}
    assert json.loads(json.dumps(source)) == {**expected, "again": 0, "skipped": 0}
    assert "sources" not in plan_document(plan_facts(ground.propose(spec_of())))


# ---- while the job runs, and where the brokers are others


def followed(folder: Path) -> LivingKafkaGround:
    ground = LivingKafkaGround(folder)
    ground.kafka = kafka(count=200)
    put(ground.disk.open(SOURCE), "sources/0/0", FIRST_OFFSET)
    ground.job.moods = dict.fromkeys(ground.job.moods, 0.0)
    return ground


def followed_spec(**keys: Any) -> Spec:
    change = {"kind": "reposition", "topics": {"topic": "moved"}, "by": "records", **keys}
    return warm_spec(transform=[change], kafka=BROKERS)


@pytest.mark.row("W-5", "T-1")
def test_a_job_that_is_followed_stands_elsewhere_once_it_has_stopped(tmp_path: Path) -> None:
    ground = followed(tmp_path)
    report = ground.apply(followed_spec())
    assert report.state == "finished"
    rounds = [phase for phase in report.jobs[0].phases if phase.name.startswith("round")]
    assert sum(phase.files for phase in rounds) >= 24
    assert [tuple(each) for each in report.jobs[0].positions] == [("0", "moved/0", 120, 127, 0, 0)]
    target = ground.held(TARGET)
    for path in ("offsets/11", "offsets/12", "sources/0/0"):
        assert target[path].endswith(b'{"moved":{"0":127}}'), path
    assert not any(path.startswith("_stateshift/staged") for path in target)


def test_taken_back_a_followed_job_reads_where_it_read(tmp_path: Path) -> None:
    ground = followed(tmp_path)
    before = ground.held(SOURCE)
    ground.apply(followed_spec())
    ground.rollback(discard_progress=True)
    assert ground.held(TARGET) == {}
    assert ground.job.running and before.items() <= ground.held(SOURCE).items()


@pytest.mark.row("W-5")
def test_a_job_whose_mirror_lags_after_it_was_stopped_runs_on_where_it_was(tmp_path: Path) -> None:
    ground = followed(tmp_path)
    moved_to = ground.kafka.clusters[NEW].topics["moved"]
    moved_to[0] = moved_to[0][:-85]  # the last batch's are missing, and come too late
    proposal = ground.propose(followed_spec(timeout="20s"))
    began = ground.clock.time
    with pytest.raises(PlanError) as caught:
        ground.apply(proposal)
    assert "the mirror lags, and 5 records that the job has read in topic" in caught.value.fact
    assert ground.clock.time - began >= 20
    assert ground.job.running
    assert not any(path.startswith("offsets/") for path in ground.held(TARGET))


@pytest.mark.row("W-5")
@pytest.mark.parametrize("warm", [False, True])
def test_brokers_that_are_another_cluster_than_was_planned_are_refused(
    tmp_path: Path, warm: bool
) -> None:
    ground = followed(tmp_path) if warm else ground_of(tmp_path)
    ground.kafka.clusters[OLD].cluster = "A"
    ground.kafka.clusters[NEW].cluster = "B"
    proposal = ground.propose(followed_spec() if warm else moved())
    told = [finding.message for finding in proposal.plans[-1].findings]
    assert "source 0: from the cluster A (old:9092) to B (new:9092)" in told
    ground.kafka.clusters[NEW].cluster = "C"
    with pytest.raises(StalePlan, match="new:9092 is the cluster C of Kafka now"):
        ground.apply(proposal)
    assert "offsets/2" not in ground.held(TARGET)
    if isinstance(ground, LivingGround):
        assert ground.job.running
        return
    ground.kafka.clusters[NEW].cluster = "A"
    told = [finding.message for finding in ground.propose(moved()).plans[-1].findings]
    assert "source 0: old:9092 and new:9092 are one cluster of Kafka (A)" in told


@pytest.mark.row("W-5")
def test_by_mirrormaker_a_job_goes_on_between_two_of_its_syncs(ground: KafkaGround) -> None:
    syncs = [offset_sync("topic", 0, upstream, upstream + 7) for upstream in (10, 30)]
    ground.kafka.clusters[OLD].syncs["mm2-offset-syncs.b.internal"] = syncs
    ground.apply(moved(by="mirrormaker"))
    assert written(ground)["offsets/2"] == '{"moved":{"0":27}}'


def test_only_a_reposition_goes_with_a_job_that_is_followed() -> None:
    compact = [{"kind": "compact"}]
    with pytest.raises(SpecError, match="more than a reposition"):
        warm_spec(transform=compact)
    with pytest.raises(SpecError, match="a standby whose source reads on in another table"):
        change = {"kind": "reposition", "table": "/lake/a"}
        warm_spec(transform=[change], kafka=BROKERS, cutover="never")

"""Savepoints whose Kafka source reads on in other topics: what is written, what is refused. The
savepoints are those of real jobs, the brokers are in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import look
from stateshift.engines.flink import layout
from stateshift.engines.flink.entries.image import comparable
from stateshift.engines.flink.image import id_of, metadata_of
from stateshift.errors import PlanError, VerifyError
from stateshift.formats.flink.java_data import Longs
from stateshift.formats.flink.kafka import (
    ASSIGNED,
    NOT_RESOLVED,
    UNASSIGNED,
    KafkaEnumerator,
    KafkaSplit,
    decode_enumerator,
    decode_split,
    encode_enumerator,
    encode_split,
)
from stateshift.formats.flink.metadata import OperatorState, decode_metadata, encode_metadata
from stateshift.formats.flink.operator_state import (
    COMMITTER_STATE,
    READER_STATE,
    WRITER_STATE,
    ConnectorState,
    decode_source_coordinator,
    decode_versioned_elements,
    encode_source_coordinator,
    encode_versioned_element,
    split_elements,
)
from stateshift.formats.flink.stream_handles import Inline, RelativeFile
from stateshift.migration import Adapters
from stateshift.specification import Spec, parse_spec
from stateshift.step.images import CompareImages
from stateshift.survey import Committed
from stateshift.testing.memory_flink import MemoryFlink
from tests.contracts.faulty import Effects, Faulty, Killed, at
from tests.engines.flink import golden
from tests.support.flink_connectors import encode_cluster_split
from tests.support.ground import Ground, refusals
from tests.support.kafka import MemoryKafka, record
from tests.support.words import Heard, foreign_words

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "kafka"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/told.json"))
IMAGE, TARGET = "file:///here/savepoint", "file:///there/savepoint"
OLD, NEW = "old:9092", "new:9092"
BROKERS = {"bootstrap_servers": NEW, "source_bootstrap_servers": OLD}
TOPICS = {"orders": "shop-orders", "late.orders_2": "shop-late"}
UID = "orders-source"
KAFKAS = {"offset", "offsets", "commit", "committed", "commits"}  # words of Kafka's own


@pytest.fixture(autouse=True)
def no_words_of_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Users of Flink read no word of Spark's; who reads Kafka knows Kafka's."""
    heard = Heard.listening(monkeypatch)
    yield
    monkeypatch.undo()
    for line in heard.foreign_to("flink"):
        assert {word.lower() for word in foreign_words("flink", line)} <= KAFKAS, line


def kafka(ends: dict[str, dict[str, int]]) -> MemoryKafka:
    """The topics as the job has read them, with a few records more; and the same records under new
    names, behind seven others.
    """
    made = MemoryKafka()
    old, new = made.add(OLD).topics, made.add(NEW).topics
    for topic, partitions in ends.items():
        old[topic], new[TOPICS[topic]] = {}, {}
        for number, end in partitions.items():
            name = f"{topic}/{number}"
            own = [record(at, f"{name} {at}", 1000 + at) for at in range(end + 4)]
            others = [record(at, f"other {name} {at}", at) for at in range(7)]
            old[topic][int(number)] = own
            moved = [each._replace(offset=each.offset + 7) for each in own]
            new[TOPICS[topic]][int(number)] = [*others, *moved]
    return made


@dataclass
class KafkaGround(Ground):
    """A ground with the savepoint of one case, beside brokers in memory."""

    kafka: MemoryKafka = None  # type: ignore[assignment]
    ends: dict[str, dict[str, int]] = None  # type: ignore[assignment]

    @property
    def adapters(self) -> Adapters:
        return replace(
            super().adapters,
            open_topics=self.kafka.open_topics,
            open_groups=self.kafka.open_groups,
            ask_topics=lambda kafka, topics: {name: {0: (0, 99)} for name in topics},
        )

    def operator(self, location: str, uid: str = UID) -> OperatorState:
        _, survey = golden.looked_at(self.disk, location)
        operators = metadata_of(survey.images[0]).operators
        return next(operator for operator in operators if operator.id.hex() == id_of(uid))

    def change(self, uid: str, **changed: Any) -> None:
        """Write the savepoint with another operator."""
        metadata = decode_metadata(self.held(IMAGE)["_metadata"])
        operators = [
            replace(operator, **changed) if operator.id.hex() == id_of(uid) else operator
            for operator in metadata.operators
        ]
        self.put(
            f"{IMAGE}/_metadata", encode_metadata(replace(metadata, operators=tuple(operators)))
        )

    def positions(self, location: str) -> dict[str, Any]:
        _, survey = golden.looked_at(self.disk, location)
        sources = [end for end in survey.images[0].endpoints if end.kind == "kafka"]
        (source,) = [end for end in sources if end.role == "source"]
        return dict(source.details)


def ground_of(folder: Path, case: str = "2.3.0-source") -> KafkaGround:
    told = json.loads((GOLDEN / case / "told.json").read_text())
    ground = KafkaGround(folder, kafka=kafka(told["ends"]), ends=told["ends"])
    for file in (GOLDEN / case / told["image"]).iterdir():
        ground.put(f"{IMAGE}/{file.name}", file.read_bytes())
    return ground


def moved(*, waive: Sequence[str] = (), more: Sequence[dict[str, Any]] = (), **keys: Any) -> Spec:
    change = {"kind": "reposition", "topics": TOPICS, "by": "records", **keys}
    change = {key: value for key, value in change.items() if value is not None}
    job = {
        "name": "orders",
        "existing_savepoint_paths": [IMAGE],
        "new_savepoint_path": TARGET,
        "transform": [change, *more],
        "waive": list(waive),
        **({"kafka": BROKERS} if "by" in change else {}),
    }
    return parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": [job]}))


@pytest.mark.row("W-5")
@pytest.mark.parametrize("case", CASES)
def test_every_partition_reads_on_where_the_job_stood_and_all_else_stays(
    tmp_path: Path, case: str
) -> None:
    ground = ground_of(tmp_path, case)
    before = ground.held(IMAGE)
    report = ground.apply(moved())
    assert ground.held(IMAGE) == before
    expected = {}
    for topic, partitions in ground.ends.items():
        expected[TOPICS[topic]] = {int(number): end + 7 for number, end in partitions.items()}
    assert ground.positions(TARGET) == {"offsets": expected}
    told = {change.partition: change for change in report.jobs[0].positions}
    assert {(each.again, each.skipped) for each in told.values()} == {(0, 0)}
    assert (told["shop-orders/0"].before, told["shop-orders/0"].after) == (
        ground.ends["orders"]["0"],
        ground.ends["orders"]["0"] + 7,
    )
    ours, theirs = (
        decode_metadata(ground.held(location)["_metadata"]) for location in (IMAGE, TARGET)
    )
    ours, theirs = (
        replace(each, operators=tuple(o for o in each.operators if o.id.hex() != id_of(UID)))
        for each in (ours, theirs)
    )
    assert theirs == ours
    assert ground.held(TARGET).keys() == before.keys()
    storage, survey = golden.looked_at(ground.disk, TARGET)
    assert golden.damages(storage, survey) == []
    found = look.diff(IMAGE, TARGET, opening=ground.open)
    assert {each.store for each in found.stores if not each.equal} == {"positions"}


def splits_of(operator: OperatorState) -> list[set[tuple[str, int, int]]]:
    """Topic, partition and offset of each split, reader by reader."""
    splits = []
    for subtask in operator.all_subtasks:
        handle = subtask.managed_operator
        assert handle is not None and isinstance(handle.stream, Inline)
        (state,) = [state for state in handle.states if state.name == READER_STATE]
        starts = list(state.offsets)
        elements = split_elements(handle.stream.content, starts, handle.stream.size)
        own = set()
        for start in starts:
            (element,) = decode_versioned_elements(elements[start], READER_STATE)
            split = decode_split(element.version, element.content)
            own.add((split.topic, split.partition, split.offset))
        splits.append(own)
    return splits


def enumerator_of(operator: OperatorState) -> KafkaEnumerator:
    assert operator.coordinator is not None
    state = decode_source_coordinator(operator.coordinator.content)
    return decode_enumerator(state.version, state.content)


def set_enumerator(ground: KafkaGround, known: KafkaEnumerator) -> None:
    coordinator = ground.operator(IMAGE).coordinator
    assert coordinator is not None
    state = ConnectorState(known.version, encode_enumerator(known))
    content = encode_source_coordinator(state)
    ground.change(UID, coordinator=replace(coordinator, content=content))


def test_partitions_that_the_job_has_not_read_get_a_reader_and_begin_with_their_first_record(
    tmp_path: Path,
) -> None:
    ground = ground_of(tmp_path)
    topic = ground.kafka.clusters[NEW].topics["shop-orders"]
    topic[3] = [record(5, "a new one", 9_000)]
    topic[4] = []
    report = ground.apply(moved())
    told = {change.partition: change for change in report.jobs[0].positions}
    for name, first in (("shop-orders/3", 5), ("shop-orders/4", 0)):
        change = told[name]
        assert (change.before, change.after, change.again, change.skipped) == (None, first, 0, 0)
    before, after = (splits_of(ground.operator(at)) for at in (IMAGE, TARGET))
    assert [len(own) for own in before] == [2, 2] and [len(own) for own in after] == [3, 3]
    assert {(each[1], each[2]) for own in after for each in own if each[0] == "shop-orders"} == {
        (0, 12),
        (1, 10),
        (2, 7),
        (3, 5),
        (4, 0),
    }
    known = enumerator_of(ground.operator(TARGET))
    assert {(each.topic, each.partition) for each in known.splits} == {
        ("shop-late", 0),
        *(("shop-orders", number) for number in range(5)),
    }
    assert {each.status for each in known.splits} == {ASSIGNED}
    assert known.discovered == enumerator_of(ground.operator(IMAGE)).discovered


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_each_version_of_an_enumerator_knows_every_partition_once(
    tmp_path: Path, version: int
) -> None:
    """One partition waits there: with an offset since version 3, and then it waits there still."""
    ground = ground_of(tmp_path)
    for topics in ground.kafka.clusters.values():
        for topic in ("orders", "shop-orders"):
            if topic in topics.topics:
                topics.topics[topic][3] = [record(at, f"late {at}", 9_000 + at) for at in range(4)]
    read = set().union(*splits_of(ground.operator(IMAGE)))
    status = ASSIGNED if version > 1 else None
    splits = [KafkaSplit(*split, status=status) for split in sorted(read)]
    waits = KafkaSplit("orders", 3, 2 if version == 3 else NOT_RESOLVED)
    splits.append(replace(waits, status=UNASSIGNED if version > 1 else None))
    subtasks = ((0, 2), (1, 3)) if version == 0 else ()
    discovered = False if version > 1 else None
    set_enumerator(ground, KafkaEnumerator(version, tuple(splits), discovered, subtasks))
    ground.apply(moved())
    known = enumerator_of(ground.operator(TARGET))
    places = [(each.topic, each.partition) for each in known.splits]
    assert sorted(places) == [("shop-late", 0), *(("shop-orders", number) for number in range(4))]
    assert (known.version, known.discovered) == (version, discovered)
    assert sum(count for _, count in known.subtasks) == (5 if version == 0 else 0)
    (waiting,) = [
        each for each in known.splits if (each.topic, each.partition) == ("shop-orders", 3)
    ]
    split = ("shop-orders", 3, 0)
    if version == 3:
        assert (waiting.status, waiting.offset) == (UNASSIGNED, 2)
        assert split[:2] not in {
            each[:2] for own in splits_of(ground.operator(TARGET)) for each in own
        }
    else:
        assert waiting.status in (ASSIGNED, None)
        assert sum(split in own for own in splits_of(ground.operator(TARGET))) == 1


@pytest.mark.parametrize("idle", [False, True])
def test_state_in_files_is_read_there_and_stays_behind(tmp_path: Path, idle: bool) -> None:
    """A reader without a partition has a file, too: it gets those that no reader has."""
    ground = ground_of(tmp_path)
    ground.kafka.clusters[NEW].topics["shop-orders"][3] = [record(5, "a new one", 9_000)]
    subtasks = []
    for subtask in ground.operator(IMAGE).all_subtasks:
        handle = subtask.managed_operator
        assert handle is not None and isinstance(handle.stream, Inline)
        content, states = handle.stream.content, handle.states
        if idle and subtask.index == 1:
            content = content[: min(handle.starts)]
            states = tuple(replace(state, offsets=Longs.of([])) for state in states)
        ground.put(f"{IMAGE}/splits-{subtask.index}", content)
        stream = RelativeFile(f"splits-{subtask.index}", len(content))
        handle = replace(handle, states=states, stream=stream)
        subtasks.append(replace(subtask, managed_operator=handle))
    ground.change(UID, subtasks=tuple(subtasks))
    ground.apply(moved())
    assert ground.held(TARGET).keys() == {"_metadata"}
    readers = splits_of(ground.operator(TARGET))
    assert sum(map(len, readers)) == 5
    assert ("shop-orders", 3, 5) in set().union(*readers)
    assert {len(own) for own in readers} == {2, 3}
    storage, survey = golden.looked_at(ground.disk, TARGET)
    assert golden.damages(storage, survey) == []


def test_a_renamed_source_reads_on_elsewhere_as_well(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    ground.apply(moved(more=[{"kind": "rename", "operators": {UID: "shop-source"}}]))
    assert ("shop-orders", 0, 12) in set().union(*splits_of(ground.operator(TARGET, "shop-source")))


def test_a_split_at_another_place_than_the_plan_says_is_a_difference(tmp_path: Path) -> None:
    """What a run compares before it publishes: the old splits in their new terms."""
    ground = ground_of(tmp_path)
    proposal = ground.propose(moved())
    phases = proposal.plans[-1].phases
    steps = [step for phase in phases for step in phase.steps]
    (compare,) = [step for step in steps if isinstance(step, CompareImages)]
    ground.apply(proposal)
    world = replace(ground.world, entries={"flink": comparable})
    compare.run(world)
    staged = f"{TARGET}/{layout.STAGED}"
    written = ground.disk.snapshot(TARGET)[layout.STAGED]
    right, wrong = (encode_split(KafkaSplit("shop-orders", 0, offset)) for offset in (12, 11))
    assert right in written
    ground.put(staged, written.replace(right, wrong))
    with pytest.raises(VerifyError):
        compare.run(world)


def test_transactions_of_the_old_brokers_are_told_and_left_out_only_by_a_waiver(
    tmp_path: Path,
) -> None:
    ground = ground_of(tmp_path)
    findings = ground.propose(moved()).plans[-1].findings
    (told,) = [each for each in findings if "to complete" in each.message]
    assert told.level == "warn" and "copies-0-2, copies-1-2" in told.message
    assert "--waive open-transactions" in (told.hint or "")
    ground.apply(moved(waive=["open-transactions"]))
    ends = {}
    for location in (IMAGE, TARGET):
        _, survey = golden.looked_at(ground.disk, location)
        ends[location] = [end.role for end in survey.images[0].endpoints]
    assert ends == {IMAGE: ["source", "source", "sink"], TARGET: ["source", "source"]}


def test_a_fork_leaves_the_work_that_sinks_have_begun_to_the_running_job(tmp_path: Path) -> None:
    """A job that restored it would end the transactions of the one that runs on."""
    for mode, waive in (("move", []), ("fork", []), ("fork", ["open-transactions"])):
        place = tmp_path / f"{mode}-{len(waive)}"
        place.mkdir()
        ground = ground_of(place)
        places = {"existing_savepoint_paths": [IMAGE], "new_savepoint_path": TARGET}
        job = {"name": "orders", **places, "mode": mode, "waive": waive}
        proposal = ground.propose(parse_spec(json.dumps({"engine": "flink", "jobs": [job]})))
        told = [each for each in proposal.plans[-1].findings if "begun" in each.message]
        assert [each.level for each in told] == ([] if mode == "move" else ["warn"])
        ground.apply(proposal)
        before, after = (states_of_sink(ground, place) for place in (IMAGE, TARGET))
        assert before.keys() == {WRITER_STATE, COMMITTER_STATE}
        assert after == ({} if waive else before)
        assert ground.positions(TARGET) == ground.positions(IMAGE)


def states_of_sink(ground: KafkaGround, location: str) -> dict[str, int]:
    """How many elements its states have."""
    counts: dict[str, int] = {}
    for operator in decode_metadata(ground.held(location)["_metadata"]).operators:
        for subtask in operator.all_subtasks:
            handle = subtask.managed_operator
            for state in () if handle is None else handle.states:
                if state.name in (WRITER_STATE, COMMITTER_STATE) and len(state.offsets):
                    counts[state.name] = counts.get(state.name, 0) + len(state.offsets)
    return counts


BAD: Mapping[str, tuple[dict[str, Any], str]] = {
    "a partition that is not there": (
        {"by": "offsets", "lines": {"shop-orders": {0: 9, 1: 9, 2: 9, 9: 1}}},
        "names shop-orders/9, and shop-orders has no such partition",
    ),
    "a hole": ({"by": "offsets", "lines": {"shop-orders": {0: 9, 1: 9}}}, "not name shop-orders/2"),
    "a negative one": (
        {"by": "offsets", "lines": {"shop-orders": {0: -3, 1: 9, 2: 9}}},
        "-3",
    ),
    "beyond the end": (
        {"by": "offsets", "lines": {"shop-orders": {0: 99, 1: 9, 2: 9}, "shop-late": {0: 9}}},
        "shop-orders/0 would be read from 99 on",
    ),
    "another topic": (
        {"by": "offsets", "lines": {"lines": {0: 1}}},
        "names the topic lines, which the job does not read",
    ),
    "a topic that is not read": ({"topics": {"lines": "shop"}}, "reads no topic lines"),
    "a topic that is not there": (
        {"topics": {**TOPICS, "orders": "shop-nothing"}},
        "new:9092 has no topic shop-nothing",
    ),
    "no source": ({"source": "nobody"}, "the job has no source nobody"),
    "another operator": ({"source": "files-source"}, "files-source is of the kind file"),
    "a table": (
        {"topics": None, "by": None, "table": "/lake/orders"},
        "no source of the job reads a table of Delta or Iceberg",
    ),
    "everything skipped": ({"by": "latest"}, "would be skipped"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    ground = ground_of(tmp_path)
    keys, says = BAD[name]
    keys = dict(keys)
    lines: dict[str, dict[int, int]] | None = keys.pop("lines", None)
    if lines is not None:
        rows = [f"{t},{number},{offset}" for t in lines for number, offset in lines[t].items()]
        ground.put("file:///here/offsets.csv", "\n".join(rows).encode())
        keys["offsets"] = "file:///here/offsets.csv"
    found = refusals(ground, moved(**keys))
    assert any(says in finding.message for finding in found), found


def test_brokers_that_do_not_answer_are_a_refusal_with_their_name(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    del ground.kafka.clusters[NEW]
    (finding,) = refusals(ground, moved())
    assert "new:9092 does not answer" in finding.message


def test_of_several_sources_one_is_named_by_its_uid(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    source = ground.operator(IMAGE)
    metadata = decode_metadata(ground.held(IMAGE)["_metadata"])
    twin = replace(source, id=bytes.fromhex(id_of("other")), uid="other", name="Source: other")
    operators = (*metadata.operators, twin)
    ground.put(f"{IMAGE}/_metadata", encode_metadata(replace(metadata, operators=operators)))
    (finding,) = refusals(ground, moved())
    assert "2 sources of the job read a topic" in finding.message
    assert "--source orders-source" in (finding.hint or "")
    ground.apply(moved(source=UID))
    assert splits_of(ground.operator(TARGET, "other")) == splits_of(source)
    assert splits_of(ground.operator(TARGET)) != splits_of(source)


@pytest.mark.row("W-5")
def test_a_group_gets_the_offsets_at_which_the_splits_read_on(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    ground.apply(moved(commit="shop"))
    groups, expected = ground.kafka.groups, dict[tuple[str, int], Committed]()
    for topic, partitions in ground.positions(TARGET)["offsets"].items():
        for number, offset in partitions.items():
            expected[topic, int(number)] = Committed(offset)
    held = groups.committed("shop")
    assert expected.items() <= held.items()
    assert ground.rollback().state == "rolled-back"
    assert groups.committed("shop") == {}


def test_a_source_that_is_left_out_is_not_repositioned(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    (finding,) = refusals(ground, moved(more=[{"kind": "drop", "operators": [UID]}]))
    assert "both repositioned and left out" in finding.message


def test_a_consumer_that_left_no_offsets_is_refused(tmp_path: Path) -> None:
    ground = ground_of(tmp_path, "1.20.5-consumer")
    subtasks = []
    for subtask in ground.operator(IMAGE).all_subtasks:
        handle = subtask.managed_operator
        assert handle is not None
        states = tuple(replace(state, offsets=Longs.of([])) for state in handle.states)
        subtasks.append(replace(subtask, managed_operator=replace(handle, states=states)))
    ground.change(UID, subtasks=tuple(subtasks))
    (finding,) = refusals(ground, moved(topics={}))
    assert "names no topic" in finding.message


def test_a_dynamic_source_is_refused_by_its_name(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    subtasks = []
    for subtask in ground.operator(IMAGE).all_subtasks:
        handle = subtask.managed_operator
        assert handle is not None and isinstance(handle.stream, Inline)
        (state,) = handle.states
        split = KafkaSplit("orders", subtask.index, 3, cluster="east")
        element = encode_versioned_element(ConnectorState(2, encode_cluster_split(2, split)))
        start = min(state.offsets)
        stream = replace(handle.stream, content=handle.stream.content[:start] + element)
        states = (replace(state, offsets=Longs.of([start])),)
        new = replace(handle, states=states, stream=stream)
        subtasks.append(replace(subtask, managed_operator=new))
    ground.change(UID, subtasks=tuple(subtasks))
    (finding,) = refusals(ground, moved(topics={}))
    assert "source orders-source is a DynamicKafkaSource" in finding.message


@pytest.mark.parametrize("ending", ["resume", "rollback"])
def test_a_run_killed_at_any_effect_goes_on_or_is_taken_back(
    tmp_path: Path, ending: str, moments: Callable[[int], range]
) -> None:
    unharmed = ground_of(tmp_path / "unharmed")
    before, counted = unharmed.disk.snapshot(), Effects()
    unharmed.wrap = lambda storage: Faulty(storage, counted)
    unharmed.apply(moved())
    assert len(counted.seen) > 10
    for number in moments(len(counted.seen)):
        ground = ground_of(tmp_path / str(number))
        effects = Effects(at(number, Killed))
        ground.wrap = lambda storage, effects=effects: Faulty(storage, effects)  # type: ignore[misc]
        with pytest.raises(Killed):
            ground.apply(moved())
        ground.wrap = lambda storage: storage
        if ending == "resume":
            ground.resume()
            assert ground.disk.snapshot() == unharmed.disk.snapshot(), f"killed at effect {number}"
        else:
            ground.rollback()
            assert ground.disk.snapshot() == before, f"killed at effect {number}"


def running(ground: KafkaGround, **change: Any) -> tuple[MemoryFlink, Spec]:
    """The job runs, and its savepoint is that of the case; the spec that moves it."""

    def take(location: str) -> None:
        for path, content in ground.held(IMAGE).items():
            ground.put(f"{location}/{path}", content)

    flink = MemoryFlink(take)
    flink.run("orders", "orders-id")
    ground.cluster = flink
    job = {
        "name": "orders",
        "job_ids": ["orders-id"],
        "source_cluster": "old",
        "target_cluster": "old",
        "target_directory": "file:///taken",
        "new_savepoint_path": TARGET,
        "submit": {"command": "go"},
        "source_submit": {"command": "back"},
        "transform": [{"kind": "reposition", "topics": TOPICS, "by": "records", **change}],
        "kafka": BROKERS,
    }
    clusters = {"old": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}}
    return flink, parse_spec(
        json.dumps({"version": 1, "engine": "flink", "clusters": clusters, "jobs": [job]})
    )


def test_a_running_job_is_moved_and_reads_on_elsewhere(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    flink, spec = running(ground)
    report = ground.apply(spec)
    assert report.state == "finished"
    assert [submission.location for submission in flink.submissions] == [TARGET]
    assert ground.positions(TARGET)["offsets"]["shop-orders"] == {0: 12, 1: 10, 2: 7}


@pytest.mark.parametrize("topics", [{"orders": "nothing"}, None])
def test_a_running_job_is_not_stopped_where_the_brokers_lack_the_topic_or_do_not_answer(
    tmp_path: Path, topics: dict[str, str] | None
) -> None:
    ground = ground_of(tmp_path)
    if topics is None:
        ground.kafka.clusters.clear()
    flink, spec = running(ground, topics=topics or TOPICS)
    (finding,) = refusals(ground, spec)
    assert "has no topic nothing" in finding.message or "does not answer" in finding.message
    assert [job.state for job in flink.running("orders-id")] == ["running"]


def test_a_running_job_whose_place_is_not_found_is_started_again_where_it_was(
    tmp_path: Path,
) -> None:
    ground = ground_of(tmp_path)
    ground.kafka.clusters[NEW].topics["shop-orders"][0] = [record(0, "another", 1)]
    flink, spec = running(ground)
    with pytest.raises(PlanError):
        ground.apply(spec)
    assert ground.held(TARGET) == {}
    assert [each.location for each in flink.submissions] == ["file:///taken/savepoint-1"]

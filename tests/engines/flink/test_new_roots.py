"""Savepoints whose source of files reads on in another folder: what is written, what is refused.
The savepoint is that of a real job, which has read a part of each of two files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.engines.flink.image import id_of, metadata_of
from stateshift.engines.flink.new_offsets import moved_path
from stateshift.errors import PlanError
from stateshift.formats.flink.file_source import (
    FileEnumerator,
    FileSplit,
    Uri,
    decode_file_enumerator,
    decode_file_split,
    encode_file_enumerator,
)
from stateshift.formats.flink.metadata import OperatorState, decode_metadata, encode_metadata
from stateshift.formats.flink.operator_state import (
    READER_STATE,
    ConnectorState,
    decode_source_coordinator,
    decode_versioned_elements,
    encode_source_coordinator,
    split_elements,
)
from stateshift.formats.flink.stream_handles import Inline
from stateshift.specification import Spec, parse_spec
from stateshift.testing.memory_flink import MemoryFlink
from tests.engines.flink import golden
from tests.support.ground import Ground, refusals
from tests.support.words import Heard, foreign_words

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "kafka"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*-source*/told.json"))
IMAGE, TARGET = "file:///here/savepoint", "file:///there/savepoint"
OLD, NEW, UID = "file:///tmp/golden-flink-kafka/files", "s3a://new/in", "files-source"


@pytest.fixture(autouse=True)
def no_words_of_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Users of Flink read no word of Spark's; the job's other sink is one of Kafka's."""
    heard = Heard.listening(monkeypatch)
    yield
    monkeypatch.undo()
    for line in heard.foreign_to("flink"):
        assert {word.lower() for word in foreign_words("flink", line)} <= {"commit"}, line


def operator_at(ground: Ground, location: str) -> OperatorState:
    _, survey = golden.looked_at(ground.disk, location)
    operators = metadata_of(survey.images[0]).operators
    return next(operator for operator in operators if operator.id.hex() == id_of(UID))


def splits_at(ground: Ground, location: str) -> list[FileSplit]:
    """Return the splits of all readers."""
    splits = []
    for subtask in operator_at(ground, location).all_subtasks:
        handle = subtask.managed_operator
        assert handle is not None and isinstance(handle.stream, Inline)
        (state,) = [state for state in handle.states if state.name == READER_STATE]
        content = handle.stream.content
        for element in split_elements(content, list(state.offsets), len(content)).values():
            (split,) = decode_versioned_elements(element, READER_STATE)
            splits.append(decode_file_split(split.version, split.content))
    return splits


def enumerator_at(ground: Ground, location: str) -> FileEnumerator:
    coordinator = operator_at(ground, location).coordinator
    assert coordinator is not None
    state = decode_source_coordinator(coordinator.content)
    return decode_file_enumerator(state.version, state.content)


def ground_of(folder: Path, case: str = "2.3.0-source") -> Ground:
    """A ground with the savepoint, and its files in both folders."""
    ground = Ground(folder)
    told = json.loads((GOLDEN / case / "told.json").read_text())
    for file in (GOLDEN / case / told["image"]).iterdir():
        ground.put(f"{IMAGE}/{file.name}", file.read_bytes())
    for split in splits_at(ground, IMAGE):
        name = (split.path.path or "").rpartition("/")[2]
        for root in (OLD, NEW):
            ground.put(f"{root}/{name}", b"x" * split.size)
    return ground


def looking_for_more(ground: Ground) -> FileSplit:
    """Let the source look for new files: two were read to their end, one waits. Return that."""
    waits = replace(splits_at(ground, IMAGE)[0], id="w", path=Uri.of(f"file:{OLD[7:]}/sub/c d.txt"))
    waits = replace(waits, size=3, length=3, offset=None, records=None, hosts=("disk-1",))
    found = [f"file:{OLD[7:]}/{name}" for name in ("a.txt", "b.txt", "read.txt", "sub/c d.txt")]
    found.append("file:/elsewhere/z.txt")
    content = encode_file_enumerator(FileEnumerator((waits,), tuple(found)))
    metadata = decode_metadata(ground.held(IMAGE)["_metadata"])
    operators = []
    for operator in metadata.operators:
        coordinator = operator.coordinator
        if operator.id.hex() == id_of(UID) and coordinator is not None:
            held = encode_source_coordinator(ConnectorState(1, content))
            operator = replace(operator, coordinator=replace(coordinator, content=held))
        operators.append(operator)
    ground.put(f"{IMAGE}/_metadata", encode_metadata(replace(metadata, operators=tuple(operators))))
    for root in (OLD, NEW):
        ground.put(f"{root}/read.txt", b"read")
        ground.put(f"{root}/sub/c d.txt", b"abc")
    return waits


def moved(*, waive: Sequence[str] = (), **keys: Any) -> Spec:
    change = {"kind": "reposition", "root": NEW, "from_root": OLD, **keys}
    job = {
        "name": "files",
        "existing_savepoint_paths": [IMAGE],
        "new_savepoint_path": TARGET,
        "transform": [change],
        "waive": list(waive),
    }
    return parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": [job]}))


@pytest.mark.row("W-5")
@pytest.mark.parametrize("case", CASES)
def test_each_split_goes_on_in_the_other_folder_and_all_else_stays(
    tmp_path: Path, case: str
) -> None:
    ground = ground_of(tmp_path, case)
    report = ground.apply(moved())
    before, after = splits_at(ground, IMAGE), splits_at(ground, TARGET)
    assert len(before) == 2
    for old, new in zip(before, after, strict=True):
        name = (old.path.path or "").rpartition("/")[2]
        assert str(new.path) == f"{NEW}/{name}"
        assert replace(new, path=old.path, hosts=old.hosts) == old
    told = {change.partition: change for change in report.jobs[0].positions}
    assert {(each.again, each.skipped) for each in told.values()} == {(0, 0)}
    assert told.keys() == {f"{NEW}/a.txt", f"{NEW}/b.txt"}
    ours, theirs = (decode_metadata(ground.held(at)["_metadata"]) for at in (IMAGE, TARGET))
    for one, other in zip(ours.operators, theirs.operators, strict=True):
        assert (one == other) is (one.id.hex() != id_of(UID))
    storage, survey = golden.looked_at(ground.disk, TARGET)
    assert golden.damages(storage, survey) == []


def test_a_source_that_looks_for_more_files_knows_those_that_it_has_found(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    waits = looking_for_more(ground)
    ground.apply(moved())
    known = enumerator_at(ground, TARGET)
    assert known.splits == (replace(waits, path=Uri.of(f"{NEW}/sub/c d.txt"), hosts=()),)
    assert known.found == (
        *(f"{NEW}/{name}" for name in ("a.txt", "b.txt", "read.txt", "sub/c d.txt")),
        "file:/elsewhere/z.txt",
    )


@pytest.mark.parametrize(
    ("path", "content", "says", "waive"),
    [
        ("a.txt", None, "a.txt: the job still reads it, and it is not in s3a://new/in", None),
        ("a.txt", b"x", "a.txt in s3a://new/in is shorter than the file that the job reads", None),
        ("sub/c d.txt", b"abcd", "sub/c d.txt in s3a://new/in is longer than the file", None),
        ("read.txt", b"read more", "read.txt: found by the job, and of another", "other-records"),
    ],
)
def test_a_file_that_is_not_there_as_the_job_knows_it_is_refused(
    tmp_path: Path, path: str, content: bytes | None, says: str, waive: str | None
) -> None:
    ground = ground_of(tmp_path)
    looking_for_more(ground)
    ground.remove(f"{NEW}/{path}")
    if content is not None:
        ground.put(f"{NEW}/{path}", content)
    (finding,) = [each for each in refusals(ground, moved()) if says in each.message]
    assert finding.waive == waive and finding.hint
    assert not ground.held(TARGET)


def test_a_file_that_would_never_be_read_is_refused(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    looking_for_more(ground)
    ground.put(f"{OLD}/late.txt", b"late")
    ground.put(f"{OLD}/_tmp/late.txt", b"Flink lists no hidden one")
    (finding,) = refusals(ground, moved())
    assert finding.message.startswith("late.txt: not found by the job yet, and not in s3a://new")
    ground.apply(moved(waive=["other-records"]))
    for path in ground.held(TARGET):
        ground.remove(f"{TARGET}/{path}")
    ground.put(f"{NEW}/late.txt", b"late")
    ground.apply(moved(), "run-2")


def test_folders_that_nobody_can_compare_are_refused(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    (finding,) = refusals(ground, moved(from_root="file:///other"))
    assert "reads no file in file:///other: it reads file:/tmp/golden-flink-kafka" in str(finding)
    looking_for_more(ground)
    for path in ground.held(OLD):
        ground.remove(f"{OLD}/{path}")
    (finding,) = refusals(ground, moved())
    assert "cannot be listed" in finding.message and finding.waive == "other-records"


ROOTS = {"kind": "reposition", "root": NEW, "from_root": OLD}


def running(ground: Ground, change: Mapping[str, str] = ROOTS) -> tuple[MemoryFlink, Spec]:
    """The job runs, and its savepoint is the one that is there; the spec that moves it."""

    def take(location: str) -> None:
        for path, content in ground.held(IMAGE).items():
            ground.put(f"{location}/{path}", content)

    flink = MemoryFlink(take)
    flink.run("files", "files-id")
    ground.cluster = flink
    job = {
        "name": "files",
        "job_ids": ["files-id"],
        "source_cluster": "old",
        "target_cluster": "old",
        "target_directory": "file:///taken",
        "new_savepoint_path": TARGET,
        "submit": {"command": "go"},
        "source_submit": {"command": "back"},
        "transform": [change],
    }
    clusters = {"old": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}}
    keys = {"version": 1, "engine": "flink", "clusters": clusters, "jobs": [job]}
    return flink, parse_spec(json.dumps(keys))


def test_a_running_job_is_moved_if_its_files_are_there_and_else_runs_on(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    flink, spec = running(ground)
    content = ground.held(NEW)
    for name in content:
        ground.remove(f"{NEW}/{name}")
    (finding,) = refusals(ground, spec)
    assert finding.message == f"nothing is in {NEW}, where the job is to read on"
    assert [job.state for job in flink.running("files-id")] == ["running"]
    ground.put(f"{NEW}/a.txt", content["a.txt"])  # b.txt is missed only once it is stopped
    with pytest.raises(PlanError):
        ground.apply(spec, "run-1")
    assert ground.held(TARGET) == {}
    assert [each.location for each in flink.submissions] == ["file:///taken/savepoint-1"]
    ground.put(f"{NEW}/b.txt", content["b.txt"])
    flink, spec = running(ground)
    assert ground.apply(spec, "run-2").state == "finished"
    assert [each.location for each in flink.submissions] == [TARGET]


@pytest.mark.parametrize(
    ("old", "new", "path", "expected"),
    [
        ("s3://a/in", "s3://b/in", "s3p://a/in/x", "s3p://b/in/x"),
        ("s3://a", "s3://b/c", "s3a://a/x y%20", "s3a://b/c/x y%20"),
        ("hdfs://one:8020/in", "hdfs://two/in", "hdfs://one:8020/in/x", "hdfs://two/in/x"),
        ("file:///in", "abfs://c@d/in", "file:/in/x", "abfs://c@d/in/x"),
    ],
)
def test_a_path_has_the_words_of_the_job_or_those_of_the_new_folder(
    old: str, new: str, path: str, expected: str
) -> None:
    uri = moved_path(Uri.of(path), {old: new})
    assert str(uri) == expected and Uri.of(expected) == uri
    assert moved_path(Uri.of("file:/inside/x"), {old: new}) is None

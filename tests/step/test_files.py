"""Steps that touch nothing but files: repeatable, never fooled by a size, undone without a trace."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from stateshift.errors import Interrupted, MissingFile, StalePlan, StorageError
from stateshift.step import CopyFiles, MoveFiles, Rename, TransformShard, WriteFile
from stateshift.survey import FileInfo
from tests.support.worlds import Twins

HERE, THERE = "file:///here", "file:///there"
FILES = {"a": b"one", "b/c": b"two two"}
COPY = CopyFiles("copy/0", HERE, THERE, tuple(FileInfo(path, len(content)) for path, content in FILES.items()))


@pytest.fixture
def twins() -> Twins:
    made = Twins()
    made.put(HERE, FILES)
    return made


def test_a_copy_repeated_ends_in_the_same_place_with_the_same_evidence(twins: Twins) -> None:
    assert COPY.run(twins.world) == COPY.run(twins.world)
    assert twins.held(THERE) == FILES


def test_other_content_of_the_same_size_is_not_taken_for_the_file(twins: Twins) -> None:
    twins.put(THERE, {"a": b"eno"})
    COPY.run(twins.world)
    assert twins.held(THERE) == FILES


def test_what_evidence_was_given_of_survives_a_crash_of_the_machine(twins: Twins) -> None:
    for seed in range(20):
        COPY.run(twins.world)
        twins.disk.crash(random.Random(seed))
        twins = replace(twins)
        assert twins.held(THERE) == FILES, f"seed {seed}"


def test_a_file_that_grew_since_the_plan_is_refused_and_not_left_behind(twins: Twins) -> None:
    twins.put(HERE, {"a": b"one and more"})
    with pytest.raises(StalePlan, match="a changed while it was copied"):
        COPY.run(twins.world)
    assert "a" not in twins.held(THERE)


def test_a_file_that_is_gone_is_named(twins: Twins) -> None:
    twins.disk.open(HERE).remove("b/c")
    with pytest.raises(MissingFile, match="b/c was there when the plan was made"):
        COPY.run(twins.world)


def test_an_interrupted_copy_stops_between_two_files(twins: Twins) -> None:
    twins.world.stop.set()
    with pytest.raises(Interrupted):
        COPY.run(twins.world)
    assert twins.held(THERE) == {}


def test_evidence_no_longer_holds_of_a_file_that_was_changed_or_removed(twins: Twins) -> None:
    evidence = COPY.run(twins.world)
    assert COPY.holds(twins.world, evidence) == []
    twins.put(THERE, {"a": b"eno"})
    twins.disk.open(THERE).remove("b/c")
    assert [found.place for found in COPY.holds(twins.world, evidence)] == ["a", "b/c"]


def test_a_copy_is_undone_but_for_what_somebody_changed_since(twins: Twins) -> None:
    evidence = COPY.run(twins.world)
    twins.put(THERE, {"a": b"theirs", "x": b"theirs too"})
    left = COPY.undo(twins.world, evidence)
    assert twins.held(THERE) == {"a": b"theirs", "x": b"theirs too"}
    assert len(left) == 1
    assert "/a" in left[0]


def test_a_copy_that_was_only_begun_is_undone_whole(twins: Twins) -> None:
    twins.put(THERE, {"a": b"half of"})
    COPY.undo(twins.world, None)
    assert twins.held(THERE) == {}


MOVE = MoveFiles("halt/merge", "file:///", (Rename("here/a", "there/a", 3), Rename("here/b/c", "there/b/c", 7)))


def test_a_move_may_be_repeated_from_any_point_and_taken_back(twins: Twins) -> None:
    twins.disk.open("file:///").move("here/a", "there/a")
    assert MOVE.run(twins.world) == MOVE.run(twins.world)
    assert (twins.held(HERE), twins.held(THERE)) == ({}, FILES)
    assert MOVE.holds(twins.world, {}) == []
    assert MOVE.undo(twins.world, None) == []
    assert (twins.held(HERE), twins.held(THERE)) == (FILES, {})
    assert len(MOVE.holds(twins.world, {})) == 2


def test_a_move_never_replaces_what_is_there(twins: Twins) -> None:
    twins.put(THERE, {"a": b"theirs"})
    with pytest.raises(StorageError, match="there already"):
        MOVE.run(twins.world)
    assert twins.held(THERE)["a"] == b"theirs"


@pytest.mark.parametrize("content", [b"", b"text\n", b"\x00\xff\xfe"])
def test_literal_bytes_are_written_as_they_are(twins: Twins, content: bytes) -> None:
    step = WriteFile.of("publish/0", THERE, "m", content)
    evidence = step.run(twins.world)
    assert twins.held(THERE) == {"m": content}
    assert step.undo(twins.world, evidence) == []
    assert twins.held(THERE) == {}


def test_a_transform_writes_what_the_pure_function_makes_of_its_inputs(twins: Twins) -> None:
    log = b'v1\n{"path":"file:///in/x%20y","timestamp":1,"batchId":0}'
    twins.put(HERE, {"sources/0/0": log})
    options = {"mapping": [["file:///in", "file:///new in"]], "unmapped": "keep"}
    step = TransformShard(
        "transform/0", "spark.rewrite-log", options, HERE, (FileInfo("sources/0/0", len(log)),), THERE, ("sources/0/0",)
    )
    evidence = step.run(twins.world)
    assert twins.held(THERE)["sources/0/0"] == log.replace(b"file:///in/", b"file:///new%20in/")
    assert step.holds(twins.world, evidence) == []
    assert step.run(twins.world) == evidence

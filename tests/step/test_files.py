"""CopyFiles, MoveFiles, WriteFile, TransformShard: repeated, asked, undone; recognising by
digest, by nothing less.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.errors import Interrupted, MissingFile, StalePlan, StorageError
from stateshift.step import CopyFiles, MoveFiles, Rename, StageFiles, TransformShard, WriteFile
from stateshift.storage.local.storage import LocalStorage
from stateshift.survey import FileInfo
from stateshift.testing.memory_storage import MemoryStorage
from tests.support.steps import SOURCE, TARGET, Stage

FILES = (FileInfo("a", 3, 7.0), FileInfo("d/b", 5, 8.0))
COPY = CopyFiles("copy/0", SOURCE, TARGET, FILES)
DOUBLE = TransformShard("transform/0", "double", {}, SOURCE, (FileInfo("a", 3),), TARGET, ("a",))


STAGE = StageFiles("copy/staged-0", SOURCE, TARGET, FILES)
PUBLISH = CopyFiles("publish/0", SOURCE, TARGET, FILES, whole=True, staged=True)


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.give(SOURCE, a=b"AAA", d_b=b"BBBBB")
    return found


def writes(stage: Stage) -> int:
    """How many writes there have been that were not exclusive creations."""
    return stage.disk.writes


def test_a_copy_holds_the_same_bytes_and_says_which(stage: Stage) -> None:
    evidence = COPY.run(stage.world)
    assert stage.disk.snapshot(TARGET) == {"a": b"AAA", "d/b": b"BBBBB"}
    assert [file[:2] for file in evidence.files] == [("a", 3), ("d/b", 5)]
    assert COPY.holds(stage.world, evidence) == []


@pytest.mark.parametrize("step", [COPY, DOUBLE, WriteFile.of("w", TARGET, "a", b"\xff\0")])
def test_repeating_a_step_gives_the_same_evidence_and_writes_nothing(
    stage: Stage, step: CopyFiles
) -> None:
    first = step.run(stage.world)
    before = writes(stage)
    assert step.run(stage.world) == first
    assert writes(stage) == before


def test_a_file_of_the_same_size_and_time_and_other_content_is_written_again(stage: Stage) -> None:
    stage.target.write("a", lambda: iter((b"AAX",)), 7.0)
    CopyFiles("copy/0", SOURCE, TARGET, FILES, keep_times=True).run(stage.world)
    assert stage.disk.snapshot(TARGET)["a"] == b"AAA"


def test_a_torn_file_is_written_again(stage: Stage) -> None:
    stage.give(TARGET, a=b"A")
    COPY.run(stage.world)
    assert stage.disk.snapshot(TARGET)["a"] == b"AAA"


@pytest.mark.parametrize("step", [COPY, DOUBLE, WriteFile.of("w", TARGET, "a", b"x")])
@pytest.mark.parametrize("seed", range(20))
def test_evidence_outlives_a_power_cut_also_when_the_work_was_done_by_a_process_that_was_killed(
    step: CopyFiles, seed: int
) -> None:
    """The first process copies and is killed before it syncs; the second finds the file and
    leaves it alone.
    """
    stage = Stage()
    stage.give(SOURCE, a=b"AAA", d_b=b"BBBBB")
    process = stage.world
    target = process.storage(TARGET)
    first = {"a": b"x"} if isinstance(step, WriteFile) else {"a": b"AAA", "d/b": b"BBBBB"}
    for path, content in ({"a": b"AAAAAA"} if step is DOUBLE else first).items():
        target.write(path, lambda content=content: iter((content,)))  # type: ignore[misc]
    stage.disk.kill()
    evidence = step.run(stage.world)
    stage.disk.crash(random.Random(seed))
    assert step.holds(stage.world, evidence) == []


def test_evidence_tells_what_is_missing_shorter_or_other(stage: Stage) -> None:
    evidence = COPY.run(stage.world)
    stage.target.remove("a")
    stage.give(TARGET, d_b=b"BBBBX")
    assert [(d.place, d.found) for d in COPY.holds(stage.world, evidence)] == [
        ("a", "nothing"),
        ("d/b", "other content of the same size"),
    ]
    stage.give(TARGET, d_b=b"B")
    assert COPY.holds(stage.world, evidence)[1].found == "1 bytes"


def test_a_file_that_vanished_is_named_with_the_way_out(stage: Stage) -> None:
    stage.source.remove("d/b")
    with pytest.raises(
        MissingFile, match="d/b was there when the plan was made and is gone"
    ) as caught:
        COPY.run(stage.world)
    assert "resume WORKDIR" in (caught.value.hint or "")


def test_a_file_that_grew_since_the_plan_is_not_left_on_the_target(stage: Stage) -> None:
    stage.give(SOURCE, d_b=b"BBBBB and more")
    with pytest.raises(
        StalePlan, match="d/b changed while it was copied: 5 bytes when planned, 14 when read"
    ):
        COPY.run(stage.world)
    assert stage.disk.snapshot(TARGET) == {"a": b"AAA"}


class Changing(MemoryStorage):
    """A file that is rewritten while it is read."""

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        for number, chunk in enumerate((b"AA", b"AA", b"AA")):
            if number == 1:
                yield b"!"
            yield chunk


def test_a_file_that_changes_under_the_copy_is_refused() -> None:
    stage = Stage()
    stage.give(SOURCE, a=b"AAA")
    world, changing = stage.world, Changing(stage.disk, SOURCE)
    inner = world.storage
    world = replace(
        world, storage=lambda location: changing if location == SOURCE else inner(location)
    )
    with pytest.raises(StalePlan):
        CopyFiles("copy/0", SOURCE, TARGET, FILES[:1]).run(world)
    assert stage.disk.snapshot(TARGET) == {}


def test_times_are_kept_only_where_asked(stage: Stage) -> None:
    CopyFiles("copy/0", SOURCE, TARGET, FILES, keep_times=True).run(stage.world)
    assert {info.path: info.modified for info in stage.target.list()} == {"a": 7.0, "d/b": 8.0}
    other = CopyFiles("copy/1", SOURCE, "memory://m/other", FILES)
    other.run(stage.world)
    assert {info.modified for info in stage.disk.open("memory://m/other").list()} == {0.0}


def test_a_copy_stops_between_two_files(stage: Stage) -> None:
    stage.stop.set()
    with pytest.raises(Interrupted):
        COPY.run(stage.world)
    assert stage.disk.snapshot(TARGET) == {}


def test_undoing_a_copy_removes_what_it_wrote_and_nothing_else(stage: Stage) -> None:
    evidence = COPY.run(stage.world)
    stage.give(TARGET, d_c=b"theirs")
    assert COPY.undo(stage.world, evidence) == []
    assert stage.disk.snapshot(TARGET) == {"d/c": b"theirs"}
    assert COPY.undo(stage.world, evidence) == [], "also when it was undone before"


def test_undoing_a_copy_leaves_what_was_changed_since_and_says_so(stage: Stage) -> None:
    evidence = COPY.run(stage.world)
    stage.give(TARGET, a=b"AAX")
    assert COPY.undo(stage.world, evidence) == [
        f"{TARGET}/a: changed since it was written, left as it is"
    ]
    assert stage.disk.snapshot(TARGET) == {"a": b"AAX"}


def test_an_unfinished_copy_is_undone_without_evidence(stage: Stage) -> None:
    stage.give(TARGET, a=b"A")
    assert COPY.undo(stage.world, None) == []
    assert stage.disk.snapshot(TARGET) == {}


def test_what_is_transformed_is_what_the_transform_makes(stage: Stage) -> None:
    evidence = DOUBLE.run(stage.world)
    assert stage.disk.snapshot(TARGET) == {"a": b"AAAAAA"}
    assert evidence.files[0].size == 6
    assert DOUBLE.undo(stage.world, evidence) == []
    assert stage.disk.snapshot(TARGET) == {}


def test_an_output_that_is_not_needed_is_no_file_and_its_step_is_taken_back(stage: Stage) -> None:
    some = {"some": lambda options, inputs: [None, inputs[0]]}
    world = replace(stage.world, transforms=some)
    step = replace(DOUBLE, transform="some", outputs=("a", "b"))
    evidence = step.run(world)
    assert stage.disk.snapshot(TARGET) == {"b": b"AAA"}
    assert step.holds(world, evidence) == []
    assert step.undo(world, evidence) == []
    assert stage.disk.snapshot(TARGET) == {}


@pytest.mark.parametrize("content", [b"text\n", "ü".encode(), b"\xff\0", b""])
def test_literal_bytes_are_written_as_they_are(stage: Stage, content: bytes) -> None:
    step = WriteFile.of("publish/index", TARGET, "x/y", content)
    assert step.content == content
    evidence = step.run(stage.world)
    assert stage.disk.snapshot(TARGET) == {"x/y": content}
    assert step.undo(stage.world, evidence) == []
    assert stage.disk.snapshot(TARGET) == {}


REPLACING = WriteFile.of("publish/index", SOURCE, "a", b"new", replaces="AAA")


@pytest.mark.parametrize("finished", [True, False])
def test_undoing_a_write_puts_back_what_it_replaced(stage: Stage, finished: bool) -> None:
    """An index in a place that is not ours: `restart: false`, or a job that stays where it is."""
    evidence = REPLACING.run(stage.world)
    for _ in range(2):
        assert REPLACING.undo(stage.world, evidence if finished else None) == []
        assert stage.disk.snapshot(SOURCE)["a"] == b"AAA"


def test_undoing_a_write_that_never_came_to_it_changes_nothing(stage: Stage) -> None:
    REPLACING.undo(stage.world, None)
    assert stage.disk.snapshot(SOURCE) == {"a": b"AAA", "d/b": b"BBBBB"}


def test_undoing_a_write_leaves_what_somebody_wrote_since(stage: Stage) -> None:
    REPLACING.run(stage.world)
    stage.give(SOURCE, a=b"theirs")
    REPLACING.undo(stage.world, None)
    assert stage.disk.snapshot(SOURCE)["a"] == b"theirs"


# ---- MoveFiles

RENAMES = (Rename("north/op/x", "source/op/x", 1), Rename("north/op/y", "source/op/y", 1))
MOVE = MoveFiles("halt/merge", "memory://m", RENAMES)


@pytest.fixture
def north(stage: Stage) -> Stage:
    stage.give("memory://m/north", op_x=b"X", op_y=b"Y")
    return stage


def test_a_merge_is_a_rename_that_may_be_repeated(north: Stage) -> None:
    evidence = MOVE.run(north.world)
    assert MOVE.run(north.world) == evidence
    assert north.disk.snapshot("memory://m/north") == {}
    assert north.disk.snapshot(SOURCE) == {"a": b"AAA", "d/b": b"BBBBB", "op/x": b"X", "op/y": b"Y"}
    assert MOVE.holds(north.world, evidence) == []


def test_a_merge_that_was_begun_is_finished_by_its_repeat(north: Stage) -> None:
    north.disk.open("memory://m").move("north/op/x", "source/op/x")
    MOVE.run(north.world)
    assert north.disk.snapshot("memory://m/north") == {}


def test_a_file_that_is_in_the_way_of_a_merge_is_named_and_kept(north: Stage) -> None:
    north.give(SOURCE, op_y=b"theirs")
    with pytest.raises(StorageError, match="cannot move north/op/y: source/op/y is there already"):
        MOVE.run(north.world)
    assert MOVE.undo(north.world, None) == []
    assert north.disk.snapshot("memory://m/north") == {"op/x": b"X", "op/y": b"Y"}
    assert north.disk.snapshot(SOURCE)["op/y"] == b"theirs"


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_merge_is_taken_back_wherever_it_stood(north: Stage, done: int) -> None:
    for item in MOVE.items[:done]:
        north.disk.open("memory://m").move(item.path, item.target_path)
    for _ in range(2):
        assert MOVE.undo(north.world, None) == []
        assert north.disk.snapshot("memory://m/north") == {"op/x": b"X", "op/y": b"Y"}
        assert north.disk.snapshot(SOURCE) == {"a": b"AAA", "d/b": b"BBBBB"}
    assert not north.disk.is_directory("memory://m/source/op"), (
        "no empty operator is left where it was"
    )
    assert north.disk.is_directory("memory://m/source/d")


def test_what_is_in_neither_place_is_told(north: Stage) -> None:
    north.disk.open("memory://m").remove("north/op/x")
    assert MOVE.undo(north.world, None) == [
        "north/op/x was moved to source/op/x, and is in neither place any more"
    ]


def test_a_rename_that_was_killed_between_its_two_names_is_taken_back(tmp_path: Path) -> None:
    """On a disk a rename that replaces nothing is a link and an unlink."""
    root = tmp_path
    for name in ("north/op", "source/op"):
        (root / name).mkdir(parents=True)
    (root / "north/op/x").write_bytes(b"X")
    (root / "source/a").write_bytes(b"A")
    os.link(root / "north/op/x", root / "source/op/x")
    step = MoveFiles("halt/merge", f"file://{root}", (Rename("north/op/x", "source/op/x", 1),))
    world = replace(Stage().world, storage=LocalStorage)
    assert step.undo(world, None) == []
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == [
        "north",
        "north/op",
        "north/op/x",
        "source",
        "source/a",
    ]


def test_what_was_staged_only_gets_its_name(stage: Stage) -> None:
    STAGE.run(stage.world)
    assert set(stage.disk.snapshot(TARGET)) == {"_stateshift/staged/a", "_stateshift/staged/d/b"}
    before = writes(stage)
    evidence = PUBLISH.run(stage.world)
    assert writes(stage) == before
    assert stage.disk.snapshot(TARGET) == {"a": b"AAA", "d/b": b"BBBBB"}
    assert evidence == COPY.run(stage.world)
    assert PUBLISH.run(stage.world) == evidence, (
        "a repeat finds nothing staged, and the files in their places"
    )


def test_what_was_staged_and_is_gone_or_torn_is_copied_instead(stage: Stage) -> None:
    STAGE.run(stage.world)
    stage.target.remove("_stateshift/staged/a")
    stage.target.write("_stateshift/staged/d/b", lambda: iter((b"BB",)))
    assert PUBLISH.run(stage.world) == COPY.run(stage.world)
    STAGE.undo(stage.world, None)
    assert stage.disk.snapshot(TARGET) == {"a": b"AAA", "d/b": b"BBBBB"}


def test_staging_is_taken_back(stage: Stage) -> None:
    evidence = STAGE.run(stage.world)
    assert STAGE.holds(stage.world, evidence) == []
    assert STAGE.undo(stage.world, evidence) == []
    assert stage.disk.snapshot(TARGET) == {}

"""CopyFiles, MoveFiles, WriteFile, TransformShard: repeated, asked, undone; recognising by
digest, by nothing less.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.errors import Interrupted, MissingFile, StalePlan, StorageError
from stateshift.step import (
    CopyFiles,
    CopyInOrder,
    MoveFiles,
    Rename,
    StageFiles,
    TransformShard,
    WriteFile,
)
from stateshift.storage.local.storage import LocalStorage
from stateshift.storage.protocol import Content
from stateshift.survey import FileInfo
from stateshift.testing.memory_storage import MemoryStorage, ProcessGone
from stateshift.world import World
from tests.support.ground import SOURCE, TARGET, Ground

FILES = (FileInfo("a", 3, 7.0), FileInfo("d/b", 5, 8.0))
COPY = CopyFiles("copy/0", SOURCE, TARGET, FILES)
DOUBLE = TransformShard("transform/0", "double", {}, SOURCE, (FileInfo("a", 3),), TARGET, ("a",))


STAGE = StageFiles("copy/staged-0", SOURCE, TARGET, FILES)
PUBLISH = CopyFiles("publish/0", SOURCE, TARGET, FILES, whole=True, staged=True)


@pytest.fixture
def ground() -> Ground:
    found = Ground()
    found.give(SOURCE, a=b"AAA", d_b=b"BBBBB")
    return found


def writes(ground: Ground) -> int:
    """How many writes there have been that were not exclusive creations."""
    return ground.disk.writes


def test_a_copy_holds_the_same_bytes_and_says_which(ground: Ground) -> None:
    evidence = COPY.run(ground.world)
    assert ground.disk.snapshot(TARGET) == {"a": b"AAA", "d/b": b"BBBBB"}
    assert [file[:2] for file in evidence.files] == [("a", 3), ("d/b", 5)]
    assert COPY.holds(ground.world, evidence) == []


@pytest.mark.parametrize("step", [COPY, DOUBLE, WriteFile.of("w", TARGET, "a", b"\xff\0")])
def test_repeating_a_step_gives_the_same_evidence_and_writes_nothing(
    ground: Ground, step: CopyFiles
) -> None:
    first = step.run(ground.world)
    before = writes(ground)
    assert step.run(ground.world) == first
    assert writes(ground) == before


def test_a_file_of_the_same_size_and_time_and_other_content_is_written_again(
    ground: Ground,
) -> None:
    ground.target.write("a", lambda: iter((b"AAX",)), 7.0)
    CopyFiles("copy/0", SOURCE, TARGET, FILES, keep_times=True).run(ground.world)
    assert ground.disk.snapshot(TARGET)["a"] == b"AAA"


def test_a_torn_file_is_written_again(ground: Ground) -> None:
    ground.give(TARGET, a=b"A")
    COPY.run(ground.world)
    assert ground.disk.snapshot(TARGET)["a"] == b"AAA"


@pytest.mark.parametrize("step", [COPY, DOUBLE, WriteFile.of("w", TARGET, "a", b"x")])
@pytest.mark.parametrize("seed", range(20))
def test_evidence_outlives_a_power_cut_also_when_the_work_was_done_by_a_process_that_was_killed(
    step: CopyFiles, seed: int
) -> None:
    """The first process copies and is killed before it syncs; the second finds the file and
    leaves it alone.
    """
    ground = Ground()
    ground.give(SOURCE, a=b"AAA", d_b=b"BBBBB")
    process = ground.world
    target = process.storage(TARGET)
    first = {"a": b"x"} if isinstance(step, WriteFile) else {"a": b"AAA", "d/b": b"BBBBB"}
    for path, content in ({"a": b"AAAAAA"} if step is DOUBLE else first).items():
        target.write(path, lambda content=content: iter((content,)))  # type: ignore[misc]
    ground.disk.kill()
    evidence = step.run(ground.world)
    ground.disk.crash(random.Random(seed))
    assert step.holds(ground.world, evidence) == []


def test_evidence_tells_what_is_missing_shorter_or_other(ground: Ground) -> None:
    evidence = COPY.run(ground.world)
    ground.target.remove("a")
    ground.give(TARGET, d_b=b"BBBBX")
    assert [(d.place, d.found) for d in COPY.holds(ground.world, evidence)] == [
        ("a", "nothing"),
        ("d/b", "other content of the same size"),
    ]
    ground.give(TARGET, d_b=b"B")
    assert COPY.holds(ground.world, evidence)[1].found == "1 bytes"


def test_a_file_that_vanished_is_named_with_the_way_out(ground: Ground) -> None:
    ground.source.remove("d/b")
    with pytest.raises(
        MissingFile, match="d/b was there when the plan was made and is gone"
    ) as caught:
        COPY.run(ground.world)
    assert "resume WORKDIR" in (caught.value.hint or "")


def test_a_file_that_grew_since_the_plan_is_not_left_on_the_target(ground: Ground) -> None:
    ground.give(SOURCE, d_b=b"BBBBB and more")
    with pytest.raises(
        StalePlan, match="d/b changed while it was copied: 5 bytes when planned, 14 when read"
    ):
        COPY.run(ground.world)
    assert ground.disk.snapshot(TARGET) == {"a": b"AAA"}


class Changing(MemoryStorage):
    """A file that is rewritten while it is read."""

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        for number, chunk in enumerate((b"AA", b"AA", b"AA")):
            if number == 1:
                yield b"!"
            yield chunk


def test_a_file_that_changes_under_the_copy_is_refused() -> None:
    ground = Ground()
    ground.give(SOURCE, a=b"AAA")
    world, changing = ground.world, Changing(ground.disk, SOURCE)
    inner = world.storage
    world = replace(
        world, storage=lambda location: changing if location == SOURCE else inner(location)
    )
    with pytest.raises(StalePlan):
        CopyFiles("copy/0", SOURCE, TARGET, FILES[:1]).run(world)
    assert ground.disk.snapshot(TARGET) == {}


def test_times_are_kept_only_where_asked(ground: Ground) -> None:
    CopyFiles("copy/0", SOURCE, TARGET, FILES, keep_times=True).run(ground.world)
    assert {info.path: info.modified for info in ground.target.list()} == {"a": 7.0, "d/b": 8.0}
    other = CopyFiles("copy/1", SOURCE, "memory://m/other", FILES)
    other.run(ground.world)
    assert {info.modified for info in ground.disk.open("memory://m/other").list()} == {
        ground.clock.time
    }


def test_a_copy_stops_between_two_files(ground: Ground) -> None:
    ground.stop.set()
    with pytest.raises(Interrupted):
        COPY.run(ground.world)
    assert ground.disk.snapshot(TARGET) == {}


def test_undoing_a_copy_removes_what_it_wrote_and_nothing_else(ground: Ground) -> None:
    evidence = COPY.run(ground.world)
    ground.give(TARGET, d_c=b"theirs")
    assert COPY.undo(ground.world, evidence) == []
    assert ground.disk.snapshot(TARGET) == {"d/c": b"theirs"}
    assert COPY.undo(ground.world, evidence) == [], "also when it was undone before"


def test_undoing_a_copy_leaves_what_was_changed_since_and_says_so(ground: Ground) -> None:
    evidence = COPY.run(ground.world)
    ground.give(TARGET, a=b"AAX")
    assert COPY.undo(ground.world, evidence) == [
        f"{TARGET}/a: changed since it was written, left as it is"
    ]
    assert ground.disk.snapshot(TARGET) == {"a": b"AAX"}


def test_an_unfinished_copy_is_undone_without_evidence(ground: Ground) -> None:
    ground.give(TARGET, a=b"A")
    assert COPY.undo(ground.world, None) == []
    assert ground.disk.snapshot(TARGET) == {}


def test_what_is_transformed_is_what_the_transform_makes(ground: Ground) -> None:
    evidence = DOUBLE.run(ground.world)
    assert ground.disk.snapshot(TARGET) == {"a": b"AAAAAA"}
    assert evidence.files[0].size == 6
    assert DOUBLE.undo(ground.world, evidence) == []
    assert ground.disk.snapshot(TARGET) == {}


def test_an_output_that_is_not_needed_is_no_file_and_its_step_is_taken_back(ground: Ground) -> None:
    some = {"some": lambda options, inputs: [None, inputs[0]]}
    world = replace(ground.world, transforms=some)
    step = replace(DOUBLE, transform="some", outputs=("a", "b"))
    evidence = step.run(world)
    assert ground.disk.snapshot(TARGET) == {"b": b"AAA"}
    assert step.holds(world, evidence) == []
    assert step.undo(world, evidence) == []
    assert ground.disk.snapshot(TARGET) == {}


@pytest.mark.parametrize("content", [b"text\n", "ü".encode(), b"\xff\0", b""])
def test_literal_bytes_are_written_as_they_are(ground: Ground, content: bytes) -> None:
    step = WriteFile.of("publish/index", TARGET, "x/y", content)
    assert step.content == content
    evidence = step.run(ground.world)
    assert ground.disk.snapshot(TARGET) == {"x/y": content}
    assert step.undo(ground.world, evidence) == []
    assert ground.disk.snapshot(TARGET) == {}


REPLACING = WriteFile.of("publish/index", SOURCE, "a", b"new", replaces="AAA")


@pytest.mark.parametrize("finished", [True, False])
def test_undoing_a_write_puts_back_what_it_replaced(ground: Ground, finished: bool) -> None:
    """An index in a place that is not ours: `restart: false`, or a job that stays where it is."""
    evidence = REPLACING.run(ground.world)
    for _ in range(2):
        assert REPLACING.undo(ground.world, evidence if finished else None) == []
        assert ground.disk.snapshot(SOURCE)["a"] == b"AAA"


def test_undoing_a_write_that_never_came_to_it_changes_nothing(ground: Ground) -> None:
    REPLACING.undo(ground.world, None)
    assert ground.disk.snapshot(SOURCE) == {"a": b"AAA", "d/b": b"BBBBB"}


def test_undoing_a_write_leaves_what_somebody_wrote_since(ground: Ground) -> None:
    REPLACING.run(ground.world)
    ground.give(SOURCE, a=b"theirs")
    REPLACING.undo(ground.world, None)
    assert ground.disk.snapshot(SOURCE)["a"] == b"theirs"


# ---- MoveFiles

RENAMES = (Rename("north/op/x", "orders/op/x", 1), Rename("north/op/y", "orders/op/y", 1))
MOVE = MoveFiles("halt/merge", "file:///here", RENAMES)


@pytest.fixture
def north(ground: Ground) -> Ground:
    ground.give("file:///here/north", op_x=b"X", op_y=b"Y")
    return ground


def test_a_merge_is_a_rename_that_may_be_repeated(north: Ground) -> None:
    evidence = MOVE.run(north.world)
    assert MOVE.run(north.world) == evidence
    assert north.disk.snapshot("file:///here/north") == {}
    assert north.disk.snapshot(SOURCE) == {"a": b"AAA", "d/b": b"BBBBB", "op/x": b"X", "op/y": b"Y"}
    assert MOVE.holds(north.world, evidence) == []


def test_a_merge_that_was_begun_is_finished_by_its_repeat(north: Ground) -> None:
    north.disk.open("file:///here").move("north/op/x", "orders/op/x")
    MOVE.run(north.world)
    assert north.disk.snapshot("file:///here/north") == {}


def test_a_file_that_is_in_the_way_of_a_merge_is_named_and_kept(north: Ground) -> None:
    north.give(SOURCE, op_y=b"theirs")
    with pytest.raises(StorageError, match="cannot move north/op/y: orders/op/y is there already"):
        MOVE.run(north.world)
    assert MOVE.undo(north.world, None) == []
    assert north.disk.snapshot("file:///here/north") == {"op/x": b"X", "op/y": b"Y"}
    assert north.disk.snapshot(SOURCE)["op/y"] == b"theirs"


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_merge_is_taken_back_wherever_it_stood(north: Ground, done: int) -> None:
    for item in MOVE.items[:done]:
        north.disk.open("file:///here").move(item.path, item.target_path)
    for _ in range(2):
        assert MOVE.undo(north.world, None) == []
        assert north.disk.snapshot("file:///here/north") == {"op/x": b"X", "op/y": b"Y"}
        assert north.disk.snapshot(SOURCE) == {"a": b"AAA", "d/b": b"BBBBB"}
    assert not north.disk.is_directory(f"{SOURCE}/op"), "no empty operator is left where it was"
    assert north.disk.is_directory(f"{SOURCE}/d")


def test_what_is_in_neither_place_is_told(north: Ground) -> None:
    north.disk.open("file:///here").remove("north/op/x")
    assert MOVE.undo(north.world, None) == [
        "north/op/x was moved to orders/op/x, and is in neither place any more"
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
    world = replace(Ground().world, storage=LocalStorage)
    assert step.undo(world, None) == []
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == [
        "north",
        "north/op",
        "north/op/x",
        "source",
        "source/a",
    ]


def test_what_was_staged_only_gets_its_name(ground: Ground) -> None:
    STAGE.run(ground.world)
    assert set(ground.disk.snapshot(TARGET)) == {"_stateshift/staged/a", "_stateshift/staged/d/b"}
    before = writes(ground)
    evidence = PUBLISH.run(ground.world)
    assert writes(ground) == before
    assert ground.disk.snapshot(TARGET) == {"a": b"AAA", "d/b": b"BBBBB"}
    assert evidence == COPY.run(ground.world)
    assert PUBLISH.run(ground.world) == evidence, (
        "a repeat finds nothing staged, and the files in their places"
    )


def test_what_was_staged_and_is_gone_or_torn_is_copied_instead(ground: Ground) -> None:
    STAGE.run(ground.world)
    ground.target.remove("_stateshift/staged/a")
    ground.target.write("_stateshift/staged/d/b", lambda: iter((b"BB",)))
    assert PUBLISH.run(ground.world) == COPY.run(ground.world)
    STAGE.undo(ground.world, None)
    assert ground.disk.snapshot(TARGET) == {"a": b"AAA", "d/b": b"BBBBB"}


def test_staging_is_taken_back(ground: Ground) -> None:
    evidence = STAGE.run(ground.world)
    assert STAGE.holds(ground.world, evidence) == []
    assert STAGE.undo(ground.world, evidence) == []
    assert ground.disk.snapshot(TARGET) == {}


ORDERED = CopyInOrder("publish/0", SOURCE, TARGET, (FILES[1], FILES[0]))


class Seen(MemoryStorage):
    """Knows what a job could see at the target after each change of it, and dies at one of them."""

    seen: list[list[str]]
    dies_at: int | None = None

    def _changed(self) -> None:
        self.seen.append([file.path for file in self.list() if not file.path.startswith("_")])
        if len(self.seen) == self.dies_at:
            raise ProcessGone

    def create(self, path: str, content: bytes) -> None:
        super().create(path, content)
        self._changed()

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        size = super().write(path, content, modified)
        self._changed()
        return size

    def move(self, path: str, target_path: str) -> None:
        super().move(path, target_path)
        self._changed()


def seeing(ground: Ground, dies_at: int | None = None) -> tuple[World, Seen]:
    world, target = ground.world, Seen(ground.disk, TARGET)
    target.seen, target.dies_at = [], dies_at
    inner = world.storage
    return replace(world, storage=lambda place: target if place == TARGET else inner(place)), target


@pytest.mark.parametrize("at_once", [1, 4], ids=["written", "renamed"])
def test_files_in_order_appear_in_their_order(ground: Ground, at_once: int) -> None:
    ground.disk.at_once = at_once
    world, target = seeing(ground)
    evidence = ORDERED.run(world)
    assert [seen for seen in target.seen if seen] == [["d/b"], ["a", "d/b"]]
    assert ground.disk.snapshot(TARGET) == {"a": b"AAA", "d/b": b"BBBBB"}
    before = writes(ground)
    assert ORDERED.run(ground.world) == evidence and writes(ground) == before
    assert ORDERED.holds(ground.world, evidence) == []
    assert ORDERED.undo(ground.world, evidence) == [] and not ground.disk.snapshot(TARGET)


@pytest.mark.parametrize("at_once", [1, 4], ids=["written", "renamed"])
@pytest.mark.parametrize("dies_at", range(1, 5))
def test_files_in_order_are_finished_or_taken_back_by_the_next_process(
    ground: Ground, at_once: int, dies_at: int
) -> None:
    ground.disk.at_once = at_once
    for is_undone in (False, True):
        with suppress(ProcessGone):
            ORDERED.run(seeing(ground, dies_at)[0])
        seen = [path for path in ground.disk.snapshot(TARGET) if not path.startswith("_")]
        assert seen in ([], ["d/b"], ["a", "d/b"])
        if is_undone:
            assert ORDERED.undo(ground.world, None) == []
            assert ground.disk.snapshot(TARGET) == {}
        else:
            evidence = ORDERED.run(ground.world)
            assert ground.disk.snapshot(TARGET) == {"a": b"AAA", "d/b": b"BBBBB"}
            assert ORDERED.undo(ground.world, evidence) == []


def test_of_files_in_order_none_is_seen_where_one_has_changed(ground: Ground) -> None:
    ground.give(SOURCE, a=b"AAAA")
    with pytest.raises(StalePlan, match="a changed while it was copied"):
        ORDERED.run(ground.world)
    assert ground.disk.snapshot(TARGET) == {}

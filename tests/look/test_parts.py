"""A state verified part by part: together the parts are the whole, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import look
from stateshift.engines.flink.check.judgement import operators_in
from stateshift.engines.spark.check.portions import part_of
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.engines.views import DeepCheck, NumberedPart
from stateshift.errors import SpecError, StorageError
from stateshift.look.checked_parts import (
    CheckedParts,
    NextPart,
    due_part,
    parts_file,
    remember,
    usual_folder,
    wanted_part,
)
from stateshift.survey import FileInfo
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink.golden import looked_at
from tests.engines.flink.golden import write as write_golden
from tests.look.golden_images import HERE, NEWEST, contents, on_a_disk, write

CASES = ["window-hdfs", "join-rocksdb-v4", "session-rocksdb"]
SAVEPOINT = "hdfs://here/flink/savepoints/savepoint-1"


def read(disk: MemoryDisk, part: NumberedPart | None) -> look.Judgement:
    return look.restartable(HERE, disk.open, True, None, DeepCheck(part=part))


@pytest.mark.parametrize("of", [1, 2, 3, 7, 30])
def test_every_shard_is_in_one_part(of: int) -> None:
    for shard in range(200):
        held = [number for number in range(1, of + 1) if NumberedPart(number, of).holds("0", shard)]
        assert len(held) == 1


def test_parts_are_alike() -> None:
    parts = [NumberedPart(number, 30) for number in range(1, 31)]
    sizes = [sum(part.holds("0", shard) for shard in range(200)) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", CASES)
def test_the_parts_together_hold_every_file_that_a_restart_reads(name: str) -> None:
    found = survey(on_a_disk(NEWEST[name]).open(HERE), True)
    (image,) = found.images
    parts = [part_of(found, image, NumberedPart(number, 3)) for number in (1, 2, 3)]
    assert {path for _, part in parts for path in part.needed} == set(image.needed)
    shards = [shard for _, part in parts for shard in part.shards]
    assert sorted(shards, key=str) == sorted(image.shards, key=str)
    assert all(len(part.shards) < len(image.shards) for _, part in parts)


def test_a_part_stays_what_it_is_while_files_come_and_go() -> None:
    found = survey(on_a_disk(NEWEST["window-hdfs"]).open(HERE), True)
    (image,) = found.images
    _, before = part_of(found, image, NumberedPart(2, 3))
    more = replace(found, files=(*found.files, FileInfo("state/0/1/99.delta", 5, 0.0)))
    _, after = part_of(more, image, NumberedPart(2, 3))
    assert before.shards == after.shards


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_damage_is_seen_by_the_part_that_holds_it_and_by_no_other(name: str) -> None:
    files = contents(NEWEST[name])
    disk = MemoryDisk()
    write(disk.open(HERE), files)
    shard = survey(disk.open(HERE), True).images[0].shards[0]
    damaged = MemoryDisk()
    write(damaged.open(HERE), {**files, shard.files[-1]: files[shard.files[-1]][:-3]})
    verdicts = [read(damaged, NumberedPart(number, 3)).restartable for number in (1, 2, 3)]
    holds = [
        NumberedPart(number, 3).holds(f"/{shard.operator}", shard.shard) for number in (1, 2, 3)
    ]
    assert verdicts == [not held for held in holds]
    assert not read(damaged, None).restartable


def test_a_part_says_how_much_of_the_whole_it_is() -> None:
    disk = on_a_disk(NEWEST["join-rocksdb-v4"])
    covered = [read(disk, NumberedPart(number, 3)).checked.coverage for number in (1, 2, 3)]
    assert [coverage.shards for coverage in covered] == [1, 1, 1]
    assert {coverage.shards_all for coverage in covered} == {3}
    assert all(0 < coverage.bytes < coverage.bytes_all for coverage in covered)


def test_more_parts_than_shards_are_told_of() -> None:
    found = read(on_a_disk(NEWEST["window-hdfs"]), NumberedPart(1, 30))
    assert "30 parts of 3 shards: some hold no state" in [each.message for each in found.findings]


def test_the_parts_of_a_savepoint_hold_every_subtask_once() -> None:
    disk = MemoryDisk()
    location = write_golden(disk, "flink-2.3.0/count-canonical-hashmap")
    (image,) = looked_at(disk, location)[1].images
    whole = operators_in(image, None)
    for place, operator in enumerate(whole):
        parts = [operators_in(image, NumberedPart(number, 2))[place] for number in (1, 2)]
        indexes = [each.index for part in parts for each in part.all_subtasks]
        assert sorted(indexes) == sorted(each.index for each in operator.all_subtasks)


# ---- which part is due, and where that is kept


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1/30", NumberedPart(1, 30)),
        ("30/30", NumberedPart(30, 30)),
        ("next/30", NextPart(30)),
        ("next", NextPart(None)),
    ],
)
def test_a_part_is_named(text: str, wanted: object) -> None:
    assert wanted_part(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "0/30",
        "31/30",
        "x",
        "",
        "1",
        "1/0",
        "-1/30",
        "1.5/30",
        "next/0",
        "next/x",
        "1/10001",
        "1/30/2",
    ],
)
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|parts"):
        wanted_part(text)


def test_thirty_nights_check_all_parts_and_then_the_oldest_again(tmp_path: Path) -> None:
    file = parts_file(tmp_path, HERE)
    numbers = []
    for night in range(31):
        part = due_part(file, NextPart(30))
        numbers.append(part.number)
        so_far = remember(file, part, 1000.0 + night, sound=True)
    assert numbers == [*range(1, 31), 1]
    assert (len(so_far.times), so_far.oldest) == (30, 1001.0)


def test_a_damaged_part_stays_the_next_one(tmp_path: Path) -> None:
    file = parts_file(tmp_path, HERE)
    remember(file, due_part(file, NextPart(3)), 1.0, sound=True)
    so_far = remember(file, due_part(file, NextPart()), 2.0, sound=False)
    assert (len(so_far.times), so_far.oldest) == (1, None)
    assert due_part(file, NextPart()) == NumberedPart(2, 3)


def test_another_number_of_parts_begins_anew(tmp_path: Path) -> None:
    file = parts_file(tmp_path, HERE)
    remember(file, due_part(file, NextPart(3)), 1.0, sound=True)
    part = due_part(file, NextPart(5))
    assert part == NumberedPart(1, 5)
    assert file.read() == CheckedParts(3, {1: 1.0}), "nothing is forgotten before it is read"
    assert remember(file, part, 2.0, sound=True) == CheckedParts(5, {1: 2.0})


def test_the_next_part_of_nothing_is_refused_with_what_to_say_instead(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        due_part(parts_file(tmp_path, HERE), NextPart())
    assert refused.value.hint == "say of how many: --part next/30"


def test_where_nothing_can_be_kept_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match="cannot be kept"):
        due_part(parts_file(tmp_path / "file", HERE), NumberedPart(1, 30))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"parts": 3, "checked": {"4": 1}}', '{"parts": 0, "checked": {}}']
)
def test_a_damaged_memory_is_refused_and_not_overwritten(tmp_path: Path, text: str) -> None:
    file = parts_file(tmp_path, HERE)
    file.path.write_text(text)
    with pytest.raises(StorageError, match="it is damaged"):
        due_part(file, NextPart(30))
    assert file.path.read_text() == text


def test_the_memory_is_not_led_elsewhere_by_a_link(tmp_path: Path) -> None:
    file = parts_file(tmp_path, HERE)
    file.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="symbolic link"):
        due_part(file, NextPart(30))


def test_each_location_has_a_memory_of_its_own_and_a_flink_job_has_one(tmp_path: Path) -> None:
    names = {parts_file(tmp_path, f"{HERE}{end}").path for end in ("", "-2", "/", "/../orders")}
    assert len(names) == 2
    checkpoints = {parts_file(tmp_path, f"hdfs://here/job/chk-{number}").path for number in (1, 9)}
    assert len(checkpoints) == 1
    assert parts_file(tmp_path, SAVEPOINT).path not in checkpoints


def test_the_memory_is_in_the_users_folder_for_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/ada")
    ours = "stateshift/verify"
    assert usual_folder({"XDG_STATE_HOME": "/state"}) == Path("/state") / ours
    for relative in ("", "state"):
        usual = usual_folder({"XDG_STATE_HOME": relative})
        assert usual == Path("/ada/.local/state") / ours

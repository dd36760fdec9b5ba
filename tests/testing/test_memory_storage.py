"""The memory twin: what a kill leaves, what a crash may take, and that it is as strict as a
disk.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.errors import StorageError
from stateshift.storage.temporaries import is_temporary
from stateshift.testing.memory_storage import MemoryDisk, ProcessGone
from tests.contracts.faulty import Effects, Faulty, Killed, Moment, at, once

SEEDS = range(200)


def after_crashes(prepare: object) -> set[tuple[tuple[str, bytes], ...]]:
    """Everything a crash can leave of what `prepare` does on a new disk."""
    left = set()
    for seed in SEEDS:
        disk = MemoryDisk()
        prepare(disk)  # type: ignore[operator]
        disk.crash(random.Random(seed))
        left.add(tuple(disk.snapshot("memory://m").items()))
    return left


def test_what_was_not_synced_is_kept_torn_or_lost() -> None:
    def prepare(disk: MemoryDisk) -> None:
        disk.open("memory://m").write("a", lambda: iter([b"12"]))

    assert after_crashes(prepare) == {(), (("a", b""),), (("a", b"1"),), (("a", b"12"),)}


def test_what_was_synced_is_kept() -> None:
    def prepare(disk: MemoryDisk) -> None:
        storage = disk.open("memory://m")
        storage.write("a", lambda: iter([b"12"]))
        storage.sync()

    assert after_crashes(prepare) == {(("a", b"12"),)}


def test_a_replaced_file_may_come_back() -> None:
    def prepare(disk: MemoryDisk) -> None:
        storage = disk.open("memory://m")
        storage.write("a", lambda: iter([b"old"]))
        storage.sync()
        storage.write("a", lambda: iter([b"x"]))

    assert after_crashes(prepare) == {(("a", b"old"),), (("a", b"x"),), (("a", b""),)}


def test_a_sync_covers_what_was_written_through_the_same_storage_only() -> None:
    def prepare(disk: MemoryDisk) -> None:
        ours, other = disk.open("memory://m"), disk.open("memory://m")
        ours.write("a", lambda: iter([b"A"]))
        other.write("b", lambda: iter([b""]))
        ours.sync()

    assert after_crashes(prepare) == {(("a", b"A"),), (("a", b"A"), ("b", b""))}


def test_a_sync_covers_what_a_process_that_was_killed_had_written() -> None:
    def prepare(disk: MemoryDisk) -> None:
        disk.open("memory://m").write("a", lambda: iter([b"A"]))
        disk.kill()
        disk.open("memory://m").sync()

    assert after_crashes(prepare) == {(("a", b"A"),)}


def test_create_move_and_remove_are_durable_when_they_return() -> None:
    def prepare(disk: MemoryDisk) -> None:
        storage = disk.open("memory://m")
        storage.create("lock", b"L")
        storage.write("a", lambda: iter([b"A"]))
        storage.write("b", lambda: iter([b"B"]))
        storage.move("a", "moved")
        storage.remove("b")

    assert after_crashes(prepare) == {(("lock", b"L"), ("moved", b"A"))}


def test_files_are_lost_one_by_one() -> None:
    def prepare(disk: MemoryDisk) -> None:
        storage = disk.open("memory://m")
        for name in "abc":
            storage.write(name, lambda: iter([b""]))

    assert len(after_crashes(prepare)) == 8


def test_the_same_seed_crashes_the_same_way() -> None:
    def crashed(seed: int) -> dict[str, bytes]:
        disk = MemoryDisk()
        storage = disk.open("memory://m")
        for number in range(50):
            storage.write(str(number), lambda: iter([b"0123456789"]))
        disk.crash(random.Random(seed))
        return disk.snapshot()

    assert crashed(7) == crashed(7) != crashed(8)


def test_a_killed_process_has_no_effect_any_more() -> None:
    disk = MemoryDisk()
    storage = disk.open("memory://m")
    storage.write("a", lambda: iter([b"A"]))
    disk.kill()
    operations = (
        lambda: storage.write("b", lambda: iter([b""])),
        lambda: storage.create("b", b""),
        lambda: storage.move("a", "b"),
        lambda: storage.remove("a"),
        lambda: storage.prune(),
        lambda: storage.sync(),
        lambda: storage.read("a"),
    )
    for operation in operations:
        with pytest.raises(ProcessGone):
            operation()
    assert disk.snapshot("memory://m") == {"a": b"A"}
    assert disk.open("memory://m").read("a") == b"A"


def test_a_process_killed_inside_a_write_leaves_a_temporary_file_that_is_no_file() -> None:
    disk = MemoryDisk()
    storage = disk.open("memory://m")

    def content() -> Iterator[bytes]:
        yield b"half"
        disk.kill()
        yield b"other half"

    with pytest.raises(ProcessGone):
        storage.write("d/a", content)
    again = disk.open("memory://m")
    [leftover] = disk.snapshot("memory://m", temporaries=True).items()
    assert is_temporary(leftover[0])
    assert leftover[1] == b"half"
    assert list(again.list()) == []
    again.write("d/a", lambda: iter([b"repeat"]))
    assert disk.snapshot("memory://m", temporaries=True) == {"d/a": b"repeat"}


def test_prune_takes_leftovers_of_the_dead_and_not_of_the_living() -> None:
    disk = MemoryDisk()
    storage = disk.open("memory://m")

    def content() -> Iterator[bytes]:
        yield b"x"
        storage.prune()
        yield b"y"

    storage.write("a", content)
    assert storage.read("a") == b"xy"


def test_a_full_disk_is_full_for_all_its_storages() -> None:
    disk = MemoryDisk(bytes_max=10)
    disk.open("memory://m/a").write("x", lambda: iter([b"12345678"]))
    other = disk.open("memory://m/b")
    for attempt in (
        lambda: other.write("y", lambda: iter([b"1", b"23"])),
        lambda: other.create("y", b"123"),
    ):
        with pytest.raises(StorageError, match="no space left") as raised:
            attempt()
        assert "df -h" in (raised.value.hint or "")
    assert disk.snapshot() == {"memory://m/a/x": b"12345678"}
    disk.open("memory://m/a").remove("x")
    other.write("y", lambda: iter([b"1234567890"]))


def test_locations_may_lie_in_each_other() -> None:
    disk = MemoryDisk()
    disk.open("memory://m").write("a/b/c", lambda: iter([b"x"]))
    assert [i.path for i in disk.open("memory://m/a").list()] == ["b/c"]
    assert disk.open("memory://m/a/b/c").read("") == b"x"


def test_times_come_from_the_clock_that_was_given() -> None:
    disk = MemoryDisk(now=lambda: 77.0)
    storage = disk.open("memory://m")
    storage.write("a", lambda: iter([b""]))
    storage.write("b", lambda: iter([b""]), modified=5.0)
    storage.create("c", b"")
    assert [(i.path, i.modified) for i in storage.list()] == [("a", 77.0), ("b", 5.0), ("c", 77.0)]


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "create", "move", "remove", "sync", "prune"]),
        st.sampled_from(["a", "b", "d/a"]),
        st.sampled_from(["a", "b", "d/b"]),
        st.binary(max_size=4),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(OPERATIONS, st.integers())
def test_a_crash_leaves_of_each_file_something_it_once_was(
    operations: list[tuple[str, str, str, bytes]], seed: int
) -> None:
    """Against a model: since the last durable state of a name, every content it had, or the
    beginning of one.
    """
    disk = MemoryDisk()
    storage = disk.open("memory://m")
    possible: dict[str, list[bytes | None]] = {}
    for operation, path, target, content in operations:
        now = disk.snapshot("memory://m")
        try:
            if operation == "write":
                storage.write(path, lambda content=content: iter([content]))
                possible.setdefault(path, [None]).append(content)
            elif operation == "create":
                storage.create(path, content)
                possible[path] = [content]
            elif operation == "move":
                storage.move(path, target)
                possible[path], possible[target] = [None], [now[path]]
            elif operation == "remove":
                storage.remove(path)
                possible[path] = [None]
            elif operation == "sync":
                storage.sync()
                possible = {name: [values[-1]] for name, values in possible.items()}
            else:
                storage.prune()
        except StorageError:
            assert disk.snapshot("memory://m") == now
    disk.crash(random.Random(seed))
    left = disk.snapshot("memory://m", temporaries=True)
    for name, values in possible.items():
        found = left.pop(name, None)
        if found is None:
            assert None in values
        else:
            unsynced = [v for v in values[1:] if v is not None]
            assert found == values[0] or any(v.startswith(found) for v in unsynced)
    assert left == {}


# -- Faulty, on it


def job(storage: Faulty) -> None:
    storage.create("lock", b"L")
    storage.write("d/a", lambda: iter([b"one", b"two"]))
    storage.move("d/a", "e/a")
    storage.sync()
    storage.remove("lock")
    storage.prune()


def test_every_moment_of_a_job_can_be_failed_at() -> None:
    whole = Effects()
    job(Faulty(MemoryDisk().open("memory://m"), whole))
    assert [(m.kind, m.when) for m in whole.seen[:6]] == [
        ("create", "before"),
        ("create", "after"),
        ("write", "before"),
        ("write", "inside"),
        ("write", "inside"),
        ("write", "after"),
    ]
    for moment in whole.seen:
        disk = MemoryDisk()
        with pytest.raises(Killed):
            job(Faulty(disk.open("memory://m"), Effects(at(moment.number, Killed, disk.kill))))
        left = disk.snapshot("memory://m")
        assert left.get("d/a") in (None, b"onetwo")
        assert left.get("e/a") in (None, b"onetwo")
        assert ("lock" in left) == (2 <= moment.number <= whole_number(whole, "remove"))


def whole_number(effects: Effects, kind: str) -> int:
    return next(m.number for m in effects.seen if m.kind == kind)


def test_a_plan_may_fail_once_and_go_on() -> None:
    disk = MemoryDisk()
    effects = Effects(once(2, Killed))
    storage = Faulty(disk.open("memory://m"), effects)
    with pytest.raises(Killed):
        storage.create("a", b"")
    storage.create("b", b"")
    assert effects.seen[-1] == Moment(4, "create", "after", "memory://m", "b")
    assert sorted(disk.snapshot("memory://m")) == ["a", "b"]

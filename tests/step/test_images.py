"""CompareImages: the same entries, wherever they lie; and what is said when they are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import mmh3
import pytest

from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.errors import VerifyError
from stateshift.formats.spark import state_files
from stateshift.formats.spark.state_files import StateRecord
from stateshift.step import CompareImages
from stateshift.step.evidence import Evidence, FilesWritten, ImagesCompared, OperatorFold
from stateshift.step.images import LARGE_BYTES, read_before, reading_of
from stateshift.survey import ShardFiles
from stateshift.testing.memory_storage import MemoryStorage
from stateshift.world import Pairs, ReadFrom, World
from tests.support.ground import SOURCE, TARGET, Ground

SHARD = ShardFiles("0", "default", 0, ("1.delta", "2.delta"))
COMPARE = CompareImages("compare/0", "spark", SOURCE, TARGET, (SHARD,), None, ("log",), {})


def world(ground: Ground) -> World:
    return replace(ground.world, entries={"spark": fold_shard})


def delta(*records: tuple[bytes, bytes | None]) -> bytes:
    """Values as Spark's rows are: a multiple of eight bytes."""
    rows = [
        StateRecord(key, None if value is None else value.ljust(8, b"\0")) for key, value in records
    ]
    return b"".join(state_files.encode_delta(rows))


@pytest.fixture
def ground() -> Ground:
    found = Ground()
    for place in (SOURCE, TARGET):
        storage = found.disk.open(place)
        for path, content in {
            "1.delta": delta((b"a", b"1"), (b"b", b"1")),
            "2.delta": delta((b"a", None), (b"c", b"3")),
            "log": b"log",
        }.items():
            storage.write(path, lambda content=content: iter((content,)))  # type: ignore[misc]
    return found


def test_equal_images_give_a_count_and_a_digest_per_operator(ground: Ground) -> None:
    evidence = COMPARE.run(world(ground))
    assert evidence.operators["0"].entries == 2
    assert COMPARE.run(world(ground)) == evidence
    assert COMPARE.holds(world(ground), evidence) == []
    assert COMPARE.undo(world(ground), evidence) == []


def test_the_same_entries_in_other_files_are_the_same(ground: Ground) -> None:
    ground.give(TARGET)
    storage = ground.target
    storage.write("5.snapshot", lambda: iter((delta((b"c", b"3"), (b"b", b"1")),)))
    moved = replace(COMPARE, target_shards=(ShardFiles("0", "default", 0, ("5.snapshot",)),))
    assert moved.run(world(ground)).operators == COMPARE.run(world(ground)).operators


def test_entries_one_by_one_are_the_same_as_many_at_once(ground: Ground) -> None:
    def pairs(
        read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]
    ) -> Iterator[tuple[str, Pairs]]:
        for store, block in fold_shard(read, shard, settings):
            yield store, [(key, value or b"") for key, value in block.records()]

    one_by_one = replace(ground.world, entries={"spark": pairs})
    assert COMPARE.run(one_by_one).operators == COMPARE.run(world(ground)).operators


@pytest.mark.parametrize(
    "other",
    [
        delta((b"c", b"3")),
        delta((b"a", None), (b"c", b"4")),
        delta((b"a", None)),
        delta((b"a", None), (b"d", b"3")),
    ],
    ids=["one more", "another value", "one less", "another key"],
)
def test_other_entries_are_refused_with_both_counts(ground: Ground, other: bytes) -> None:
    ground.target.write("2.delta", lambda: iter((other,)))
    with pytest.raises(
        VerifyError, match="operator 0: the target does not hold the same entries"
    ) as caught:
        COMPARE.run(world(ground))
    assert {"step", "expected", "found"} <= caught.value.where.keys()
    assert "rollback WORKDIR" in (caught.value.hint or "")


def test_other_bytes_in_a_file_that_holds_no_entries_are_refused(ground: Ground) -> None:
    ground.target.write("log", lambda: iter((b"lag",)))
    with pytest.raises(VerifyError, match="log: the target does not hold the same bytes"):
        COMPARE.run(world(ground))


def test_evidence_is_broken_by_another_entry_a_damaged_file_and_a_missing_one(
    ground: Ground,
) -> None:
    evidence = COMPARE.run(world(ground))
    ground.target.write("2.delta", lambda: iter((delta((b"z", b"9")),)))
    assert [d.place for d in COMPARE.holds(world(ground), evidence)] == ["operator 0"]
    ground.target.write("2.delta", lambda: iter((b"no delta",)))
    assert [d.place for d in COMPARE.holds(world(ground), evidence)] == [TARGET]
    ground.target.remove("2.delta")
    assert [d.place for d in COMPARE.holds(world(ground), evidence)] == [TARGET]


def test_the_digest_is_the_sum_of_what_each_entry_hashes_to(ground: Ground) -> None:
    """Journals hold it: the same entries have to give the same digest in every version of this
    program.
    """
    entries = [(b"b", b"1".ljust(8, b"\0")), (b"c", b"3".ljust(8, b"\0"))]
    hashes = [mmh3.hash64(b"7 1 default" + key + value, signed=False) for key, value in entries]
    total = sum(high << 64 | low for low, high in hashes) % (1 << 128)
    assert COMPARE.run(world(ground)).operators["0"].digest == f"{total:032x}"


def test_large_files_are_not_read_where_their_storages_know_that_they_are_equal(
    ground: Ground,
) -> None:
    big = b"x" * LARGE_BYTES
    ground.give(SOURCE, a=big, b=big)
    ground.give(TARGET, a=big, b=big[:-1] + b"y")
    known = {"a": "crc:1", "b": "crc:2"}
    read: list[str] = []

    class Knowing(MemoryStorage):
        def checksum(self, path: str) -> str | None:
            return known[path] + (self.location if path == "b" else "")

        def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
            read.append(path)
            return super().chunks(path, offset, size)

    world = replace(ground.world, storage=lambda location: Knowing(ground.disk, location))
    step = CompareImages("compare/0", "spark", SOURCE, TARGET, (), None, ("a",), {}, LARGE_BYTES)
    assert step.run(world) == ImagesCompared({}, paths=1, by_checksum=1) and read == []
    with pytest.raises(VerifyError, match="b: the target does not hold the same bytes"):
        replace(step, paths=("b",)).run(world)
    read.clear()
    assert replace(step, size=10).run(world).by_checksum == 0 and read == ["a", "a"]


def known(ground: Ground, fold: OperatorFold) -> World:
    """The world after a step that has read SHARD, which came to this."""
    evidence = FilesWritten((), {reading_of(SOURCE, SHARD, {}): fold})
    return replace(world(ground), read=read_before([None, evidence]))


def test_a_source_that_was_read_before_is_not_read_again(ground: Ground) -> None:
    evidence = COMPARE.run(world(ground))
    for path in SHARD.files:
        ground.source.remove(path)
    read = known(ground, evidence.operators["0"])
    assert COMPARE.run(read) == evidence
    ground.target.write("2.delta", lambda: iter((delta((b"z", b"9")),)))
    with pytest.raises(VerifyError, match="does not hold the same entries"):
        COMPARE.run(read)


def test_a_source_that_came_to_something_else_the_second_time_is_read(ground: Ground) -> None:
    fold = COMPARE.run(world(ground)).operators["0"]
    name = reading_of(SOURCE, SHARD, {})
    evidences = [FilesWritten((), {name: fold}), FilesWritten((), {name: replace(fold, entries=9)})]
    assert read_before(evidences[:1]) and not read_before(evidences)


def test_what_was_read_is_part_of_the_evidence_and_left_out_where_nothing_was(
    ground: Ground,
) -> None:
    fold = COMPARE.run(world(ground)).operators["0"]
    evidence = FilesWritten((), {"of a shard": fold})
    assert Evidence.from_plain(evidence.to_plain()) == evidence
    assert FilesWritten(()).to_plain() == {"files": []}

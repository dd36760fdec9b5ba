"""An image looked at, without a run: could a job restart from it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift import look
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.marks import fence_text
from stateshift.formats.spark import crc
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.spark.golden import FOLDER, NAMES
from tests.look.golden_images import on_a_disk
from tests.support import encoders
from tests.support.checkpoints import Checkpoint, put

WHERE = "file:///c/orders"


@pytest.fixture
def disk() -> MemoryDisk:
    made = MemoryDisk()
    Checkpoint(batches=5, snapshots=(2,)).write(made.open(WHERE))
    return made


def judged(disk: MemoryDisk, thorough: bool = False, location: str = WHERE) -> look.Judgement:
    return look.restartable(location, disk.open, thorough)


def refused(judgement: look.Judgement) -> list[str]:
    return [finding.message for finding in judgement.findings if finding.level == "refuse"]


@pytest.mark.row("IS-16")
def test_a_whole_image_is_restartable_from_every_batch_it_keeps(disk: MemoryDisk) -> None:
    found = judged(disk, thorough=True)
    assert (found.restartable, found.epoch, found.epochs) == (True, 4, (0, 1, 2, 3, 4))
    assert {finding.level for finding in found.findings} <= {"note"}


@pytest.mark.parametrize("name", NAMES)
def test_real_checkpoints_are_restartable_to_the_last_byte(name: str) -> None:
    judgement = judged(on_a_disk(FOLDER / name, WHERE), thorough=True)
    assert judgement.restartable, refused(judgement)


@pytest.mark.parametrize(
    ("missing", "epochs"),
    [
        ("state/0/1/5.delta", (0, 1, 2, 3)),
        ("state/0/0/3.delta", (0, 1)),
        ("offsets/3", (0, 1, 2)),
        ("metadata", ()),
    ],
)
def test_each_missing_file_is_named_with_the_batches_that_still_work(
    disk: MemoryDisk, missing: str, epochs: tuple[int, ...]
) -> None:
    disk.open(WHERE).remove(missing)
    judgement = judged(disk)
    assert not judgement.restartable
    assert judgement.epochs == epochs
    assert any(missing in message for message in refused(judgement))
    assert missing in [finding.path for finding in judgement.findings]


def test_every_missing_file_is_named_not_only_the_first(disk: MemoryDisk) -> None:
    gone = ["state/0/0/4.delta", "state/0/1/5.delta", "offsets/3"]
    for path in gone:
        disk.open(WHERE).remove(path)
    told = "\n".join(refused(judged(disk)))
    assert all(path in told for path in gone)


def test_a_truncated_delta_is_found_by_reading_it_and_its_offset_told(disk: MemoryDisk) -> None:
    storage, path = disk.open(WHERE), "state/0/1/4.delta"
    whole = storage.read(path)
    put(storage, path, whole[: len(whole) // 2])
    assert judged(disk).restartable, "names and sizes cannot tell"
    judgement = judged(disk, thorough=True)
    assert not judgement.restartable
    (finding,) = [finding for finding in judgement.findings if finding.level == "refuse"]
    assert finding.path == path
    assert finding.offset is not None and 0 <= finding.offset <= len(whole) // 2


def test_state_that_the_last_batch_does_not_need_may_be_broken(disk: MemoryDisk) -> None:
    put(disk.open(WHERE), "state/0/1/1.delta", b"rubbish")
    assert judged(disk, thorough=True).restartable


def test_a_stale_checksum_of_sparks_own_is_found(disk: MemoryDisk) -> None:
    storage, path = disk.open(WHERE), "state/0/1/4.delta"
    put(
        storage,
        f"{path}.crc",
        encoders.encode_spark_crc(crc.spark_checksum(storage.chunks(path), 0)),
    )
    assert judged(disk, thorough=True).restartable
    put(storage, f"{path}.crc", encoders.encode_spark_crc(crc.spark_checksum([b"other"], 0)))
    assert refused(judged(disk, thorough=True)) == [
        f"{path} does not match its checksum {path}.crc: Spark refuses to read it"
    ]


@pytest.mark.parametrize("content", [b"", b"v1\n{", b"\0" * 30], ids=("empty", "torn", "zeros"))
def test_a_torn_commit_is_named_and_the_batch_before_it_works(
    disk: MemoryDisk, content: bytes
) -> None:
    put(disk.open(WHERE), "commits/4", content)
    judgement = judged(disk)
    assert not judgement.restartable
    assert judgement.epochs == (0, 1, 2, 3)
    assert "commits/4 is damaged" in refused(judgement)[0]


def test_a_fenced_source_is_not_restartable_and_the_run_is_named(disk: MemoryDisk) -> None:
    for path in ("offsets/5", "commits/5"):
        put(disk.open(WHERE), path, fence_text("run-3").encode())
    judgement = judged(disk)
    assert not judgement.restartable
    assert judgement.epoch == 4
    assert "fenced by run run-3" in refused(judgement)[0]


def test_a_workflow_is_restartable_when_all_of_its_queries_are(disk: MemoryDisk) -> None:
    where = "file:///c/workflow"
    for name in ("a", "b"):
        Checkpoint().write(disk.open(where), name)
    assert judged(disk, location=where).restartable
    disk.open(where).remove("b/state/0/0/2.delta")
    judgement = judged(disk, location=where)
    assert not judgement.restartable
    assert "b/state/0/0/2.delta is missing" in refused(judgement)[0]


def test_nothing_and_foreign_places_are_not_restartable(disk: MemoryDisk) -> None:
    put(disk.open("file:///c/table"), "part-0.parquet", b"x")
    for location in ("file:///c/nothing", "file:///c/table"):
        judgement = judged(disk, location=location)
        assert (judgement.restartable, judgement.epochs) == (False, ())
        hint = judgement.findings[0].hint or ""
        is_empty = location.endswith("nothing")
        there = "check the path: stateshift inspect file:///c" if is_empty else location
        assert hint.endswith(there) and hint.count("stateshift inspect") == 1


def test_inspecting_nothing_says_where_to_look(disk: MemoryDisk) -> None:
    with pytest.raises(MissingFile, match="nothing is at") as caught:
        look.inspect("/c/no thing", disk.open)
    assert caught.value.hint == "check the path: stateshift inspect file:///c"


def test_inspecting_a_foreign_place_surveys_it_all_the_same(disk: MemoryDisk) -> None:
    put(disk.open("file:///c/table"), "part-0.parquet", b"x")
    found = look.inspect("file:///c/table", disk.open)
    assert found.survey is not None
    assert (found.survey.kind, len(found.survey.files)) == ("foreign", 1)


def test_a_damaged_single_file_is_refused_with_its_path(disk: MemoryDisk) -> None:
    put(disk.open(WHERE), "offsets/4", b"v1\n{")
    with pytest.raises(FormatError) as caught:
        look.inspect(f"{WHERE}/offsets/4", disk.open)
    assert "offsets/4" in str(caught.value)
    assert caught.value.offset is not None


def test_looking_changes_nothing(disk: MemoryDisk, tmp_path: Path) -> None:
    before = disk.snapshot(temporaries=True)
    judged(disk, thorough=True)
    look.inspect(WHERE, disk.open)
    assert disk.snapshot(temporaries=True) == before

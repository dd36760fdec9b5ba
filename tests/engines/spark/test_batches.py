"""The logs of batches: a hole where Spark looks, and what goes backwards, is refused with the
batches that would do.
"""

from __future__ import annotations

import json
import re

import pytest

from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.sources.kinds import step_back
from stateshift.survey import Image
from tests.formats.golden import CASES
from tests.look.golden_images import HERE, contents, disk_with, judged
from tests.support.checkpoints import Checkpoint

WATERMARKS = (0, 1000, 2000, 3000, 4000, 5000)


def image_of(files: dict[str, bytes]) -> Image:
    disk = disk_with(files)
    (image,) = survey.survey(disk.open(HERE), thorough=True).images
    return image


def refused(image: Image) -> str:
    return "\n".join(f.message for f in image.findings if f.level == "refuse")


def without(files: dict[str, bytes], *paths: str) -> dict[str, bytes]:
    return {path: content for path, content in files.items() if path not in paths}


def exchanged(files: dict[str, bytes], one: str, other: str) -> dict[str, bytes]:
    return {**files, one: files[other], other: files[one]}


def watched(batches: int = 5, planned: bool = False) -> dict[str, bytes]:
    """A checkpoint whose watermark advances with every batch."""
    files = Checkpoint(batches=batches, planned=planned).files()
    for batch in range(batches + planned):
        text = files[f"offsets/{batch}"].decode()
        text = text.replace('"batchWatermarkMs":0', f'"batchWatermarkMs":{WATERMARKS[batch]}')
        files[f"offsets/{batch}"] = text.encode()
    for batch in range(batches):
        files[f"commits/{batch}"] = b'v1\n{"nextBatchWatermarkMs":%d}' % WATERMARKS[batch + 1]
    return files


# ---- holes


def test_a_hole_below_the_newest_planned_batch_is_refused_with_the_batches_that_would_do() -> None:
    files = Checkpoint(batches=5).files()
    image = image_of(without(files, "offsets/3", "commits/3", "commits/4"))
    assert "offsets/3 is missing: Spark starts from the newest, offsets/4" in refused(image)
    assert image.epochs == (0, 1, 2)
    found = judged(without(files, "offsets/3", "commits/3", "commits/4"))
    assert not found.restartable
    assert found.epochs == (0, 1, 2)


@pytest.mark.parametrize("missing", [1, 2])
def test_a_hole_that_no_start_reads_only_closes_the_way_back(missing: int) -> None:
    image = image_of(without(Checkpoint(batches=5).files(), f"offsets/{missing}"))
    assert refused(image) == ""
    assert set(image.epochs) == {0, 1, 2, 3, 4} - {missing, missing + 1}


@pytest.mark.parametrize("missing", [3, 4])
def test_every_hole_at_the_newest_two_is_refused_whether_or_not_they_are_committed(
    missing: int,
) -> None:
    image = image_of(without(Checkpoint(batches=5).files(), f"offsets/{missing}"))
    assert f"offsets/{missing} is missing" in refused(image)
    assert 4 not in image.epochs


def test_batches_between_the_last_commit_and_the_newest_plan_need_the_state_that_spark_loads() -> (
    None
):
    files = without(Checkpoint(batches=5).files(), "commits/3", "commits/4")
    image = image_of(files)
    assert refused(image) == ""
    assert "commit 3 missing" in "\n".join(f.message for f in image.findings)
    image = image_of(without(files, "state/0/1/4.delta", "state/0/1/5.delta"))
    assert (
        "Spark runs batch 4 alone, from state version 4, which state/0/1 does not have"
        in refused(image)
    )
    assert image.epochs == (0, 1, 2)


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_number_that_is_no_long_is_no_batch(log: str) -> None:
    """HDFSMetadataLog.isBatchFile: what `toLong` refuses is passed over."""
    files = Checkpoint(batches=3).files()
    found = judged({**files, f"{log}/{2**63}": b"x"})
    assert (found.restartable, found.epoch) == (True, 2)
    found = judged({**files, f"{log}/{2**63 - 1}": b"x"})
    assert not found.restartable


def test_a_damaged_newest_plan_is_refused_though_the_last_commit_lies_before_it() -> None:
    files = without(Checkpoint(batches=5).files(), "commits/3", "commits/4")
    assert "offsets/4 is damaged" in refused(image_of({**files, "offsets/4": b"v1\n{"}))


# ---- what goes backwards


MOVING = [case for case in CASES if len(list((case / "checkpoint/offsets").glob("[0-9]*"))) > 2]


@pytest.mark.parametrize("case", MOVING, ids=[f"{case.parent.name}/{case.name}" for case in MOVING])
def test_the_last_two_offset_logs_exchanged_are_refused_in_every_real_checkpoint(case) -> None:
    files = contents(case)
    newest = max(int(path.partition("/")[2]) for path in files if path.startswith("offsets/"))
    last, before = f"offsets/{newest}", f"offsets/{newest - 1}"
    if files[last].split(b"\n")[2:] == files[before].split(b"\n")[2:]:
        return  # a batch without input: nothing but its time tells the two apart
    found = judged(exchanged(files, last, before))
    if case.name == "custom":  # offsets that only its source can order
        assert "by its clock" in found.findings[0].message
        return
    assert not found.restartable
    assert any("goes back behind" in f.message for f in found.findings if f.level == "refuse")
    assert not {newest, newest - 1} & set(found.epochs)


def test_a_batch_without_input_that_changes_its_place_is_warned_of_by_its_clock() -> None:
    files = Checkpoint(batches=3).files()
    files["offsets/2"] = files["offsets/1"].replace(
        b'"batchTimestampMs":1001', b'"batchTimestampMs":1002'
    )
    image = image_of(exchanged(files, "offsets/1", "offsets/2"))
    assert refused(image) == ""
    assert "was planned before offsets/1, by its clock" in image.findings[0].message


def test_a_planned_batch_that_lies_behind_the_last_one_is_refused() -> None:
    files = Checkpoint(batches=4, planned=True).files()
    found = refused(image_of({**files, "offsets/4": files["offsets/1"]}))
    assert (
        "offsets/4 goes back behind offsets/3: source 0 falls from topic, partition 0: 30 to 10"
        in found
    )


def with_watermarks(handed_on: bytes, planned: int, written: bool = False) -> dict[str, bytes]:
    """Three batches committed, of which the last one hands on a watermark; another one planned."""
    files = Checkpoint(batches=3, planned=True, written=written).files()
    files["commits/2"] = b"v1\n" + handed_on
    files["offsets/3"] = files["offsets/3"].replace(
        b'"batchWatermarkMs":0', b'"batchWatermarkMs":%d' % planned
    )
    return files


@pytest.mark.parametrize(
    ("handed_on", "planned"),
    [
        (b'{"nextBatchWatermarkMs":5000}', 9000),  # Spark drops as late what is between
        (b'{"nextBatchWatermarkMs":5000}', 4999),
        (b'{"nextBatchWatermarkMs":5000}', 0),
        (b'{"nextBatchWatermarkMs":0}', 5000),
    ],
)
def test_a_planned_batch_with_another_watermark_than_was_handed_on_is_refused(
    handed_on: bytes, planned: int
) -> None:
    found = judged(with_watermarks(handed_on, planned))
    assert not found.restartable
    (message,) = [f.message for f in found.findings if f.level == "refuse"]
    assert f"offsets/3 has the watermark {planned}, and commits/2 hands on" in message


@pytest.mark.parametrize(
    ("handed_on", "planned"),
    [(b'{"nextBatchWatermarkMs":5000}', 5000), (b"{}", 5000), (b"{}", 0)],  # {}: before 2.4
)
def test_a_planned_batch_with_the_watermark_that_was_handed_on_is_whole(
    handed_on: bytes, planned: int
) -> None:
    assert judged(with_watermarks(handed_on, planned)).restartable


def test_a_commit_that_no_restart_reads_does_not_decide() -> None:
    files = with_watermarks(b'{"nextBatchWatermarkMs":5000}', 9000, written=True)
    files["commits/3"] = b'v1\n{"nextBatchWatermarkMs":9000}'
    assert refused(image_of(files)) == ""


@pytest.mark.parametrize("case", MOVING, ids=[f"{case.parent.name}/{case.name}" for case in MOVING])
def test_a_real_planned_batch_has_the_watermark_that_was_handed_on(case) -> None:
    """Of each batch that a real Spark has run, as if the job had died before its commit."""
    files = contents(case)
    newest = max(int(path.partition("/")[2]) for path in files if path.startswith("commits/"))
    killed = without(files, f"commits/{newest}", f"commits/.{newest}.crc")
    assert refused(image_of(killed)) == ""
    path = f"offsets/{newest}"
    other = re.sub(rb'(?<="batchWatermarkMs":)\d+', b"1893456000000", killed[path])
    assert f"{path} has the watermark 1893456000000" in refused(image_of({**killed, path: other}))


def test_older_logs_that_were_exchanged_only_close_the_way_back() -> None:
    image = image_of(exchanged(Checkpoint(batches=6).files(), "offsets/1", "offsets/2"))
    assert refused(image) == ""
    assert image.epochs == (0, 3, 4, 5)


def test_a_source_that_had_an_offset_and_has_none_any_more_is_refused() -> None:
    files = Checkpoint(batches=3).files()
    head, _, _ = files["offsets/2"].rpartition(b"\n")
    assert "source 0 has no offset any more" in refused(
        image_of({**files, "offsets/2": head + b"\n-"})
    )


@pytest.mark.parametrize("line", [b"-", b'{"logOffset":1}'])
def test_a_line_for_a_source_that_the_batch_before_does_not_have_is_refused(line: bytes) -> None:
    files = Checkpoint(batches=3).files()
    image = image_of({**files, "offsets/2": files["offsets/2"] + b"\n" + line})
    assert "offsets/2 has a line for each of 2 sources, and offsets/1 for 1" in refused(image)
    older = image_of({**files, "offsets/0": files["offsets/0"] + b"\n" + line})
    assert refused(older) == ""


def test_a_source_that_was_added_to_both_logs_that_a_start_reads_is_accepted() -> None:
    files = Checkpoint(batches=3, planned=True).files()
    added = {path: files[path] + b"\n-" for path in ("offsets/2", "offsets/3")}
    assert refused(image_of({**files, **added})) == ""


def test_a_file_of_ours_or_of_a_query_without_state_is_none_that_spark_looks_at() -> None:
    files = Checkpoint(batches=3).files()
    assert refused(image_of({**files, "_stateshift": b""})) == ""


def test_lines_of_version_1_under_the_other_version_are_refused() -> None:
    files = Checkpoint(batches=3).files()
    mixed = files["offsets/2"].replace(b"v1\n", b"v2\n", 1)
    assert "version 2 has a source without an id" in refused(
        image_of({**files, "offsets/2": mixed})
    )


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_directory_where_the_next_batch_is_written_is_refused(log: str) -> None:
    files = Checkpoint(batches=3).files()
    image = image_of({**files, f"{log}/3/x": b""})
    assert f"{log}/3 is a directory: the job dies when it writes the log" in refused(image)


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("state/0/0/_metadata/schema/x", "state/0/0/_metadata/schema is a directory"),
        ("commits", "commits is a file, where Spark wants a directory"),
    ],
)
def test_a_directory_in_a_files_place_is_refused_and_the_reverse(path: str, fact: str) -> None:
    whole = Checkpoint(batches=3).files()
    files = {each: content for each, content in whole.items() if not each.startswith(f"{path}/")}
    assert fact in refused(image_of({**files, path: b""}))


def test_a_directory_where_the_planned_batch_is_committed_is_refused() -> None:
    files = Checkpoint(batches=3, planned=True).files()
    assert "commits/3 is a directory" in refused(image_of({**files, "commits/3/x": b""}))


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_watermark_never_falls(log: str) -> None:
    files = watched()
    assert not image_of(files).findings
    image = image_of(exchanged(files, f"{log}/3", f"{log}/4"))
    assert "watermark" in refused(image) or "falls" in refused(image)
    assert not {3, 4} & set(image.epochs)


def test_a_commit_of_an_older_batch_in_the_newest_ones_place_is_refused() -> None:
    files = watched()
    image = image_of({**files, "commits/4": files["commits/1"]})
    assert "commits/4 hands on an older watermark than offsets/4 has" in refused(image)


def test_sparks_own_repartitioning_repeats_a_batch_and_is_no_step_back() -> None:
    files = watched()
    repeated = files["offsets/3"].replace(
        b'"spark.sql.shuffle.partitions":"2"', b'"spark.sql.shuffle.partitions":"1"'
    )
    files |= {"offsets/4": repeated, "commits/4": files["commits/3"]}
    files |= {"state/0/0/5.snapshot": files["state/0/0/5.delta"]}
    del files["state/0/1/5.delta"]
    assert refused(image_of(files)) == ""


def delta(table: str, version: int, index: int) -> dict[str, object]:
    return {"reservoirId": table, "reservoirVersion": version, "index": index}


def iceberg(snapshot: int, position: int) -> dict[str, object]:
    return {"snapshot_id": snapshot, "position": position, "scan_all_files": False}


@pytest.mark.parametrize(
    ("before", "after", "fell"),
    [
        ({"logOffset": 4}, {"logOffset": 3}, "4 to 3"),
        ({"logOffset": 3}, {"logOffset": 3}, None),
        (7, 6, "7 to 6"),
        ({"offset": 20, "timestamp": 2}, {"offset": 10, "timestamp": 1}, "20 to 10"),
        ({"t": {"0": 5, "1": 9}}, {"t": {"0": 6, "1": 8}}, "t, partition 1: 9 to 8"),
        ({"t": {"0": 5, "1": 9}}, {"t": {"0": 6}}, None),
        ({"t": {"0": 5}}, {"u": {"0": 1}}, None),
        ({"t": {"0": -1}}, {"t": {"0": 0}}, None),
        ({"t": {"0": 5}}, {"t": {"0": -2}}, None),
        (delta("a", 4, 1), delta("a", 3, 9), "reservoirVersion 4 to 3"),
        (delta("a", 4, 1), delta("a", 4, 0), "index 1 to 0"),
        (delta("a", 4, 7), delta("a", 5, -1), None),
        (delta("a", 4, 1), delta("b", 1, 1), None),
        (iceberg(9, 4), iceberg(9, 2), "position 4 to 2"),
        (iceberg(9, 4), iceberg(3, 0), None),
        ({"shard-0": "49590"}, {"shard-0": "12"}, None),
        ("text", [1], None),
    ],
)
def test_offsets_are_held_against_each_other_by_their_kind(before, after, fell) -> None:
    assert step_back(json.dumps(before), json.dumps(after)) == fell

"""The log of a file source that lost entries, or holds another's, is refused: Spark starts, and
reads files twice.
"""

from __future__ import annotations

import pytest

from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.survey import Image
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.spark.golden import FOLDER, NAMES, golden
from tests.look.golden_images import HERE, write
from tests.support.checkpoints import Checkpoint, held, put
from tests.support.encoders import encode_source_log

INPUTS = "hdfs://nn/in"


def log(*batches: int) -> bytes:
    """Two files of each batch."""
    entries = []
    for batch in batches:
        for part in (0, 1):
            entries.append(
                {"path": f"{INPUTS}/f{batch}-{part}.json", "timestamp": 1, "batchId": batch}
            )
    return b"".join(encode_source_log(entries))


def checkpoint(batches: int = 13, **logs: bytes) -> dict[str, bytes]:
    files = Checkpoint(batches=batches, inputs=INPUTS).files()
    files |= {f"sources/0/{batch}": log(batch) for batch in range(batches)}
    del files["sources/0/9"]
    files["sources/0/9.compact"] = log(*range(10))
    files |= {f"sources/0/{name}": content for name, content in logs.items()}
    return files


def without(files: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {
        path: content
        for path, content in files.items()
        if path not in {f"sources/0/{n}" for n in names}
    }


def image_of(files: dict[str, bytes], thorough: bool = True) -> Image:
    disk = MemoryDisk()
    write(disk.open(HERE), files)
    (image,) = survey.survey(disk.open(HERE), thorough=thorough).images
    return image


def refused(image: Image) -> list[str]:
    return [finding.message for finding in image.findings if finding.level == "refuse"]


def cut(content: bytes, lines: int) -> bytes:
    return b"\n".join(content.split(b"\n")[: 1 + lines])


def test_a_whole_log_is_whole_with_and_without_the_logs_before_its_compaction() -> None:
    files = checkpoint()
    assert not image_of(files).findings
    assert not image_of(without(files, *map(str, range(9)))).findings
    assert image_of(files).epochs[-1] == 12


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("kept", range(19))
def test_a_compaction_cut_at_a_line_is_refused_by_its_batches_alone(
    kept: int, thorough: bool
) -> None:
    files = without(checkpoint(**{"9.compact": cut(log(*range(10)), kept)}), *map(str, range(9)))
    image = image_of(files, thorough)
    (message,) = refused(image)
    assert message.startswith(f"sources/0/9.compact names no file of batch {(kept + 1) // 2}")
    assert image.epochs == ()


@pytest.mark.parametrize("gone", [0, 5, 17])
def test_a_line_that_is_gone_from_a_compaction_is_missed_by_the_logs_before(gone: int) -> None:
    lines = log(*range(10)).split(b"\n")
    content = b"\n".join(line for number, line in enumerate(lines) if number != gone + 1)
    message = refused(image_of(checkpoint(**{"9.compact": content})))
    assert message == [
        (
            f"sources/0/9.compact names 1 of the 2 files of batch {gone // 2}: Spark starts, "
            "and reads files twice"
        )
    ]


def test_a_compaction_is_held_against_the_one_before_it() -> None:
    files = checkpoint(batches=23)
    del files["sources/0/19"]
    files["sources/0/19.compact"] = (
        log(*range(20))
        .replace(b"f4-1.json", b"f5-9.json")
        .replace(b'f5-9.json","timestamp":1,"batchId":4', b'f5-9.json","timestamp":1,"batchId":5')
    )
    kept = without(files, *map(str, range(9)), *map(str, range(10, 19)))
    (message,) = refused(image_of(kept, thorough=False))
    assert message.startswith("sources/0/19.compact names 1 of the 2 files of batch 4")


def test_the_log_of_another_batch_or_of_none_is_refused() -> None:
    exchanged = refused(image_of(checkpoint(**{"10": log(11), "11": log(10)}), thorough=False))
    assert exchanged[0].startswith(
        "sources/0/10 names files of batch 11, and is the log of batch 10"
    )
    assert len(exchanged) == 2
    assert refused(image_of(checkpoint(**{"12": b"v1"})))[0].startswith(
        "sources/0/12 names no file"
    )
    assert (
        "names files of batch 12"
        in refused(image_of(checkpoint(**{"9.compact": log(*range(10), 12)})))[0]
    )


def test_what_is_wrong_with_a_log_that_nothing_reads_any_more_stops_no_job() -> None:
    assert not refused(image_of(checkpoint(**{"3": b"v1\n{", "4": log(5), "5": b"v1"})))


WITH_FILES = [
    name for name in NAMES if any((FOLDER / name / "checkpoint").glob("sources/*/*.compact"))
]


@pytest.mark.parametrize("name", WITH_FILES)
def test_a_real_compaction_cut_at_any_line_but_the_last_is_refused(name: str) -> None:
    files = held(golden(name))
    path = max(path for path in files if path.endswith(".compact") and "/." not in path)
    lines = files[path].count(b"\n")
    for kept in range(lines):
        storage = MemoryDisk().open(HERE)
        for other, content in files.items():
            put(storage, other, cut(content, kept) if other == path else content)
        (image,) = survey.survey(storage).images
        assert any(path in message for message in refused(image))


# ---- as far as the newest plan


@pytest.mark.parametrize("thorough", [False, True])
def test_the_log_of_a_planned_batch_is_needed(thorough: bool) -> None:
    files = Checkpoint(batches=3, planned=True, inputs=INPUTS).files()
    files |= {f"sources/0/{batch}": log(batch) for batch in range(4)}
    assert refused(image_of(files, thorough)) == []
    (said,) = refused(image_of(without(files, "3"), thorough))
    assert said == "sources/0/3 is missing: the source's log has to reach 3"


def test_of_several_planned_batches_the_last_one_counts() -> None:
    files = Checkpoint(batches=5, inputs=INPUTS).files()
    files |= {f"sources/0/{batch}": log(batch) for batch in range(5)}
    del files["commits/3"], files["commits/4"]
    assert refused(image_of(files)) == []
    assert refused(image_of(without(files, "4"))) == [
        "sources/0/4 is missing: the source's log has to reach 4"
    ]


def test_a_compaction_that_the_planned_batch_made_stands_for_the_logs_before_it() -> None:
    """Spark tidies them up as it compacts, where they are older than ten minutes."""
    files = Checkpoint(batches=9, planned=True, inputs=INPUTS).files()
    files = {path: content for path, content in files.items() if not path.startswith("sources")}
    assert refused(image_of({**files, "sources/0/9.compact": log(*range(10))})) == []


# ---- whose it is


def two_sources(batches: int = 4, folders: tuple[str, str] = ("a", "b")) -> dict[str, bytes]:
    """Two file sources, each with a folder of its own for every day: as partitions are."""
    files = Checkpoint(batches=batches, inputs=INPUTS).files()
    for batch in range(batches):
        files[f"offsets/{batch}"] += b'\n{"logOffset":%d}' % batch
        for index, folder in enumerate(folders):
            path = f"{INPUTS}/{folder}/day={batch // 2}/{index}-{batch}.json"
            entry = {"path": path, "timestamp": 1, "batchId": batch}
            files[f"sources/{index}/{batch}"] = b"".join(encode_source_log([entry]))
    return files


@pytest.mark.parametrize("batch", range(4))
def test_logs_that_two_sources_exchanged_are_refused(batch: int) -> None:
    files = two_sources()
    assert refused(image_of(files)) == []
    ours, theirs = f"sources/0/{batch}", f"sources/1/{batch}"
    files[ours], files[theirs] = files[theirs], files[ours]
    said = refused(image_of(files))
    assert [message.split(" ")[0] for message in said] == [ours, theirs]
    assert all("it is exchanged with" in message for message in said)


def test_the_log_of_another_source_in_the_place_of_ones_own_is_warned_of() -> None:
    files = two_sources()
    files["sources/0/2"] = files["sources/1/2"]
    image = image_of(files)
    assert refused(image) == []
    assert any("it may be a copy of that source's" in f.message for f in image.findings)


@pytest.mark.parametrize("folders", [("a", "a"), ("a", "a/b"), ("a/b", "a")])
def test_sources_that_read_below_the_same_folder_are_left_alone(folders: tuple[str, str]) -> None:
    assert image_of(two_sources(folders=folders)).findings == ()


def test_a_rate_source_without_its_log_is_warned_of_for_a_memory_source_has_none() -> None:
    files = held(golden("spark-4.3.0/rate"))
    assert not any("its log is lost" in finding.message for finding in image_of(files).findings)
    lost = {path: content for path, content in files.items() if not path.startswith("sources/")}
    assert any("its log is lost" in finding.message for finding in image_of(lost).findings)

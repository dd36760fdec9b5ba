"""The ten traps of Spark's checkpoints, one test each; a trap that lies in what Spark does is shown
by a real Spark.

Where a trap has many sides, the test shows the one that bites, and names where the others are
tested.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from stateshift import look
from stateshift.engines.spark.survey.checkpoint import survey as surveyed
from stateshift.formats.rocksdb import table as sst
from stateshift.formats.spark.state_files import Changelog, StateRecord, decode_changelog
from stateshift.storage.local.storage import LocalStorage
from stateshift.testing.memory_storage import MemoryDisk
from tests.acceptance.matrix.damage import copied
from tests.acceptance.matrix.damaging import files_of, write_files
from tests.acceptance.matrix.ground import later, quietly
from tests.acceptance.matrix.kinds import NEWEST, Base
from tests.acceptance.matrix.outcomes import Outcome
from tests.formats.golden import ROOT as GOLDEN
from tests.look.golden_images import HERE, contents, on_a_disk, write
from tests.support import encoders
from tests.support.encoders import encode_changelog
from tests.support.entries import entries

FORKED = ("--waive", "paths-stay", "--yes", "--json")


def golden(name: str, version: str = NEWEST) -> Path:
    return GOLDEN / f"spark-{version}" / name


def asked(folder: Path, kind: str, case: Path, *words: str) -> Path:
    """What the command line makes of a golden checkpoint; it lies at `folder/changed`."""
    source = folder / "source"
    made_at = f"/tmp/stateshift-golden/{case.name}/checkpoint"
    write_files(source, copied(files_of(case / "checkpoint"), made_at, str(source)))
    flags = (*FORKED, *(() if kind == "fork" else ("--fork",)), "--workdirs", str(folder / "runs"))
    code, out, err = quietly([kind, str(source), "--to", str(folder / "changed"), *words, *flags])
    assert code == 0, out + err
    return folder / "changed"


def sparks(damaged: dict[str, Outcome], base: str, damage: str) -> tuple[str, str]:
    """Our verdict and Spark's, of a damaged checkpoint of the sample."""
    _, ours, theirs, _ = json.loads(damaged[f"{NEWEST}/{base}/damage/{damage}"].told)
    return ours.partition(":")[0], theirs.partition(":")[0]


def raw(checkpoint: Path) -> Counter[tuple[str, bytes, bytes]]:
    """Every key and value as bytes, with shards forgotten."""
    storage = LocalStorage(str(checkpoint))
    (image,) = surveyed(storage).images
    found = (
        entry for shard in image.shards for entry in entries(storage.chunks, shard, image.settings)
    )
    return Counter((entry.store, entry.key, bytes(entry.value)) for entry in found)


@pytest.mark.slow
@pytest.mark.spark
def test_1_the_last_two_offset_files_are_kept_for_with_one_alone_spark_does_not_start(
    damaged: dict[str, Outcome], tmp_path: Path
) -> None:
    assert sparks(damaged, "window-2.hdfs", "gone: offsets before") == ("refused", "fails")
    assert sparks(damaged, "window-2.hdfs", "gone: old offsets") == ("works", "works")
    changed = asked(tmp_path, "compact", golden("window-hdfs"))
    assert sorted(path.name for path in (changed / "offsets").iterdir()) == ["4", "5"]


@pytest.mark.spark
@pytest.mark.slow
def test_2_the_number_of_shards_is_that_of_the_offset_log_and_not_of_the_operators_metadata(
    damaged: dict[str, Outcome],
) -> None:
    files = contents(golden("window-hdfs"))
    metadata = files["state/0/_metadata/metadata"]
    for told in (metadata.replace(b'"numPartitions":3', b'"numPartitions":99'), None):
        assert told != metadata
        without = {
            path: content for path, content in files.items() if path != "state/0/_metadata/metadata"
        }
        disk = MemoryDisk()
        write(
            disk.open(HERE),
            without if told is None else {**files, "state/0/_metadata/metadata": told},
        )
        (image,) = surveyed(disk.open(HERE)).images
        assert [operator.shards for operator in image.operators] == [3]
        assert look.restartable(HERE, disk.open, thorough=True).restartable
    assert sparks(damaged, "window-2.hdfs", "cut short: operator's metadata") == ("works", "works")


@pytest.mark.spark
@pytest.mark.slow
def test_3_the_paths_of_schemas_move_with_the_image(
    changed: dict[str, Outcome], tmp_path: Path
) -> None:
    target = asked(tmp_path, "fork", golden("join-rocksdb-v4"))
    named = b"".join(path.read_bytes() for path in target.glob("state/*/_metadata/v2/*"))
    assert str(target / "state").encode() in named
    assert str(tmp_path / "source").encode() not in named
    assert changed[f"{NEWEST}/join-4.rocksdb-changelog/repartition 3 to 5"].result == "passed"


def test_4_paths_of_sources_are_encoded_and_staying_behind_is_refused(tmp_path: Path) -> None:
    """On a real Spark, with a file sink and compacted logs:
    tests/acceptance/test_file_source_and_sink.py.
    """
    logs = b"".join(path.read_bytes() for path in golden("files").glob("checkpoint/sources/0/*"))
    assert b"f%20%250.json" in logs
    source = tmp_path / "source"
    shutil.copytree(golden("files") / "checkpoint", source)
    words = [
        "fork",
        str(source),
        "--to",
        str(tmp_path / "fork"),
        "--yes",
        "--json",
        "--workdirs",
        str(tmp_path / "w"),
    ]
    code, out, _ = quietly(words)
    assert code == 4
    assert "reads all of them again" in out
    assert not (tmp_path / "fork").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_5_checksums_of_what_is_rewritten_do_not_stay_behind(
    damaged: dict[str, Outcome], tmp_path: Path
) -> None:
    """Of Spark's own checksums, a stale one is in the sample of damages, too."""
    assert sparks(damaged, "session.rocksdb", "stale .crc of Hadoop: snapshot") == (
        "refused",
        "fails",
    )
    assert sparks(
        damaged, "distinct.rocksdb-changelog-format2", "flip a bit: Spark's checksum"
    ) == ("refused", "fails")
    hidden = tmp_path / "window-rocksdb-format2" / "checkpoint"
    shutil.copytree(golden("window-rocksdb-format2") / "checkpoint", hidden)
    for path in [path for path in hidden.rglob("*") if path.is_file()]:
        path.with_name(f".{path.name}.crc").write_bytes(
            encoders.encode_hadoop_crc(encoders.hadoop_checksums(path.read_bytes()))
        )
    target = asked(tmp_path, "repartition", hidden.parent, "--partitions", "2")
    assert not list(target.rglob(".*.crc"))
    code, out, err = quietly(["verify", str(target), "--deep"])
    assert code == 0, out + err


@pytest.mark.parametrize("version", ["4.1.4", NEWEST])
def test_6_list_values_are_parted_as_their_merge_operator_joined_them(version: str) -> None:
    """Up to 4.1 a comma stands between merged values, since 4.2 nothing; a library that opens the
    tables puts commas everywhere. We read tables ourselves. Byte by byte: test_encoders,
    test_entries.
    """
    case = golden("tws-timers", version)
    expected = {
        (row[0], json.dumps(row[1])): len(row[2])
        for store in json.loads((case / "expected.json").read_text())["stores"]
        if store.get("variable") == "seen"
        for row in store["rows"]
    }
    found = {
        (entry.shard, json.dumps(list(entry.key.values()))): len(entry.value)
        for entry in look.entries(HERE, on_a_disk(case).open, limit=1000)
        if entry.store.endswith("/seen")
    }
    assert sorted(found.values()) == sorted(expected.values())
    assert max(found.values()) > 1


def test_7_families_have_the_numbers_of_their_own_shard_and_a_changelogs_version_is_matched_exactly() -> (
    None
):
    """Numbers that differ between shards: tests/engines/spark/entries/test_entries.py."""
    long = StateRecord(
        b"k" * 0x000276FF, b""
    )  # its length begins as a version line would: 00 02 'v'
    header, records = decode_changelog([b"".join(encode_changelog(Changelog(1), [long]))])
    assert (header.version, [len(record.key) for record in records]) == (1, [0x000276FF])
    for version in (2, 3, 4):
        lineage = ((1, "a-uuid"),) if version > 2 else ()
        header, _ = decode_changelog([b"".join(encode_changelog(Changelog(version, lineage), []))])
        assert header.version == version


@pytest.mark.parametrize(
    ("name", "shards"), [("window-hdfs", "2"), ("window-rocksdb-changelog", "7")]
)
def test_8_keys_move_as_bytes_and_may_have_none(tmp_path: Path, name: str, shards: str) -> None:
    changed = asked(tmp_path, "repartition", golden(name), "--partitions", shards)
    assert raw(changed) == raw(golden(name) / "checkpoint")
    keys = [key for _, key, _ in raw(golden("total-hdfs") / "checkpoint")]
    assert keys == [b""]


@pytest.mark.spark
@pytest.mark.slow
def test_9_checkpoint_format_2_is_found_out_by_spark_and_kept_by_us(
    changed: dict[str, Outcome], tmp_path: Path
) -> None:
    """The sample's job goes on without the setting. Spark 4.0 needs it: its error says so."""
    base = Base(NEWEST, "distinct", "rocksdb-changelog-format2")
    assert not any("checkpointFormatVersion" in key for key in later(base.conf))
    assert changed[f"{NEWEST}/{base.name}/repartition 3 to 2"].result == "passed"
    target = asked(tmp_path, "compact", golden("window-rocksdb-format2"))
    assert (target / "commits" / "5").read_text().startswith('v2\n{"nextBatchWatermarkMs":')


@pytest.mark.spark
@pytest.mark.slow
def test_10_versions_bite_a_missing_query_id_stops_spark_and_tables_are_written_for_the_oldest(
    damaged: dict[str, Outcome], tmp_path: Path
) -> None:
    """Keys that an old Spark placed by some of their columns: test_deep, test_transforms_golden."""
    assert sparks(damaged, "window-2.hdfs", "gone: query id") == ("refused", "fails")
    target = asked(tmp_path, "convert", golden("window-hdfs", "3.3.4"), "--provider", "rocksdb")
    (table, *_) = target.rglob("*.sst")
    assert list(sst.decode_sst(table.read_bytes()))
    assert table.read_bytes()[-53] == 1, (
        "the footer's kind of checksum: crc32c; XXH3 is 4, which 3.3 cannot read"
    )

"""verify --deep: an intact checkpoint passes, and each kind of damage is found and named, with a
way out.
"""

from __future__ import annotations

import pytest

from stateshift import look
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.engines.views import DeepCheck
from stateshift.formats.spark.compression import codec_of, compress, decompress
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.state_files import StateRecord, decode_delta, encode_delta
from stateshift.testing.memory_storage import MemoryDisk
from tests.formats.golden import CASES
from tests.look.golden_images import HERE, NEWEST, contents, disk_with, judged, on_a_disk, write
from tests.support import encoders
from tests.support.checkpoints import Checkpoint, put

IDS = [f"{case.parent.name}/{case.name}" for case in CASES]
KINDS = [f"window-rocksdb-{kind}" for kind in ("changelog", "format2")]
KINDS += ["join-hdfs-checksum", "join-rocksdb-v4", "dedup-checksum"]


def needed(files):
    """The state files of a restart, and what they are."""
    disk = disk_with(files)
    (image,) = survey.survey(disk.open(HERE)).images
    return {path: what.kind for path in image.needed if (what := classify(path)).area == "state"}


@pytest.fixture
def some(how, seed):
    """Every third file, others with another seed; all of them with --full."""
    every = 1 if how == "full" else 3
    return lambda paths: list(paths)[seed % every :: every]


def said(found):
    """All that was found, but for how much no checksum covers: that is said of every checkpoint."""
    return [finding for finding in found.findings if "no checksum" not in finding.message]


def refusals(found):
    return [finding for finding in found.findings if finding.level == "refuse"]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_checkpoint_as_spark_left_it_passes_and_nothing_in_it_stays_unlooked_at(case):
    """But for what no checksum covers, which is said."""
    found = look.restartable(HERE, on_a_disk(case).open, thorough=True)
    assert found.restartable
    (note,) = found.findings
    assert note.level == "note" and "no checksum" in note.message


@pytest.mark.parametrize("name", KINDS)
def test_a_state_file_cut_short_is_found_and_named(name, some):
    files = contents(NEWEST[name])
    for path in some(needed(files)):
        found = judged({**files, path: files[path][: len(files[path]) * 2 // 3]})
        assert not found.restartable, path
        assert any(path in finding.message for finding in refusals(found)), path


@pytest.mark.parametrize("name", KINDS)
def test_a_flipped_bit_in_the_middle_of_a_state_file_is_found_and_named(name, some):
    files = contents(NEWEST[name])
    for path in some(needed(files)):
        flipped = bytearray(files[path])
        flipped[len(flipped) // 2] ^= 0x10
        found = judged({**files, path: bytes(flipped)})
        assert not found.restartable, path
        assert any(path in finding.message for finding in refusals(found)), path


def test_the_batches_that_would_do_are_named_where_the_newest_does_not():
    files = contents(NEWEST["dedup-lzf"])
    assert judged(files).epochs == (0, 1, 2, 3, 4, 5)
    damaged = {
        path: b"junk" if path == "state/0/1/6.snapshot" else content
        for path, content in files.items()
    }
    assert judged(damaged).epochs == (0, 1, 2, 3, 4)
    worse = {
        path: b"junk" if path == "state/0/2/2.delta" else content
        for path, content in damaged.items()
    }
    assert 1 not in judged(worse).epochs and 0 in judged(worse).epochs
    lost = {
        path: b"junk" if path.startswith("state/0/0/") else content
        for path, content in files.items()
    }
    assert judged(lost).epochs == () and not judged(lost).restartable


def rewritten(files, path, change):
    records = change(list(decode_delta([files[path]])))
    return {**files, path: b"".join(encode_delta(records, codec_of(files[path]) or "lz4"))}


def test_a_row_that_reaches_over_its_end_is_named_with_file_and_offset():
    def reach(records):
        first, second, *rest = records
        bad = second.value[:24] + (500).to_bytes(4, "little") + second.value[28:]
        return [
            first,
            StateRecord(second.key, bad[:28] + (64).to_bytes(4, "little") + bad[32:]),
            *rest,
        ]

    files = contents(NEWEST["window-hdfs"])
    found = judged(rewritten(files, "state/0/0/6.snapshot", reach))
    (refused,) = refusals(found)
    first = next(iter(decode_delta([files["state/0/0/6.snapshot"]])))
    assert (refused.path, refused.offset) == (
        "state/0/0/6.snapshot",
        8 + len(first.key) + len(first.value),
    )
    assert "outside its row" in refused.message


def test_a_key_in_the_wrong_shard_is_named_with_the_right_one():
    files = contents(NEWEST["window-hdfs"])
    (moved, *rest) = decode_delta([files["state/0/0/6.snapshot"]])
    files = rewritten(files, "state/0/0/6.snapshot", lambda _: rest)
    files = rewritten(files, "state/0/1/6.snapshot", lambda records: [*records, moved])
    (refused,) = refusals(judged(files))
    assert (
        refused.path == "state/0/1/6.snapshot"
        and "shard 0" in refused.message
        and refused.offset > 0
    )


def test_a_misplaced_key_is_a_warning_where_an_old_spark_may_have_put_it_there():
    files = contents(NEWEST["window-hdfs"])
    files = {
        p: c.replace(b'useStrictDistribution":"true', b'useStrictDistribution":"false')
        for p, c in files.items()
    }
    (moved, *_) = decode_delta([files["state/0/0/6.snapshot"]])
    found = judged(rewritten(files, "state/0/1/6.snapshot", lambda records: [*records, moved]))
    assert found.restartable
    assert "unless the operator is distributed by fewer columns" in found.findings[0].message


def test_a_join_whose_indexes_have_a_gap_is_refused_and_a_stray_row_is_told():
    files = contents(NEWEST["join-hdfs"])
    path = "state/0/0/left-keyWithIndexToValue/6.snapshot"
    records = list(decode_delta([files[path]]))
    gap = judged(rewritten(files, path, lambda records: records[1:]))
    assert (
        not gap.restartable
        and "is missing" in refusals(gap)[0].message
        and refusals(gap)[0].path == path
    )
    (key, value, _) = max(records, key=lambda record: record.key[16:24])
    stray = key[:16] + (900).to_bytes(8, "little") + key[24:]
    found = judged(rewritten(files, path, lambda records: [*records, StateRecord(stray, value)]))
    assert found.restartable and "never read" in found.findings[0].message


def with_hadoop_checksums(files):
    hidden = {}
    for path, content in files.items():
        folder, slash, name = path.rpartition("/")
        hidden[f"{folder}{slash}.{name}.crc"] = encoders.encode_hadoop_crc(
            encoders.hadoop_checksums(content)
        )
    return {**files, **hidden}


def test_hadoops_checksums_are_held_against_their_files():
    files = with_hadoop_checksums(contents(NEWEST["window-rocksdb-format2"]))
    assert judged(files).findings == ()
    zipped = next(path for path, kind in needed(files).items() if kind == "zip")
    folder, _, name = zipped.rpartition("/")
    stale = encoders.encode_hadoop_crc(encoders.hadoop_checksums(b"as it was before"))
    (refused,) = refusals(judged({**files, f"{folder}/.{name}.crc": stale}))
    assert refused.path == zipped and refused.offset == 0 and "Spark cannot read" in refused.message


@pytest.mark.parametrize(
    "changed", ["state/0/2/6.snapshot", "offsets/5", "commits/5", "sources/0/4"]
)
def test_what_does_not_have_its_hadoop_checksum_is_refused_though_spark_would_start(changed):
    files = with_hadoop_checksums(contents(NEWEST["dedup-lzf"]))
    folder, _, name = changed.rpartition("/")
    found = judged(
        {
            **files,
            f"{folder}/.{name}.crc": encoders.encode_hadoop_crc(
                encoders.hadoop_checksums(b"before")
            ),
        }
    )
    (refused,) = refusals(found)
    assert (
        refused.path == changed
        and "not what was written" in refused.message
        and "remove" in refused.hint
    )


def test_operator_metadata_that_is_damaged_is_a_warning_for_spark_starts_without_it():
    files = contents(NEWEST["window-hdfs"])
    for damaged in (b"", b"v1\n{", files["state/0/_metadata/metadata"][:40]):
        found = judged({**files, "state/0/_metadata/metadata": damaged})
        assert found.restartable and [finding.level for finding in said(found)] == ["warn"]


@pytest.mark.parametrize(
    "name", ["window-hdfs", "join-hdfs", "window-rocksdb-changelog", "tws-ttl", "tws-avro"]
)
@pytest.mark.parametrize("deep", [False, True])
def test_a_schema_whose_type_spark_cannot_parse_is_a_refusal(name, deep):
    files = contents(NEWEST[name])
    for path in (
        path for path in files if classify(path).area == "state-schema" and "/." not in path
    ):
        disk = MemoryDisk()
        write(
            disk.open(HERE),
            {**files, path: files[path].replace(b'"type":"struct"', b'"type":"strucu"')},
        )
        found = look.restartable(HERE, disk.open, thorough=deep)
        assert not found.restartable
        (refused,) = [finding for finding in refusals(found) if finding.path == path]
        assert "no Spark up to 4.3 can parse" in refused.message


def test_a_file_in_another_codec_than_the_offset_log_says_is_refused():
    files = contents(NEWEST["window-hdfs"])
    path = "state/0/0/6.snapshot"
    zstd = b"".join(compress(decompress([files[path]]), "zstd"))
    (refused,) = refusals(judged({**files, path: zstd}))
    assert refused.path == path and "the offset log says lz4" in refused.message


def test_a_stream_joined_with_itself_has_fewer_logs_than_offsets_and_a_lost_log_is_still_refused():
    files = contents(NEWEST["window-hdfs"])
    twice = {
        p: c + b"\n" + c.splitlines()[-1] if p.startswith("offsets/") else c
        for p, c in files.items()
    }
    found = judged(twice)
    assert found.restartable and "is not there" in found.findings[0].message
    lost = {path: content for path, content in twice.items() if not path.startswith("sources/")}
    assert not judged(lost).restartable


def test_a_stale_checksum_of_sparks_is_a_refusal():
    files = contents(NEWEST["window-rocksdb-format2"])
    path = next(path for path in needed(files) if f"{path}.crc" in files)
    files[f"{path}.crc"] = files[f"{path}.crc"].replace(b'"mainFileSize":', b'"mainFileSize":1')
    found = judged(files)
    assert not found.restartable and path in {finding.path for finding in refusals(found)}


@pytest.mark.parametrize("lost", [0, 1])
def test_a_snapshot_that_is_not_what_its_deltas_come_to_is_told(lost):
    files = contents(NEWEST["dedup-lzf"])
    path = "state/0/2/6.snapshot"
    found = judged(rewritten(files, path, lambda records: records[lost:]))
    assert found.restartable
    assert [(finding.level, finding.path) for finding in said(found)] == [("warn", path)] * lost
    if lost:
        assert "1 entries differ" in found.findings[0].message


def test_the_history_before_snapshots_is_a_stage_of_its_own():
    disk = on_a_disk(NEWEST["dedup-lzf"])
    state, history = look.restartable(HERE, disk.open, thorough=True).checked.stages
    assert (state.name, history.name) == ("state", "history")
    assert min(state.files, history.files, state.bytes, history.bytes) > 0


def test_without_the_history_a_contradiction_goes_unseen_and_the_verdict_says_what_it_left_out():
    files = contents(NEWEST["dedup-lzf"])
    lossy = rewritten(files, "state/0/2/6.snapshot", lambda records: records[1:])
    disk = MemoryDisk()
    write(disk.open(HERE), lossy)
    found = look.restartable(HERE, disk.open, thorough=True, how=DeepCheck(history=False))
    assert said(found) == []
    assert [stage.name for stage in found.checked.stages] == ["state"]
    (left_out,) = found.checked.left_out
    assert "hold what the changes before them come to" in left_out


def test_where_no_snapshot_has_a_history_nothing_is_left_out():
    disk = MemoryDisk()
    Checkpoint().write(disk.open(HERE))
    found = look.restartable(HERE, disk.open, thorough=True, how=DeepCheck(history=False))
    assert found.checked.left_out == ()


def test_tables_that_no_snapshot_names_are_counted_and_no_harm():
    files = contents(NEWEST["window-rocksdb"])
    found = judged({**files, "state/0/0/SSTs/000099-left-over.sst": b"x" * 100})
    assert found.restartable
    (note,) = said(found)
    assert note.level == "note" and "1 SST files of 100 bytes" in note.message


def test_state_that_nothing_describes_is_said_to_be_unchecked():
    disk = MemoryDisk()
    Checkpoint().write(disk.open(HERE))
    found = look.restartable(HERE, disk.open, thorough=True)
    assert found.restartable and [finding.level for finding in said(found)] == ["note"]
    put(disk.open(HERE), "state/0/1/3.delta", b"junk")
    assert look.restartable(HERE, disk.open, thorough=True).epochs == (0, 1)


@pytest.mark.parametrize("thorough", [True, False])
def test_a_job_that_planned_its_first_batch_begins_with_it(thorough):
    disk = MemoryDisk()
    Checkpoint(batches=0, planned=True).write(disk.open(HERE))
    found = look.restartable(HERE, disk.open, thorough=thorough)
    assert (found.restartable, found.epoch, found.epochs) == (True, None, ())
    assert [(f.level, "a job begins with batch 0" in f.message) for f in found.findings] == [
        ("note", True)
    ]


def test_a_first_batch_whose_plan_is_damaged_cannot_begin():
    files = Checkpoint(batches=0, planned=True).files()
    assert not judged({**files, "offsets/0": files["offsets/0"][:20]}).restartable


def test_shards_that_the_offset_log_knows_nothing_of_are_told():
    checkpoint = Checkpoint(shards=3)
    files = {
        path: c.replace(b'partitions":"3"', b'partitions":"2"')
        for path, c in checkpoint.files().items()
    }
    found = look.restartable(HERE, disk_with(files).open)
    assert [f.level for f in found.findings if "state/0/2 holds state of epoch 2" in f.message] == [
        "refuse"
    ]
    older = {path: c for path, c in files.items() if path != "state/0/2/3.delta"}
    assert (
        look.restartable(HERE, disk_with(older).open).findings == ()
    )  # as Spark's own repartition leaves them


def test_state_of_a_custom_provider_has_no_epoch_that_we_know_to_work():
    theirs = (b"HDFSBackedStateStoreProvider", b"FancyProvider")
    files = {path: content.replace(*theirs) for path, content in Checkpoint().files().items()}
    for thorough in (False, True):
        found = look.restartable(HERE, disk_with(files).open, thorough)
        assert (found.restartable, found.epochs) == (False, ())


def unchecked(files):
    """What is said of content that no checksum covers."""
    return [f.message for f in judged(files).findings if "no checksum" in f.message]


def test_how_much_no_checksum_covers_is_said():
    files = contents(NEWEST["dedup-zstd"])
    disk = disk_with(files)
    (image,) = survey.survey(disk.open(HERE)).images
    state = [path for path in image.needed if classify(path).area == "state"]
    text = sum(len(files[path]) for path in image.needed if path not in state)
    framed = sum(len(files[path]) for path in state)
    (said_of_it,) = unchecked(files)
    assert f"{text:,} bytes in {len(image.needed) - len(state)} files of logs" in said_of_it
    assert f"{framed:,} bytes in {len(state)} files of state in zstd" in said_of_it
    assert f"which version {len(state)} files of state are" in said_of_it


def test_where_there_are_several_stores_it_is_said_that_no_checksum_tells_them_apart():
    (of_one,), (of_many,) = (
        unchecked(contents(NEWEST[kind])) for kind in ("window-hdfs", "join-hdfs")
    )
    assert "nor of which store" not in of_one
    assert "nor of which store" in of_many


def test_lz4_frames_and_rocksdb_have_checksums_of_their_own():
    (of_hdfs,), (of_rocksdb,) = (
        unchecked(contents(NEWEST[f"window-{kind}"])) for kind in ("hdfs", "rocksdb")
    )
    assert "of state in" not in of_hdfs + of_rocksdb


def test_sparks_own_checksums_say_which_version_a_file_is():
    files = contents(NEWEST["window-rocksdb-format2"])
    (with_checksums,) = unchecked(files)
    assert "which version" not in with_checksums
    (without,) = unchecked(
        {path: content for path, content in files.items() if not path.endswith(".crc")}
    )
    assert "which version" in without

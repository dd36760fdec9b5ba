"""What verify says of a snapshot that newer Sparks repair, of old state that they refuse, and of
files of nobody's.
"""

from __future__ import annotations

import pytest

from stateshift import look
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.formats.spark.names import classify
from stateshift.testing.memory_storage import MemoryDisk
from tests.formats.golden import CASES
from tests.look.golden_images import HERE, NEWEST, contents, write
from tests.support.checkpoints import Checkpoint


def judged(files, deep=True):
    disk = MemoryDisk()
    write(disk.open(HERE), files)
    return look.restartable(HERE, disk.open, thorough=deep)


def messages(found, level):
    return [finding.message for finding in found.findings if finding.level == level]


def chains_of(files):
    disk = MemoryDisk()
    write(disk.open(HERE), files)
    (image,) = survey.survey(disk.open(HERE)).images
    return [shard.files for shard in image.shards if shard.files]


def has_families(files):
    """Whether schemas are of column families, whose numbers only snapshots tell."""
    return any(
        classify(path).area == "state-schema" and classify(path).version is not None
        for path in files
    )


def snapshots_with_all_changes():
    """A snapshot that a restart begins with, and the checkpoint it is in, where every change
    before it is there too.
    """
    for case in CASES:
        if case.parent.name not in ("spark-3.5.9", "spark-4.3.0"):
            continue
        files = contents(case)
        chains = chains_of(files)
        for chain in chains[:1]:
            folder, _, name = chain[0].rpartition("/")
            stem, _, ending = name.partition(".")
            changes = {"snapshot": "delta", "zip": "changelog"}.get(ending)
            if not changes or not stem.isdecimal():
                continue
            alone = (
                sum(path.startswith(f"{folder}/") and path.endswith(f".{ending}") for path in files)
                == 1
            )
            if alone and has_families(files):
                continue  # nothing else names the column families
            if all(f"{folder}/{version}.{changes}" in files for version in range(1, int(stem) + 1)):
                yield pytest.param(files, chain[0], id=f"{case.parent.name}/{case.name}")


CHAINS = list(snapshots_with_all_changes())


def test_there_are_such_snapshots_of_both_providers():
    assert {param.values[1].rpartition(".")[2] for param in CHAINS} >= {"snapshot"}


@pytest.mark.long
@pytest.mark.parametrize(("files", "path"), CHAINS)
def test_a_snapshot_that_cannot_be_loaded_is_refused_and_said_to_be_repaired_by_newer_sparks(
    files, path
):
    for content in (b"", files[path][: len(files[path]) // 2], b"junk" + files[path][4:]):
        found = judged({**files, path: content})
        assert not found.restartable
        (note,) = [message for message in messages(found, "note") if "can repair this" in message]
        assert note.startswith(f"{path}: Spark 4.2 and later can repair this by themselves")


@pytest.mark.parametrize(("files", "path"), CHAINS)
def test_an_older_snapshot_that_is_damaged_too_is_gone_behind(files, path):
    """Not where column families are named by snapshots alone."""
    ending, folder = path.rpartition(".")[2], path.rpartition("/")[0]
    old = [p for p in files if p.startswith(f"{folder}/") and p.endswith(f".{ending}")]
    found = judged({**files, **dict.fromkeys(old, b"junk")})
    promised = [message for message in messages(found, "note") if "can repair this" in message]
    assert bool(promised) == (not has_families(files))


@pytest.mark.parametrize(("files", "path"), CHAINS)
def test_no_repair_is_promised_where_a_change_before_the_snapshot_is_gone_or_damaged(files, path):
    change = path.replace(".snapshot", ".delta").replace(".zip", ".changelog")
    for replaced in ({}, {change: b"junk"}):
        damaged = (
            {other: content for other, content in files.items() if other != change}
            | replaced
            | {path: b"junk"}
        )
        found = judged(damaged)
        assert not found.restartable
        assert not [message for message in messages(found, "note") if "can repair this" in message]


def test_no_repair_is_promised_of_state_without_changelogs():
    files = contents(NEWEST["window-rocksdb"])
    chains = chains_of(files)
    found = judged({**files, chains[0][0]: b"junk"})
    assert not found.restartable
    assert not [message for message in messages(found, "note") if "can repair this" in message]


@pytest.mark.parametrize("damage", [lambda whole: whole[:10], lambda _: b"", lambda _: b"junk" * 9])
def test_damage_before_the_snapshot_of_a_restart_spoils_the_earlier_batches_that_read_it(damage):
    """The newest batch starts from 6.snapshot; batch 4 reads 5.delta, behind 3.snapshot."""
    files = contents(NEWEST["window-hdfs"])
    path = "state/0/2/5.delta"
    found = judged({**files, path: damage(files[path])})
    assert found.restartable and found.epochs == (0, 1, 2, 3, 5)
    (warned,) = [message for message in messages(found, "warn") if path in message]
    assert warned.endswith("Batch 5 needs it no more; an earlier one may")


# ---- state from before 3.0


def of_2_4(files):
    """The checkpoint with the settings that Spark 2.4 wrote."""
    old = {}
    for path, content in files.items():
        if path.startswith("offsets/"):
            version, _, *sources = content.split(b"\n")
            conf = b'{"spark.sql.shuffle.partitions":"2","spark.sql.streaming.multipleWatermarkPolicy":"min"}'
            header = b'{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":%b}' % conf
            content = b"\n".join((version, header, *sources))
        old[path] = content
    return old


def test_state_of_spark_2_4_is_said_to_be_refused_where_it_sums_decimals():
    found = judged(of_2_4(Checkpoint().files()), deep=False)
    (message,) = messages(found, "warn")
    assert "SPARK-31894" in message and "sums of decimals" in message
    assert not messages(judged(Checkpoint().files(), deep=False), "warn")


def test_join_state_of_spark_2_4_is_said_to_be_refused_but_for_inner_joins():
    files = of_2_4(Checkpoint().files())
    joined = {}
    for path, content in files.items():
        if not path.startswith("state/"):
            joined[path] = content
            continue
        folder, _, name = path.rpartition("/")
        for store in ("left-keyToNumValues", "left-keyWithIndexToValue"):
            joined[f"{folder}/{store}/{name}"] = content
    (message,) = messages(judged(joined, deep=False), "warn")
    assert "SPARK-26154" in message and "inner join" in message


# ---- files that no Spark wrote


def test_files_that_no_spark_wrote_are_named_by_their_folder():
    more = {
        "mine/a.txt": b"x",
        "mine/deep/b.txt": b"x",
        "offsets/readme": b"x",
        "notes": b"x",
        "state/0/0/x.bak": b"x",
    }
    found = judged({**Checkpoint().files(), **more}, deep=False)
    assert found.restartable
    told = messages(found, "note")
    assert any(
        m.startswith("2 files in mine/ are no files of Spark's, mine/a.txt among them")
        for m in told
    )
    alone = {message.split(" ")[0] for message in told if message.endswith("no job reads it")}
    assert alone == {"notes", "offsets/readme", "state/0/0/x.bak"}


def test_many_folders_of_others_are_counted():
    more = {f"dir{number}/x": b"" for number in range(30)}
    told = messages(judged({**Checkpoint().files(), **more}, deep=False), "note")
    assert len(told) == 11 and told[-1] == "20 more folders hold files that no Spark wrote"


def test_a_name_that_java_reads_as_a_later_batch_is_that_batch():
    files = Checkpoint().files()
    found = judged({**files, "offsets/+9": files["offsets/2"]}, deep=False)
    assert not found.restartable

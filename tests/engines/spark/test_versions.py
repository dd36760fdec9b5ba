"""What the target's Spark cannot read is refused before anything moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.survey import ClusterFacts, Facts
from tests.formats.golden import CASES
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import Ground, changes_of, empty, plan_of, spec_of

NAMED = [{"kind": "rename", "sources": {"0": "events"}}]
COMPACT = [{"kind": "compact"}]
FORMAT_1 = [{"kind": "convert", "checkpoint_format": "v1"}]
ZSTD = [{"kind": "convert", "codec": "zstd"}]


def refusals(folder: Path, case: str, version: str, changes: list[dict[str, Any]]) -> str:
    from tests.engines.spark.test_transforms_golden import source_of

    ground = Ground(folder)
    source = next(one for one in CASES if f"{one.parent.name}/{one.name}" == f"spark-{case}")
    storage = ground.open(source_of(ground, source))
    facts = Facts(
        survey.survey(storage, changes=changes_of(*changes)),
        empty(),
        at=1e12,
        target_cluster=ClusterFacts("theirs", "command", version, "absent", None, ()),
    )
    plan = plan_of(
        spec_of(storage.location, transform=changes, waive=["paths-stay", "older-target"]), facts
    )
    return " ".join(finding.message for finding in plan.findings if finding.level == "refuse")


@pytest.mark.row("IS-18")
@pytest.mark.parametrize(
    ("case", "version", "changes", "told"),
    [
        (
            "4.3.0/join-rocksdb-v4",
            "4.2.1",
            [],
            "join of state format 4, which Spark 4.2.1 does not read",
        ),
        ("4.3.0/join-rocksdb-v4", "4.2.1", COMPACT, "join of state format 4"),
        ("4.3.0/join-rocksdb-v4", "4.3.0", [], ""),
        ("4.0.5/join-hdfs-v1", "4.2.1", [], ""),
        ("4.2.1/dedup-offsets2", "4.1.4", [], "offset log of version 2"),
        ("4.2.1/dedup-offsets2", "4.3.0", [], ""),
        ("4.1.4/dedup-zstd", "4.1.4", NAMED, "offset log of version 2"),
        ("4.1.4/dedup-zstd", "4.2.1", NAMED, ""),
        ("3.5.9/join-rocksdb", "3.4.4", [], "keeps RocksDB changelogs"),
        ("3.5.9/join-rocksdb", "3.4.4", COMPACT, ""),
        ("3.5.9/join-rocksdb", "3.5.1", [], ""),
        ("4.0.5/window-rocksdb", "3.3.4", [], "checksums (XXH3) Spark 3.3.4 does not know"),
        ("4.0.5/window-rocksdb", "3.3.4", ZSTD, ""),
        ("4.0.5/window-rocksdb", "3.4.4", [], ""),
        ("3.5.9/window-rocksdb", "3.3.4", [], ""),
        (
            "4.1.4/join-rocksdb-v3",
            "4.0.5",
            [],
            "join of state format 3, which Spark 4.0.5 does not read",
        ),
        ("4.1.4/join-rocksdb-v3", "4.1.4", [], ""),
        (
            "4.3.0/dedup-checksum",
            "4.1.4",
            [],
            "have checksums, which Spark 4.1.4 takes for a part of them",
        ),
        ("4.3.0/dedup-checksum", "4.2.1", [], ""),
        (
            "4.0.5/window-rocksdb-format2",
            "3.5.9",
            [],
            "is of checkpoint format 2, which Spark 3.5.9 does not read",
        ),
        ("4.0.5/window-rocksdb-format2", "3.5.9", FORMAT_1, ""),
        ("4.0.5/window-rocksdb-format2", "4.0.5", [], ""),
        (
            "4.0.5/tws-timers",
            "3.5.9",
            [],
            "uses transformWithState, which Spark 3.5.9 does not have",
        ),
        ("4.1.4/tws-timers", "4.0.5", [], ""),
        ("4.3.0/tws-timers", "4.1.4", [], "may keep list states"),
        ("4.3.0/tws-timers", "4.2.1", [], ""),
        (
            "4.0.5/within-hdfs",
            "3.4.4",
            [],
            "uses dropDuplicatesWithinWatermark, which Spark 3.4.4 does not have",
        ),
        ("4.0.5/within-hdfs", "3.5.9", [], ""),
        (
            "4.0.5/pandas-hdfs",
            "3.3.4",
            [],
            "uses applyInPandasWithState, which Spark 3.3.4 does not have",
        ),
        ("4.0.5/pandas-hdfs", "3.4.4", [], ""),
    ],
)
def test_a_version_that_cannot_read_it_is_refused_by_name(
    tmp_path: Path, case: str, version: str, changes: list[dict[str, Any]], told: str
) -> None:
    found = refusals(tmp_path, case, version, changes)
    assert told in found if told else found == ""


def of_2_4() -> dict[str, bytes]:
    """A checkpoint with the settings that Spark 2.4 kept in the offset log."""
    conf = (
        b'{"spark.sql.shuffle.partitions":"2","spark.sql.streaming.multipleWatermarkPolicy":"min"}'
    )
    files = Checkpoint().files()
    for path in [path for path in files if path.startswith("offsets/")]:
        version, _, *sources = files[path].split(b"\n")
        header = b'{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":%b}' % conf
        files[path] = b"\n".join((version, header, *sources))
    return files


@pytest.mark.parametrize(
    ("version", "waive", "level"),
    [("3.5.9", [], "refuse"), ("3.5.9", ["old-state"], "warn"), (None, [], None)],
)
def test_state_from_before_3_0_is_refused_by_a_later_spark_unless_that_is_waived(
    tmp_path: Path, version: str | None, waive: list[str], level: str | None
) -> None:
    storage = Ground(tmp_path).open("file:///here/orders")
    for path, content in of_2_4().items():
        put(storage, path, content)
    cluster = ClusterFacts("theirs", "command", version, "absent", None, ())
    facts = Facts(survey.survey(storage), empty(), at=1e12, target_cluster=cluster)
    plan = plan_of(spec_of(storage.location, waive=[*waive, "paths-stay", "older-target"]), facts)
    told = [finding.level for finding in plan.findings if "SPARK-31894" in finding.message]
    assert told == ([level] if level else [])

"""`verify --deep` takes what `compact` and `convert` wrote, whoever wrote the image they read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.support import said
from tests.flink.golden import ROOT as GOLDEN

WAIVED = ("--waive", "job-stopped", "--waive", "paths-stay", "--waive", "old-state")
OF_SPARK = {
    "compact": ("compact",),
    "compact, tables kept": ("compact", "--keep-tables"),
    "another codec": ("convert", "--codec", "zstd"),
    "rocksdb": ("convert", "--provider", "rocksdb"),
    "hdfs-backed": ("convert", "--provider", "hdfs-backed"),
    "checkpoint format 1": ("convert", "--checkpoint-format", "v1"),
}
IMAGES_OF_SPARK = {
    "spark-3.5.9/window-hdfs": ("compact", "another codec", "rocksdb"),
    "spark-4.3.0/window-hdfs": ("compact", "another codec", "rocksdb"),
    "spark-4.3.0/dedup-checksum": ("compact",),
    "spark-4.3.0/window-rocksdb-changelog": ("compact", "compact, tables kept", "hdfs-backed"),
    "spark-4.3.0/window-rocksdb-format2": ("compact", "checkpoint format 1"),
    "spark-4.3.0/dedup-rocksdb-checksum": ("compact",),
}
CASES = [(image, change) for image, changes in IMAGES_OF_SPARK.items() for change in changes]
IMAGES_OF_FLINK = (
    "flink-2.3.0/count-canonical-rocksdb",
    "flink-2.3.0/count-native-hashmap",
    "flink-2.3.0/kinds-native-incremental",
    "flink-2.3.0/kinds-compressed",
)


@pytest.fixture(autouse=True)
def _workdirs_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATESHIFT_WORKDIRS", str(tmp_path / "runs"))


@pytest.mark.parametrize(("image", "change"), CASES)
def test_what_spark_wrote_and_we_changed_is_not_refused(
    image: str, change: str, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(GOLDEN / image / "checkpoint", source)
    made = said(
        OF_SPARK[change][0],
        str(source),
        "--to",
        str(target),
        *OF_SPARK[change][1:],
        *WAIVED,
        "--yes",
    )
    assert made.code == 0, made.err
    judged = said("verify", str(target), "--deep", "--json")
    assert judged.code == 0, judged.out


@pytest.mark.parametrize("flink", ["1.20", "2.3"])
@pytest.mark.parametrize("image", IMAGES_OF_FLINK)
def test_what_flink_wrote_and_we_converted_is_not_refused(
    image: str, flink: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(GOLDEN / image / "image", source)
    (place,) = [found.parent for found in source.rglob("_metadata")]
    made = said(
        "convert", str(place), "--to", str(tmp_path / "target"), "--flink", flink, *WAIVED, "--yes"
    )
    assert made.code == 0, made.err
    judged = said("verify", str(tmp_path / "target"), "--deep", "--json")
    assert judged.code == 0, judged.out

"""Sources, as far as a checkpoint tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.storage.local.storage import LocalStorage
from stateshift.survey import EmbeddedPath, Image
from tests.support.checkpoints import Checkpoint
from tests.support.ground import surveyed


def image_of(
    checkpoint: Checkpoint, left_out: str | None = None, at_once: int = 1, **more: bytes
) -> Image:
    from stateshift.testing.memory_storage import MemoryDisk
    from tests.support.checkpoints import put

    storage = MemoryDisk(at_once=at_once).open("file:///c")
    for path, content in {**checkpoint.files(), **more}.items():
        if path != left_out:
            put(storage, path, content)
    (image,) = survey.survey(storage).images
    return image


HEADER = (
    b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{"spark.sql.shuffle.partitions":"2"}}\n'
)


@pytest.mark.parametrize(
    ("offset", "log", "kind", "replayable"),
    [
        (b'{"topic":{"0":123}}', b"", "kafka or event-hubs", True),
        (b'{"one":{"0":123},"other":{"0":1}}', b"", "kafka", True),
        (b'{"_topic":{"0":123}}', b"", "kafka", True),
        (
            b'{"endpoint":"sb://n/","consumerGroup":"$Default","partitionToSeqNos":{"hub":{"0":23}}}',
            b"",
            "event-hubs",
            True,
        ),
        (
            b'{"version":1,"snapshot_id":5999,"position":1,"scan_all_files":false}',
            b"",
            "iceberg",
            True,
        ),
        (b'{"snapshotId":3,"index":1,"scanSnapshot":false}', b"", "paimon", True),
        (b"5", b"v1\n1795179852328", "rate", True),
        (b"5", b"", "memory or socket", False),
        (b'{"offset":10,"timestamp":2000}', b"", "rate-micro-batch", True),
        (
            b'{"sourceVersion":1,"reservoirId":"a","reservoirVersion":3,"index":0,"isStartingVersion":false}',
            b"",
            "delta",
            True,
        ),
        (b'{"something":"else"}', b"", "unknown", None),
        (b"-", b"", "unknown", None),
        (b"plain words", b"", "unknown", None),
    ],
)
def test_a_source_is_known_by_the_shape_of_its_offset(
    offset: bytes, log: bytes, kind: str, replayable: bool | None
) -> None:
    more = {"offsets/2": HEADER + offset, **({"sources/0/0": log} if log else {})}
    (endpoint,) = image_of(Checkpoint(), **more).endpoints
    assert (endpoint.kind, endpoint.replayable) == (kind, replayable)


def test_sources_with_names_are_known_by_the_shape_of_their_offsets_as_well() -> None:
    """The offset log of version 2 has names in the place of positions."""
    delta = b'{"sourceVersion":1,"reservoirId":"t","reservoirVersion":3,"index":-1,"isStartingVersion":false}'
    lines = [b"events:" + delta, b'late:{"a":{"0":3},"b":{"0":4}}', b"ticks:-"]
    logs = {
        f"offsets/{batch}": HEADER.replace(b"v1", b"v2", 1) + b"\n".join(lines) for batch in (1, 2)
    }
    ends = image_of(Checkpoint(), **logs).endpoints
    assert [(end.index, end.kind) for end in ends] == [
        ("events", "delta"),
        ("late", "kafka"),
        ("ticks", "unknown"),
    ]
    assert ends[0].details["version"] == 3
    assert ends[1].offsets == {"a": {0: 3}, "b": {0: 4}}


def test_sinks_are_those_that_the_last_commit_names() -> None:
    """A commit of version 3, of the golden checkpoint of Spark 4.3."""
    golden = Path(__file__).parents[2] / "golden" / "spark-4.3.0" / "files-commits3"
    (image,) = survey.survey(LocalStorage(str(golden / "checkpoint"))).images
    (sink,) = [end for end in image.endpoints if end.role == "sink"]
    assert (sink.index, sink.kind, sink.detail) == ("copies", "FileStreamSink", None)
    commit = b'v3\n{"sinkMetadataMap":{"a":{"providerName":"x.Y","isActive":false},"b":3}}'
    ends = image_of(Checkpoint(), **{"commits/2": commit}).endpoints
    assert [(end.index, end.kind, end.detail) for end in ends if end.role == "sink"] == [
        ("a", "Y", "no longer in use")
    ]


def test_a_file_sources_places_are_decoded_and_counted_per_log() -> None:
    image = image_of(Checkpoint(inputs="hdfs://nn/in%20%25%20é"))
    assert image.endpoints[0].kind == "file"
    assert image.embedded == tuple(
        EmbeddedPath(f"sources/0/{batch}", "hdfs://nn/in % é", 1, "source") for batch in range(3)
    )


def test_logs_that_are_looked_at_several_at_once_are_told_in_their_order() -> None:
    checkpoint = Checkpoint(batches=40, inputs="hdfs://nn/in")
    damaged = {f"sources/0/{number}": b"v1\n{" for number in (7, 30, 8)}
    image = image_of(checkpoint, at_once=16, **damaged)
    assert image == image_of(checkpoint, **damaged)
    assert len(image.embedded) == 37
    assert [finding.path for finding in image.findings] == [
        "sources/0/30",
        "sources/0/7",
        "sources/0/8",
    ]


def test_a_hole_in_a_source_log_is_refused_and_no_epoch_works() -> None:
    image = image_of(Checkpoint(batches=4, inputs="file:///in"), left_out="sources/0/1")
    assert [f.message for f in image.findings] == [
        "sources/0/1 is missing: the source's log has to reach 3"
    ]
    assert image.epochs == ()


def test_a_compaction_stands_for_all_that_came_before_it() -> None:
    files = Checkpoint(batches=4, inputs="file:///in").files()
    compact = files["sources/0/0"] + b"".join(
        b"\n" + files[f"sources/0/{n}"].split(b"\n")[1] for n in (1, 2)
    )
    image = image_of(
        Checkpoint(batches=4),
        **{
            **{path: content for path, content in files.items() if path[:8] not in ("sources/",)},
            "sources/0/2.compact": compact,
            "sources/0/3": files["sources/0/3"],
        },
    )
    assert not image.findings
    assert image.embedded[0] == EmbeddedPath("sources/0/2.compact", "file:///in", 3, "source")


def test_of_a_source_log_a_restart_needs_the_last_two_compactions_and_what_came_since() -> None:
    """Two, since Spark tells by them how often to compact. One that goes beyond the commit does
    not count.
    """
    files = Checkpoint(batches=10, inputs="file:///in").files()
    for number in (2, 5, 8):
        files[f"sources/0/{number}.compact"] = files.pop(f"sources/0/{number}")
    files["sources/0/11.compact"] = files["sources/0/8.compact"]
    files["sources/0/notes"] = b""
    for gone in (("sources/0/0",), ()):  # tidied away by Spark, or not yet
        image = image_of(
            Checkpoint(batches=10), **{p: c for p, c in files.items() if p not in gone}
        )
        needed = [
            path.removeprefix("sources/0/") for path in image.needed if path.startswith("sources/")
        ]
        assert sorted(needed) == ["11.compact", "5.compact", "6", "7", "8.compact", "9", "notes"]
        assert {place.file for place in image.embedded} == {
            f"sources/0/{n}" for n in needed if n != "notes"
        }


def test_a_missing_sources_folder_is_refused() -> None:
    files = Checkpoint(inputs="file:///in").files()
    logs = [path for path in files if path.startswith("sources/")]
    assert logs
    image = image_of(Checkpoint(), **{path: files[path] for path in files if path not in logs})
    assert "sources/0/0 is missing" in image.findings[0].message


def test_a_damaged_source_log_is_named() -> None:
    image = image_of(
        Checkpoint(inputs="file:///in"), **{"sources/0/1": b'v1\n{"path":"file:///in/f1'}
    )
    assert "sources/0/1 is damaged" in image.findings[0].message


def test_the_settings_tell_the_oldest_spark_that_wrote_them() -> None:
    (image,) = surveyed(Checkpoint()).images
    assert image.written_by == "3.5 or later"

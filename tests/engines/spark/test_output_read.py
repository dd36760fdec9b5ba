"""How far one job has read what another one writes: the log of the sink between them tells it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.engines.spark.survey.sinks import output_read
from stateshift.specification import SinkSpec
from stateshift.survey import OutputRead
from tests.engines.spark.findings.test_tables import ID, TABLE, offset
from tests.support import encoders
from tests.support.checkpoints import QUERY, Checkpoint
from tests.support.ground import Ground

WRITER, READER, BETWEEN = "file:///here/orders", "file:///here/totals", "file:///data/between"
OTHER_QUERY = "99999999-2222-3333-4444-555555555555"


def read(ground: Ground, sink: SinkSpec) -> OutputRead:
    writer, reader = (survey(ground.disk.open(place)) for place in (WRITER, READER))
    return output_read(sink, writer, reader, ground.open)


def log_of(ground: Ground, name: str, *batches: int) -> None:
    """A file sink's log, of files f<batch>.json."""
    entries: list[dict[str, Any]] = []
    for batch in batches:
        path = f"{BETWEEN}/f{batch}.json"
        entries.append({"path": path, "size": 1, "isDir": False, "action": "add"})
    ground.put(f"{BETWEEN}/_spark_metadata/{name}", b"".join(encoders.encode_source_log(entries)))


@pytest.mark.row("W-22")
@pytest.mark.parametrize(
    ("writer", "planned", "reader", "logs", "expected"),
    [
        (3, False, 3, 3, "within"),
        (3, False, 2, 3, "within"),
        (3, False, 2, 5, "within"),  # the writer is told elsewhere that its sink is ahead
        (3, False, 4, 4, "beyond"),
        (3, False, 4, 3, "beyond"),  # the sink here lacks what was read
        (3, True, 4, 4, "within"),  # its planned batch has the same offsets again
        (3, False, 2, 0, "unknown"),  # no sink is there
    ],
)
def test_the_files_of_a_file_sink(
    writer: int, planned: bool, reader: int, logs: int, expected: OutputRead
) -> None:
    ground = Ground()
    ground.write(Checkpoint(batches=writer, planned=planned), WRITER)
    ground.write(Checkpoint(batches=reader, inputs=BETWEEN, query=OTHER_QUERY), READER)
    for batch in range(logs):
        log_of(ground, str(batch), batch)
    assert read(ground, SinkSpec("file", BETWEEN)) == expected
    assert read(ground, SinkSpec("file", "file:///data/elsewhere")) == "nothing"
    assert read(ground, SinkSpec("kafka")) == "nothing"


@pytest.mark.parametrize(("reader", "expected"), [(9, "within"), (10, "beyond")])
def test_a_compaction_after_the_writers_batch(reader: int, expected: OutputRead) -> None:
    ground = Ground()
    ground.write(Checkpoint(batches=9), WRITER)
    ground.write(Checkpoint(batches=reader, inputs=BETWEEN, query=OTHER_QUERY), READER)
    for batch in range(9):
        log_of(ground, str(batch), batch)
    log_of(ground, "9.compact", *range(10))
    assert read(ground, SinkSpec("file", BETWEEN)) == expected
    for batch in range(9):
        ground.remove(f"{BETWEEN}/_spark_metadata/{batch}")
    assert read(ground, SinkSpec("file", BETWEEN)) == "unknown"
    ground.write(Checkpoint(batches=10), WRITER)
    assert read(ground, SinkSpec("file", BETWEEN)) == "within"


@pytest.mark.row("W-22")
@pytest.mark.parametrize(
    ("at", "versions", "expected"),
    [
        (offset(3), 3, "within"),  # 2 is read
        (offset(3), 5, "within"),
        (offset(3, 0), 5, "beyond"),  # the first file of 3
        (offset(3, 0, snapshot=True), 5, "beyond"),
        (offset(4), 5, "beyond"),
        (offset(4), 3, "beyond"),  # 3 is not there
        (offset(3), 0, "unknown"),
    ],
)
@pytest.mark.parametrize("by", [QUERY, "orders"])
def test_the_versions_of_a_table(at: str, versions: int, by: str, expected: OutputRead) -> None:
    """Batch N makes version N; the writer has committed batch 2."""
    ground = Ground()
    ground.write(Checkpoint(batches=3), WRITER)
    ground.write(Checkpoint(query=OTHER_QUERY), READER)
    head = Checkpoint(query=OTHER_QUERY).offsets(2).rpartition(b"\n")[0]
    ground.put(f"{READER}/offsets/2", head + b"\n" + at.encode())
    for version in range(versions):
        actions: list[dict[str, Any]] = [{"txn": {"appId": by, "version": version}}]
        if version == 0:
            actions.append({"metaData": {"id": ID}})
        lines = "\n".join(map(json.dumps, actions))
        ground.put(f"{TABLE}/_delta_log/{version:020d}.json", lines.encode())
    sink = SinkSpec("delta", TABLE) if by == QUERY else SinkSpec("foreach-batch", TABLE, True, by)
    assert read(ground, sink) == expected
    if versions:
        ground.put(f"{TABLE}/_delta_log/{versions:020d}.json", b'{"metaData": {"id": "another"}}')
        assert read(ground, sink) == "nothing"

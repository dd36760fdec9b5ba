"""What a query says of its batches: made from Spark's documents, written, and read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stateshift.errors import FormatError
from stateshift.formats.spark.progress import (
    BATCHES_MAX,
    SIZE_MAX,
    QueryProgress,
    ReportedBatch,
    batch_of_document,
    decode_progress,
    encode_progress,
)


def document(**more: Any) -> dict[str, Any]:
    """A progress document as Spark 4.3 has it, of a query on Kafka."""
    source = {
        "description": "KafkaV2[Subscribe[load]]",
        "startOffset": {"load": {"0": 100, "1": 50}},
        "endOffset": {"load": {"0": 130, "1": 70}},
        "latestOffset": {"load": {"0": 150, "1": 75}},
        "numInputRows": 50,
        "inputRowsPerSecond": 49.7,
        "processedRowsPerSecond": 55.1,
        "metrics": {"avgOffsetsBehindLatest": "12.5"},
    }
    return {
        "id": "ce011fdc-8762-4dcb-84eb-a77333e28109",
        "runId": "88e2ff94-ede0-45a8-b687-6316fbef529a",
        "name": None,
        "timestamp": "2026-11-26T18:50:00.250Z",
        "batchId": 17,
        "batchDuration": 907,
        "numInputRows": 50,
        "durationMs": {"addBatch": 700, "latestOffset": 4, "triggerExecution": 907},
        "stateOperators": [{"numRowsTotal": 9}, {"numRowsTotal": 3}],
        "sources": [source],
        "sink": {"description": "ForeachBatchSink"},
        **more,
    }


def test_a_document_tells_of_its_batch_and_of_what_waits_behind_it() -> None:
    batch = batch_of_document(document())
    assert batch == ReportedBatch(17, 1795719000.25, 0.907, 0.7, 50, waiting=75, state_rows=12)


def test_offsets_may_be_written_as_texts() -> None:
    (source,) = document()["sources"]
    texts = {key: json.dumps(source[key]) for key in ("endOffset", "latestOffset")}
    batch = batch_of_document(document(sources=[{**source, **texts}]))
    assert batch is not None and batch.waiting == 75


def test_a_trigger_that_found_nothing_to_do_is_no_batch() -> None:
    assert (
        batch_of_document(document(durationMs={"latestOffset": 2, "triggerExecution": 3})) is None
    )


@pytest.mark.parametrize("latest", [None, 75, "75", {"logOffset": 3}, {"load": 7}, "no json"])
def test_what_waits_is_unknown_where_a_source_does_not_count_it(latest: object) -> None:
    (kafka,) = document()["sources"]
    batch = batch_of_document(document(sources=[kafka, {**kafka, "latestOffset": latest}]))
    assert batch is not None
    assert (batch.records, batch.waiting) == (50, None)


@pytest.mark.parametrize(
    "damage",
    [{"durationMs": None}, {"numInputRows": "many"}, {"timestamp": "now"}, {"sources": 7}],
)
def test_what_is_no_document_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        batch_of_document(document(**damage))


def test_the_file_is_read_back_and_keeps_to_its_bound() -> None:
    progress = QueryProgress("88e2ff94-ede0-45a8-b687-6316fbef529a", 1795719000.25, cores=64)
    for number in range(10**9, 10**9 + 250):
        batch = ReportedBatch(number, 1795719000.251 + number, 1234.567, 1230.123, 10**12, 10**12)
        progress = progress.with_batch(batch)
    assert len(progress.batches) == BATCHES_MAX
    assert progress.batches[-1].id == 10**9 + 249
    content = encode_progress(progress)
    assert len(content) <= SIZE_MAX
    assert decode_progress(content) == progress


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":2,"run":"a","begun":1.0}',
        b'{"version":1,"run":"a","begun":"early"}',
        b'{"version":1,"run":"a","begun":1.0,"batches":[{"id":1}]}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_what_is_no_such_file_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        decode_progress(content, "_stateshift/progress")

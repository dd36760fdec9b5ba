"""A job keeps what its queries say of their batches, and is not disturbed by it."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stateshift.formats import marks
from stateshift.formats.spark.progress import BATCHES_MAX, QueryProgress, decode_progress
from stateshift.job.queries import ProgressFile, keeps_progress


@dataclass
class Document:
    """A progress document in the JVM."""

    plain: dict[str, Any]

    def json(self) -> str:
        return json.dumps(self.plain)


@dataclass
class Trigger:
    """A trigger in the JVM."""

    text: str

    def toString(self) -> str:
        return self.text


@dataclass
class Execution:
    """What Spark has of a query, as far as it is asked for; it does not tell its cores."""

    place: str
    documents: list[Document] = field(default_factory=list)
    triggered: Trigger = field(default_factory=lambda: Trigger("ProcessingTimeTrigger(0)"))

    def trigger(self) -> Trigger:
        return self.triggered

    def recentProgress(self) -> list[Document]:
        return self.documents

    def resolvedCheckpointRoot(self) -> str:
        return self.place

    def does(self, batch: int, records: int = 10, is_idle: bool = False) -> None:
        took = {"triggerExecution": 3} if is_idle else {"triggerExecution": 900, "addBatch": 700}
        self.documents.append(
            Document(
                {
                    "runId": "run-1",
                    "batchId": batch,
                    "timestamp": f"2026-11-26T18:{batch // 60:02}:{batch % 60:02}.000Z",
                    "numInputRows": records,
                    "durationMs": took,
                    "sources": [],
                }
            )
        )


@pytest.fixture
def execution(tmp_path: Path) -> Execution:
    return Execution(str(tmp_path / "checkpoint"))


def kept(execution: Execution) -> QueryProgress:
    return decode_progress((Path(execution.place) / marks.PROGRESS).read_bytes())


@pytest.mark.parametrize(
    ("word", "keeps"), [(None, True), ("", True), ("true", True), ("false", False), ("OFF", False)]
)
def test_a_job_keeps_its_progress_unless_it_is_told_not_to(
    monkeypatch: pytest.MonkeyPatch, word: str | None, keeps: bool
) -> None:
    monkeypatch.delenv("STATESHIFT_PROGRESS", raising=False)
    if word is not None:
        monkeypatch.setenv("STATESHIFT_PROGRESS", word)
    assert keeps_progress() is keeps


def test_each_batch_is_kept_once_and_the_first_one_says_when_the_run_began(
    execution: Execution,
) -> None:
    file = ProgressFile(execution)
    execution.does(4)
    execution.does(5)
    file.keep_now()
    execution.does(6, is_idle=True)
    execution.does(6)
    del execution.documents[0]  # Spark keeps so many, and lets go of older ones
    file.keep_now()
    told = kept(execution)
    assert [batch.id for batch in told.batches] == [4, 5, 6]
    assert (told.run, told.begun, told.cores) == ("run-1", told.batches[0].started, None)


def test_nothing_is_written_where_there_is_nothing_new(execution: Execution) -> None:
    file = ProgressFile(execution)
    file.keep_now()
    execution.does(0, is_idle=True)
    file.keep_now()
    assert not (Path(execution.place) / marks.PROGRESS).exists()
    execution.does(0)
    file.keep_now()
    (Path(execution.place) / marks.PROGRESS).unlink()
    file.keep_now()
    assert not (Path(execution.place) / marks.PROGRESS).exists()


def test_the_time_between_two_writes_is_kept(execution: Execution) -> None:
    file = ProgressFile(execution)
    execution.does(0)
    assert not file.keep()
    assert not (Path(execution.place) / marks.PROGRESS).exists()


@pytest.mark.parametrize(
    "trigger",
    ["AvailableNowTrigger", "OneTimeTrigger", "ContinuousTrigger(1000)", "RealTimeTrigger(5000)"],
)
def test_nothing_is_kept_of_a_query_whose_batches_do_not_tell(
    execution: Execution, trigger: str
) -> None:
    execution.triggered = Trigger(trigger)
    for number in range(5):
        execution.does(number)
    ProgressFile(execution).keep_now()
    assert not (Path(execution.place) / marks.PROGRESS).exists()


def test_of_many_documents_the_newest_are_asked_for(execution: Execution) -> None:
    execution.documents.append(Document({"batchId": "never asked for"}))
    for number in range(BATCHES_MAX):
        execution.does(number)
    ProgressFile(execution).keep_now()
    assert len(kept(execution).batches) == BATCHES_MAX


def test_a_write_that_fails_is_logged_once_and_tried_again(
    execution: Execution, caplog: pytest.LogCaptureFixture
) -> None:
    fails = [True]

    def write(place: str, path: str, content: bytes) -> None:
        if fails:
            raise OSError("disk full")
        written.append(content)

    written: list[bytes] = []
    file = ProgressFile(execution, write)
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            execution.does(number)
            file.keep_now()
    assert [record.getMessage() for record in caplog.records] == [
        "the query's progress is not kept for `stateshift advise`: disk full"
    ]
    fails.clear()
    file.keep_now()
    (content,) = written
    assert [batch.id for batch in decode_progress(content).batches] == [0, 1, 2]


def test_documents_that_nobody_can_read_disturb_nobody(
    execution: Execution, caplog: pytest.LogCaptureFixture
) -> None:
    execution.documents.append(Document({"batchId": 1, "durationMs": {"addBatch": 3}}))
    ProgressFile(execution).keep_now()
    assert "is not kept" in caplog.text

"""A job that is watched goes on where the files beside its image cannot be reached."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import pytest

from stateshift import job
from stateshift.formats import marks


@dataclass
class Query:
    """A query that ends after so many looks."""

    looks: int
    _jsq: None = None

    @property
    def isActive(self) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def awaitTermination(self) -> None:
        assert self.looks < 0


def test_a_marker_that_cannot_be_read_does_not_end_the_job_and_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STATESHIFT_CHECKPOINT", str(tmp_path))
    monkeypatch.setenv("STATESHIFT_PROGRESS", "false")
    for name in ("JOB", "TAG", "SPEC"):
        monkeypatch.delenv(f"STATESHIFT_{name}", raising=False)
    (tmp_path / marks.STOP).mkdir(parents=True)  # as a storage that refuses to read
    with caplog.at_level(logging.WARNING):
        job.watch(Query(looks=3), seconds=0.0)
    (record,) = caplog.records
    assert str(tmp_path) in record.getMessage()

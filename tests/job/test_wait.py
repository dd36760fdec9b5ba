"""A job that was started early waits for its image; any other goes on at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift import job
from stateshift.formats import marks


def test_what_takes_its_time_is_done_before_it_says_that_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WAIT", "1"), ("TAG", "t1"), ("CHECKPOINT", str(tmp_path))):
        monkeypatch.setenv(f"STATESHIFT_{name}", value)
    done = []

    def first() -> None:
        done.append((tmp_path / marks.WAITING).exists())
        (tmp_path / marks.RELEASED).parent.mkdir(parents=True)
        (tmp_path / marks.RELEASED).write_bytes(marks.encode_tag("t1"))

    job.wait(first=first)
    assert done == [False] and (tmp_path / marks.WAITING).read_bytes() == marks.encode_tag("t1")


def test_a_storage_that_fails_for_a_moment_does_not_end_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (("WAIT", "1"), ("TAG", "t1"), ("CHECKPOINT", str(tmp_path))):
        monkeypatch.setenv(f"STATESHIFT_{name}", value)
    (tmp_path / marks.RELEASED).mkdir(parents=True)  # as a storage that refuses to read
    (tmp_path / marks.STOP).write_bytes(b"")
    with pytest.raises(SystemExit):
        job.wait(seconds=0.0)
    assert str(tmp_path) in caplog.records[0].getMessage()


def test_a_job_that_was_not_started_early_does_not_practise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("STATESHIFT_WAIT", raising=False)
    job.wait(first=lambda: pytest.fail("nobody waits"))

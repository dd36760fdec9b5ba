"""Whom a stop marker means, and until when."""

from __future__ import annotations

import pytest

from stateshift.formats.marks import asks_to_stop, encode_idle, encode_stop


@pytest.mark.parametrize(
    ("marked", "ours", "now", "means_us"),
    [
        (("orders", "run-1"), ("orders", "run-1"), 99.0, True),
        (("orders", "run-1"), ("orders", "run-2"), 99.0, False),
        (("orders", "run-1"), ("orders", None), 99.0, False),
        (("orders", None), ("orders", "run-2"), 99.0, True),
        (("orders", None), (None, None), 99.0, True),
        (("orders", None), ("clicks", None), 99.0, False),
        (("orders", "run-1"), ("orders", "run-1"), 100.5, False),
    ],
)
def test_a_marker_means_the_job_it_names_until_it_runs_out(
    marked: tuple[str, str | None], ours: tuple[str | None, str | None], now: float, means_us: bool
) -> None:
    assert asks_to_stop(encode_stop(*marked, until=100.0), *ours, now) is means_us


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_a_touched_file_means_every_job(content: bytes) -> None:
    assert asks_to_stop(content, "orders", "run-1", 1e12)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"job": "orders"}', b"\xff", b'{"job":"a","tag":null,"until":"x"}']
)
def test_what_cannot_be_read_means_nobody(content: bytes) -> None:
    assert not asks_to_stop(content, "orders", "run-1", 0.0)


def test_idle_names_the_submission_and_the_epoch() -> None:
    assert encode_idle("run-1", 7) == b'{"epoch": 7, "tag": "run-1"}\n'

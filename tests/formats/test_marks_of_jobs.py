"""Whom a stop marker means, and until when."""

from __future__ import annotations

import pytest

from stateshift.formats.marks import (
    asks_to_stop,
    encode_idle,
    encode_stop,
    fence_owner,
    fence_sizes,
    fence_text,
    is_fence_of,
)


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


def test_the_first_line_of_a_fence_says_what_it_is_and_the_way_out() -> None:
    """Spark fails on it, and shows this line alone: `failed to read correct log version from …`."""
    first, owner, end = fence_text("20261130-170831-orders-99c4").split("\n")
    assert first.startswith("stateshift fence v1: run 20261130-170831-orders-99c4 has moved this")
    assert "stateshift rollback WORKDIR" in first and not first.startswith("v")
    assert (owner, end) == ("20261130-170831-orders-99c4", "")


def test_fences_of_earlier_versions_are_fences() -> None:
    old = b"stateshift fence v1\nrun-7\nThe state of this job was moved. To undo: stateshift rollback\n"
    assert fence_owner(old) == "run-7" == fence_owner(fence_text("run-7").encode())
    assert is_fence_of(old, "run-7") and not is_fence_of(old, "run-8")
    assert fence_sizes("run-7") == (len(fence_text("run-7").encode()), len(old))
    for content in (b"", b"v1\n{}", b"stateshift fence v1", b"stateshift fence v10\nrun-7\n"):
        assert fence_owner(content) is None

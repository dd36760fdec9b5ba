"""What a worker is declared with is checked before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift import live
from stateshift.errors import SpecError
from tests.live.bins.workers import count_and_ask


def test_all_that_is_wrong_is_said_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        live.Worker(str(tmp_path), "a/b", count_and_ask.function, None, home="cluster")
    wrong = [complaint.pointer for complaint in caught.value.complaints]
    assert wrong == ["name", "operator", "output", "home"]
    assert not list(tmp_path.iterdir())

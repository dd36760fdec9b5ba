"""Whatever these tests do: users of Flink read no word of Spark's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.words import Heard


@pytest.fixture(autouse=True)
def no_words_of_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    heard = Heard.listening(monkeypatch)
    yield
    monkeypatch.undo()
    assert heard.foreign_to("flink") == []

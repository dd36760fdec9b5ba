"""The words of an engine's users for its epochs: a batch of Spark, a checkpoint of Flink; and of
moments. Pure.

A message that both engines' users may read takes these words from here. tests/test_engine_words.py
drives whole runs of either engine and finds the other's words in whatever they print.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Terms:
    """`at` is what goes before its number, `at_each` what stands for it where jobs have one each.
    `done` is what becomes of one that is complete, in the past; `went_on` is what a job did that is
    past its image.
    """

    at: str
    at_each: str
    one: str
    many: str
    done: str
    went_on: str
    none_in: str

    @property
    def first_on_target(self) -> str:
        return f"the first {self.one} {self.done} on the target"


SPARK = Terms(
    at="epoch",
    at_each="each query's last epoch",
    one="batch",
    many="batches",
    done="committed",
    went_on="committed",
    none_in="committed nothing",
)
FLINK = Terms(
    at="checkpoint",
    at_each="the last checkpoint of each",
    one="checkpoint",
    many="checkpoints",
    done="completed",
    went_on="completed a checkpoint",
    none_in="completed no checkpoint",
)


def terms_of(engine: str | None) -> Terms:
    """Return the words of an engine. Journals of earlier versions name none: those are Spark's."""
    return FLINK if engine == "flink" else SPARK


def moment(at: float) -> str:
    """Return a moment in universal time: whoever reads this may be elsewhere."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return "-"

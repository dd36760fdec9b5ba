"""What real engines did with the pairs, and what the check had said: by version and name of the pair.

spark-outcomes.json   [right | wrong | refused, the class of the error, the verdict], and of
                      starts-after the three after the commands, too; "3.5.9 to 4.3.0" is new code
                      on 4.3.0 with state that 3.5.9 wrote. 4.3.0 alone is in outcomes.json
flink-outcomes.json   [the verdict of a rehearsal, the error; null where it started]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.check.corpus import CAUTIOUS, UNSEEN

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "check"
OF_SPARKS, OF_FLINKS = GOLDEN / "spark-outcomes.json", GOLDEN / "flink-outcomes.json"


def recorded_outcomes(file: Path) -> dict[str, dict[str, list[str | None]]]:
    return dict(json.loads(file.read_text())) if file.exists() else {}


def keep_outcomes(file: Path, version: str, fresh: Mapping[str, Sequence[str | None]]) -> None:
    outcomes = recorded_outcomes(file)
    outcomes.setdefault(version, {}).update({name: list(each) for name, each in fresh.items()})
    file.write_text(json.dumps(outcomes, indent=1, sort_keys=True) + "\n")


# The verdicts that agree with what Spark did.
AGREES = {
    "right": ("starts",),
    "wrong": ("starts-but",),
    "refused": ("starts-after", "never"),
}
# Spark 3 kept no names of operators, so Spark 4 starts one for another, and this input is right.
CAUTIOUS_BEFORE = (*CAUTIOUS, "within: no longer within")


# Code that starts after the commands, and whose output cannot be that of a start from nothing: the
# state has no values for a new column, and was made with the operator or the source that is gone.
NOT_AS_FROM_NOTHING = (
    "window: an aggregate more",
    "session: an aggregate more",
    "stored: an aggregate more",
    "join: a column more",
    "paired: a column more",
    "chain: no deduplication",
    "union: a source less",
    # Of Flink: other sources begin with the first number again.
    "another graph with uids",
    "another graph without uids",
)


def agrees_with_spark(name: str, word: str, said: str) -> bool:
    """Whether a verdict is what Spark did, as far as a plan tells it."""
    is_unseen = name in UNSEEN and (word, said) == ("wrong", "starts")
    is_cautious = name in CAUTIOUS_BEFORE and (word, said) == ("right", "starts-but")
    return said in AGREES[word] or is_unseen or is_cautious


def continues(name: str, word: str, said: str) -> bool:
    """Whether Spark did after the commands what the verdict on their result is. The old code is
    not that of the changed state: a line of it that is another one may be right.
    """
    is_fresh = name in NOT_AS_FROM_NOTHING and (word, said) == ("wrong", "starts")
    is_cautious = (word, said) == ("right", "starts-but")
    return is_fresh or is_cautious or agrees_with_spark(name, word, said)


def agrees_with_flink(said: str, error: str | None) -> bool:
    """Whether a verdict is that of a real start; "not-known" is none."""
    return said == "not-known" or (error is None) == (said in ("starts", "starts-but"))

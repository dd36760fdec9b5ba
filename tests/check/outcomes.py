"""What real engines did with the pairs, and what the check had said: by version and name of the pair.

spark-outcomes.json   [right | wrong | refused, the class of the error, the verdict]; "3.5.9 to
                      4.3.0" is new code on 4.3.0 with state that 3.5.9 wrote. 4.3.0 alone is in
                      outcomes.json
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


def agrees_with_spark(name: str, word: str, said: str) -> bool:
    """Whether a verdict is what Spark did, as far as a plan tells it."""
    is_unseen = name in UNSEEN and (word, said) == ("wrong", "starts")
    is_cautious = name in CAUTIOUS_BEFORE and (word, said) == ("right", "starts-but")
    return said in AGREES[word] or is_unseen or is_cautious


def agrees_with_flink(said: str, error: str | None) -> bool:
    """Whether a verdict is that of a real start; "not-known" is none."""
    return said == "not-known" or (error is None) == (said in ("starts", "starts-but"))

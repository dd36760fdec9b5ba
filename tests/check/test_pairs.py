"""Real Sparks start every pair of the corpus again: what is recorded is what they do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.acceptance.support import ROOT, environment
from tests.check.test_compare import OUTCOMES

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]
# Code that starts after the commands, and whose output cannot be that of a start from nothing: the
# state has no values for a new column, and was made with the operator or the source that is gone.
NOT_AS_FROM_NOTHING = (
    "window: an aggregate more",
    "join: a column more",
    "chain: no deduplication",
    "union: a source less",
)


def played(mode: str) -> dict[str, list[str]]:
    command = [sys.executable, "-m", "tests.check.playing", mode]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return outcomes


@pytest.mark.row("W-24", on="Spark")
def test_spark_does_with_every_pair_what_is_recorded() -> None:
    assert played("outcomes") == OUTCOMES


@pytest.mark.row("W-24", on="Spark")
def test_code_starts_after_the_commands_and_goes_on_from_what_the_state_holds() -> None:
    mended = played("mended")
    assert mended
    for name, (word, error) in mended.items():
        expected = "wrong" if name in NOT_AS_FROM_NOTHING else "right"
        assert word == expected, (name, error)

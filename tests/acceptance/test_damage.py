"""What `verify --deep` says of a damaged checkpoint is what a real Spark does with it: a sample.
`./scripts/matrix` has more than a hundred (tests/damage.md).
"""

from __future__ import annotations

import json

import pytest

from tests.acceptance.matrix.damaging import exception_to
from tests.acceptance.matrix.outcomes import Outcome
from tests.acceptance.samples import DAMAGES

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_damaged_checkpoint_is_judged_as_spark_judges_it(damaged: dict[str, Outcome]) -> None:
    assert len(damaged) == len(DAMAGES)
    assert {
        name: outcome.told for name, outcome in damaged.items() if outcome.result != "passed"
    } == {}


def test_damage_that_does_no_harm_is_among_the_sample_and_damage_that_gives_wrong_results(
    damaged: dict[str, Outcome],
) -> None:
    sparks = [json.loads(outcome.told)[2].partition(":")[0] for outcome in damaged.values()]
    assert set(sparks) == {"works", "fails", "wrong"}
    assert not [one for one in DAMAGES if exception_to(one)], "the sample has no exceptions"

"""How long a plan may take: reckoned from what was measured, and never faster than the spec lets
it be.
"""

from dataclasses import replace

import pytest

from stateshift.estimating import byte_rate, estimate
from stateshift.survey import Rates
from tests.support.checkpoints import Checkpoint
from tests.support.ground import facts_of, plan_of, spec_of, surveyed


def test_what_the_spec_throttles_takes_longer_and_says_so() -> None:
    facts = replace(facts_of(surveyed(Checkpoint())), rates=Rates(100e6, 1000.0))
    plan = plan_of(spec_of(), facts)
    free = estimate(plan, facts)
    slow = estimate(plan, facts, (10.0, None))
    few = estimate(plan, facts, (None, 1.0))
    assert slow.seconds > free.seconds and few.seconds > free.seconds
    assert slow.basis.startswith("read at 10 B/s and 1000 files/s (throttled)")
    assert "throttled" not in free.basis and estimate(plan, facts, (1e12, 1e9)) == free


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (200e6, "200 MB/s"),
        (12.34e6, "12.3 MB/s"),
        (1.5e6, "1.5 MB/s"),
        (0.4e6, "400 kB/s"),
        (50e3, "50 kB/s"),
        (10.0, "10 B/s"),
        (0.25, "0.25 B/s"),
        (3.2e9, "3200 MB/s"),
    ],
)
def test_a_rate_is_said_in_a_unit_in_which_it_is_not_zero(rate: float, said: str) -> None:
    assert byte_rate(rate) == said


def test_a_few_requests_a_minute_are_not_said_to_be_none() -> None:
    facts = replace(facts_of(surveyed(Checkpoint())), rates=Rates(100e6, 1000.0))
    few = estimate(plan_of(spec_of(), facts), facts, (None, 0.1))
    assert few.basis.startswith("read at 100 MB/s and 0.1 files/s (throttled)")

"""How long a plan may take: reckoned from what was measured, and never faster than the spec lets
it be.
"""

from dataclasses import replace

from stateshift.estimating import estimated
from stateshift.survey import Rates
from tests.support.checkpoints import Checkpoint
from tests.support.ground import facts_of, plan_of, spec_of, surveyed


def test_what_the_spec_throttles_takes_longer_and_says_so() -> None:
    facts = replace(facts_of(surveyed(Checkpoint())), rates=Rates(100e6, 1000.0))
    plan = plan_of(spec_of(), facts)
    free = estimated(plan, facts)
    slow = estimated(plan, facts, (10.0, None))
    few = estimated(plan, facts, (None, 1.0))
    assert slow.seconds > free.seconds and few.seconds > free.seconds
    assert slow.basis.startswith("read at 0 MB/s and 1000 files/s (throttled)")
    assert "throttled" not in free.basis and estimated(plan, facts, (1e12, 1e9)) == free

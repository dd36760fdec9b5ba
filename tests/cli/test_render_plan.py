"""Plans as text, from values."""

from pathlib import Path
from typing import Any

import pytest

from stateshift.cli.views import plan_text as render_plan
from stateshift.cli.views.text import plain_text
from stateshift.documents.plan import plan_facts
from tests.support.living import LivingGround, warm_spec

LITTLE = "once what is left would take less than"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({}, f"the job is stopped {LITTLE} 5.0 s\n"),
        ({"until": "remaining < 90s"}, f"the job is stopped {LITTLE} 1 min 30 s\n"),
        ({"rounds": 1}, "the job is stopped after 1 round\n"),
        (
            {"until": "remaining < 2s", "rounds": 3},
            f"the job is stopped {LITTLE} 2.0 s, within 3 rounds\n",
        ),
        ({"cutover": "manual"}, f"{LITTLE} 5.0 s, once you run: stateshift cutover WORKDIR\n"),
        ({"cutover": "22:00-4:30 UTC"}, f"{LITTLE} 5.0 s, between 22:00-04:30 UTC\n"),
        ({"cutover": "never"}, "the job is not stopped: the target holds an image to start from"),
    ],
)
def test_a_plan_of_a_warm_move_says_when_the_job_is_stopped(
    tmp_path: Path, keys: dict[str, Any], told: str
) -> None:
    facts = plan_facts(LivingGround(tmp_path).propose(warm_spec(**keys)))
    shown = plain_text(render_plan.proposal(facts))
    assert told in shown

"""A move whose job fails is killed at any moment, also while the old job is started again where it
was: whoever resumes it, and whoever takes it back, leaves that job running, once, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stateshift.errors import JOB_DOWN
from tests.kill import judging, process
from tests.kill.moments import Moment
from tests.kill.process import Outcome
from tests.kill.scenario import Scenario, scenario
from tests.kill.test_kill_anywhere import each


@pytest.fixture(scope="module")
def place() -> Iterator[Scenario]:
    with scenario("restarting") as found:
        yield found


@pytest.fixture(scope="module")
def some(request: pytest.FixtureRequest, seed: int) -> Callable[[list[Moment]], list[Moment]]:
    """Every 24th moment, others with another seed; all of them with --full."""
    every = 1 if request.config.getoption("--full") else 24
    return lambda moments: moments[seed % every :: every]


def runs_where_it_was(place: Scenario, ended: Outcome) -> list[str]:
    """What is wrong with a run that failed, and has started the old job again."""
    wrong = [] if ended.exit_code == 7 else [f"it did not fail as its job did: {ended}"]
    if ended.error.startswith("down since"):
        wrong.append(f"it says that the job is down: {ended.error}")
    for where, expected in (("flow", 1), ("there", 0)):
        found = place.alive(where)
        if found != expected:
            wrong.append(f"{found} jobs run at {where}, and not {expected}")
    return wrong + both_at_once(place)


def both_at_once(place: Scenario) -> list[str]:
    """Whether two jobs ran at one time, by what the cluster has written down."""
    running: set[str] = {"by-hand"}
    wrong = []
    for verb, tag, where in place.events()[1:]:
        if verb == "submit":
            running.add(tag)
        elif verb == "failed" or tag:
            running.discard(tag)
        else:
            running -= {known for known in running if where.endswith("/flow")}
        if len(running) > 1:
            wrong.append(f"at one time: {sorted(running)}")
    return wrong[:1]


def killed(place: Scenario, moment: Moment) -> None:
    place.restore()
    ended = process.apply(place, moment)
    assert ended.killed == moment, f"{moment} was not reached: {ended}"


def moments(place: Scenario) -> list[Moment]:
    place.restore()
    run = process.apply(place)
    assert run.exit_code == 7 != JOB_DOWN, run
    assert runs_where_it_was(place, run) == []
    return run.seen


def test_resumed_the_old_job_runs_again_and_no_other(
    place: Scenario, some: Callable[[list[Moment]], list[Moment]]
) -> None:
    def attempt(moment: Moment) -> list[str]:
        killed(place, moment)
        if not (place.root / "workdir" / "journal").exists():
            return []
        return runs_where_it_was(place, process.resume(place))

    each(some(moments(place)), attempt)


def test_taken_back_everything_is_as_before(
    place: Scenario, some: Callable[[list[Moment]], list[Moment]]
) -> None:
    def attempt(moment: Moment) -> list[str]:
        killed(place, moment)
        return judging.as_before(place, process.rollback(place)) + both_at_once(place)

    each(some(moments(place)), attempt)

"""A run whose job is started before the old one is stopped is killed at any moment until the image
is copied, and taken back: until then nobody but that job has written to the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.kill import judging, process
from tests.kill.moments import Moment
from tests.kill.scenario import Scenario, scenario
from tests.kill.test_kill_anywhere import each, undisturbed


@pytest.fixture(scope="module", params=["early", "early-warm"])
def place(request: pytest.FixtureRequest) -> Iterator[Scenario]:
    with scenario(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def some(how: str, seed: int) -> Callable[[list[Moment]], list[Moment]]:
    """Every eighth moment, others with another seed; all of them with --full."""
    every = {"full": 1, "default": 8, "quick": 16}[how]
    return lambda moments: moments[seed % every :: every]


def moments_of_start(moments: list[Moment]) -> list[Moment]:
    """Return the moments from the job's submission to the move's first file."""
    submitted = moments.index(Moment("run submit", 1))
    fenced = moments.index(Moment("os.link to flow/aggregate/commits/2", 1))
    return moments[submitted : fenced + 1]


@pytest.mark.long
def test_nothing_is_left_of_a_job_that_only_waited(
    place: Scenario, some: Callable[[list[Moment]], list[Moment]]
) -> None:
    moments, _ = undisturbed(place)

    def attempt(moment: Moment) -> list[str]:
        place.restore()
        killed = process.apply(place, moment)
        assert killed.killed == moment, f"{moment} was not reached: {killed}"
        return judging.as_before(place, process.rollback(place))

    each(some(moments_of_start(moments)), attempt)


@pytest.mark.long
def test_a_rollback_of_it_that_is_killed_is_finished_by_another(
    place: Scenario, some: Callable[[list[Moment]], list[Moment]]
) -> None:
    begun, _ = undisturbed(place)
    last = moments_of_start(begun)[-1]

    def half_way() -> None:
        place.restore()
        process.apply(place, last)

    half_way()
    moments = process.rollback(place).seen
    assert len(moments) > 40

    def attempt(moment: Moment) -> list[str]:
        half_way()
        killed = process.rollback(place, moment)
        assert killed.killed == moment, f"{moment} was not reached: {killed}"
        return judging.as_before(place, process.rollback(place))

    each(some(list(moments)), attempt)

"""A run whose job failed goes on with a corrected spec, and is killed at any moment of that."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stateshift.errors import JOB_DOWN
from tests.kill import judging, process
from tests.kill.moments import Moment
from tests.kill.process import Outcome
from tests.kill.scenario import Scenario, Tree, scenario, tree
from tests.kill.test_kill_anywhere import each, moments_of

STARTS = 2  # one that failed, and one as it was corrected


@pytest.fixture(scope="module")
def place() -> Iterator[Scenario]:
    with scenario("failing") as found:
        yield found


@pytest.fixture(scope="module")
def failed(place: Scenario) -> Path:
    """Everything as it is when the run has failed."""
    run = process.apply(place)
    assert run.exit_code == JOB_DOWN and "failed before it committed a batch" in run.error, run
    copy = place.pristine.with_name("failed")
    shutil.copytree(place.root, copy)
    return copy


@pytest.fixture(scope="module")
def some(request: pytest.FixtureRequest, seed: int) -> Callable[[list[Moment]], list[Moment]]:
    """Every eighth moment, others with another seed; all of them with --full."""
    every = 1 if request.config.getoption("--full") else 8
    return lambda moments: moments[seed % every :: every]


def back_to(failed: Path, place: Scenario) -> None:
    shutil.rmtree(place.root)
    shutil.copytree(failed, place.root)


def undisturbed(place: Scenario, failed: Path) -> tuple[list[Moment], Tree]:
    back_to(failed, place)
    run = process.correct(place)
    expected = tree(place.root)
    assert judging.moved(place, run, expected, STARTS) == []
    return moments_of(run), expected


def killed_at(moment: Moment, place: Scenario, failed: Path) -> None:
    back_to(failed, place)
    killed = process.correct(place, moment)
    assert killed.killed == moment, f"{moment} was not reached: {killed}"


def test_without_the_correction_it_fails_again(place: Scenario, failed: Path) -> None:
    back_to(failed, place)
    assert process.resume(place).exit_code == JOB_DOWN
    assert place.submitted("there") == STARTS


def test_the_same_command_finishes_a_corrected_run_that_was_killed(
    place: Scenario, failed: Path, some: Callable[[list[Moment]], list[Moment]]
) -> None:
    moments, expected = undisturbed(place, failed)
    assert len(moments) > 20

    def attempt(moment: Moment) -> list[str]:
        killed_at(moment, place, failed)
        return judging.moved(place, process.correct(place), expected, STARTS)

    each(some(moments), attempt)


def test_once_the_correction_is_on_disk_a_resume_alone_goes_by_it(
    place: Scenario, failed: Path, some: Callable[[list[Moment]], list[Moment]]
) -> None:
    """Of the moments before that, the failed job is started as it was."""
    moments, expected = undisturbed(place, failed)

    def attempt(moment: Moment) -> list[str]:
        killed_at(moment, place, failed)
        kept = (Path(place.workdir) / "corrected.json").exists()
        ended = process.resume(place)
        return judging.moved(place, ended, expected, STARTS) if kept else _still_failed(ended)

    each(some(moments), attempt)


def test_a_corrected_run_that_was_killed_can_be_taken_back(
    place: Scenario, failed: Path, some: Callable[[list[Moment]], list[Moment]]
) -> None:
    moments, _ = undisturbed(place, failed)

    def attempt(moment: Moment) -> list[str]:
        killed_at(moment, place, failed)
        return judging.as_before(place, process.rollback(place), STARTS)

    each(some(moments), attempt)


def _still_failed(ended: Outcome) -> list[str]:
    return [] if ended.exit_code == JOB_DOWN else [f"it did not fail again: {ended}"]

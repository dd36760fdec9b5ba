"""A run that was killed at any moment is resumed, or taken back, as if nobody had killed it.

A real `apply` in a real process, a real SIGKILL, files on a real disk, jobs counted by the cluster. A run that nobody
kills tells all its moments; each is then killed at once. Two moments with nothing between them are one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.kill import judging, process
from tests.kill.moments import Moment
from tests.kill.process import Outcome
from tests.kill.scenario import Scenario, Tree, scenario, tree

NOTHING_FOLLOWS = ("after ", "before create", "before write", "before move", "before remove", "before prune",
                   "before find", "before submit", "before stop", "flock")  # fmt: skip
IN_THE_CLUSTER = ("before-it-counts", "before-the-job-starts", "before-the-answer")


@pytest.fixture(scope="module", params=["full", "plain"])
def place(request: pytest.FixtureRequest) -> Iterator[Scenario]:
    with scenario(full=request.param == "full") as found:
        yield found


def moments_of(runs: list[Outcome]) -> list[Moment]:
    """The moments that every run has, in order, without those that differ in nothing from the one before or after."""
    first, *others = (run.seen for run in runs)
    common = set(first).intersection(*others)
    return [moment for moment in first if moment in common and not moment.label.startswith(NOTHING_FOLLOWS)]


def undisturbed(place: Scenario) -> tuple[list[Moment], Tree]:
    runs = []
    for _ in range(2):
        place.restore()
        runs.append(process.apply(place))
        assert runs[-1].report is not None, runs[-1]
    expected = tree(place.root)
    assert judging.moved(place, runs[-1], expected) == []
    return moments_of(runs), expected


def each(moments: list[Moment], attempt: Callable[[Moment], list[str]]) -> None:
    """Every moment is tried, and every failure told."""
    wrong = {str(moment): found for moment in moments if (found := attempt(moment))}
    lines = [f"killed at {moment}: {'; '.join(found)}" for moment, found in wrong.items()]
    assert not lines, f"{len(lines)} of {len(moments)} moments\n" + "\n".join(lines[:40])


def test_a_run_killed_at_any_moment_and_resumed_ends_like_one_that_was_not(place: Scenario) -> None:
    moments, expected = undisturbed(place)
    assert len(moments) > 60

    def attempt(moment: Moment) -> list[str]:
        place.restore()
        killed = process.apply(place, moment)
        assert killed.killed == moment, f"{moment} was not reached: {killed}"
        return judging.moved(place, process.resume(place), expected)

    each(moments, attempt)


def test_a_run_killed_at_any_moment_and_taken_back_leaves_everything_as_it_was(place: Scenario) -> None:
    moments, _ = undisturbed(place)

    def attempt(moment: Moment) -> list[str]:
        place.restore()
        process.apply(place, moment)
        return judging.as_before(place, process.rollback(place))

    each(moments, attempt)


def test_a_rollback_killed_at_any_moment_is_finished_by_resume_or_by_another_rollback(place: Scenario) -> None:
    undisturbed(place)
    moments = moments_of([process.rollback(place)])
    assert len(moments) > 40

    def attempt(moment: Moment) -> list[str]:
        place.restore()
        process.apply(place)
        killed = process.rollback(place, moment)
        assert killed.killed == moment, f"{moment} was not reached: {killed}"
        begun = moments.index(moment) > 0
        again = process.resume if begun and moments.index(moment) % 2 else process.rollback
        ended = again(place)
        if ended.report is not None and ended.report.state == "finished":  # killed before the rollback was written down
            ended = process.rollback(place)
        return judging.as_before(place, ended)

    each(moments, attempt)


@pytest.mark.parametrize("where", IN_THE_CLUSTER)
def test_a_run_killed_while_the_cluster_takes_the_job_submits_it_once(where: str) -> None:
    with scenario(full=True) as place:
        expected = undisturbed(place)[1]
        place.restore()
        assert process.in_process(place, "apply", where).killed
        assert judging.moved(place, process.resume(place), expected) == []


@pytest.mark.parametrize("where", IN_THE_CLUSTER)
def test_a_run_killed_while_the_cluster_takes_the_job_can_be_taken_back(where: str) -> None:
    with scenario(full=True) as place:
        assert process.in_process(place, "apply", where).killed
        assert judging.as_before(place, process.rollback(place)) == []


def test_the_moved_input_keeps_its_times() -> None:
    with scenario(full=True) as place:
        process.apply(place)
        here, there = place.root / "input", place.root / "there-input"
        assert [os.stat(here / n).st_mtime for n in ("f0.json", "f1.json")] == [
            os.stat(there / n).st_mtime for n in ("f0.json", "f1.json")
        ]

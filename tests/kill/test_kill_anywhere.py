"""A run that was killed at any moment is resumed, or taken back, as if nobody had killed it.

A real `apply` in a real process, a real SIGKILL, files on a real disk, jobs counted by the cluster.
A run that nobody kills tells all its moments; each is then killed at once. Two moments with nothing
between them are one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from tests.kill import judging, process
from tests.kill.moments import Moment
from tests.kill.process import Outcome
from tests.kill.scenario import Scenario, Tree, scenario, tree

NOTHING_FOLLOWS = (
    "after ",
    "before create",
    "before write",
    "before move",
    "before remove",
    "before prune",
    "before find",
    "before submit",
    "before stop",
    "before savepoint",
    "before progress",
    "flock",
)
IN_THE_CLUSTER = ("before-it-counts", "before-the-job-starts", "before-the-answer")


@pytest.fixture(scope="module", params=["full", "plain", "warm", "flink"])
def place(request: pytest.FixtureRequest) -> Iterator[Scenario]:
    with scenario(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def some(how: str, seed: int) -> Callable[[list[Moment]], list[Moment]]:
    """Every thirtieth moment, others with another seed; all of them with --full, every fiftieth
    with --quick.
    """
    every = {"full": 1, "default": 30, "quick": 50}[how]
    return lambda moments: moments[seed % every :: every]


def moments_of(run: Outcome) -> list[Moment]:
    """The moments of a run, in order, without those that differ in nothing from the one before or
    after. How often a job that was submitted is asked for is a matter of time.
    """
    assert run.report is not None, run
    kept, submitted = [], False
    for moment in run.seen:
        waiting = submitted and moment.label == "run find"
        if not waiting and not moment.label.startswith(NOTHING_FOLLOWS):
            kept.append(moment)
        submitted = submitted or moment.label == "run submit"
    return kept


def undisturbed(place: Scenario) -> tuple[list[Moment], Tree]:
    place.restore()
    run = process.apply(place)
    expected = tree(place.root)
    assert judging.moved(place, run, expected) == []
    return moments_of(run), expected


def each(moments: list[Moment], attempt: Callable[[Moment], list[str]]) -> None:
    """Every moment is tried, and every failure told, the same ones together."""
    wrong = defaultdict(list)
    for moment in moments:
        if found := attempt(moment):
            wrong["; ".join(found)].append(str(moment))
    told = [
        f"{len(where)} times: {what}\n    killed at {', '.join(where[:8])}"
        for what, where in wrong.items()
    ]
    assert not told, f"of {len(moments)} moments\n" + "\n".join(told)


@pytest.mark.long
@pytest.mark.row("IS-16", "IS-19")
def test_a_run_killed_at_any_moment_and_resumed_ends_like_one_that_was_not(
    place: Scenario, some: Callable[[list[Moment]], list[Moment]]
) -> None:
    moments, expected = undisturbed(place)
    assert len(moments) > (100 if place.flink or not place.events() else 250)

    def attempt(moment: Moment) -> list[str]:
        place.restore()
        killed = process.apply(place, moment)
        assert killed.killed == moment, f"{moment} was not reached: {killed}"
        return judging.moved(place, process.resume(place), expected)

    each(some(moments), attempt)


@pytest.mark.long
def test_a_run_killed_at_any_moment_and_taken_back_leaves_everything_as_it_was(
    place: Scenario, some: Callable[[list[Moment]], list[Moment]]
) -> None:
    moments, _ = undisturbed(place)

    def attempt(moment: Moment) -> list[str]:
        place.restore()
        process.apply(place, moment)
        return judging.as_before(place, process.rollback(place))

    each(some(moments), attempt)


@pytest.mark.long
def test_a_rollback_killed_at_any_moment_is_finished_by_resume_or_by_another_rollback(
    place: Scenario, some: Callable[[list[Moment]], list[Moment]]
) -> None:
    undisturbed(place)
    moments = moments_of(process.rollback(place))
    assert len(moments) > 40

    def attempt(moment: Moment) -> list[str]:
        place.restore()
        process.apply(place)
        killed = process.rollback(place, moment)
        assert killed.killed == moment, f"{moment} was not reached: {killed}"
        ended = process.resume(place) if moments.index(moment) % 2 else process.rollback(place)
        if (
            ended.report is not None and ended.report.state == "finished"
        ):  # killed before the rollback was written down
            ended = process.rollback(place)
        return judging.as_before(place, ended)

    each(some(moments), attempt)


@pytest.mark.long
@pytest.mark.parametrize("where", IN_THE_CLUSTER)
def test_a_run_killed_while_the_cluster_takes_the_job_submits_it_once(where: str) -> None:
    with scenario("full") as place:
        expected = undisturbed(place)[1]
        place.restore()
        assert process.in_process(place, "apply", where).killed
        assert judging.moved(place, process.resume(place), expected) == []


@pytest.mark.parametrize("where", IN_THE_CLUSTER)
def test_a_run_killed_while_the_cluster_takes_the_job_can_be_taken_back(where: str) -> None:
    with scenario("full") as place:
        assert process.in_process(place, "apply", where).killed
        assert judging.as_before(place, process.rollback(place)) == []


def test_the_moved_input_keeps_its_times() -> None:
    with scenario("full") as place:
        process.apply(place)
        for name in ("f0.json", "f1.json"):
            assert (
                os.stat(place.root / "there-input" / name).st_mtime
                == os.stat(place.root / "input" / name).st_mtime
            )
        assert os.stat(place.root / "there" / "aggregate").st_mode & 0o777 == 0o750, (
            "and the state its permissions"
        )

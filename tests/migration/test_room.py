"""Room on the target is asked for once, for the plan that is shown, and nobody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.protocol import Fit, Submission
from stateshift.errors import ClusterError
from stateshift.migration import cluster_facts
from stateshift.specification import Spec
from tests.support.checkpoints import Checkpoint
from tests.support.ground import SOURCE, Ground, running_spec
from tests.support.living import LivingGround, warm_spec


class WithRoom:
    """A cluster in memory that is asked for room, too."""

    def __init__(self, cluster: Any, answer: Callable[[Submission], Fit]) -> None:
        self.cluster, self.answer = cluster, answer
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    def addresses(self) -> frozenset[str]:
        return frozenset({"here"})

    def fitting(self, until: float) -> Callable[[Submission], Fit]:
        assert until - time.monotonic() <= 10
        self.asked.append("listed")

        def fit(submission: Submission) -> Fit:
            self.asked.append(submission.job)
            return self.answer(submission)

        return fit


def with_room(ground: Ground, answer: Callable[[Submission], Fit]) -> WithRoom:
    cluster = WithRoom(ground.cluster, answer)
    ground.wrap_cluster = lambda _: cluster  # type: ignore[assignment]
    return cluster


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_facts, "_ROOM_KINDS", ("command",))


def with_options(spec: Spec, **options: object) -> Spec:
    clusters = [replace(each, options={**each.options, **options}) for each in spec.clusters]
    return replace(spec, clusters=tuple(clusters))


def told(ground: Ground, spec: Spec) -> list[tuple[str, str]]:
    findings = [each for plan in ground.propose(spec).plans for each in plan.findings]
    return [(each.level, each.message) for each in findings if "the room for" in each.message]


def test_a_run_and_its_warm_rounds_ask_nothing_that_its_plan_did_not(tmp_path: Path) -> None:
    ground = LivingGround(tmp_path)
    ground.job.moods = dict.fromkeys(ground.job.moods, 0.0)
    cluster = with_room(ground, lambda _: Fit("no room for 1 executor"))
    spec = warm_spec()
    findings = told(ground, spec)
    assert findings == [
        (
            "note",
            "the room for orders on "
            f"{spec.jobs[0].target_cluster}: no room for 1 executor. What the old job gives back at "
            "its end is not counted",
        )
    ]
    assert cluster.asked == ["listed", "orders"]
    cluster.asked.clear()
    assert ground.warm().state == "finished"
    assert cluster.asked == ["listed", "orders"], (
        "by its plan; neither rounds nor the plan after the halt"
    )


def test_what_has_no_room_on_an_empty_cluster_is_a_warning(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(), SOURCE)
    with_room(ground, lambda _: Fit("too large", is_ever=True, notes=("and more",)))
    (warning, note) = told(ground, running_spec())
    assert (warning[0], note[0]) == ("warn", "note")
    assert warning[1].endswith(": not enough: too large") and note[1].endswith(": and more")


@pytest.mark.parametrize(
    ("error", "fact"),
    [
        (ClusterError("nobody knows"), "not known: nobody knows"),
        (AttributeError("'str' has no get"), "not known: an odd answer (AttributeError"),
        (ZeroDivisionError(), "not known: an odd answer (ZeroDivisionError"),
    ],
)
def test_an_odd_answer_is_a_note(tmp_path: Path, error: Exception, fact: str) -> None:
    def answer(_: Submission) -> Fit:
        raise error

    ground = Ground(tmp_path)
    ground.write(Checkpoint(), SOURCE)
    with_room(ground, answer)
    ((level, message),) = told(ground, running_spec())
    assert level == "note" and fact in message


def test_a_cluster_that_hangs_costs_a_plan_no_more_than_one_request_may_take(
    tmp_path: Path,
) -> None:
    ground, over = Ground(tmp_path), threading.Event()
    ground.write(Checkpoint(), SOURCE)

    def answer(_: Submission) -> Fit:
        over.wait(30)
        return Fit()

    with_room(ground, answer)
    began = time.monotonic()
    try:
        ((level, message),) = told(ground, with_options(running_spec(), request_seconds=0.5))
    finally:
        over.set()
    assert 0.4 < time.monotonic() - began < 5
    assert level == "note" and message.endswith(": not known: no answer within 0.5 s")

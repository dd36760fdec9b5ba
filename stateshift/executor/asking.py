"""Ask whether a plan that was carried out still holds: each step, by the evidence it gave."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stateshift.executor.running import THREADS_MAX, is_worth
from stateshift.journal import PlanProgress
from stateshift.plan import Plan
from stateshift.step import AnyStep, Discrepancy, FenceSource, Fleet, LiftFence
from stateshift.world import World


@dataclass(frozen=True, slots=True)
class Broken:
    """A step whose evidence does not hold any more."""

    plan: int
    step: str
    discrepancy: Discrepancy


def ask(
    plan: Plan,
    progress: PlanProgress,
    world: World,
    kinds: Sequence[str] = (),
    fleet: Fleet | None = None,
) -> list[Broken]:
    """Return the finished steps whose evidence does not hold any more; only of some `kinds` where
    given. A fleet is asked many at once; its answers come in the plan's order.
    """
    steps = [step for step in plan if progress.finished(step.name)]
    if kinds:
        steps = [step for step in steps if step.kind in kinds]
    lifted = {(step.location, step.paths) for step in steps if isinstance(step, LiftFence)}
    fences = [step for step in steps if isinstance(step, FenceSource)]
    down = {step.name for step in fences if (step.location, step.paths) in lifted}
    steps = [step for step in steps if step.name not in down]
    answers = _answers(steps, progress, world, fleet)
    broken: list[Broken] = []
    for step, discrepancies in zip(steps, answers, strict=True):
        broken += [Broken(progress.plan, step.name, each) for each in discrepancies]
    return broken


def _answers(
    steps: Sequence[AnyStep], progress: PlanProgress, world: World, fleet: Fleet | None
) -> list[list[Discrepancy]]:
    """Return the discrepancies of each step, asked by the fleet if it takes any."""
    taken = [] if fleet is None else list(filter(fleet.takes, steps))
    if fleet is None or not is_worth(fleet, taken):
        return [_ask_step(step, progress, world, None) for step in steps]
    fleet.begin("verify", taken, world)
    threads_max = min(THREADS_MAX, max(1, fleet.slots(len(taken))))
    with ThreadPoolExecutor(threads_max) as threads:
        try:
            return list(threads.map(lambda step: _ask_step(step, progress, world, fleet), steps))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _ask_step(
    step: AnyStep, progress: PlanProgress, world: World, fleet: Fleet | None
) -> list[Discrepancy]:
    evidence = progress.steps[step.name].evidence
    assert evidence is not None, "a finished step has shown something"
    if fleet is not None and fleet.takes(step):
        return fleet.holds(step, world, evidence)
    return step.holds(world, evidence)

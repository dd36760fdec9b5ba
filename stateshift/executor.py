"""One loop that carries out plans, and its two sisters: ask whether it still holds, take it back.

The executor skips what the journal holds as finished and repeats the rest; repeating a step is always safe, so there
is no resume code. A step's record is on disk before the step's effect begins, and its evidence before the next phase.
Phases are barriers; inside a phase up to `world.parallel` steps run at once, in an ordered phase one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from stateshift.errors import StateshiftError
from stateshift.formats.marks import FOLDER
from stateshift.journal import (
    Journal,
    PlanFinished,
    PlanProgress,
    PlanUndone,
    StepFinished,
    StepStarted,
    StepUndone,
)
from stateshift.plan import Phase, Plan
from stateshift.step import AnyStep, CopyFiles, Discrepancy, TransformShard, WriteFile
from stateshift.world import World

WRITERS = (CopyFiles, TransformShard, WriteFile)


def execute(number: int, plan: Plan, world: World, journal: Journal) -> None:
    """Carry out plan `number` of the run, from wherever the journal says it stands."""
    for phase in plan.phases:
        done = journal.progress.plans[number]
        pending = [step for step in phase.steps if not done.finished(step.name)]
        if not pending:
            continue
        world.meter.phase(
            plan.job, phase.name, sum(s.files for s in pending), sum(s.bytes for s in pending)
        )
        _run_phase(number, phase, pending, world, journal)
    if journal.progress.plans[number].finished_at is None:
        journal.append(PlanFinished(world.clock.now(), number))


def _run_phase(number: int, phase: Phase, pending: list[AnyStep], world: World, journal: Journal) -> None:
    """Run the steps; after the first failure start no more, let those that run finish, and raise it."""
    at_once = 1 if phase.ordered else max(1, min(world.parallel, len(pending)))
    if at_once == 1:
        for step in pending:
            _run_step(number, phase, step, world, journal)
        return
    queue, running, failure = list(reversed(pending)), set[Future[None]](), None
    with ThreadPoolExecutor(at_once, thread_name_prefix=phase.name) as threads:
        while running or (queue and failure is None):
            while queue and failure is None and len(running) < at_once:
                running.add(threads.submit(_run_step, number, phase, queue.pop(), world, journal))
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                failure = failure or future.exception()
    if failure is not None:
        raise failure


def _run_step(number: int, phase: Phase, step: AnyStep, world: World, journal: Journal) -> None:
    world.check_interrupted()
    journal.append(StepStarted(world.clock.now(), number, phase.name, step.name))
    world.meter.step(step.name, step.describe())
    began = time.perf_counter()
    try:
        evidence = step.run(world)
    except StateshiftError as error:
        error.where.setdefault("step", step.name)
        raise
    seconds = time.perf_counter() - began
    if journal.progress.plans[number].steps[step.name].repeated:
        evidence = {**evidence, "repeated": True}  # what an earlier attempt had done already, it cannot tell
    journal.append(
        StepFinished(world.clock.now(), number, step.name, round(seconds, 6), step.files, step.bytes, evidence)
    )


@dataclass(frozen=True, slots=True)
class Broken:
    """A step whose evidence does not hold any more."""

    plan: int
    step: str
    discrepancy: Discrepancy


def ask(number: int, plan: Plan, progress: PlanProgress, world: World, kinds: Sequence[str] = ()) -> list[Broken]:
    """Whether the evidence of every finished step still holds; only of some `kinds` where given."""
    broken = []
    for step in plan:
        done = progress.steps.get(step.name)
        if done is None or done.state != "finished" or (kinds and step.kind not in kinds):
            continue
        assert done.evidence is not None
        broken += [Broken(number, step.name, found) for found in step.holds(world, done.evidence)]
    return broken


def roll_back(number: int, plan: Plan, world: World, journal: Journal) -> None:
    """Take the plan's effects back, last one first: what was visible last disappears first. What had to be left is
    written down with each."""
    for phase in reversed(plan.phases):
        begun = [s for s in reversed(phase.steps) if s.name in journal.progress.plans[number].steps]
        pending = [s for s in begun if journal.progress.plans[number].steps[s.name].state != "undone"]
        if pending:
            world.meter.phase(plan.job, f"undo {phase.name}", sum(s.files for s in pending), 0)
        for step in pending:
            world.check_interrupted()
            done = journal.progress.plans[number].steps[step.name]
            world.meter.step(step.name, f"undo: {step.describe()}")
            remaining = step.undo(world, done.evidence)
            journal.append(StepUndone(world.clock.now(), number, step.name, tuple(remaining)))
            world.meter.done(step.files, 0)
    if not journal.progress.plans[number].undone:
        left = _swept(plan, journal.progress.plans[number], world, journal.progress.discard)
        journal.append(PlanUndone(world.clock.now(), number, tuple(left)))


def _swept(plan: Plan, done: PlanProgress, world: World, discard: bool) -> list[str]:
    """Empty directories and temporary files of ours go from the places that the plan's steps wrote to; files that
    somebody else wrote there stay, and are named. Only while the lock on them is still ours. With `discard` what is
    left in the target goes, too: it was empty before the run, so that only the job itself can have written it."""
    begun = {step.target for step in plan if isinstance(step, WRITERS) and step.name in done.steps}
    left = []
    for place in sorted(begun - {plan.source}):
        storage = world.storage(place)
        if discard and place == plan.target:
            for file in list(storage.list()):
                storage.remove(file.path)
        storage.prune()
        remaining = sorted(file.path for file in storage.list())
        if remaining:
            left.append(f"{place}: {len(remaining)} files that this run did not write ({remaining[0]} …)")
    if plan.source in begun:
        world.storage(plan.source).prune(FOLDER)
    return left

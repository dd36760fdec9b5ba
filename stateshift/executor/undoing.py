"""A plan's effects are taken back, last one first. Those that cannot be stay, and are named."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from stateshift.formats.marks import FOLDER, is_of_a_job
from stateshift.journal import Journal, PlanProgress, PlanUndone, StepUndone
from stateshift.plan import PHASES, PhaseName, Plan
from stateshift.step import AnyStep, PrepareJob, SetAside, places_filled
from stateshift.world import World

_log = logging.getLogger(__name__)

# The number of files at a place that are named, if a rollback has to leave them there.
LEFT_NAMED_MAX = 3


def roll_back(
    number: int, plan: Plan, world: World, journal: Journal, others: Iterable[tuple[int, Plan]] = ()
) -> None:
    """Take the plan's effects back, last one first: what was visible last disappears first.
    `others` of the run are taken back after it, and report what is left where they wrote.
    """
    roll_back_phases(number, plan, world, journal, PHASES)
    progress = journal.progress.plans[number]
    if progress.undone:
        return
    theirs: set[str] = set()
    for other, made in others:
        theirs |= _written(made, journal.progress.plans[other])
    ours = _written(plan, progress)
    left = _remove_leftovers(plan, ours, ours - theirs, world, journal.progress.discard)
    journal.append(PlanUndone(world.clock.now(), number, tuple(left)))


def roll_back_phases(
    number: int, plan: Plan, world: World, journal: Journal, phases: Sequence[PhaseName]
) -> None:
    """Take back the effects of some phases alone. The plan is then not undone."""
    for phase in reversed(plan.phases):
        if phase.name in phases:
            progress = journal.progress.plans[number]
            pending = [step for step in reversed(phase.steps) if progress.has_effect(step.name)]
            if pending:
                files = sum(step.files for step in pending)
                world.meter.phase(plan.job, f"undo {phase.name}", files, 0)
            for step in pending:
                _undo_step(number, step, world, journal)


def _undo_step(number: int, step: AnyStep, world: World, journal: Journal) -> None:
    world.check_interrupted()
    evidence = journal.progress.plans[number].steps[step.name].evidence
    world.meter.step(step.name, f"undo: {step.describe()}")
    _log.info("step %s is undone: %s", step.name, step.kind)
    remaining = step.undo(world, evidence)
    journal.append(StepUndone(world.clock.now(), number, step.name, tuple(remaining)))
    world.meter.done(step.files, 0)


def _written(plan: Plan, progress: PlanProgress) -> set[str]:
    """Return the places of the steps that were begun; a job that was started early has its own."""
    begun = [step for step in plan if step.name in progress.steps]
    early = {step.location for step in begun if isinstance(step, PrepareJob)}
    return places_filled(begun) | early


def _remove_leftovers(
    plan: Plan, written: Collection[str], swept: Collection[str], world: World, discard: bool
) -> list[str]:
    """Remove empty directories, temporary files of ours and what our jobs have left for us from the
    places that the plan's steps wrote to; files that somebody else wrote there stay, and are named.
    Only while the lock on them is still ours. With `discard` what is left in the target goes, too:
    it was empty before the run, so that only the job itself can have written it. A source loses the
    folder of our own files, if it is empty, and the place of a first deployment goes if only we
    wrote there. A place that holds again what was set aside there is left alone.
    """
    left = []
    restored = {step.location for step in plan if isinstance(step, SetAside)}
    for place in sorted(set(swept) - {plan.source} - restored):
        storage = world.storage(place)
        if place == plan.target:
            for file in list(storage.list()):
                if discard or is_of_a_job(file.path):
                    storage.remove(file.path)
        storage.prune()
        paths = sorted(file.path for file in storage.list())
        if paths:
            left.append(_line_about_left(place, paths))
    if plan.source in written:
        storage = world.storage(plan.source)
        storage.prune(FOLDER)
        if plan.purpose == "start" and not list(storage.list()):
            storage.prune()
    return left


def _line_about_left(place: str, paths: Sequence[str]) -> str:
    """Return a line on the files that stay at a place, and what to do about them."""
    named = ", ".join(paths[:LEFT_NAMED_MAX])
    if len(paths) > LEFT_NAMED_MAX:
        named += ", …"
    count = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    return (
        f"{place}: {count} that this run did not write ({named}): left there; look at what that "
        "is, and remove it before a job is moved there again"
    )

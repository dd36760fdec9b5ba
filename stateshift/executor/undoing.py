"""Take a plan's effects back, last one first. What cannot be taken back stays, and is named."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from stateshift.formats.marks import FOLDER, is_of_a_job
from stateshift.journal import Journal, PlanProgress, PlanUndone, StepUndone
from stateshift.plan import PHASES, Phase, PhaseName, Plan
from stateshift.step import AnyStep, PrepareJob, places_filled
from stateshift.storage.protocol import Storage
from stateshift.world import World

_log = logging.getLogger(__name__)

# So many files that a rollback has to leave at a place are named.
LEFT_NAMED_MAX = 3


def roll_back(
    number: int,
    plan: Plan,
    world: World,
    journal: Journal,
    others: Iterable[tuple[int, Plan]] = (),
) -> None:
    """Take the plan's effects back, last one first: what was visible last disappears first. What
    had to be left is in the journal with each. `others` of the run are taken back after it: what
    lies where they wrote is reported then.
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
            _roll_back_phase(number, plan, phase, world, journal)


def _roll_back_phase(number: int, plan: Plan, phase: Phase, world: World, journal: Journal) -> None:
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
    """Return the places that what was begun of the plan writes to. A job that was started early
    writes to its own, where no step may have copied anything yet.
    """
    begun = [step for step in plan if step.name in progress.steps]
    early = {step.location for step in begun if isinstance(step, PrepareJob)}
    return places_filled(begun) | early


def _remove_leftovers(
    plan: Plan, written: Collection[str], swept: Collection[str], world: World, discard: bool
) -> list[str]:
    """Remove empty directories, temporary files of ours and what our jobs have left for us from the
    places that the plan's steps wrote to; files that somebody else wrote there stay, and are named.
    Only while the lock on them is still ours. With `discard` what is left in the target goes, too:
    it was empty before the run, so that only the job itself can have written it.
    """
    left = []
    for place in sorted(set(swept) - {plan.source}):
        storage = world.storage(place)
        if place == plan.target:
            _remove_of_job(storage, all_of_it=discard)
        storage.prune()
        paths = _paths_in(storage)
        if paths:
            left.append(_left_behind(place, paths))
    if plan.source in written:
        _prune_source(world.storage(plan.source), plan)
    return left


def _prune_source(storage: Storage, plan: Plan) -> None:
    """Remove the folder of our own files from a source, if it is empty; and the place of a first
    deployment, where nothing was written there but by us.
    """
    storage.prune(FOLDER)
    if plan.purpose == "start" and not _paths_in(storage):
        storage.prune()


def _left_behind(place: str, paths: Sequence[str]) -> str:
    """Say which files stay at a place, and what to do about them."""
    named = ", ".join(paths[:LEFT_NAMED_MAX])
    if len(paths) > LEFT_NAMED_MAX:
        named += ", …"
    count = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    return (
        f"{place}: {count} that this run did not write ({named}): left there; look at what that "
        "is, and remove it before a job is moved there again"
    )


def _remove_of_job(storage: Storage, all_of_it: bool) -> None:
    """Remove the files by which a job that ran there and we have told each other something; or
    everything.
    """
    for file in list(storage.list()):
        if all_of_it or is_of_a_job(file.path):
            storage.remove(file.path)


def _paths_in(storage: Storage) -> list[str]:
    return sorted(file.path for file in storage.list())

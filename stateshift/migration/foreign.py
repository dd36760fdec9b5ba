"""What lies at a run's target and was written by somebody else: a commit, an offset log or a file
of the state.

A target is empty when a run begins, so that all that is there is the run's, or somebody's. A job
that goes on from the image writes there as well: where the run itself has started one, nothing is
asked; where its image is a later one and a job could restart from that, a job was started by hand,
and that is said. Everything else does not hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from stateshift.engines.registry import engine
from stateshift.executor import Broken
from stateshift.formats.marks import FOLDER, LOCK_SUFFIX
from stateshift.journal import PlanProgress
from stateshift.plan import Plan
from stateshift.step import Discrepancy, Evidence, SubmitJob, TakeCheckpoint, TakeSavepoint
from stateshift.step.evidence import FilesBrought, FilesKept, FilesMoved, FilesWritten
from stateshift.storage import locations
from stateshift.survey import Image
from stateshift.world import World

# So many files of others are named.
NAMED_MAX = 10

Planned = tuple[PlanProgress, Plan]


@dataclass(frozen=True, slots=True)
class Foreign:
    """The files of others at the targets, and what was not asked of them."""

    broken: tuple[Broken, ...] = ()
    notes: tuple[str, ...] = ()


def foreign_files(planned: Sequence[Planned], world: World) -> Foreign:
    """Look through the targets of the finished plans of a run."""
    written = set(_written(planned))
    broken: list[Broken] = []
    notes: list[str] = []
    for adopted, plan in planned:
        strange = _strange(plan, written, world) if _is_asked(adopted, plan) else set()
        if not strange:
            continue
        _, survey = engine(plan.engine).survey(plan.target, world.storage)
        gone_on = [image for image in survey.images if _has_gone_on(image, strange)]
        own: set[str] = set()
        for image in gone_on:
            own.update(path for path in strange if _is_inside(path, image))
        if own:
            epochs = ", ".join(str(image.epoch) for image in gone_on)
            notes.append(
                f"{adopted.job} has gone on to {epochs} since, started by somebody else: its "
                f"{len(own)} files there were not asked, only what the run wrote"
            )
        broken += _named(adopted.plan, sorted(strange - own))
    return Foreign(tuple(broken), tuple(notes))


def _strange(plan: Plan, written: Collection[str], world: World) -> set[str]:
    """Return the paths at a plan's target that the run has not written."""
    strange = set()
    for info in world.storage(plan.target).list():
        is_written = locations.join(plan.target, info.path) in written
        if not is_written and not _is_beside(info.path):
            strange.add(info.path)
    return strange


def _is_asked(adopted: PlanProgress, plan: Plan) -> bool:
    """Whether nobody but the run had a reason to write at the plan's target: it published there,
    and started no job.
    """
    if adopted.finished_at is None or adopted.undone or plan.target == plan.source:
        return False
    if plan.purpose != "move":
        return False
    if any(isinstance(step, TakeSavepoint | TakeCheckpoint) for step in plan):
        return False  # the engine wrote the image
    return not any(isinstance(step, SubmitJob) and step.name in adopted.steps for step in plan)


def _written(planned: Iterable[Planned]) -> Iterator[str]:
    """Yield the places of all files that the run has written, or kept of what it had."""
    for adopted, plan in planned:
        for step in plan:
            progress = adopted.steps.get(step.name)
            evidence = progress.evidence if progress is not None else None
            if evidence is not None and hasattr(step, "target"):
                for path in _paths_of(evidence):
                    yield locations.join(step.target, path)


def _paths_of(evidence: Evidence) -> list[str]:
    """Return the paths that a step has written, or moved a file to."""
    match evidence:
        case FilesWritten() | FilesBrought() | FilesKept():
            return [file.path for file in evidence.files]
        case FilesMoved():
            return [target for _, target in evidence.moved]
        case _:
            return []


def _is_beside(path: str) -> bool:
    """Whether we leave this file beside an image, or it is hidden: checksums of a file system's,
    leftovers of writers.
    """
    name = path.rpartition("/")[2]
    return path.startswith(f"{FOLDER}/") or name.startswith(".") or name.endswith(LOCK_SUFFIX)


def _has_gone_on(image: Image, strange: set[str]) -> bool:
    """Whether the image that a job would restart from is one that the run has not copied, and
    whole. What makes an image visible is the last of what is read first.
    """
    if image.epoch not in image.epochs or not image.first_read:
        return False
    return image.first_read[-1] in strange


def _is_inside(path: str, image: Image) -> bool:
    return not image.path or path.startswith(f"{image.path}/")


def _named(plan: int, paths: list[str]) -> Iterator[Broken]:
    for path in paths[:NAMED_MAX]:
        fact = "a file that the run did not write"
        yield Broken(plan, "target", Discrepancy(path, "nothing", fact))
    if len(paths) > NAMED_MAX:
        fact = f"{len(paths) - NAMED_MAX} more files that the run did not write"
        yield Broken(plan, "target", Discrepancy("the target", "nothing", fact))

"""The answer of `verify WORKDIR`: whether the evidence of a run still holds, and which files others
have written to its targets.

A target is empty when a run begins, so that all that is there is the run's, or somebody's: a
commit, an offset log or a file of the state. A job that goes on from the image writes there as
well. If the run itself has started one, its files are not asked. If its image is a later one and a
job could restart from that, a job was started by hand, and a note says so. Everything else does not
hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stateshift import executor
from stateshift.engines.registry import engine
from stateshift.executor import Broken
from stateshift.formats.marks import FOLDER, LOCK_SUFFIX
from stateshift.journal import PlanProgress, Progress
from stateshift.migration.adapters import Adapters, world_of
from stateshift.migration.calls import progress_of
from stateshift.migration.proposal import proposal_of
from stateshift.plan import Plan
from stateshift.purpose import WHILE_IT_RUNS
from stateshift.step import Discrepancy, SubmitJob, TakeCheckpoint, TakeSavepoint
from stateshift.step.evidence import FilesBrought, FilesKept, FilesMoved, FilesWritten
from stateshift.storage import locations
from stateshift.survey import Image
from stateshift.workdir import Workdir
from stateshift.world import World

FOREIGN_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """The steps whose evidence does not hold, notes, and the epoch of each job's image."""

    broken: tuple[Broken, ...]
    notes: tuple[str, ...]
    epochs: Mapping[str, int | None] = field(default_factory=dict)
    finished: bool = False


def verify(workdir: Workdir, adapters: Adapters) -> Verdict:
    """Ask every step of a run whether its evidence still holds. Once the job has gone on from the
    image, its files are the job's to change: then only what guards the source and the job itself is
    asked. The move, which keeps what rounds have copied, is asked for it.
    """
    workdir.require()
    # Never a Journal: opening one would cut the line that a live run is writing.
    progress = progress_of(workdir)
    world = world_of(proposal_of(workdir).spec, progress.run, workdir, adapters)
    broken: list[Broken] = []
    epochs: dict[str, int | None] = {}
    notes = list(_notes_of_run(progress))
    planned: list[tuple[PlanProgress, Plan]] = []
    for adopted in progress.known:
        if adopted.purpose in WHILE_IT_RUNS:
            # A later round may have replaced it, or the move removed it: that answers for what it
            # has kept.
            continue
        plan = workdir.read_plan(adopted.plan, adopted.fingerprint)
        planned.append((adopted, plan))
        kinds: tuple[str, ...] = ()
        confirms = [step for step in adopted.steps.values() if step.phase == "confirm"]
        if any(step.state == "finished" for step in confirms):
            notes.append(
                f"{adopted.job} has gone on from its image since: the image's files were not "
                "asked, nor those that the job wrote there since; the source's fence and the job "
                "were"
            )
            kinds = ("FenceSource", "SubmitJob")
        broken += executor.ask(plan, adopted, world, kinds, adapters.fleet)
        if plan.purpose == "move" and not adopted.undone:
            epochs[adopted.job] = plan.epoch
    written = set(_files_written(planned))
    for adopted, plan in planned:
        if _has_target_to_itself(adopted, plan):
            # We leave files of our own beside an image, and file systems and writers hidden ones:
            # checksums and leftovers.
            files = set()
            for info in world.storage(plan.target).list():
                name = info.path.rpartition("/")[2]
                is_ours = info.path.startswith(f"{FOLDER}/") or name.endswith(LOCK_SUFFIX)
                if is_ours or name.startswith("."):
                    continue
                if locations.join(plan.target, info.path) not in written:
                    files.add(info.path)
            broken += _ask_foreign(adopted, plan, files, world, notes)
    return Verdict(tuple(broken), tuple(notes), epochs, progress.state == "finished")


def _notes_of_run(progress: Progress) -> Iterator[str]:
    """Yield notes of steps that could not be asked, since the run has not come so far."""
    if progress.state != "finished":
        yield (
            f"the run is {progress.state}: only what it has done so far, and not taken back, "
            "was asked"
        )
    moved, followed = set(), set()
    for adopted in progress.plans:
        if adopted.purpose == "move":
            moved.add(adopted.job)
        elif adopted.purpose in WHILE_IT_RUNS and not adopted.undone:
            followed.add(adopted.job)
    for job in sorted(followed - moved):
        yield f"{job} is followed while it runs: what has been copied of it was not asked"


# ------------------------------------------------------------------------------ files of others


def _has_target_to_itself(adopted: PlanProgress, plan: Plan) -> bool:
    """Whether only the run had a reason to write at the plan's target, which it published."""
    if adopted.finished_at is None or adopted.undone or plan.target == plan.source:
        return False
    if plan.purpose != "move":
        return False
    if any(isinstance(step, TakeSavepoint | TakeCheckpoint) for step in plan):
        return False  # the engine wrote the image
    return not any(isinstance(step, SubmitJob) and step.name in adopted.steps for step in plan)


def _files_written(planned: Sequence[tuple[PlanProgress, Plan]]) -> Iterator[str]:
    """Yield the locations of all files that the run has written, or kept of what it had."""
    for adopted, plan in planned:
        for step in plan:
            progress = adopted.steps.get(step.name)
            if progress is None or not hasattr(step, "target"):
                continue
            match progress.evidence:
                case FilesWritten() | FilesBrought() | FilesKept():
                    paths = [file.path for file in progress.evidence.files]
                case FilesMoved():
                    paths = [target for _, target in progress.evidence.moved]
                case _:
                    continue
            for path in paths:
                yield locations.join(step.target, path)


def _ask_foreign(
    adopted: PlanProgress, plan: Plan, foreign: set[str], world: World, notes: list[str]
) -> Iterator[Broken]:
    """Yield the files of others at a target; but of a job that was started by hand, add a note."""
    if not foreign:
        return
    _, survey = engine(plan.engine).survey(plan.target, world.storage)
    later = [image for image in survey.images if _has_gone_on(image, foreign)]
    own: set[str] = set()
    for image in later:
        folder = f"{image.path}/" if image.path else ""
        own.update(path for path in foreign if path.startswith(folder))
    if own:
        epochs = ", ".join(str(image.epoch) for image in later)
        notes.append(
            f"{adopted.job} has gone on to {epochs} since, started by somebody else: its "
            f"{len(own)} files there were not asked, only what the run wrote"
        )
    paths = sorted(foreign - own)
    for path in paths[:FOREIGN_NAMED_MAX]:
        fact = "a file that the run did not write"
        yield Broken(adopted.plan, "target", Discrepancy(path, "nothing", fact))
    if len(paths) > FOREIGN_NAMED_MAX:
        fact = f"{len(paths) - FOREIGN_NAMED_MAX} more files that the run did not write"
        yield Broken(adopted.plan, "target", Discrepancy("the target", "nothing", fact))


def _has_gone_on(image: Image, foreign: set[str]) -> bool:
    """Whether a restart takes another image: the last of `first_read` makes it visible."""
    if image.epoch not in image.epochs or not image.first_read:
        return False
    return image.first_read[-1] in foreign

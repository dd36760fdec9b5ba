"""A run deletes its copy only where the source still has the image.

The copy at a target is taken for the last one unless the source holds, now,

    an image       of the same query, as far as both name theirs
    as new         at the epoch that was copied, or a later one
    that is whole  nothing is missing, and what changed since it was copied is read to its end

A target that no job could be started from is no image yet: there the first of the three is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from shlex import quote

from stateshift.errors import ClusterError, FormatError, LastCopyError, StorageError
from stateshift.formats.marks import FOLDER
from stateshift.journal import PlanProgress
from stateshift.migration.context import RunContext
from stateshift.migration.gathering import LOOKS, other_images, source_now
from stateshift.migration.observation import as_it_runs
from stateshift.migration.source_check import damage_in
from stateshift.migration.standby_source import BY_HAND
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.specification.transform import Repair
from stateshift.step import BringFiles, CopyFiles, TransformShard
from stateshift.storage import locations
from stateshift.storage.locations import local_path
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo, Image, Survey
from stateshift.terms import terms_of

ROUND_SECONDS = 2.0  # in which a round publishes its image


@dataclass(frozen=True, slots=True)
class Copy:
    """A job's copy at a target: its newest plan, the files `read`, those still `unchanged`."""

    job: JobSpec
    plan: Plan
    read: frozenset[tuple[str, int, float]]
    unchanged: frozenset[str] = frozenset()

    def unchanged_in(self, sources: Iterable[Survey]) -> frozenset[str]:
        """Return the paths of files that are as they were when they were read."""
        paths: set[str] = set()
        for survey in sources:
            for file in survey.files:
                if (file.path, file.size, file.modified) in self.read:
                    paths.add(file.path)
        return frozenset(paths)


def refuse_last_copy(context: RunContext, plans: Iterable[PlanProgress]) -> None:
    """Refuse to take plans back whose target may hold the last copy: before all else."""
    for copy in _copies(context, plans):
        fault = _fault(context, copy)
        # A standby that is rehearsed is fed meanwhile: no round leaves a fault.
        looks_left = LOOKS if copy.job.rehearses else 0
        while fault is not None and looks_left > 0:
            context.adapters.clock.sleep(ROUND_SECONDS)
            fault = _fault(context, copy)
            looks_left -= 1
        if fault is not None:
            raise LastCopyError(
                f"{copy.job.name}: what is at {copy.plan.target} may be the last copy: {fault}. "
                "Nothing was deleted",
                hint="bring the source back; or look what the copy is worth: stateshift verify "
                f"{quote(local_path(copy.plan.target) or copy.plan.target)}; {BY_HAND}",
            )


def _copies(context: RunContext, plans: Iterable[PlanProgress]) -> Iterator[Copy]:
    """Yield a copy for each target that plans have written to."""
    made: dict[tuple[str, str], Copy] = {}
    kept: set[tuple[str, str]] = set()
    for adopted in plans:
        job = context.spec.job(adopted.job)
        if job is None or not adopted.steps:
            continue
        plan = context.plans.read(adopted)
        if plan.target == plan.source or plan.purpose not in ("warm", "standby", "move"):
            continue
        place = (job.name, plan.target)
        read: set[tuple[str, int, float]] = set()
        for step in plan:
            items: Sequence[FileInfo] = ()
            if isinstance(step, BringFiles | CopyFiles) and step.source == plan.source:
                items = step.items
            elif isinstance(step, TransformShard) and step.source == plan.source:
                items = step.inputs
            read.update((item.path, item.size, item.modified) for item in items)
        if place in made:
            # A plan that is undone has read files all the same: they were copied as they are.
            read |= made[place].read
        made[place] = Copy(job, plan, frozenset(read))
        if not adopted.undone:
            kept.add(place)
    yield from (copy for place, copy in made.items() if place in kept)


def _fault(context: RunContext, copy: Copy) -> str | None:
    """Return the reason for which the copy may be the last one; None where it is not."""
    at_target = _survey(context, copy.plan.target)
    if all(file.path.startswith(f"{FOLDER}/") for file in at_target.files):
        return None
    kept = [image for image in at_target.images if image.epoch is not None]
    try:
        return next(_faults(context, copy, kept), None)
    except (StorageError, FormatError, ClusterError) as error:
        return f"its source cannot be read now ({error.fact})"


def _survey(context: RunContext, location: str) -> Survey:
    return context.engine.survey(location, context.world.storage)[1]


def _faults(context: RunContext, copy: Copy, kept: Sequence[Image]) -> Iterator[str]:
    storage, source = _source(context, copy)
    if not source.images:
        yield f"nothing is at {source.location} that a job could be started from"
    job = copy.job
    further = [_survey(context, at) for at in (*job.merge_locations, *other_images(job))]
    names = {image.path for image in source.images}
    for survey in further:
        # A directory that joins the source may have done so (Algorithm 5).
        joins = survey.location in job.merge_locations
        is_moved_in = joins and locations.name(survey.location) in names
        if not survey.images and not is_moved_in:
            yield f"nothing is at {survey.location} any more"
    for data in job.data:
        if data.copy and _is_empty(context, data.source) and not _is_empty(context, data.target):
            yield f"nothing is at {data.source} any more"
    copy = replace(copy, unchanged=copy.unchanged_in([source, *further]))
    for image in kept:
        yield from _faults_of(context, copy, image, [source, *further])
    if kept:
        yield from _damages(context, copy, storage, source)


def _source(context: RunContext, copy: Copy) -> tuple[Storage, Survey]:
    """Survey the source of the copy; of a job that writes image after image, the last one."""
    repairs = [change for change in copy.job.transform if isinstance(change, Repair)]
    found = context.engine.survey(copy.plan.source, context.world.storage, changes=repairs)
    job = as_it_runs(context, copy.job)
    if found[1].images or not job.image_writers or copy.job.mode != "warm":
        return found
    return source_now(context.inquiry_at_pace, job)


def _is_empty(context: RunContext, location: str) -> bool:
    return next(iter(context.world.storage(location).list()), None) is None


def _faults_of(
    context: RunContext, copy: Copy, kept: Image, sources: Sequence[Survey]
) -> Iterator[str]:
    """Yield the faults of the sources as the origin of this image of the target."""
    terms, place = terms_of(context.spec.engine), sources[0].location
    images = list(chain.from_iterable(survey.images for survey in sources))
    same = [
        image for image in images if context.engine.is_copy(kept, image, copy.job, copy.plan.target)
    ]
    if not same:
        yield f"{place} holds another job's image"
        return
    if copy.job.transform:
        return  # which may number its batches anew, or go back
    gone = context.engine.lacks(same, kept)
    if gone is not None:
        yield f"{place} has {gone} no longer"
    wanted = kept.epoch if copy.plan.epoch is None or len(images) > 1 else copy.plan.epoch
    if copy.job.rehearses:
        wanted = copy.plan.epoch  # what the job has done with it since is worth nothing
    newest = max((image.epoch for image in same if image.epoch is not None), default=None)
    for image in same:
        if image.epoch is None:
            continue
        # In a workflow, only this is known of a job that has gone on from the copy.
        is_unchanged = copy.unchanged.issuperset(image.first_read)
        if image.epoch >= (wanted or 0) or is_unchanged:
            return
    at = f"has {terms.none_in}" if newest is None else f"is at {terms.at} {newest}"
    yield f"{place} {at}, and {terms.at} {wanted} was copied"


def _damages(context: RunContext, copy: Copy, storage: Storage, source: Survey) -> Iterator[str]:
    """Yield missing files of the source, then damage; unchanged files were read before."""
    for damage in source.damages:
        yield damage.message
    if copy.job.verify_source != "deep":
        return
    inquiry = context.inquiry_at_pace
    for finding in damage_in(inquiry, copy.job, storage, source, copy.unchanged):
        yield finding.message

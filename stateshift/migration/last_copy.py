"""What a run has copied is deleted only where the source still has it.

    refuse_last_copy    every way back of a run asks this before it touches anything

The copy at a target is taken for the last one unless the source holds, now,

    an image       of the same query, as far as both name theirs
    as new         at the epoch that was copied, or a later one
    that is whole  nothing is missing, and what changed since it was copied is read to its end

A target that no job could be started from is no image yet: there the first of the three is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from stateshift.errors import ClusterError, FormatError, LastCopyError, StorageError
from stateshift.formats.marks import FOLDER
from stateshift.journal import PlanProgress
from stateshift.migration.context import RunContext
from stateshift.migration.gathering import Inquiry, other_images, source_now
from stateshift.migration.observation import as_it_runs
from stateshift.migration.source_check import damage_in
from stateshift.migration.standby_source import BY_HAND
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.step import BringFiles, CopyFiles, TransformShard
from stateshift.storage import locations
from stateshift.storage.locations import local_path
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo, Image, Survey
from stateshift.terms import terms_of


@dataclass(frozen=True, slots=True)
class Copy:
    """What a run has made of a job at a target: its newest plan, and all files that it read, of
    which some are `unchanged`.
    """

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
    """Refuse to take plans back whose target may hold the last copy, unless the run was told to
    delete that.
    """
    for copy in _copies(context, plans):
        fault = _fault(context, copy)
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
        # A plan that is undone has read files all the same: they were copied as they are.
        before = made.get(place)
        read = frozenset(_files_read(plan)) | (before.read if before else frozenset())
        made[place] = Copy(job, plan, read)
        if not adopted.undone:
            kept.add(place)
    yield from (copy for place, copy in made.items() if place in kept)


def _files_read(plan: Plan) -> Iterator[tuple[str, int, float]]:
    """Yield path, size and time of the source's files that a plan reads."""
    for step in plan:
        items: Sequence[FileInfo] = ()
        if isinstance(step, BringFiles | CopyFiles) and step.source == plan.source:
            items = step.items
        elif isinstance(step, TransformShard) and step.source == plan.source:
            items = step.inputs
        for item in items:
            yield item.path, item.size, item.modified


def _fault(context: RunContext, copy: Copy) -> str | None:
    """Return why the copy may be the last one; None where it is not."""
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
    further = [_survey(context, place) for place in _further(copy.job)]
    for survey in further:
        if not survey.images and not _is_moved_in(survey.location, source, copy.job):
            yield f"nothing is at {survey.location} any more"
    for data in copy.job.data:
        if data.copy and _is_empty(context, data.source) and not _is_empty(context, data.target):
            yield f"nothing is at {data.source} any more"
    copy = replace(copy, unchanged=copy.unchanged_in([source, *further]))
    for image in kept:
        yield from _faults_of(context, copy, image, [source, *further])
    if kept:
        yield from _damages(context, copy, storage, source)


def _source(context: RunContext, copy: Copy) -> tuple[Storage, Survey]:
    """Survey where the copy came from; for a job that writes one image after the other, where its
    last one is.
    """
    found = context.engine.survey(copy.plan.source, context.world.storage)
    job = as_it_runs(context, copy.job)
    if found[1].images or not job.image_writers or copy.job.mode != "warm":
        return found
    adapters = replace(context.adapters, open_storage=context.world.storage)
    return source_now(Inquiry(context.spec, adapters, context.workdir), job)


def _further(job: JobSpec) -> tuple[str, ...]:
    return (*job.merge_locations, *other_images(job))


def _is_moved_in(location: str, source: Survey, job: JobSpec) -> bool:
    """Whether a directory that joins the source has done so (Algorithm 5)."""
    if location not in job.merge_locations:
        return False
    return any(image.path == locations.name(location) for image in source.images)


def _is_empty(context: RunContext, location: str) -> bool:
    return next(iter(context.world.storage(location).list()), None) is None


def _faults_of(
    context: RunContext, copy: Copy, kept: Image, sources: Sequence[Survey]
) -> Iterator[str]:
    """Yield what speaks against it that a source has this image of the target."""
    terms, place = terms_of(context.spec.engine), sources[0].location
    images = [image for survey in sources for image in survey.images]
    same = [
        image for image in images if context.engine.is_copy(kept, image, copy.job, copy.plan.target)
    ]
    if not same:
        yield f"{place} holds another job's image"
        return
    if copy.job.transform:
        return  # which may number its batches anew, or go back
    gone = [context.engine.lacks(image, kept) for image in same]
    if None not in gone:
        yield f"{place} has {gone[0]} no longer"
    wanted = kept.epoch if copy.plan.epoch is None or len(images) > 1 else copy.plan.epoch
    if not any(_is_as_new(image, wanted or 0, copy) for image in same):
        newest = max((image.epoch for image in same if image.epoch is not None), default=None)
        at = f"has {terms.none_in}" if newest is None else f"is at {terms.at} {newest}"
        yield f"{place} {at}, and {terms.at} {wanted} was copied"


def _is_as_new(image: Image, epoch: int, copy: Copy) -> bool:
    """Whether a source's image is at an epoch or past it, or still the one that was copied: in a
    workflow, only that is known of a job that has gone on from the copy.
    """
    if image.epoch is None:
        return False
    return image.epoch >= epoch or set(image.first_read) <= copy.unchanged


def _damages(context: RunContext, copy: Copy, storage: Storage, source: Survey) -> Iterator[str]:
    """Yield what is missing at the source, and then what is damaged of it. What is as it was when
    it was copied was read then.
    """
    for damage in source.damages:
        yield damage.message
    if copy.job.verify_source != "deep":
        return
    adapters = replace(context.adapters, open_storage=context.world.storage)
    inquiry = Inquiry(context.spec, adapters, context.workdir)
    for finding in damage_in(inquiry, copy.job, storage, source, copy.unchanged):
        yield finding.message

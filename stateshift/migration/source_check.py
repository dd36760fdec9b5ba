"""The deep look: the source of a move is read to its end while the job still runs.

A survey goes by names, sizes and a few heads. Damage inside a file would come to light only in a
copy or a comparison, with the job down. Here every byte that a restart needs is read before
anything is stopped, locked or fenced. A fork stops nothing: the files that its steps check while
they rewrite them are not read here, too.

A job that runs writes on and tidies up meanwhile. Damage in a committed epoch stays: it counts only
if every one of a few looks finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from stateshift.engines.protocol import Engine
from stateshift.engines.views import DeepCheck, ImageAt
from stateshift.errors import MissingFile, PlanError, StateshiftError
from stateshift.migration.gathering import (
    Inquiry,
    image_of_epoch,
    other_images,
    sink_of,
    source_now,
)
from stateshift.specification import JobSpec
from stateshift.specification.transform import Drop, Repair, find_change
from stateshift.step.claims import state_at
from stateshift.storage.protocol import Storage
from stateshift.storage.wrappers import Rearranged
from stateshift.survey import Facts, Finding, Image, Survey
from stateshift.terms import terms_of

if TYPE_CHECKING:
    from stateshift.engines.views import Readers

LOOKS_WHILE_IT_RUNS = 3
SECONDS_BETWEEN = 0.5
# Files that a standby's round has read, and nobody wrote to, are known for so long, by the rounds
# after it and by whoever starts the job.
LATELY_SECONDS = 3600.0
CLOCKS_SECONDS = 1.0  # by which the clocks of a storage and of who writes there may differ

Look = Callable[[], tuple[Storage, Survey]]


def damages(inquiry: Inquiry, job: JobSpec, checked: Collection[str] = ()) -> tuple[Finding, ...]:
    """Return the refusals of `verify --deep` for the job's images that a plan does not see. The
    entries of the source's files that others have `checked`, or will, are not read.
    """
    if not inquiry.spec.restart:
        return ()
    open_storage = inquiry.adapters.open_storage
    looks: list[Look] = [partial(source_now, inquiry, job)]
    for location in (*job.merge_locations, *other_images(job)):
        looks.append(partial(inquiry.engine.survey, location, open_storage))
    findings: list[Finding] = []
    for number, look in enumerate(looks):
        others = checked if number == 0 else ()
        moved = partial(_look_at_moved, inquiry.engine, job, number, others, look)
        findings += _lasting_damage(inquiry, moved, job)
    return tuple(findings)


def _look_at_moved(
    kind: Engine, job: JobSpec, number: int, checked: Collection[str], look: Look
) -> tuple[Storage, Survey]:
    """Return a survey without the operators that the spec leaves behind, and without shards whose
    entries are checked elsewhere: their damage is no reason to refuse the rest.
    """
    storage, survey = look()
    images: list[Image] = []
    for image in survey.images:
        moved = kind.taken_along(job, number, image)
        images.append(without_known(moved, checked))
    return storage, replace(survey, images=tuple(images))


def without_known(image: Image, known: Collection[str]) -> Image:
    """Return an image of which these files are not read again, and no shard of such alone. Stores
    of one shard, as of a join, are compared with each other: all of them stay, or none.
    """
    new = set[tuple[str, int]]()
    for shard in image.shards:
        if not set(shard.files).issubset(known):
            new.add((shard.operator, shard.shard))
    left = [shard for shard in image.shards if (shard.operator, shard.shard) in new]
    read_before = tuple(path for path in image.needed if path in known)
    return replace(image, shards=tuple(left), read_before=read_before)


def damage_in(
    inquiry: Inquiry, job: JobSpec, storage: Storage, survey: Survey, checked: Collection[str]
) -> list[Finding]:
    """Return the damage in a surveyed image, beside the files that others have `checked`."""
    look = partial(_look_at_moved, inquiry.engine, job, 0, checked, lambda: (storage, survey))
    return _damage_now(inquiry, look, job)


def refuse_damaged(
    inquiry: Inquiry, jobs: Iterable[JobSpec], checked: Mapping[str, Collection[str]]
) -> None:
    """Refuse an image that no job could restart from: nothing is stopped for it. `checked` are the
    files that a job's steps check, by its name. A source that jobs divide among them is read for
    the first, but operators that only another one takes along, or does not check by itself.
    """
    seen: set[tuple[object, ...]] = set()
    for job in jobs:
        checked_files = checked.get(job.name, ())
        images = (job.source, *job.merge_locations, *other_images(job))
        operators = tuple(operator.name for operator in job.operators)
        drops = tuple(change for change in job.transform if isinstance(change, Drop))
        part = ((images, operators, drops), frozenset(checked_files))
        if job.verify_source != "deep" or part in seen:
            continue
        seen.add(part)
        inquiry.adapters.meter.say(f"{job.name}: looking at the source")
        findings = damages(inquiry, job, checked_files)
        if not findings:
            continue
        first = findings[0]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        if job.takes_over is not None:
            raise PlanError(
                f"{job.name} cannot be started from its standby: {first.message}{more}",
                hint=way_out_of_damage(inquiry, job),
            )
        hint = "`stateshift verify --deep` tells of all of it and what a job could restart from"
        skip = 'to move it as it is: "verify": {"source": "names"}'
        raise PlanError(
            f"{job.name} cannot restart from its source: {first.message}{more}",
            hint=f"{first.hint or hint}; {skip}",
        )


def files_read_lately(inquiry: Inquiry, job: JobSpec) -> frozenset[str]:
    """Return the files of a standby's epochs that a round has read to their end, before it has
    published them, and that nobody has written to since: whoever starts the job does not wait for
    them once more.
    """
    if job.takes_over is None:
        return frozenset()
    open_storage, found = inquiry.adapters.open_storage, set[str]()
    storage = open_storage(job.source)
    state = state_at(storage)
    modified = {file.path: file.modified for file in storage.list()}
    for kept in () if state is None else state.kept:
        age = inquiry.adapters.clock.now() - kept.at
        if not kept.checked or not -CLOCKS_SECONDS <= age <= LATELY_SECONDS:
            continue
        image = image_of_epoch(inquiry.engine, job.source, open_storage, kept.epoch)
        for path in () if image is None else image.needed_files:
            if 0 < modified.get(path, 0.0) <= kept.at + CLOCKS_SECONDS:  # 0: not known
                found.add(path)
    return frozenset(found)


def way_out_of_damage(inquiry: Inquiry, job: JobSpec) -> str:
    """Return the command that starts a job from another epoch of its standby that was read to its
    end, and is whole; or what to do without one.
    """
    deep = f"stateshift verify {job.source} --deep   # tells of all of it"
    assert job.takes_over is not None, "a job that is started from its standby"
    state = state_at(inquiry.adapters.open_storage(job.source))
    kept_epochs = () if state is None else state.kept
    for kept in kept_epochs:
        if kept.epoch == job.takes_over.epoch:
            continue
        earlier = replace(job, takes_over=replace(job.takes_over, epoch=kept.epoch))
        with suppress(StateshiftError):
            if not damages(inquiry, earlier):
                at = f"{terms_of(inquiry.spec.engine).at} {kept.epoch}"
                if len(inquiry.spec.jobs) > 1:
                    again = f"--epoch {job.source}={kept.epoch}"
                    return f"the same command with {again}   # {at} is whole"
                return f"stateshift failover {job.source} --epoch {kept.epoch}   # {at} is whole"
    return deep


def _lasting_damage(inquiry: Inquiry, look: Look, job: JobSpec) -> list[Finding]:
    """Return the damage that is there at each of a few looks."""
    if not job.may_run:
        return _damage_now(inquiry, look, job)
    lasting: list[Finding] | None = None
    for number in range(LOOKS_WHILE_IT_RUNS):
        if number > 0:
            inquiry.adapters.clock.sleep(SECONDS_BETWEEN)
        # The job may tidy up while we read: a file that is needed is missed by the next survey.
        with suppress(MissingFile):
            now = _damage_now(inquiry, look, job)
            if lasting is not None:
                now = [finding for finding in lasting if finding in now]
            lasting = now
            if not lasting:
                return []
    return lasting or []


def _damage_now(inquiry: Inquiry, look: Look, job: JobSpec) -> list[Finding]:
    storage, survey = look()
    findings: list[Finding] = []
    for image in survey.images:
        findings += _damage_in(inquiry, job, storage, survey, image)
    return findings


def _damage_in(
    inquiry: Inquiry, job: JobSpec, storage: Storage, survey: Survey, image: Image
) -> list[Finding]:
    """Return the refusals that only the bytes give rise to."""
    if image.epoch is None:
        return []
    newest = replace(image, epochs=())  # which of the earlier ones would do is not asked here
    at = ImageAt(storage, survey, newest, image.path or survey.location)
    by_names = inquiry.engine.judge(at, None, None).findings
    deep = DeepCheck(history=False)  # which finds nothing that keeps a job from restarting
    fleet = inquiry.adapters.fleet
    repair = find_change(job.transform, Repair)
    # Other processes look for the files of the image at its location.
    is_all_there = repair is None or not (repair.take or repair.rebuild)
    is_shared = hasattr(fleet, "deep") and is_all_there
    readers = cast("Readers", fleet) if is_shared else None
    to_the_end = inquiry.engine.judge(at, deep, readers).findings
    found = [*to_the_end, *_damage_in_planned_state(inquiry, job, survey, image, to_the_end)]
    refusals = [finding for finding in found if finding.level == "refuse"]
    return [finding for finding in refusals if finding not in by_names]


def damage_of_copy(
    inquiry: Inquiry, job: JobSpec, facts: Facts, known: Collection[str]
) -> Finding | None:
    """Return the first reason for which a job could not be started from what rounds have copied,
    once it is published. Copies are read where they are, but the `known` ones; logs and metadata
    that are still to be published, at the source. `facts` are those of the copy.
    """
    engine = inquiry.engine
    open_storage = inquiry.adapters.open_storage
    places: dict[str, tuple[Storage, str]] = {}
    for (location, path), held in facts.brought.items():
        if location == facts.source.location:
            places[path] = (open_storage(held.target), held.name)
    storage = Rearranged(open_storage(facts.source.location), places)
    for image in facts.source.images:
        if image.epoch is None:
            continue
        moved = replace(without_known(engine.taken_along(job, 0, image), known), epochs=())
        at = ImageAt(storage, facts.source, moved, image.path or facts.source.location)
        by_names = engine.judge(at, None, None).findings
        for finding in engine.judge(at, DeepCheck(history=False), None).findings:
            if finding.level == "refuse" and finding not in by_names:
                return finding
    return None


def _damage_in_planned_state(
    inquiry: Inquiry, job: JobSpec, survey: Survey, image: Image, findings: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield refusals of a planned batch's state that nobody writes again: the sink has it."""
    planned = image.planned_state
    if planned is None or image.planned is None or job.planned_batch != "keep":
        return
    warnings = [finding for finding in findings if finding.level == "warn"]
    wrong = [finding for finding in warnings if finding.path in planned.files]
    sink = sink_of(inquiry, job, survey) if wrong else None
    if sink is None or not sink.skips(image.identity, image.planned):
        return
    if not job.moves and "" not in sink.logs:
        return  # a fork has an id of its own
    for finding in wrong:
        yield replace(
            finding,
            level="refuse",
            message=f"{finding.message}. The sink ({sink.kind}) has the batch",
            hint=f"restore that file from a copy of the checkpoint; or restore the sink to batch "
            f'{image.epoch}, and go on in a fork ("mode": "fork")',
        )

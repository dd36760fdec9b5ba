"""The deep look: what a move is made from is read to its end while the job still runs.

A survey goes by names, sizes and a few heads. Damage inside a file would come to light only in a
copy or a comparison, with the job down. Here every byte that a restart needs is read before
anything is stopped, locked or fenced.

A job that runs writes on and tidies up meanwhile. What is damaged in a committed epoch stays
damaged: only what every one of a few looks finds counts, and what vanishes between two of them does
not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from stateshift.engines.protocol import Engine
from stateshift.engines.registry import engine
from stateshift.engines.views import ImageAt
from stateshift.errors import MissingFile, PlanError
from stateshift.migration.doors import Doors
from stateshift.migration.proposing import other_images, source_now
from stateshift.specification import JobSpec, Spec
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, Survey
from stateshift.workdir import Workdir

if TYPE_CHECKING:
    from stateshift.engines.views import Readers

LOOKS_WHILE_IT_RUNS = 3
SECONDS_BETWEEN = 0.5

Look = Callable[[], tuple[Storage, Survey]]


def damages(spec: Spec, job: JobSpec, doors: Doors, workdir: Workdir) -> tuple[Finding, ...]:
    """What `verify --deep` would refuse of the job's images and a plan does not see."""
    if not spec.restart:
        return ()
    kind = engine(spec.engine)
    looks: list[Look] = [partial(source_now, spec, kind, job, doors, workdir)]
    looks += [partial(kind.survey, at, doors.open_storage) for at in job.merge_locations]
    looks += [partial(kind.survey, at, doors.open_storage) for at in other_images(job)]
    found: list[Finding] = []
    for number, look in enumerate(looks):
        found += _lasting(kind, partial(_without_what_stays, kind, job, number, look), job, doors)
    return tuple(found)


def _without_what_stays(
    kind: Engine, job: JobSpec, number: int, look: Look
) -> tuple[Storage, Survey]:
    """Damage in an operator that the spec leaves behind goes nowhere: it is no reason to refuse
    the rest.
    """
    storage, survey = look()
    images = tuple(kind.taken_along(job, number, image) for image in survey.images)
    return storage, replace(survey, images=images)


def refuse_damaged(spec: Spec, jobs: Iterable[JobSpec], doors: Doors, workdir: Workdir) -> None:
    """Nothing is stopped for an image that no job could restart from."""
    for job in _each_source_once(jobs):
        doors.meter.say(f"{job.name}: looking at the source")
        found = damages(spec, job, doors, workdir)
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            way_out = (
                "`stateshift verify --deep` tells of all of it and what a job could restart from"
            )
            skip = 'to move it as it is: "verify": {"source": "names"}'
            raise PlanError(
                f"{job.name} cannot restart from its source: {found[0].message}{more}",
                hint=f"{found[0].hint or way_out}; {skip}",
            )


def _each_source_once(jobs: Iterable[JobSpec]) -> Iterator[JobSpec]:
    """Those whose source is to be looked into. What jobs divide among them is read for the first,
    but operators that only another one takes along.
    """
    seen: set[tuple[object, ...]] = set()
    for job in jobs:
        images = (job.source, *job.merge_locations, *other_images(job))
        drops = json.dumps(
            [change for change in job.transform if change["kind"] == "drop"], sort_keys=True
        )
        own = (images, tuple(operator.name for operator in job.operators), drops)
        if job.verify_source == "deep" and own not in seen:
            seen.add(own)
            yield job


def _lasting(kind: Engine, look: Look, job: JobSpec, doors: Doors) -> list[Finding]:
    may_run = job.source_cluster is not None or not job.moves
    if not may_run:
        return _seen(kind, look, doors)
    found: list[Finding] | None = None
    for again in range(LOOKS_WHILE_IT_RUNS):
        if again:
            doors.clock.sleep(SECONDS_BETWEEN)
        try:
            now = _seen(kind, look, doors)
        except MissingFile:
            # the job has tidied up while we read: a file that is needed is missed by the next
            # survey
            continue
        found = now if found is None else [finding for finding in found if finding in now]
        if not found:
            return []
    return found or []


def _seen(kind: Engine, look: Look, doors: Doors) -> list[Finding]:
    storage, survey = look()
    return [
        finding
        for image in survey.images
        for finding in _inside(kind, storage, survey, image, doors)
    ]


def _inside(
    kind: Engine, storage: Storage, survey: Survey, image: Image, doors: Doors
) -> list[Finding]:
    """Refusals that only the bytes give rise to."""
    if image.epoch is None:
        return []
    newest = replace(image, epochs=())  # which of the earlier ones would do is not asked here
    where = image.path or survey.location
    fleet = cast("Readers | None", doors.fleet if hasattr(doors.fleet, "deep") else None)
    at = ImageAt(storage, survey, newest, where)
    by_names = kind.judge(at, False, None).findings
    to_the_end = kind.judge(at, True, fleet).findings
    deeper = (finding for finding in to_the_end if finding not in by_names)
    return [finding for finding in deeper if finding.level == "refuse"]

"""The locks on the targets of a run: taken before anything is written there, and let go."""

from __future__ import annotations

from contextlib import suppress

from stateshift import lock
from stateshift.errors import StateshiftError
from stateshift.journal import LockReleased, LockTaken
from stateshift.migration.context import RunContext
from stateshift.migration.history import plans_while_running
from stateshift.specification import JobSpec
from stateshift.specification.grammars import NEVER
from stateshift.storage import locations
from stateshift.storage.protocol import Storage


def lock_target(context: RunContext, job: JobSpec) -> None:
    """Lock the target of a job, and refuse a source that another run has locked."""
    location, run = job.destination, context.world.run
    if location not in context.progress.locks:
        context.record(LockTaken(context.now(), location))
    workdir = str(context.workdir.path.absolute())
    above = _above(context, location)
    lock.take(above, locations.name(location), run, workdir, context.adapters.host)
    if job.source != location and not is_kept_fresh(context, job):
        lock.refuse_source(_above(context, job.source), locations.name(job.source), run)


def is_kept_fresh(context: RunContext, job: JobSpec) -> bool:
    """Whether a job is a standby that has copied something: its source may be lost since."""
    is_begun = bool(plans_while_running(context.progress, job.name))
    return job.cutover == NEVER and job.mode == "warm" and is_begun


def release_target(context: RunContext, job: JobSpec) -> None:
    """Release the lock on the target of a job, if this run has taken it; record that it did."""
    location = job.destination
    if location in context.progress.locks:
        lock.release(_above(context, location), locations.name(location), context.world.run)
        context.record(LockReleased(context.now(), location))


def release_untouched(context: RunContext) -> None:
    """Release each target on which nothing was begun, or where everything was taken back. An error
    of that is suppressed: the failure that ended the run counts, and a resume finds its own lock.
    """
    touched: set[str] = set()
    for plan in context.progress.plans:
        if any(step.state != "undone" for step in plan.steps.values()):
            touched.add(plan.job)
    for name in context.progress.jobs:
        if name not in touched:
            with suppress(StateshiftError):
                release_target(context, context.job(name))


def _above(context: RunContext, location: str) -> Storage:
    """Open the folder in which the lock on a location lies."""
    return context.adapters.open_storage(locations.parent(location))

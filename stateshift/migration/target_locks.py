"""The locks on the targets of a run: taken before anything is written there, and let go."""

from __future__ import annotations

from contextlib import suppress

from stateshift import lock
from stateshift.errors import MissingFile, StateshiftError
from stateshift.formats.standby import DRILLS, STATE, Claim
from stateshift.journal import LockReleased, LockTaken
from stateshift.migration.context import RunContext
from stateshift.migration.history import plans_while_running
from stateshift.specification import JobSpec
from stateshift.specification.standby import places_fed
from stateshift.step import ClaimTarget
from stateshift.step.claims import claim, give_back, newest_claim, takeover_error
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.world import Claimed


def lock_target(context: RunContext, job: JobSpec) -> None:
    """Lock the target of a job, and refuse a source that another run has locked."""
    location, run = job.destination, context.world.run
    if job.is_standby:
        _claim_standby(context, job)
    if location not in context.progress.locks:
        context.record(LockTaken(context.now(), location))
    workdir = str(context.workdir.path.absolute())
    above = _above(context, location)
    if job.takes_over is not None:
        # Before it is planned: what is confirmed later must not be an epoch of who feeds it.
        claimed = ClaimTarget(
            "prepare/claim", location, job.takes_over.generation, context.adapters.host, workdir
        )
        claimed.run(context.world)
        lock.release(above, locations.name(location), job.takes_over.fed_by)
    lock.take(above, locations.name(location), run, workdir, context.adapters.host)
    if job.rehearses:
        return  # whoever feeds the standby goes on, and whoever starts it in earnest is not kept
    if job.source != location and not is_kept_fresh(context, job):
        lock.refuse_source(_above(context, job.source), locations.name(job.source), run)


def is_kept_fresh(context: RunContext, job: JobSpec) -> bool:
    """Whether a job is a standby that has copied something: its source may be lost since."""
    return job.is_standby and bool(plans_while_running(context.progress, job.name))


def _claim_standby(context: RunContext, job: JobSpec) -> None:
    """Claim the target of a standby, and guard it: whoever takes it over is written over by nobody.

    Raises:
        OtherRunError: another run has claimed it.
    """
    location = job.destination
    storage = context.adapters.open_storage(location)
    found = newest_claim(storage)
    if found is None:
        at, workdir = context.now(), str(context.workdir.path.absolute())
        wanted = Claim(1, "standby", context.world.run, context.adapters.host, workdir, at)
        found = claim(storage, wanted)
    if found.run != context.world.run:
        raise takeover_error(location, found)
    claimed = Claimed(location, found.generation)
    context.world.claims.update(dict.fromkeys(places_fed(job), claimed))


def _forget_standby(context: RunContext, job: JobSpec) -> None:
    """Remove what made the target a standby of this run: it is a moved job now, or nothing."""
    storage = context.world.storage(job.destination)
    found = newest_claim(storage)
    if found is not None and found.run == context.world.run:
        storage.remove(STATE)
        with suppress(MissingFile):
            storage.remove(DRILLS)
        give_back(storage, found.generation, context.world.run)


def release_target(context: RunContext, job: JobSpec) -> None:
    """Release the lock on the target of a job, if this run has taken it; record that it did."""
    location = job.destination
    if location in context.progress.locks:
        if job.is_standby:
            _forget_standby(context, job)
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
                give_claim_back(context, context.job(name))
                release_target(context, context.job(name))


def give_claim_back(context: RunContext, job: JobSpec) -> None:
    """Let who feeds a standby go on, where it was not taken over in the end."""
    if job.takes_over is not None:
        storage = context.world.storage(job.destination)
        give_back(storage, job.takes_over.generation, context.world.run)


def _above(context: RunContext, location: str) -> Storage:
    """Open the folder in which the lock on a location lies."""
    return context.adapters.open_storage(locations.parent(location))

"""The locks on the targets of a run: taken before anything is written there, and let go; and what
is in the way there, which is set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from stateshift import lock
from stateshift.errors import MissingFile, StateshiftError
from stateshift.formats.standby import DRILLS, STATE, Claim, Verb, claim_path, encode_claim
from stateshift.journal import LockReleased, LockTaken
from stateshift.migration.context import RunContext
from stateshift.migration.history import plans_while_running
from stateshift.migration.observation import facts_of
from stateshift.migration.proposal import refuse
from stateshift.migration.rollback_checks import asides_of
from stateshift.migration.take_over import aside_plan
from stateshift.specification import JobSpec
from stateshift.specification.standby import places_fed
from stateshift.step import ClaimTarget
from stateshift.step.claims import claim, give_back, newest_claim, state_at, takeover_error
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.world import Claimed


def lock_target(context: RunContext, job: JobSpec) -> None:
    """Lock the target of a job, and refuse a source that another run has locked."""
    location, run = job.destination, context.world.run
    if job.is_standby:
        _claim_standby(context, job)
    if job.takes_back is not None:
        # One run takes the job home.
        wanted = _claim_of(context, job.takes_back.generation, "failback")
        claim(context.world.storage(job.source), wanted)
    if location not in context.progress.locks:
        context.record(LockTaken(context.now(), location))
    spare(context, job)
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


def claim_standbys(context: RunContext, jobs: Sequence[JobSpec]) -> None:
    """Claim the standbys of all jobs that start from one, before anything else is done to any. The
    run that fails here gives back those that it has claimed (`release_untouched`).

    Raises:
        OtherRunError: another run has claimed one of them.
    """
    for job in jobs:
        if job.takes_over is not None:
            wanted = _claim_of(context, job.takes_over.generation, "failover")
            claim(context.world.storage(job.destination), wanted)


def set_aside(context: RunContext, job: JobSpec) -> None:
    """Set aside what is at the target of a job, unless this run has done so."""
    if not job.set_aside:
        return
    adopted = context.plans.adopted(job, "aside")
    if adopted is None:
        inquiry = context.inquiry_at_pace
        plan = aside_plan(inquiry, job, facts_of(context, job, "round"), context.world.run)
        refuse([plan])
        adopted = context.plans.adopt(plan)
        spare(context, job)
    context.execute([adopted])


def spare(context: RunContext, job: JobSpec) -> None:
    """See to it that no file of the old image is lost from now on."""
    context.world.spared.pop(job.destination, None)
    for step in asides_of(context, job.name):
        context.world.spared[job.destination] = step.spared


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
    if found is None or found.verb == "returned":
        generation = 1 if found is None else found.generation + 1
        found = claim(storage, _claim_of(context, generation, "standby"))
    if found.run != context.world.run:
        raise takeover_error(location, found)
    claimed = Claimed(location, found.generation)
    context.world.claims.update(dict.fromkeys(places_fed(job), claimed))


def still_fed(context: RunContext, jobs: Sequence[JobSpec]) -> list[JobSpec]:
    """Return the jobs without standbys that were taken over since this run has fed them. If nothing
    else is left, they stay, and are refused.
    """
    left = []
    for job in jobs:
        taken_over = None
        if job.is_standby and job.destination in context.progress.locks:
            found = newest_claim(context.adapters.open_storage(job.destination))
            if found is not None and found.verb in ("failover", "failback"):
                taken_over = takeover_error(job.destination, found)
        if taken_over is None:
            left.append(job)
        elif len(jobs) > 1:
            context.say(f"{job.name} is followed no longer: {taken_over.fact}")
    return left or list(jobs)


def _claim_of(context: RunContext, generation: int, verb: Verb) -> Claim:
    workdir = str(context.workdir.path.absolute())
    run, host = context.world.run, context.adapters.host
    return Claim(generation, verb, run, host, workdir, context.now())


def tell_returned(context: RunContext, job: JobSpec) -> None:
    """Write down at the standby that the job has gone home: a standby may be kept there again."""
    if job.takes_back is None:
        return
    storage = context.world.storage(job.source)
    found = newest_claim(storage)
    if found is not None and found.run == context.world.run:
        content = encode_claim(replace(found, verb="returned"))
        storage.write(claim_path(found.generation), lambda: iter((content,)))
        storage.sync()


def release_target(context: RunContext, job: JobSpec) -> None:
    """Release the lock on the target of a job, if this run has taken it; record that it did."""
    location = job.destination
    if location in context.progress.locks:
        if job.is_standby:
            # Remove what made the target a standby of this run: it is a moved job now, or nothing.
            storage = context.world.storage(job.destination)
            found = newest_claim(storage)
            if found is not None and found.run == context.world.run:
                state = state_at(storage)
                if state is not None and state.run == context.world.run:
                    storage.remove(STATE)
                with suppress(MissingFile):
                    storage.remove(DRILLS)
                give_back(storage, found.generation, context.world.run)
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
    if job.takes_back is not None:
        storage = context.world.storage(job.source)
        give_back(storage, job.takes_back.generation, context.world.run)


def _above(context: RunContext, location: str) -> Storage:
    """Open the folder in which the lock on a location lies."""
    return context.adapters.open_storage(locations.parent(location))

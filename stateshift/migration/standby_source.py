"""The source of a standby, which never gives its copy up for something worse.

A source may vanish, answer nothing, be emptied, be damaged, hold another query or an older batch.
None of that ends a standby: the copy may be the last one. It stays as it is until the source is
back, and is the same query at the same batch or a later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from stateshift.engines.protocol import Engine
from stateshift.errors import ClusterError, FormatError, StalePlan, StorageError
from stateshift.migration.context import RunContext
from stateshift.migration.gathering import LOOKS, SECONDS_BETWEEN_LOOKS
from stateshift.migration.history import plans_while_running
from stateshift.migration.observation import facts_of, stale
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Image, Survey
from stateshift.terms import terms_of

BY_HAND = 'stateshift/migration/README.md, "A standby whose source is lost"'
NAMED_MAX = 3


def follow(
    context: RunContext, job: JobSpec, proposed: Plan | None, before: Facts | None
) -> Facts | str:
    """Return the facts now; or the reason why the source cannot be followed. The cluster's word of
    `before` counts where it gives no answer.

    Raises:
        StalePlan: somebody else writes at the target; or it is another job than the one that was
            planned, and nothing of that is kept yet.
    """
    reason, identity = "", context.engine.identity
    for _ in range(LOOKS):
        try:
            facts = _facts_now(context, job, before)
        except (StorageError, FormatError, ClusterError) as error:
            if is_at(error, context.world.storage(job.destination).location):
                raise
            return error.fact
        else:
            if facts.target.kind != "empty":
                named = ", ".join(file.path for file in facts.target.files[:NAMED_MAX])
                raise StalePlan(
                    f"others write to {job.destination} ({named}): a job may have gone on there. "
                    "Nothing was written over",
                    hint=f"this standby is over, and its copy is that job's now: {BY_HAND}",
                )
            is_new = not facts.shown and not facts.brought and bool(facts.source.images)
            if is_new and proposed is not None and proposed.facts != identity(facts):
                raise stale(job, facts.source, taken_back=False)
            reason = fault_of(context.engine, job, facts) or ""
            if not reason:
                return facts
        if job.name in context.progress.lost:
            break
        context.adapters.clock.sleep(SECONDS_BETWEEN_LOOKS)
    return reason


def is_at(error: Exception, location: str) -> bool:
    """Whether an error is of this location."""
    place = getattr(error, "location", None) or ""
    return f"{place}/".startswith(f"{location.rstrip('/')}/")


def way_without(job: JobSpec) -> str:
    """Return the way to start the copy of a standby whose source is lost."""
    if job.submit is None or job.target_cluster is None:
        return f"to start the copy without its source, by hand: {BY_HAND}"
    return (
        f"stateshift failover {quote(job.destination)}   # starts the copy without its source; "
        "with --primary-is-down where that cannot be asked"
    )


def _facts_now(context: RunContext, job: JobSpec, before: Facts | None) -> Facts:
    try:
        return facts_of(context, job, "round")
    except ClusterError:
        nothing = Survey(job.source, None, "empty", ())
        return facts_of(context, job, "round", before or Facts(nothing, nothing))


def fault_of(engine: Engine, job: JobSpec, facts: Facts) -> str | None:
    """Return the reason why the source does not continue the copy; None where it does."""
    return next(_faults(engine, job, facts), None)


def _faults(engine: Engine, job: JobSpec, facts: Facts) -> Iterator[str]:
    source = facts.source
    kept = [image for image in facts.shown if image.epoch is not None]
    at_source = {image.path: image for image in source.images}
    if not at_source:
        if kept or not job.image_writers:
            yield f"nothing is at {source.location} that a job could be started from"
        return
    for image in kept:
        # A job that writes one image after the other gives each a place of its own.
        now = source.images[0] if job.image_writers else at_source.get(image.path)
        fault = _fault_of_image(engine, image, now, source)
        if fault is not None:
            yield fault
    for damage in source.damages:
        yield damage.message


def _fault_of_image(engine: Engine, kept: Image, now: Image | None, source: Survey) -> str | None:
    terms, place = terms_of(source.engine or ""), source.location
    if now is None:
        return f"{kept.path or 'the job'} is no longer at {place}"
    if None not in (kept.identity, now.identity) and kept.identity != now.identity:
        return f"{place} holds the image of another job than was copied ({now.identity})"
    if now.epoch is None:
        return f"{place} has {terms.none_in}, and {terms.at} {kept.epoch} was copied"
    if now.epoch < (kept.epoch or 0):
        copied = f"{terms.at} {kept.epoch} that was copied"
        return f"{place} is at {terms.at} {now.epoch}, older than {copied}"
    gone = engine.lacks((now,), kept)
    return f"{place} has {gone} no longer" if gone is not None else None


def kept_epoch(context: RunContext, job: JobSpec) -> int | None:
    """Return the epoch of the image that a standby has; None for a workflow, or without one."""
    for adopted in reversed(plans_while_running(context.progress, job.name)):
        if adopted.purpose == "standby" and adopted.finished_at is not None:
            plan = context.plans.read(adopted)
            return plan.epoch if plan.phase("publish") is not None else None
    return None

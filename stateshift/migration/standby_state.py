"""The state file of a standby at its target: a machine there needs nothing else to start it.

It is written after each image, and outside of plans: a run that is killed in between leaves the
file of the image before, which tells less than there is.
"""

from __future__ import annotations

from stateshift.formats.standby import STATE, KeptImage, StandbyState, encode_state
from stateshift.journal import ImageKept
from stateshift.migration.context import RunContext
from stateshift.specification import JobSpec, to_plain_spec
from stateshift.specification.standby import spec_at_target
from stateshift.step.claims import refuse_another
from stateshift.survey import Facts


def tell_standby(context: RunContext, job: JobSpec, facts: Facts) -> None:
    """Write down, here and at the target, which image of a standby was published."""
    images = tuple(
        KeptImage(image.path, image.epoch, image.identity) for image in facts.source.images
    )
    epochs = {image.epoch for image in images}
    epoch = epochs.pop() if len(epochs) == 1 else None
    committed_at = commit_time(facts)
    state = StandbyState(
        job=job.name,
        engine=context.spec.engine,
        location=job.destination,
        source=facts.source.location,
        epoch=epoch,
        images=images,
        committed_at=committed_at,
        at=context.now(),
        run=context.world.run,
        spec=to_plain_spec(spec_at_target(context.spec, job, context.world.run)),
    )
    content = encode_state(state)
    storage = context.world.storage(job.destination)
    storage.write(STATE, lambda: iter((content,)))
    storage.sync()
    context.record(ImageKept(context.now(), job.name, epoch, committed_at))


def commit_time(facts: Facts) -> float | None:
    """Return the time of the newest file by which a job finds its image at the source."""
    wanted: set[str] = set()
    for image in facts.source.images:
        wanted.update(image.first_read)
    times = [file.modified for file in facts.source.files if file.path in wanted]
    return max(times, default=None)


def refuse_taken_over(context: RunContext, job: JobSpec) -> None:
    """Refuse to feed a standby that was taken over."""
    claimed = context.world.claims.get(job.destination)
    if claimed is not None:
        refuse_another(context.adapters.open_storage(claimed.location), claimed.generation)

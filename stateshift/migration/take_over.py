"""The plans of a job that is started from its standby: the engine's, behind a claim and a fence.
And those of a job that goes where another image is.

A location is claimed before anything else, whoever feeds it; then the primary is kept from going
on; then the engine's own steps start the job where its image is. A primary that gives no answer
cannot be kept from going on, and refuses the plan: a person has to say that it is down.

A job that goes home, or a standby that is kept again where the job was, finds an image in its way:

    stays   what the new image needs by the same path, in the same size. Rounds compare it, and copy
            what differs
    fence   keeps the old job from going on: it is lifted once the new image can be seen
    goes    everything else, to _stateshift/aside-RUN: also what only the old image has
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from stateshift.clusters.protocol import JobState, StopRequest
from stateshift.engines.bundles import bundle_items, copies
from stateshift.errors import StateshiftError
from stateshift.formats.marks import ASIDE, fence_owner, fence_sizes
from stateshift.formats.standby import SUPERSEDED, StandbyState
from stateshift.migration.gathering import Inquiry, renames_back
from stateshift.migration.source_check import way_out_of_damage
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec
from stateshift.specification.model import TakeOver
from stateshift.step import (
    AnyStep,
    ClaimTarget,
    CopyFiles,
    CopyInOrder,
    FencePrimary,
    KeepBrought,
    MoveFiles,
    Rename,
    SetAside,
    TransformShard,
    WriteFile,
)
from stateshift.step.claims import state_at
from stateshift.step.take_over import Successor
from stateshift.storage.protocol import Storage
from stateshift.survey import Facts, FileInfo, Finding
from stateshift.terms import terms_of

STOP_SECONDS_MAX = 60.0  # for the primary's job; a fence keeps it from going on, too


@dataclass(frozen=True, slots=True)
class Primary:
    """The primary as far as it answers: the state of its job, its newest epoch, and whether files
    can keep its next commit from it. `silence` is why it could not be asked.
    """

    state: JobState = JobState.UNKNOWN
    newest: int | None = None
    may_be_fenced: bool = False
    silence: tuple[str, ...] = ()


def plan_job(inquiry: Inquiry, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    """Return the plans of a job by these facts."""
    plans = inquiry.engine.plan(inquiry.spec, job, facts)
    if job.set_aside:
        # A claim is written at a source that is left: it is planned again after that.
        identity = inquiry.engine.identity(facts)
        moved = replace(plans[-1], provisional=True, facts=identity)
        moved = with_old_files_gone(moved, facts)
        asides = () if facts.stopped else (aside_plan(inquiry, job, facts, "RUN"),)
        return (*asides, *plans[:-1], moved)
    if job.takes_back is not None and not facts.stopped:
        findings = (*plans[-1].findings, *_of_job_at_target(inquiry, job, is_fenced=False))
        return (*plans[:-1], replace(plans[-1], findings=findings))
    if job.takes_over is None and not job.rehearses:
        return plans
    plan = plans[-1]
    if job.takes_over is not None:
        plan = _with_take_over(inquiry, job, plan, facts)
    # Whoever feeds the standby may publish another epoch until it is claimed, and planned again.
    identity = inquiry.engine.identity(facts)
    return (*plans[:-1], replace(plan, provisional=True, facts=identity))


def _with_take_over(inquiry: Inquiry, job: JobSpec, plan: Plan, facts: Facts) -> Plan:
    take_over = job.takes_over
    assert take_over is not None, "a job of a standby"
    state = state_at(inquiry.adapters.open_storage(job.source))
    workdir = str(inquiry.workdir.path.absolute())
    successor = Successor(
        inquiry.spec.engine, job.source, plan.epoch, inquiry.adapters.host, workdir
    )
    fence = fence_step(job, successor)
    primary = _primary(inquiry, fence) if fence is not None else Primary()
    damage = next((finding for finding in plan.findings if finding.is_damage), None)
    own = _findings(inquiry, job, take_over, primary, state)
    if damage is not None:
        fact = f"{job.name} cannot be started from its standby: {damage.message}"
        own = chain([Finding("refuse", fact, hint=way_out_of_damage(inquiry, job))], own)
        plan = replace(plan, findings=tuple(each for each in plan.findings if each is not damage))
    findings = (*own, *plan.findings)
    claimed = ClaimTarget(
        "prepare/claim",
        job.source,
        take_over.generation,
        successor.host,
        workdir,
        epoch=plan.epoch,
        newest=primary.newest,
        records_unread=facts.records_unread,
    )
    if state is not None:
        committed_at, published_at = _times_of(state, plan.epoch)
        claimed = replace(claimed, committed_at=committed_at, published_at=published_at)
    fences = () if fence is None else (fence,)
    back: tuple[AnyStep, ...] = ()
    if take_over.epoch is not None:
        back = tuple(_steps_back(inquiry, job, take_over.epoch))
    # Sources may read on at the brokers of the standby; an undo puts the old offsets back.
    opening, image = inquiry.adapters.open_storage, facts.source
    files = inquiry.engine.repositioned_files(image, facts.positions, opening)
    for path, (before, after) in sorted(files.items()):
        name = f"transform/{path}"
        back = (*back, WriteFile.of(name, image.location, path, after, before.decode()))
    first = phases_of(Phase("prepare", (claimed,)), Phase("halt", fences))
    first += phases_of(Phase("transform", back, ordered=True))
    phases = (*first, *plan.phases) if plan.phases else ()
    return replace(plan, phases=phases, findings=findings)


def _steps_back(inquiry: Inquiry, job: JobSpec, epoch: int) -> Iterator[MoveFiles]:
    """Yield the renames by which an epoch becomes the newest one, in their order.

    Raises:
        PlanError: as `survey_taken_over`.
    """
    opening = inquiry.adapters.open_storage
    storage = opening(job.source)
    sizes = {file.path: file.size for file in storage.list()}
    names = renames_back(inquiry.engine, job, opening, epoch)
    renames = [Rename(path, new, sizes[path]) for path, new in names.items()]
    for number, bundle in enumerate(bundle_items(renames)):
        yield MoveFiles(f"transform/back-{number}", storage.location, tuple(bundle))


def _times_of(state: StandbyState, epoch: int | None) -> tuple[float | None, float]:
    """Return the times at which the primary had committed the epoch that the job is started from,
    and at which its round was published.
    """
    for kept in (*state.kept, *state.coming):
        if kept.epoch == epoch:
            return kept.written_at, kept.at
    return state.committed_at, state.at


def fence_step(job: JobSpec, successor: Successor) -> FencePrimary | None:
    """Return the step that keeps the primary from going on; None where nobody is to ask it."""
    take_over = job.takes_over
    if take_over is None or take_over.primary is None:
        return None
    options = dict(job.stop)
    tag, seconds = options.pop("tag", None), options.pop("seconds_max", None)
    return FencePrimary(
        name="halt/primary",
        job=job.name,
        location=take_over.primary,
        cluster=take_over.cluster,
        tag=tag,
        seconds_max=STOP_SECONDS_MAX if seconds is None else float(seconds),
        options=options,
        successor=successor,
    )


def _primary(inquiry: Inquiry, fence: FencePrimary) -> Primary:
    """Ask the primary's storage and its cluster, each as far as it answers."""
    primary, silence = Primary(), []
    try:
        storage, survey = inquiry.engine.survey(fence.location, inquiry.adapters.open_storage)
        is_fenced_by_files = bool(inquiry.engine.fence_paths(storage))
        may_be_fenced = is_fenced_by_files and storage.writable() is not False
        primary = Primary(newest=survey.epoch, may_be_fenced=may_be_fenced)
    except StateshiftError as error:
        silence.append(f"{fence.location}: {error.fact}")
    if fence.cluster is not None:
        try:
            status = inquiry.open_cluster(fence.cluster).find_source(fence.request)
            primary = replace(primary, state=status.state)
        except StateshiftError as error:
            silence.append(f"{fence.cluster}: {error.fact}")
    return replace(primary, silence=tuple(silence))


def _findings(
    inquiry: Inquiry,
    job: JobSpec,
    take_over: TakeOver,
    primary: Primary,
    state: StandbyState | None,
) -> Iterator[Finding]:
    terms = terms_of(inquiry.spec.engine)
    starting = [other.source for other in inquiry.spec.jobs]
    for writer in () if state is None else state.reads_from:
        if writer.location not in starting:
            yield Finding(
                "warn",
                f"{job.name} reads what {writer.job} writes, whose standby is not started with it",
                hint="both at one cut, if both regions are lost: stateshift failover "
                f"{writer.location} {job.source}",
            )
    if take_over.primary is None:
        yield Finding(
            "warn",
            f"the primary of {job.name} is not fenced: you say that it is down. If it wakes up, "
            "both jobs write to the same sink",
            hint=f"once it answers: stateshift failover {job.source}   # again: fences it",
        )
        return
    if not (primary.may_be_fenced or primary.state is not JobState.UNKNOWN):
        why = "; ".join(primary.silence) or "its files do not keep a job from going on"
        yield Finding(
            "refuse",
            f"the primary of {job.name} cannot be kept from going on: {why}",
            hint="make sure that its job does not run and cannot come back; then again with "
            "--primary-is-down",
        )
    if primary.state.alive:
        newest = "" if primary.newest is None else f", at {terms.at} {primary.newest}"
        yield Finding(
            "warn",
            f"{job.name} runs on {take_over.cluster}{newest}: it is stopped, and what it has "
            f"{terms.done} since the standby's {terms.one} is lost",
            hint="a move loses nothing: stateshift cutover WORKDIR --now, in the standby's workdir",
        )


# ---- what is at a target is set aside


def aside_plan(inquiry: Inquiry, job: JobSpec, facts: Facts, run: str) -> Plan:
    """Return the plan that sets aside what is in the way."""
    storage = inquiry.adapters.open_storage(facts.target.location)
    fenced_by = next((image.fence for image in facts.shown if image.fence is not None), None)
    fence = () if fenced_by is None else _fence_at(storage, facts.in_the_way, fenced_by)
    wanted = copies(job, facts, facts.source.images, frozenset()).groups[0].files
    sizes = {file.path: file.size for file in wanted}
    stays, goes = [], []
    for file in sorted(facts.in_the_way):
        if file.path in fence:
            continue
        if sizes.get(file.path) == file.size:
            stays.append(file.path)
        else:
            goes.append(Rename(file.path, f"{ASIDE}{run}/{file.path}", file.size))
    step = SetAside(
        name="copy/aside",
        location=facts.target.location,
        folder=f"{ASIDE}{run}",
        items=tuple(goes),
        stays=tuple(stays),
        fence=fence,
        fenced_by=fenced_by,
    )
    return Plan(
        job=job.name,
        engine=inquiry.spec.engine,
        purpose="aside",
        source=facts.source.location,
        target=facts.target.location,
        epoch=None,
        phases=phases_of(Phase("copy", (step,))),
        findings=tuple(_findings_of_aside(inquiry, job, facts, step)),
        facts=inquiry.engine.identity(facts),
    )


def _fence_at(storage: Storage, files: Iterable[FileInfo], owner: str) -> tuple[str, ...]:
    """Return the files of a run's fence, and the note beside it."""
    sizes = fence_sizes(owner)
    fence = []
    for file in files:
        is_fence = file.size in sizes and fence_owner(storage.read(file.path)) == owner
        if is_fence or file.path == SUPERSEDED:
            fence.append(file.path)
    return tuple(sorted(fence))


def with_old_files_gone(plan: Plan, facts: Facts) -> Plan:
    """Return a plan that publishes an image, and takes away what is left of the old one: what no
    round has copied, before it can be seen, and the old fence, after.
    """
    written: set[str] = set()
    for step in plan:
        match step:
            case CopyFiles() | CopyInOrder():
                written.update(name for _, name in step.named)
            case TransformShard():
                written.update(step.outputs)
            case WriteFile():
                written.add(step.path)
    unproven = tuple(sorted(set(facts.old.unproven) - written))
    fence = tuple(sorted(set(facts.old.fence) - written))
    if plan.phase("publish") is None or not (unproven or fence):
        return plan
    phases = list(plan.phases)
    if unproven:
        first = KeepBrought("prepare/old", plan.target, (), unproven)
        phases.insert(0, Phase("prepare", (first,)))
    if fence:
        last = KeepBrought("publish/old-fence", plan.target, (), fence)
        for number, phase in enumerate(phases):
            if phase.name == "publish":
                phases[number] = replace(phase, steps=(*phase.steps, last))
    return replace(plan, phases=phases_of(*phases))


def _findings_of_aside(
    inquiry: Inquiry, job: JobSpec, facts: Facts, step: SetAside
) -> Iterator[Finding]:
    place = facts.target.location
    if facts.in_the_way:
        held = f"{len(step.items)} files at {place} are set aside, to {step.folder}"
        if step.stays:
            held += f"; {len(step.stays)} stay, as far as the new image has the same content there"
        yield Finding(
            "note",
            held,
            hint=f"they are kept until you remove {place}/{step.folder}",
        )
    terms = terms_of(inquiry.spec.engine)
    newest = max((image.epoch for image in facts.shown if image.epoch is not None), default=None)
    begun_at = None if job.takes_back is None else job.takes_back.epoch
    if newest is not None and begun_at is not None and newest > begun_at:
        yield Finding(
            "warn",
            f"{place} is at {terms.at} {newest}, and the failover went on from {begun_at}: what "
            f"was {terms.done} there alone is in {step.folder} afterwards, and nowhere else",
        )
    is_fenced = bool(step.fence or facts.old.fence)
    yield from _of_job_at_target(inquiry, job, is_fenced)


def _of_job_at_target(inquiry: Inquiry, job: JobSpec, is_fenced: bool) -> Iterator[Finding]:
    """Refuse a target where a job still runs, or may run and commit."""
    if job.target_cluster is None or job.target is None:
        return
    hint = f"stop it; a primary after a failover: stateshift failover {job.source}   # fences it"
    try:
        cluster = inquiry.open_cluster(job.target_cluster)
        state = cluster.find_source(StopRequest(job.name, job.target)).state
    except StateshiftError as error:
        if not is_fenced:
            fact = f"{job.target_cluster} does not say whether {job.name} runs at {job.target}"
            yield Finding("refuse", f"{fact}: {error.fact}", hint=hint)
        return
    if state.alive:
        yield Finding("refuse", f"{job.name} runs at {job.target}: it is {state}", hint=hint)
    elif state is JobState.UNKNOWN and not is_fenced:
        fact = f"{job.target_cluster} does not know whether {job.name} runs at {job.target}"
        yield Finding("refuse", f"{fact}, and nothing keeps it from going on there", hint=hint)

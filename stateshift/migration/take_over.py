"""The plans of a job that is started from its standby: the engine's, behind a claim and a fence.

A location is claimed before anything else, whoever feeds it; then the primary is kept from going
on; then the engine's own steps start the job where its image is. A primary that gives no answer
cannot be kept from going on, and refuses the plan: a person has to say that it is down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from stateshift.clusters.protocol import JobState
from stateshift.engines.bundles import bundle_items
from stateshift.errors import StateshiftError
from stateshift.formats.standby import StandbyState
from stateshift.migration.gathering import Inquiry, renames_back
from stateshift.migration.source_check import way_out_of_damage
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec
from stateshift.specification.model import TakeOver
from stateshift.step import AnyStep, ClaimTarget, FencePrimary, MoveFiles, Rename
from stateshift.step.claims import state_at
from stateshift.step.take_over import Successor
from stateshift.survey import Facts, Finding
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

    @property
    def can_be_stopped(self) -> bool:
        return self.may_be_fenced or self.state is not JobState.UNKNOWN


def plan_job(inquiry: Inquiry, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    """Return the plans of a job by these facts."""
    plans = inquiry.engine.plan(inquiry.spec, job, facts)
    if job.takes_over is None and not job.rehearses:
        return plans
    plan = plans[-1]
    if job.takes_over is not None:
        plan = _with_take_over(inquiry, job, job.takes_over, plan)
    # Whoever feeds the standby may publish another epoch until it is claimed, and planned again.
    identity = inquiry.engine.identity(facts)
    return (*plans[:-1], replace(plan, provisional=True, facts=identity))


def _with_take_over(inquiry: Inquiry, job: JobSpec, take_over: TakeOver, plan: Plan) -> Plan:
    state = state_at(inquiry.adapters.open_storage(job.source))
    workdir = str(inquiry.workdir.path.absolute())
    successor = Successor(
        inquiry.spec.engine, job.source, plan.epoch, inquiry.adapters.host, workdir
    )
    fence = fence_step(job, successor)
    primary = _primary(inquiry, fence) if fence is not None else Primary()
    damage = next((finding for finding in plan.findings if finding.is_damage), None)
    own = _findings(inquiry, job, take_over, primary)
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
        committed_at=_committed_at(state, plan.epoch),
        newest=primary.newest,
    )
    fences = () if fence is None else (fence,)
    back: tuple[AnyStep, ...] = ()
    if take_over.epoch is not None:
        back = tuple(_steps_back(inquiry, job, take_over.epoch))
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


def _committed_at(state: StandbyState | None, epoch: int | None) -> float | None:
    """Return the time at which the primary committed the epoch that the job is started from."""
    if state is None:
        return None
    for kept in state.kept:
        if kept.epoch == epoch:
            return kept.written_at
    return state.committed_at


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
    inquiry: Inquiry, job: JobSpec, take_over: TakeOver, primary: Primary
) -> Iterator[Finding]:
    terms = terms_of(inquiry.spec.engine)
    if take_over.primary is None:
        yield Finding(
            "warn",
            f"the primary of {job.name} is not fenced: you say that it is down. If it wakes up, "
            "both jobs write to the same sink",
            hint=f"once it answers: stateshift failover {job.source}   # again: fences it",
        )
        return
    if not primary.can_be_stopped:
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

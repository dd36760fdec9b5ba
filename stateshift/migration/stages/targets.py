"""The stages that lock the targets of a wave, and let go of them."""

from __future__ import annotations

from stateshift.migration.context import RunContext, WaveState
from stateshift.migration.history import has_moved
from stateshift.migration.observation import has_stopped, joint_start
from stateshift.migration.source_check import files_read_lately, refuse_damaged
from stateshift.migration.standby_state import offer_standby
from stateshift.migration.target_locks import (
    claim_standbys,
    is_kept_fresh,
    lock_target,
    release_target,
    still_fed,
    tell_returned,
)
from stateshift.migration.trials import try_starts
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.step import CompareImages, TransformShard


def lock_targets(context: RunContext, wave: WaveState) -> None:
    """Lock the targets of jobs that have not moved and could restart; release the others."""
    wave.pending = [job for job in wave.jobs if not has_moved(context.progress, job.name)]
    for job in wave.jobs:
        if job not in wave.pending:
            tell_returned(context, job)
            release_target(context, job)
    wave.pending = still_fed(context, wave.pending)
    if not has_stopped(context, wave.pending):
        # A standby that has copied something waits for its source, whatever has become of that.
        joint = joint_start(context)
        asked = [joint.job(job) for job in wave.pending if not is_kept_fresh(context, job)]
        inquiry, checked = context.inquiry_at_pace, {}
        for job in asked:
            by_steps = _files_checked_by_steps(context, job)
            checked[job.name] = by_steps | files_read_lately(inquiry, job)
        refuse_damaged(inquiry, asked, checked)
        try_starts(context, wave.pending)
    claim_standbys(context, wave.pending)
    for job in wave.pending:
        lock_target(context, job)
    # While the jobs still run: Arrow alone takes a third of a second.
    for job in wave.pending:
        for plan in context.plans.proposed_for(job):
            _load_engine_parts(context, plan)


def release_targets(context: RunContext, wave: WaveState) -> None:
    """Let go of the targets of a wave that has moved."""
    for job in wave.pending:
        tell_returned(context, job)
        if not job.rehearses:  # its copy is removed first
            release_target(context, job)
        offer_standby(context, job)
    context.status.down(None)


def _files_checked_by_steps(context: RunContext, job: JobSpec) -> frozenset[str]:
    """Return the source files that the steps of the adopted plan, or the proposed one, check."""
    if job.moves:
        return frozenset()
    adopted = context.plans.adopted(job, "move")
    plans = context.plans.proposed_for(job) if adopted is None else [adopted[1]]
    checked: set[str] = set()
    for plan in plans:
        for step in plan:
            if isinstance(step, TransformShard):
                checked.update(step.checked)
    return frozenset(checked)


def _load_engine_parts(context: RunContext, plan: Plan) -> None:
    for step in plan:
        if isinstance(step, TransformShard):
            context.world.transforms.get(step.transform)
        elif isinstance(step, CompareImages) and step.source_shards:
            context.world.entries.get(step.engine)

"""The plans of a job that is started from its standby: the engine's, behind a claim and a fence.

A location is claimed before anything else, whoever feeds it; then the primary is kept from going
on, as far as it answers; then the engine's own steps start the job where its image is.
"""

from __future__ import annotations

from dataclasses import replace

from stateshift.migration.gathering import Inquiry
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec
from stateshift.step import ClaimTarget, FencePrimary
from stateshift.survey import Facts

STOP_SECONDS_MAX = 60.0  # for the primary's job; a fence keeps it from going on, too


def planned(inquiry: Inquiry, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    """Return the plans of a job by these facts."""
    plans = inquiry.engine.plan(inquiry.spec, job, facts)
    if job.takes_over is None or not plans[-1].phases:
        return plans
    return (*plans[:-1], _with_take_over(inquiry, job, plans[-1]))


def _with_take_over(inquiry: Inquiry, job: JobSpec, plan: Plan) -> Plan:
    take_over = job.takes_over
    assert take_over is not None, "a job that takes over"
    claimed = ClaimTarget(
        "prepare/claim",
        job.source,
        take_over.generation,
        inquiry.adapters.host,
        str(inquiry.workdir.path.absolute()),
    )
    fences = []
    if take_over.primary is not None:
        options = dict(job.stop)
        tag, seconds = options.pop("tag", None), options.pop("seconds_max", None)
        fences.append(
            FencePrimary(
                "halt/primary",
                job.name,
                take_over.primary,
                take_over.cluster,
                tag,
                STOP_SECONDS_MAX if seconds is None else float(seconds),
                options,
            )
        )
    first = phases_of(Phase("prepare", (claimed,)), Phase("halt", tuple(fences)))
    return replace(plan, phases=(*first, *plan.phases))

"""What the user hands in: a spec, or a plan that was saved. Read from a local file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from stateshift.cli.views.units import rate
from stateshift.errors import PlanError
from stateshift.specification import Spec
from stateshift.specification.warm import NEVER


def overridden(spec: Spec, parallel: int | None, throttle: str | None) -> Spec:
    """The spec under the flags and settings that say how hard to work; never what to do."""
    if parallel is not None:
        spec = replace(spec, parallel=parallel)
    return spec if throttle is None else replace(spec, bytes_per_second=rate(throttle))


def kept_fresh(spec: Spec, only: Collection[str]) -> Spec:
    """The spec of a run that never stops its jobs: what it has brought of them can be started
    from at any time.
    """
    for job in spec.jobs:
        if (not only or job.name in only) and job.mode != "warm":
            raise PlanError(
                f"{job.name} is not brought over while it runs", hint='"mode": "warm" in the spec'
            )
    jobs = tuple(replace(job, cutover=NEVER) if job.mode == "warm" else job for job in spec.jobs)
    return replace(spec, jobs=jobs)

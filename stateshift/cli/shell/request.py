"""The requests for new runs: a spec, a plan that was saved, or jobs that were typed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from stateshift.api.requests import move_of
from stateshift.cli.shell.options import RunOptions
from stateshift.cli.views.units import rate
from stateshift.errors import PlanError
from stateshift.migration import Proposal, jobs_of
from stateshift.specification import JobSpec, Spec
from stateshift.specification.grammars import NEVER


@dataclass(frozen=True)
class Request:
    """A spec, of which `only` some jobs may be meant; `saved` is its plan, if it was made before.

    The jobs of a shortcut are `typed` on the command line: there is no file to correct.
    """

    spec: Spec
    only: tuple[str, ...] = ()
    saved: Proposal | None = None
    typed: bool = False

    @property
    def jobs(self) -> Sequence[JobSpec]:
        """The jobs that the run carries out."""
        if self.saved is not None:
            return self.saved.jobs()
        return jobs_of(self.spec, self.only)


def request_in(path: str, only: Sequence[str], options: RunOptions, continuous: bool) -> Request:
    """Return the request in a file: a spec's, or a saved plan's.

    A `continuous` run is planned again, since a saved plan stops its jobs.
    """
    given = move_of(path)
    saved = given if isinstance(given, Proposal) else None
    spec = given.spec if isinstance(given, Proposal) else given
    spec = overridden(spec, options.parallel, options.throttle)
    if continuous:
        return Request(kept_fresh(spec, only), tuple(only))
    if saved is not None:
        saved = replace(saved.of_jobs(only), spec=spec)
    return Request(spec, tuple(only), saved)


def overridden(spec: Spec, parallel: int | None, throttle: str | None) -> Spec:
    """Return the spec under the flags and settings that say how hard to work; never what to do."""
    if parallel is not None:
        spec = replace(spec, parallel=parallel)
    if throttle is not None:
        spec = replace(spec, bytes_per_second=rate(throttle))
    return spec


def kept_fresh(spec: Spec, only: Collection[str]) -> Spec:
    """Return the spec of a run that never stops its jobs.

    Its copies of them can be started from at any time.
    """
    jobs = []
    for job in spec.jobs:
        is_meant = not only or job.name in only
        if is_meant and job.mode != "warm":
            raise PlanError(
                f"{job.name} is not copied while it runs", hint='"mode": "warm" in the spec'
            )
        jobs.append(replace(job, cutover=NEVER) if job.mode == "warm" else job)
    return replace(spec, jobs=tuple(jobs))

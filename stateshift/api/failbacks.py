"""Failback from a program and for the command: a job goes home from its standby."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stateshift.api.failovers import refuse_unfinished, standby_at, with_waivers
from stateshift.errors import PlanError
from stateshift.specification import Spec
from stateshift.standby.location import Standby, failback_spec

if TYPE_CHECKING:
    import threading

    from stateshift.api.requests import SpecLike
    from stateshift.api.runs import PathLike, Watch
    from stateshift.api.values import RunResult
    from stateshift.migration import Adapters


def failback(
    place: PathLike,
    *,
    spec: SpecLike | None = None,
    waive: Sequence[str] = (),
    workdir: PathLike | None = None,
    progress: Watch | None = None,
    stop: threading.Event | None = None,
    adapters: Adapters | None = None,
) -> RunResult:
    """Move a job home from its standby, where it runs since a failover. Nobody is asked.

    Args:
        place: where the standby is, or the workdir of the run that kept it.
        spec: the spec that kept the standby, where its state file does not say how the job is
            started at home.
        waive: refusals that the caller takes responsibility for, beside those of the spec.
        workdir: as `apply` takes it.
        progress: likewise.
        stop: likewise.
        adapters: how storages and clusters are reached, where a test has its own.

    Returns:
        How the run ended. `standby.json` in its workdir keeps a standby where the job came from.

    Raises:
        PlanError: the job does not run at a standby; nobody knows how it is started at home; or it
            may run there.
        OtherRunError: another run takes it home.
        StateshiftError: what else went wrong, as `apply` has it.
    """
    from stateshift import migration
    from stateshift.api.runs import apply

    reached = adapters or migration.real_adapters()
    standby = standby_at(os.fspath(place), reached)
    wanted = with_waivers(spec_of_failback(standby, spec, reached), waive)
    return apply(wanted, workdir=workdir, progress=progress, stop=stop, adapters=adapters)


def spec_of_failback(standby: Standby, given: SpecLike | None, adapters: Adapters) -> Spec:
    """Return the spec that moves the job home.

    Raises:
        PlanError: as `failback`.
        JournalError: the failover is not finished.
    """
    from stateshift.api.requests import spec_of
    from stateshift.clusters.protocol import StopRequest
    from stateshift.workdir import Workdir

    own = None if given is None else spec_of(given)
    spec = failback_spec(standby, own)
    refuse_unfinished(standby, adapters)
    job = spec.jobs[0]
    if not job.image_writers:
        return spec
    assert job.source_cluster is not None, "a spec that is checked"
    cluster = adapters.open_cluster(spec.cluster(job.source_cluster), Workdir(os.curdir))
    status = cluster.find_source(StopRequest(job.name, job.source))
    if not status.state.alive or status.id is None:
        raise PlanError(
            f"{job.name} does not run on {job.source_cluster}: it is {status.state}",
            hint="only a job that runs is followed home; one that has ended is moved by a spec "
            "with the checkpoint it left: stateshift apply",
        )
    return replace(spec, jobs=(job.written_by((status.id,)),))

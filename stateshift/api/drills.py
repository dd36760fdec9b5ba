"""Drills from a program and for the command: a standby's start is rehearsed and thrown away."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stateshift.errors import FormatError, MissingFile, StalePlan
from stateshift.standby.location import Standby
from stateshift.standby.rehearsal import drill_spec, with_spec
from stateshift.step.claims import drills_at

if TYPE_CHECKING:
    import threading

    from stateshift.api.requests import SpecLike
    from stateshift.api.runs import PathLike, Watch
    from stateshift.api.values import RunResult
    from stateshift.documents.standby import StandbyFacts
    from stateshift.migration import Adapters, Proposal
    from stateshift.specification import Spec
    from stateshift.storage.protocol import Storage

ATTEMPTS = 3
SECONDS_BETWEEN = 1.0


def drill(
    place: PathLike,
    *,
    spec: SpecLike | None = None,
    waive: Sequence[str] = (),
    workdir: PathLike | None = None,
    progress: Watch | None = None,
    stop: threading.Event | None = None,
    adapters: Adapters | None = None,
) -> RunResult:
    """Rehearse the start of a standby, and throw away what was made for it. Nobody is asked.

    Args:
        place: where the standby is, or the workdir of the run that keeps it.
        spec: counts in place of the one that the standby holds: of a job that is copied there.
        waive: refusals that the caller takes responsibility for, beside those of the spec.
        workdir: as `apply` takes it.
        progress: likewise.
        stop: likewise.
        adapters: how storages and clusters are reached, where a test has its own.

    Returns:
        How the run ended; `report.jobs[0].drill` says what it showed.

    Raises:
        PlanError: there is no standby, it was taken over, or nothing says how a drill is started.
        JournalError: another drill is at work at the scratch place.
        ClusterError: the job did not start.
        StateshiftError: what else went wrong, as `apply` has it.
    """
    from stateshift import migration
    from stateshift.api.failovers import standby_at, with_waivers
    from stateshift.api.requests import spec_of
    from stateshift.api.runs import apply
    from stateshift.api.values import PlannedMove

    reached = adapters or migration.real_adapters()
    given = None if spec is None else spec_of(spec)
    made = with_waivers(spec_of_drill(standby_at(os.fspath(place), reached), given), waive)
    planned = PlannedMove(plan_drill(made, reached))
    return apply(planned, workdir=workdir, progress=progress, stop=stop, adapters=adapters)


def spec_of_drill(standby: Standby, given: Spec | None = None) -> Spec:
    """Return the spec that rehearses the start of a standby. A `given` spec of the standby counts
    in place of the one that it holds.

    Raises:
        PlanError: as `drill` has it.
    """
    from stateshift.job import one_batch

    if given is not None:
        standby = with_spec(standby, given)
    return drill_spec(standby, os.path.abspath(one_batch.__file__))


def plan_drill(spec: Spec, adapters: Adapters) -> Proposal:
    """Return the plan of a drill, planned again where a round was at work on the standby."""
    from stateshift import migration
    from stateshift.api.runs import WORKDIRS
    from stateshift.workdir import Workdir

    place = Workdir(os.path.join(WORKDIRS, "plan"))
    for _ in range(1, ATTEMPTS):
        try:
            proposal = migration.propose(spec, adapters, place)
            if not proposal.refusals:
                return proposal
        except (StalePlan, MissingFile, FormatError):
            pass
        adapters.clock.sleep(SECONDS_BETWEEN)
    return migration.propose(spec, adapters, place)


def with_drills(facts: StandbyFacts, storage: Storage) -> StandbyFacts:
    """Return the facts of a standby with the history of its drills."""
    try:
        history = drills_at(storage)
    except FormatError as error:
        return replace(facts, damage=str(error))
    return replace(facts, history=history)

"""One move, carried out or gone on with: an ordinary run, in a workdir of its own.

A move that fails is left as any other run is: its journal says how far it has come, and `resume` or
`rollback` of its workdir goes on. Nothing else is moved after it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from shlex import quote

from stateshift import migration
from stateshift.advise.rebalance.outcome import Carried, CarriedState
from stateshift.api.rebalancing.folder import MoveRecord, RebalanceFolder
from stateshift.api.rebalancing.move_spec import Way, spec_of_move
from stateshift.api.rebalancing.request import RebalanceRequest
from stateshift.api.rebalancing.survey import SurveyResult
from stateshift.api.runs import name_the_run, run_name
from stateshift.errors import JOB_DOWN, PlanError, StateshiftError
from stateshift.migration import Adapters
from stateshift.migration.proposal import refuse
from stateshift.report import Report
from stateshift.workdir import Workdir


@dataclass(frozen=True)
class MoveEnd:
    """How far a move has come, and what has ended it before its time."""

    carried: Carried
    error: StateshiftError | None = None


def carry_out(
    request: RebalanceRequest,
    folder: RebalanceFolder,
    surveyed: SurveyResult,
    way: Way,
    adapters: Adapters,
) -> MoveEnd:
    """Plan a move again, and make it. It was written down before (`RebalanceFolder.keep_move`)."""
    workdir = folder.workdir(way.number, way.jobs)
    run = run_name(way.jobs, time.time(), os.urandom(2))
    try:
        spec = spec_of_move(request, surveyed, way)
        proposal = migration.propose(spec, adapters, workdir)
        refuse(proposal.plans)
        report = migration.apply(proposal, run, workdir, adapters)
    except StateshiftError as error:
        return _stopped(way, workdir, error)
    return MoveEnd(_carried(way, workdir, "finished", report))


def plan_move(way: Way, fact: str = "") -> Carried:
    """Return a move that nobody has begun."""
    return Carried(way.number, way.jobs, way.source, way.target, "planned", fact=fact)


def waiting(folder: RebalanceFolder, move: MoveRecord) -> Carried:
    """Return a move of an earlier run that has to go on."""
    workdir = folder.workdir(move.number, move.jobs)
    fact = f"go on with it: stateshift resume {workdir.path}, or run rebalance with --yes"
    return _carried(_way(move), workdir, "unfinished", migration.status(workdir), fact)


def go_on(
    folder: RebalanceFolder, move: MoveRecord, adapters: Adapters, is_closed: bool = False
) -> MoveEnd:
    """Go on with a move of an earlier run. One to a cluster that `is_closed` by now is taken back,
    unless its jobs have gone on there.
    """
    way, workdir = _way(move), folder.workdir(move.number, move.jobs)
    try:
        if is_closed:
            with suppress(PlanError):
                report = migration.rollback(workdir, adapters)
                fact = f"it was taken back: {move.target} is cordoned"
                return MoveEnd(_carried(way, workdir, "finished", report, fact))
        report = migration.resume(workdir, adapters)
    except StateshiftError as error:
        return _stopped(way, workdir, error)
    fact = "it was taken back" if report.state == "rolled-back" else ""
    return MoveEnd(_carried(way, workdir, "finished", report, fact))


def _way(move: MoveRecord) -> Way:
    return Way(move.jobs, move.source, move.target, move.number)


def _stopped(way: Way, workdir: Workdir, error: StateshiftError) -> MoveEnd:
    """Return a move that an error has ended: before it was begun, or on its way."""
    begun = workdir.exists and migration.progress_of(workdir).state != "new"
    named = name_the_run(error, str(workdir.path) if begun else None)
    if not begun:
        return MoveEnd(plan_move(way, error.fact), named)
    report = migration.status(workdir)
    carried = _carried(way, workdir, "failed", report, error.fact)
    if report.state == "rolled-back" and error.exit_code != JOB_DOWN:
        hint = "it was taken back; mend what the spec says of the job, and a later run moves it"
        return MoveEnd(carried, error.with_hint(hint))
    return MoveEnd(carried, _with_way_out(named, workdir))


def _with_way_out(error: StateshiftError, workdir: Workdir) -> StateshiftError:
    """Return the error with how to go on, where its hint did not say it."""
    path, hint = quote(str(workdir.path)), error.hint or ""
    if path in hint:
        return error
    ways = f"stateshift resume {path}, or the same command again; to take it back: "
    ways += f"stateshift rollback {path}"
    return error.with_hint(f"{hint}; then {ways}" if hint else ways)


def _carried(
    way: Way, workdir: Workdir, state: CarriedState, report: Report, fact: str = ""
) -> Carried:
    downtimes = [job.downtime_seconds for job in report.jobs if job.downtime_seconds is not None]
    return Carried(
        number=way.number,
        jobs=way.jobs,
        source=way.source,
        target=way.target,
        state=state,
        workdir=str(workdir.path),
        downtime_seconds=max(downtimes, default=None) if state == "finished" else None,
        fact=fact,
    )

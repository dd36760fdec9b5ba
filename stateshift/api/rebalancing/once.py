"""One run of rebalance: from its lock to its outcome. `replay_decision` makes its decision again.

cordon ── lock ── what earlier runs left unfinished ── survey ── decision ── moves ── drained?

Killed at any point, it leaves what the next run goes on from: a move is written down before it
begins, its journal says how far it has come, and everything else is found out anew.

A move is an ordinary run, in a workdir of its own. One that fails is left as any other run is: its
journal says how far it has come, and `resume` or `rollback` of its workdir goes on. Nothing else is
moved after it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from shlex import quote

from stateshift import migration
from stateshift.advise.evaluate.inputs import refuse_odd_numbers
from stateshift.advise.rebalance.decision import decide, is_undecided
from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.outcome import Carried, CarriedState, Rebalance
from stateshift.advise.rebalance.situation import Policy, Situation
from stateshift.api.local_files import text_of
from stateshift.api.rebalancing.choosing import MoveChooser, PlannedDecision, policy_of
from stateshift.api.rebalancing.draining import not_empty, survey_drained
from stateshift.api.rebalancing.folder import (
    Absence,
    BusyError,
    MemoryRecord,
    MoveRecord,
    RebalanceFolder,
)
from stateshift.api.rebalancing.move_spec import Way, image_of, spec_of_move
from stateshift.api.rebalancing.past import Past, memory_of, past_of, remember_failure
from stateshift.api.rebalancing.request import Acting, RebalanceRequest, check_request
from stateshift.api.rebalancing.survey import SurveyResult, cordons_of, survey
from stateshift.api.runs import name_the_run, run_name
from stateshift.errors import JOB_DOWN, Complaint, PlanError, SpecError, StateshiftError
from stateshift.migration import Adapters
from stateshift.migration.proposal import refuse
from stateshift.plain import Misfit, from_plain, to_plain
from stateshift.report import Report
from stateshift.workdir import Workdir

# How long to wait until a run at work is looked for again.
WAIT_SECONDS = 2.0
_REPLAY_HINT = "name a file of FOLDER/decisions, or what `stateshift rebalance --json` has printed"


@dataclass(frozen=True)
class Run:
    """The outcome of a run; `error` is what has ended it before its time, and `held` what is left
    on clusters that were to be emptied.
    """

    outcome: Rebalance
    error: StateshiftError | None = None
    held: StateshiftError | None = None

    @property
    def errors(self) -> tuple[StateshiftError, ...]:
        """Both, the graver one first: its exit code is the run's, and its hint the way out."""
        if self.error is None or self.held is None:
            return tuple(each for each in (self.error, self.held) if each is not None)
        return self.error, self.held.with_hint(None)


def rebalance_once(request: RebalanceRequest, adapters: Adapters) -> Run:
    """Decide, and move what was decided if the request says so.

    Raises:
        SpecError: the request does not fit its spec.
        JournalError: what earlier runs have kept cannot be read.
        StorageError: the folder cannot be written.
    """
    check_request(request)
    folder = RebalanceFolder(request.folder)
    for name in request.uncordoned:
        folder.uncordon(name)
    if request.acting is not None:
        # Before all else: a run that is killed, or another one at work, moves nothing there again.
        for name in request.draining:
            folder.cordon(name, adapters.clock.now())
    run = _run_alone(request, folder, adapters)
    outcome = replace(run.outcome, cordoned=tuple(cordons_of(request, folder).values()))
    if request.draining:
        outcome = replace(outcome, drained=survey_drained(request, folder, adapters, outcome))
    return Run(outcome, run.error, not_empty(outcome))


def _run_alone(request: RebalanceRequest, folder: RebalanceFolder, adapters: Adapters) -> Run:
    """Run once no other run is at work, or say that one is once it has been waited for."""
    until, said = adapters.clock.now() + request.wait_seconds, None
    while True:
        try:
            with folder.hold():
                run = _Once(request, folder, adapters).run()
        except BusyError as busy:
            run = Run(Rebalance(None, folder=request.folder, busy=str(busy)))
        left = until - adapters.clock.now()
        if run.outcome.busy is None or left <= 0:
            return run
        if run.outcome.busy != said:
            request.say(f"waiting for another run: {run.outcome.busy}")
            said = run.outcome.busy
        adapters.clock.sleep(min(left, WAIT_SECONDS))


@dataclass
class _Once:
    """A run that holds the folder."""

    request: RebalanceRequest
    folder: RebalanceFolder
    adapters: Adapters

    def run(self) -> Run:
        past = past_of(self.folder)
        resumed: tuple[Carried, ...] = ()
        for move in past.unfinished:
            if self.folder.workdir(move.number, move.jobs).held:
                busy = f"somebody goes on with move {move.number} ({', '.join(move.jobs)})"
                return Run(Rebalance(None, folder=self.request.folder, busy=busy))
        if past.unfinished and self.request.acting is None:
            carried = tuple(waiting(self.folder, move) for move in past.unfinished)
            return Run(Rebalance(None, folder=self.request.folder, unfinished=carried))
        for move in past.unfinished:
            assert self.request.acting is not None, "a dry run has returned"
            closed = cordons_of(self.request, self.folder)
            is_closed = move.target in closed and move.source not in closed
            with self.request.acting() as adapters:
                ended = go_on(self.folder, move, adapters, is_closed)
            resumed += (ended.carried,)
            if ended.error is not None:
                now = self.adapters.clock.now()
                remember_failure(self.folder, self.request, move, ended.error, now)
                outcome = Rebalance(None, folder=self.request.folder, unfinished=resumed)
                return Run(outcome, ended.error)
        return self._decide(past_of(self.folder), resumed)

    def _decide(self, past: Past, resumed: tuple[Carried, ...]) -> Run:
        memory = memory_of(self.folder, past)
        surveyed = survey(self.request, self.folder, past, self.adapters)
        made = tuple((move.source, move.target) for move in resumed)
        surveyed = replace(surveyed, situation=replace(surveyed.situation, resumed=made))
        chosen = MoveChooser(self.request, self.folder, self.adapters, surveyed).choose(memory)
        number = self.folder.next_decision()
        inputs = {
            "situation": chosen.situation,
            "policy": policy_of(self.request.section, self.request.sample_seconds),
            "memory": memory,
        }
        file = self.folder.keep_decision(number, {**inputs, "decision": chosen.decision})
        self._remember(number, chosen, past, surveyed.absence)
        outcome = Rebalance(
            chosen.decision,
            carried=tuple(map(plan_move, chosen.ways)),
            folder=self.request.folder,
            file=file,
            unfinished=resumed,
            notes=surveyed.notes,
            inputs=to_plain(inputs),
        )
        if self.request.acting is not None:
            moves = _records(self.request, number, chosen)
            return self._act(self.request.acting, outcome, surveyed, moves)
        if not self.request.draining:
            uncounted = [
                f"{trigger.cluster}: a dry run does not count as one in which it was too full; "
                "only runs with --yes do"
                for trigger in chosen.decision.triggers
                if not trigger.is_due
            ]
            outcome = replace(outcome, notes=(*outcome.notes, *uncounted))
        return Run(outcome)

    def _remember(self, number: int, chosen: PlannedDecision, past: Past, absence: Absence) -> None:
        """Write what the next run has to know. A dry run does not count, and judges no moves. A run
        that could not decide counts for nothing.
        """
        decision, kept = chosen.decision, self.folder.memory()
        if any(cluster.unknown for cluster in chosen.situation.clusters):
            return
        if is_undecided(chosen.situation) or self.request.acting is None:
            self.folder.keep_memory(replace(kept, absence=absence))
            return
        record = MemoryRecord(
            counts={trigger.cluster: trigger.runs for trigger in decision.triggers},
            decision=number,
            judged=past.last,
            failed=decision.memory.failed,
            counted={trigger.cluster: trigger.counted_at for trigger in decision.triggers},
            absence=absence,
        )
        if self.request.draining:  # a cluster that is to be emptied is not too full
            memory = memory_of(self.folder, past)
            record = replace(record, counts=memory.counts, counted=memory.counted)
        self.folder.keep_memory(record)

    def _act(
        self,
        acting: Acting,
        outcome: Rebalance,
        surveyed: SurveyResult,
        moves: Sequence[tuple[Way, MoveRecord]],
    ) -> Run:
        """Make the moves, one after the other. The first that fails is the last."""
        carried: tuple[Carried, ...] = ()
        for way, record in moves:
            if way.target in cordons_of(self.request, self.folder):
                carried += (plan_move(way, f"{way.target} was cordoned meanwhile"),)
                continue
            self.folder.keep_move(record)
            with acting() as adapters:
                ended = carry_out(self.request, self.folder, surveyed, way, adapters)
            carried += (ended.carried,)
            if ended.error is not None:
                now = self.adapters.clock.now()
                remember_failure(self.folder, self.request, record, ended.error, now)
                return Run(replace(outcome, carried=carried), ended.error)
        return Run(replace(outcome, carried=carried))


def _records(
    request: RebalanceRequest, number: int, chosen: PlannedDecision
) -> list[tuple[Way, MoveRecord]]:
    """Return the moves with what is written of them: each promises what it leaves behind."""
    before = {cluster.name: cluster.before for cluster in chosen.decision.clusters}
    promised = dict(before)
    loads = {job.name: job.load or 0.0 for job in chosen.situation.jobs}
    records = []
    for move, way in zip(chosen.decision.moves, chosen.ways, strict=True):
        load = sum(loads[name] for name in move.jobs)
        promised[move.source] -= load
        promised[move.target] += load
        record = MoveRecord(
            number=way.number,
            decision=number,
            jobs=way.jobs,
            source=way.source,
            target=way.target,
            at=chosen.decision.at,
            load_before=before[move.source],
            load_promised=promised[move.source],
            images={job: image_of(request, job, way.target, way.number) for job in way.jobs},
            parallelism=way.parallelism,
        )
        records.append((way, record))
    return records


# ---- a decision made again


def replay_decision(path: str) -> Rebalance:
    """Return the decision that the inputs in a file lead to.

    Raises:
        SpecError: the file cannot be read, or holds no such inputs.
    """
    text = text_of(path, _REPLAY_HINT, path)
    try:
        plain = json.loads(text)
        inputs = plain.get("inputs") or plain
        refuse_odd_numbers(inputs)
        situation = from_plain(Situation, inputs["situation"], "/situation")
        policy = from_plain(Policy, inputs["policy"], "/policy")
        memory = from_plain(Memory, inputs["memory"], "/memory")
        _refuse_odd_inputs(situation, policy)
    except (Misfit, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fact = f"no decision with its inputs: {error}"
        raise SpecError((Complaint(path, fact),), hint=_REPLAY_HINT) from error
    used = {name: inputs[name] for name in ("situation", "policy", "memory")}
    return Rebalance(decide(situation, policy, memory), file=path, inputs=used)


def _refuse_odd_inputs(situation: Situation, policy: Policy) -> None:
    """Refuse what no run could have met, and nothing can be computed with."""
    names = [cluster.name for cluster in situation.clusters]
    if len(set(names)) < len(names) or not names:
        raise Misfit("/situation/clusters", "expected clusters, each once")
    for number, cluster in enumerate(situation.clusters):
        if cluster.capacity <= 0 and not cluster.unknown:
            raise Misfit(f"/situation/clusters/{number}/capacity", "expected a number above 0")
        if cluster.other_load < 0:
            raise Misfit(f"/situation/clusters/{number}/other_load", "expected a number from 0 on")
    for number, job in enumerate(situation.jobs):
        if job.cluster not in names:
            raise Misfit(f"/situation/jobs/{number}/cluster", "expected one of the clusters")
        if min(job.load or 0.0, job.rate, job.bytes, job.downtime_seconds) < 0:
            raise Misfit(f"/situation/jobs/{number}", "expected numbers from 0 on")
    if len({job.name for job in situation.jobs}) < len(situation.jobs):
        raise Misfit("/situation/jobs", "expected jobs, each once")
    if policy.load_max <= 0 or policy.runs < 1:
        raise Misfit("/policy", "expected a load above 0, and a number of runs from 1 on")


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

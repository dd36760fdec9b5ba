"""One run of rebalance: from its lock to its outcome.

cordon ── lock ── what earlier runs left unfinished ── survey ── decision ── moves ── drained?

Killed at any point, it leaves what the next run goes on from: a move is written down before it
begins, its journal says how far it has come, and everything else is found out anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stateshift.advise.rebalance.decision import Decision, is_undecided
from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.outcome import Carried, Rebalance
from stateshift.api.rebalancing.carrying import carry_out, go_on, plan_move, waiting
from stateshift.api.rebalancing.choosing import Choosing, Chosen, policy_of
from stateshift.api.rebalancing.draining import not_empty, survey_drained
from stateshift.api.rebalancing.folder import Absence, Busy, Folder, MemoryRecord, MoveRecord
from stateshift.api.rebalancing.move_spec import Way, image_of
from stateshift.api.rebalancing.past import Past, memory_of, past_of
from stateshift.api.rebalancing.refused import remember
from stateshift.api.rebalancing.request import Acting, RebalanceRequest, check_request
from stateshift.api.rebalancing.surveying import Surveyed, cordons_of, survey
from stateshift.errors import StateshiftError
from stateshift.migration import Adapters
from stateshift.plain import to_plain

# How long to wait until a run at work is looked for again.
WAIT_SECONDS = 2.0


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
    folder = Folder(request.folder)
    for name in request.uncordoned:
        folder.uncordon(name)
    if request.acting is not None:
        # Before all else: a run that is killed, or another one at work, moves nothing there again.
        for name in request.draining:
            folder.cordon(name, adapters.clock.now())
    run = _waited(request, folder, adapters)
    outcome = replace(run.outcome, cordoned=tuple(cordons_of(request, folder).values()))
    if request.draining:
        outcome = replace(outcome, drained=survey_drained(request, folder, adapters, outcome))
    return Run(outcome, run.error, not_empty(outcome))


def _waited(request: RebalanceRequest, folder: Folder, adapters: Adapters) -> Run:
    """Run once no other run is at work, or say that one is once it has been waited for."""
    until, said = adapters.clock.now() + request.wait_seconds, None
    while True:
        try:
            with folder.hold():
                run = _Once(request, folder, adapters).run()
        except Busy as busy:
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
    folder: Folder
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
                self._remember_refused(move, ended.error)
                outcome = Rebalance(None, folder=self.request.folder, unfinished=resumed)
                return Run(outcome, ended.error)
        return self._decide(past_of(self.folder), resumed)

    def _decide(self, past: Past, resumed: tuple[Carried, ...]) -> Run:
        memory = memory_of(self.folder, past)
        surveyed = survey(self.request, self.folder, past, self.adapters)
        made = tuple((move.source, move.target) for move in resumed)
        surveyed = replace(surveyed, situation=replace(surveyed.situation, resumed=made))
        chosen = Choosing(self.request, self.folder, self.adapters, surveyed).chosen(memory)
        number = self.folder.next_decision()
        inputs = inputs_of(self.request, chosen, memory)
        file = self.folder.keep_decision(number, {**inputs, "decision": chosen.decision})
        self._remember(number, chosen, past, surveyed.absence)
        notes = [*surveyed.notes]
        if self.request.acting is None and not self.request.draining:
            for trigger in chosen.decision.triggers:
                if not trigger.is_due:
                    notes.append(
                        f"{trigger.cluster}: a dry run does not count as one in which it was too "
                        "full; only runs with --yes do"
                    )
        outcome = Rebalance(
            chosen.decision,
            carried=tuple(map(plan_move, chosen.ways)),
            folder=self.request.folder,
            file=file,
            unfinished=resumed,
            notes=tuple(notes),
            inputs=to_plain(inputs),
        )
        if self.request.acting is None:
            return Run(outcome)
        return self._act(self.request.acting, outcome, surveyed, _records(self, number, chosen))

    def _remember(self, number: int, chosen: Chosen, past: Past, absence: Absence) -> None:
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
        surveyed: Surveyed,
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
                self._remember_refused(record, ended.error)
                return Run(replace(outcome, carried=carried), ended.error)
        return Run(replace(outcome, carried=carried))

    def _remember_refused(self, move: MoveRecord, error: StateshiftError) -> None:
        remember(self.folder, self.request, move, error, self.adapters.clock.now())


def inputs_of(request: RebalanceRequest, chosen: Chosen, memory: Memory) -> Mapping[str, object]:
    """Return all that a decision was made from."""
    return {
        "situation": chosen.situation,
        "policy": policy_of(request.section, request.sample_seconds),
        "memory": memory,
    }


def _records(once: _Once, number: int, chosen: Chosen) -> list[tuple[Way, MoveRecord]]:
    """Return the moves with what is written of them: each promises what it leaves behind."""
    pairs = zip(chosen.ways, _promises(chosen.decision, chosen), strict=True)
    records = []
    for way, (before, promised) in pairs:
        images = {job: image_of(once.request, job, way.target, way.number) for job in way.jobs}
        record = MoveRecord(
            number=way.number,
            decision=number,
            jobs=way.jobs,
            source=way.source,
            target=way.target,
            at=chosen.decision.at,
            load_before=before,
            load_promised=promised,
            images=images,
            parallelism=way.parallelism,
        )
        records.append((way, record))
    return records


def _promises(decision: Decision, chosen: Chosen) -> Iterator[tuple[float, float]]:
    """Yield the load of each move's old cluster: as it was, and once the move is made."""
    before = {cluster.name: cluster.before for cluster in decision.clusters}
    loads = {job.name: job.load or 0.0 for job in chosen.situation.jobs}
    held = dict(before)
    for move in decision.moves:
        load = sum(loads[name] for name in move.jobs)
        held[move.source] -= load
        held[move.target] += load
        yield before[move.source], held[move.source]

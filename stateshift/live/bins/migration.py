"""A whole migration, carried: step by step, each proposed, acknowledged, decided and followed.

    Carrier(watch, steps, manner).carry()   until all has come, it is aborted, or the time to wait
                                            is over; what is decided is never taken back
    CountCarrier(…).carry()                 the same for another number of bins, proposed once

When the next step may begin is `protocol.rollout`'s to say: once the one before is complete, and
the pause behind it is over. A worker that has come too far for a proposal says how far it is, and
the step is proposed again for a later time. Whoever carries may die: workers abort what nobody has
decided, and what is left is asked for again.

The moves of a group are kept bounded: now and then, whoever has carried moves folds the first ones
into one file, and removes their own files (`compact`).

Nobody may read a file that is removed. Whoever starts reads the folded moves, and then those after
it one by one; whoever runs reads on from the last one that it knows. A move is removed once a base
after it was there for a while (the one before the newest), and every running part has committed
that it knows it. While somebody starts, nothing is applied without its answer.
`KEPT` moves are kept in any case, for `live history`.

Times that no part needs any more are left out of the folded moves: those before the frontier
of the slowest one, and before what it awaits; of an evicted one, too, since somebody goes on there.
A part that starts later needs the moves of what was given to it: they are left out once it has
taken that. And all parts of an operator begin with the same, so while one of them has committed
nothing, no more is left out than before.

An imported part has its bins where they were before any move. While one of them was not started,
nothing is left out; and nobody imports once something is.

A part may begin while somebody compacts. Compactions are numbered, and each is a file that is
created if absent: whoever compacts reads the newest number, looks, creates the next one, and only
then writes. A part without commits says that it runs, and then creates the next number itself: of a
compaction that has not seen it, the number is not the next one any more.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from stateshift.dataflow.move_steps import Step
from stateshift.errors import PlanError, StateshiftError
from stateshift.live.bins.compactions import Compaction, MovesBase, MovesKept
from stateshift.live.bins.files import REFUSED, Answer, Files, GroupStart, Proposal, apply_proposal
from stateshift.live.bins.move_request import Manner, Steps, TimedStep, refuse_under_way
from stateshift.live.bins.steering import MoveCarrier, Steering
from stateshift.live.bins.step_table import StepTable
from stateshift.live.bins.times import cut
from stateshift.live.bins.watch import Bins, Watch, WorkerPart
from stateshift.live.member import decided_here, is_gone, process_name
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import (
    BEGIN,
    Time,
    Update,
    initial_configuration,
    retire,
)
from stateshift.live.protocol.rollout import Rollout, advance, updates_ahead
from stateshift.live.values import POLL_SECONDS_MAX, Pause, live_command, proposing

logger = logging.getLogger(__name__)

TRIES_MAX = 6  # of one step; each has twice the lead of the one before
DEAD_SECONDS = 20.0  # whoever carries moves and has said nothing for so long is dead
TELL_SECONDS = 5.0  # between two words of whoever carries moves that it lives
LISTENS = 20  # half-seconds in which a carrier that lives speaks, whatever its clock says
LEAD_SECONDS_AGAIN = 0.1  # at least, once somebody was too far
ASKED_TO_STOP = "stateshift live abort"


State = Literal[
    "waiting", "paused", "ahead", "proposed", "moving", "finished", "applied", "aborted"
]


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """The progress of a migration.

    `state`: waiting for the next step, paused, bins are copied ahead, a step is proposed, a step is
    moving; at its end finished, applied (decided, and not seen to be complete) or aborted.
    """

    state: State
    steps: int
    begun: int = 0
    complete: int = 0
    bins: int = 0  # that the migration moves
    bins_moved: int = 0  # of steps that are complete
    number: int | None = None  # of the last proposal
    time: Time | None = None  # at which it moves something
    parts: int = 0
    acknowledged: int = 0
    prepared: int = 0  # bins that were read ahead
    reason: str = ""
    seconds: float = 0.0
    silent: tuple[str, ...] = ()  # workers that did not answer the last proposal in time

    @property
    def is_over(self) -> bool:
        """Whether nobody carries it any more."""
        return self.state in ("finished", "applied", "aborted")


@dataclass
class MoveEndedError(Exception):
    """The end of a migration before all of it is complete."""

    state: State
    reason: str


def late_parts(bins: Bins, until: Time | None, seconds: float) -> str:
    """Tell people the parts that have not passed a time in so many seconds, and their places."""
    within = f"within {seconds:g} s"
    if until is None:
        return f"no step could begin {within}"
    behind = [part for part in bins.running if bins.passed_by(part) <= until]
    if not behind:
        return f"not all bins came {within}"
    parts = ", ".join(f"{part.name} ({_place_of(part, until)})" for part in behind)
    fact = f"{parts} did not pass {until} {within}"
    if any(part.at < until for part in behind):
        fact += ": moves are made as rows come that are later"
    return fact


def _place_of(part: WorkerPart, until: Time) -> str:
    """Return the place of a part that has not passed a time."""
    if part.frontier is None:
        return "has read no rows"
    if part.at < until:
        return f"stands at {part.at}"
    count = len(part.awaited)
    return "waits for a bin" if count == 1 else f"waits for {count} bins"


@dataclass
class Carrier:
    """A migration on its way. Steps were checked (`move_request.check`)."""

    watch: Watch
    steps: Steps
    manner: Manner
    progress: Callable[[MoveProgress], None] = lambda moved: None
    wait: Callable[[float], None] = time.sleep
    moved: MoveProgress = field(init=False)
    table: StepTable | None = field(init=False, default=None)
    # the first time that is ahead of a worker which had come too far for a proposal
    least: Time = field(init=False, default=0)

    told_at: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.files = self.watch.files
        self.steering = Steering(self.files.storage)
        self.began = time.time()
        moves = chain.from_iterable(step.moves for step in self.steps)
        self.ahead = tuple((move.bin, move.target) for move in moves)
        self.moved = MoveProgress("waiting", len(self.steps), bins=len(self.ahead))

    def carry(self) -> MoveProgress:
        """Carry the migration to its end, or as far as it comes; return its progress."""
        self._refuse_another()
        self.steering.clear()
        try:
            self._carry()
            self._tell(state="finished")
        except MoveEndedError as end:
            self._tell(state=end.state, reason=end.reason)
        finally:
            self.steering.clear()
        self._compact()
        return self.moved

    def _compact(self) -> None:
        """Remove the files of earlier moves. No migration ends for it: the next one tries again."""
        try:
            compact(self.files, self.watch.begun, self.watch.survey)
        except StateshiftError as error:
            logger.warning("the files of earlier moves stay: %s", error)

    def _refuse_another(self) -> None:
        """Refuse while somebody else carries moves. It says so every few seconds; by the clock of
        another machine that may look long ago, so it is listened to.
        """
        carried = self.steering.carried
        if carried is None or carried.by == process_name() or is_gone(carried.by):
            return
        is_alive = abs(time.time() - carried.at) < DEAD_SECONDS
        for _ in range(LISTENS):
            if is_alive:
                break
            self.wait(POLL_SECONDS_MAX)
            is_alive = self.steering.carried not in (carried, None)
        if is_alive:
            raise PlanError(
                f"bins are moved by {carried.by}: {carried.begun} of {carried.steps} steps have "
                "begun",
                hint=f"wait for it, or: {live_command('abort', self.files.location)}",
            )

    def _carry(self) -> None:
        if not self.steps:
            # Whoever has carried earlier decisions may be dead.
            self._wait_until(self._are_earlier_complete)
            return
        if self.manner.is_warm:  # whoever takes bins reads them first
            self._is_proposed((), 0)
            self._wait_until(self._are_read_ahead)
        if self.manner.prepared:
            # Propose all steps together, each for a time of its own.
            steps: tuple[Step, ...] = tuple(step.moves for step in self.steps)
            for tries in range(TRIES_MAX):
                bins = self._look()
                while self._is_held_up():
                    self.wait(POLL_SECONDS_MAX)
                    bins = self._look()
                every = max(1, math.ceil(self.manner.gap_seconds * bins.rate()))
                ahead = bins.ahead(self._lead(tries))
                start = max(ahead, self.least, self.steps[0].earliest)
                updates = updates_ahead(steps, start, every)
                if self._is_proposed(updates, tries):
                    break
            self._tell(state="moving", begun=len(steps))
            self._wait_until(self._are_steps_complete)
        else:
            self._step_by_step()

    # ---------------------------------------------------------------- ways

    def _step_by_step(self) -> None:
        """Begin each step once the one before is complete."""
        rollout = Rollout(tuple(step.moves for step in self.steps))
        tries = 0
        pause, since = Pause(self.wait), time.time()
        while not rollout.finished:
            bins = self._look()
            rollout = self._throttled(rollout, bins)
            if not rollout.waiting and self._is_held_up():
                since = time.time()
                pause()
                continue
            now = bins.ahead(self._lead(tries))
            if rollout.begun < len(self.steps):
                now = max(now, self.steps[rollout.begun].earliest)
            now = max(now, self.least, -1 if rollout.sent is None else rollout.sent)
            after, updates = advance(rollout, now, bins.passed)
            if updates and not self._is_proposed(updates, tries):
                tries += 1
                continue
            if after != rollout:
                rollout, tries = after, 0
                pause, since = Pause(self.wait), time.time()
                complete = rollout.begun - rollout.waiting
                self._tell(
                    state="moving" if rollout.waiting else "waiting",
                    begun=rollout.begun,
                    complete=complete,
                    bins_moved=sum(len(step.moves) for step in self.steps[:complete]),
                )
            elif time.time() >= since + self.manner.wait_seconds:
                raise self._late(bins, rollout.sent)
            pause()

    def _lead(self, tries: int) -> float:
        """Return the seconds that a step is proposed ahead: twice as many with each try."""
        least = LEAD_SECONDS_AGAIN if tries else 0.0
        return max(self.manner.lead_seconds, least) * float(1 << tries)

    def _throttled(self, rollout: Rollout, bins: Bins) -> Rollout:
        """Return the rollout with the pause and the size of steps that hold now."""
        throttle = self.steering.throttled
        seconds = self.manner.gap_seconds
        if throttle.gap_seconds is not None:
            seconds = throttle.gap_seconds
        gap = math.ceil(seconds * bins.rate())
        if throttle.bins is not None:
            steps = list(self.steps[: rollout.begun])
            for step in self.steps[rollout.begun :]:
                for first in range(0, len(step.moves), throttle.bins):
                    moves = step.moves[first : first + throttle.bins]
                    steps.append(TimedStep(moves, step.earliest))
            self.steps = tuple(steps)
            self.moved = replace(self.moved, steps=len(self.steps))
        return replace(rollout, steps=tuple(step.moves for step in self.steps), gap=gap)

    # ---------------------------------------------------------------- waiting

    def _wait_until(self, is_done: Callable[[Bins], MoveEndedError | None]) -> None:
        """Look until `is_done` returns None; raise its error once time is over."""
        pause, until = Pause(self.wait), time.time() + self.manner.wait_seconds
        while (late := is_done(self._look())) is not None:
            if time.time() >= until:
                raise late
            pause()

    def _are_steps_complete(self, bins: Bins) -> MoveEndedError | None:
        assert self.table is not None, "something was proposed"
        steps = [step for step in self.steps if self._is_past(bins, step)]
        self._tell(complete=len(steps), bins_moved=sum(len(step.moves) for step in steps))
        if self.table.is_complete:
            return None
        return self._late(bins, self.table.last)

    def _is_past(self, bins: Bins, step: TimedStep) -> bool:
        """Whether a prepared step is complete: all its bins are at their targets."""
        parts = {part.number: part for part in bins.parts}
        for move in step.moves:
            target = parts.get(move.target)
            if target is not None and move.bin not in target.ledger.here:
                return False
        return True  # whoever is gone for good has given on what it had

    def _are_earlier_complete(self, bins: Bins) -> MoveEndedError | None:
        last = bins.moves.configuration.last
        if bins.passed > last or not bins.running:
            return None
        self._tell(state="moving")
        return self._late(bins, last)

    def _are_read_ahead(self, bins: Bins) -> MoveEndedError | None:
        """Whether all bins were read ahead, by all operators of those that take them."""
        found = self.files.prepared()
        count = 0
        for bin, worker in self.ahead:
            takers = [part.runs for part in self.watch.parts.values() if part.number == worker]
            count += all(bin in found.get((each.operator, each.worker), ()) for each in takers)
        self._tell(state="ahead", prepared=count)
        if count >= len(self.ahead):
            return None
        reason = f"{count} of {len(self.ahead)} bins were read ahead within "
        return MoveEndedError("aborted", f"{reason}{self.manner.wait_seconds:g} s")

    def _late(self, bins: Bins, until: Time | None) -> MoveEndedError:
        return MoveEndedError("applied", late_parts(bins, until, self.manner.wait_seconds))

    # ---------------------------------------------------------------- one proposal

    def _is_proposed(self, updates: Sequence[Update], tries: int) -> bool:
        """Propose, and wait until it is decided; return whether it is applied. If not, somebody was
        past its time already, and a later one can be proposed.
        """
        bins = self._look()
        while (open_ := bins.moves.open) is not None:  # overdue, or of a process that has ended
            refuse_under_way(bins)
            reason = f"nobody has decided within {open_.timeout_seconds:g} s"
            if is_gone(open_.by):
                reason = f"{open_.by}, which has proposed it, has ended"
            self.files.decide(open_.number, decided_here("aborted", reason))
            bins = self.watch.look()
        proposal = self.proposal(bins, updates)
        move = f"move {proposal.number}"
        with proposing(move, "nothing more was moved", self.files.location):
            self.files.propose(proposal)
        first = proposal.earliest if proposal.updates else None
        self._tell(state="proposed", number=proposal.number, time=first)
        # Whoever is not met here starts later, and sees the proposal before it reads a row.
        self.table = StepTable(self.watch.survey(), proposal)
        decided = self._await_decision(proposal, self.table)
        if proposal.number % EVERY == 0:
            self._compact()
        if decided.outcome == "applied":
            return True
        later = self._later(proposal)
        if later is None or tries + 1 >= TRIES_MAX:
            raise MoveEndedError("aborted", decided.reason)
        self.least = later
        return False

    def proposal(self, bins: Bins, updates: Sequence[Update]) -> Proposal:
        return Proposal(
            number=bins.moves.decided,
            updates=tuple(updates),
            at=time.time(),
            timeout_seconds=self.manner.timeout_seconds,
            ahead=self.ahead if self.manner.is_warm else (),
            by=process_name(),
        )

    def _await_decision(self, proposal: Proposal, table: StepTable) -> Decision:
        """Hear the workers, and decide as the table says."""
        pause = Pause(self.wait)
        while True:
            decided = self.files.decided(proposal.number)
            answers = self.files.answers(proposal.number)
            now = time.time()
            if decided is None:
                table.hear(answers)
                decision = self._decision(proposal, table, answers, now)
                if decision is not None:
                    decided = self.files.decide(proposal.number, decision)
            self._tell(parts=len(table.parts), acknowledged=table.acknowledged)
            if decided is not None:
                break
            pause()
        if decided.outcome == "aborted":
            table.is_refused = True
            silent: dict[str, None] = {}  # the workers for whose answer the proposal has ended
            is_refused = any(answer.word == REFUSED for answer in answers)
            if not is_refused and not self.steering.is_stopped:
                silent = dict.fromkeys(worker for _, worker in table.silent(answers))
            self._tell(silent=tuple(silent))
        return decided

    def _decision(
        self, proposal: Proposal, table: StepTable, answers: Sequence[Answer], now: float
    ) -> Decision | None:
        if table.is_acknowledged:
            return decided_here("applied")
        if table.is_refused:
            refusals = [answer for answer in answers if answer.word == REFUSED]
            reason = "; ".join(f"{answer.worker} {answer.reason}" for answer in refusals)
            return decided_here("aborted", reason)
        if self.steering.is_stopped:
            return decided_here("aborted", ASKED_TO_STOP)
        if now >= proposal.expires:
            parts = [f"{operator} at {worker}" for operator, worker in table.silent(answers)]
            silent = ", ".join(parts) or "nobody"
            reason = f"{silent} did not answer within {proposal.timeout_seconds:g} s"
            return decided_here("aborted", reason)
        return None

    def _later(self, proposal: Proposal) -> Time | None:
        """Return the first time ahead of all who refused; None if time was not the reason."""
        if not proposal.updates:
            return None
        latest: Time | None = None
        for answer in self.files.answers(proposal.number):
            if answer.word != REFUSED:
                continue
            if answer.planned is None or answer.planned < cut(proposal.earliest):
                return None
            latest = max(latest or 0, math.floor(answer.planned[0]) + 1)
        return latest

    # ---------------------------------------------------------------- progress

    def _look(self) -> Bins:
        """Return the group as it is, and hand all news to the table; end where it is asked for."""
        bins = self.watch.look()
        if self.table is not None and self.table.is_acknowledged:
            self.table.watch(bins)
        if self.steering.is_stopped:
            raise MoveEndedError("aborted", ASKED_TO_STOP)
        return bins

    def _is_held_up(self) -> bool:
        is_paused = self.steering.is_paused
        self._tell(state="paused" if is_paused else "waiting")
        return is_paused

    def _tell(self, **known: object) -> None:
        """Report progress, where it is new."""
        now = time.time()
        moved = replace(self.moved, **known)  # type: ignore[arg-type]
        is_new = moved != self.moved
        if is_new:
            self.moved = replace(moved, seconds=now - self.began)
        if not moved.is_over and (is_new or now >= self.told_at + TELL_SECONDS):
            carried = MoveCarrier(process_name(), now, moved.steps, moved.begun, moved.state)
            self.steering.carry(carried)
            self.told_at = now
        self.progress(self.moved)


@dataclass
class CountCarrier(Carrier):
    """Another number of bins on its way. In `moved`, `complete` counts the parts that have it."""

    count: int = 0

    def _carry(self) -> None:
        if self._look().count != self.count:
            self._is_proposed((), 0)
        self._wait_until(self._have_redistributed)

    def proposal(self, bins: Bins, updates: Sequence[Update]) -> Proposal:
        since = BEGIN if self.manner.at is None else self.manner.at
        return replace(super().proposal(bins, updates), ahead=(), bins=self.count, since=since)

    def _have_redistributed(self, bins: Bins) -> MoveEndedError | None:
        left = bins.not_dealt
        running = len(bins.running)
        self._tell(state="moving", parts=running, complete=running - len(left))
        if not left:
            return None
        names = ", ".join(part.name for part in left)
        seconds = f"{self.manner.wait_seconds:g} s"
        return MoveEndedError("applied", f"{names} did not deal bins anew within {seconds}")


EVERY = 32  # moves
KEPT = 64  # moves


def compact(files: Files, begun: GroupStart, look: Callable[[], Bins]) -> None:
    """Fold the moves so far, and remove the files that nobody needs, if they are many."""
    number, newest = files.newest_compaction()
    base, bins = files.moves_base(), look()
    moves = bins.moves
    before = 0 if base is None else base.decided
    if moves.decided < before + EVERY:
        return
    begin = BEGIN if base is None else base.configuration.since
    since = max(begin, newest.since)
    if not files.imported():
        needed: list[Time] = []
        for part in bins.parts:
            same = [other for other in bins.parts if other.runs.operator == part.runs.operator]
            ledger = part.ledger.claimed({other.number: other.ledger for other in same})
            needed += [part.passed, *(given.time for given in ledger.unclaimed)]
        first_needed = min(needed, default=0) - 1
        since = max(since, first_needed - 1)
    if not files.compacted(number + 1, Compaction(since)):
        return  # somebody has begun, or compacts: the next one tries again
    files.keep_moves(MovesBase(moves.decided, retire(moves.configuration, since), moves.ahead))
    files.forget_compactions(number + 1)
    known = [part.moves_known for part in bins.running]
    first = min(before, moves.decided - KEPT, *known)
    kept = files.moves_kept(begun, len(bins.workers))
    if first > kept.first:
        configuration = kept.configuration
        for earlier in range(kept.first, first):
            proposal, decided = files.proposal(earlier), files.decided(earlier)
            if proposal is not None and decided is not None and decided.outcome == "applied":
                configuration = apply_proposal(configuration, proposal)
        assigned = configuration.at(configuration.last)
        configuration = initial_configuration(assigned, configuration.workers)
        files.forget_moves(MovesKept(first, configuration))

"""A whole migration, carried: step by step, each proposed, acknowledged, decided and followed.

    Carrier(watch, steps, manner).carry()   until all has come, it is aborted, or the time to wait
                                            is over; what is decided is never taken back

When the next step may begin is `protocol.rollout`'s to say: once the one before is complete, and
the pause behind it is over. A worker that has come too far for a proposal says how far it is, and
the step is proposed again for a later time. Whoever carries may die: workers abort what nobody has
decided, and what is left is asked for again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from stateshift.dataflow.move_steps import Step
from stateshift.errors import (
    AlreadyThere,
    PlanError,
    StateshiftError,
    StorageError,
    TransientStorageError,
)
from stateshift.live.bins.answers import REFUSED
from stateshift.live.bins.compacting_moves import EVERY, compact
from stateshift.live.bins.files import Answer, Proposal
from stateshift.live.bins.move_request import Manner, Steps, TimedStep, command, refuse_under_way
from stateshift.live.bins.moved import MoveEndedError, MoveProgress, State, late_parts
from stateshift.live.bins.steering import MoveCarrier, Steering
from stateshift.live.bins.step_table import StepTable
from stateshift.live.bins.times import cut
from stateshift.live.bins.watch import Bins, Watch
from stateshift.live.member import decided_here, is_gone, process_name
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import Time, Update
from stateshift.live.protocol.rollout import Rollout, advance, updates_ahead
from stateshift.live.values import POLL_SECONDS_MAX, Pause

logger = logging.getLogger(__name__)

TRIES_MAX = 6  # of one step; each has twice the lead of the one before
DEAD_SECONDS = 20.0  # whoever carries moves and has said nothing for so long is dead
TELL_SECONDS = 5.0  # between two words of whoever carries moves that it lives
LISTENS = 20  # half-seconds in which a carrier that lives speaks, whatever its clock says
LEAD_SECONDS_AGAIN = 0.1  # at least, once somebody was too far
ASKED_TO_STOP = "stateshift live abort"


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
        """Carry the migration to its end, or as far as it comes; return how far that is.

        Raises:
            PlanError: somebody else carries one.
        """
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
        """Remove what nobody needs of the moves so far. No migration ends for it: the next one
        tries again.
        """
        try:
            compact(self.files, self.watch.begun, self._met)
        except StateshiftError as error:
            logger.warning("the files of earlier moves stay: %s", error)

    def _met(self) -> Bins:
        """Return the group as it is, with whoever has just started."""
        self.watch.meet()
        return self.watch.look()

    def _refuse_another(self) -> None:
        """Refuse while somebody else carries moves. It says so every few seconds; by the clock of
        another machine that may look long ago, so it is listened to.
        """
        carried = self.steering.carried
        if carried is None or carried.by == process_name() or is_gone(carried.by):
            return
        if abs(time.time() - carried.at) < DEAD_SECONDS or self._speaks_again(carried):
            raise PlanError(
                f"bins are moved by {carried.by}: {carried.begun} of {carried.steps} steps have "
                "begun",
                hint=f"wait for it, or: {command('abort', self.files.location)}",
            )

    def _speaks_again(self, carried: MoveCarrier) -> bool:
        """Whether somebody who carries moves says so once more."""
        for _ in range(LISTENS):
            self.wait(POLL_SECONDS_MAX)
            if self.steering.carried not in (carried, None):
                return True
        return False

    def _carry(self) -> None:
        if not self.steps:
            self._await_earlier()
            return
        if self.manner.is_warm:
            self._read_ahead()
        if self.manner.prepared:
            self._all_prepared()
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
            after, updates = advance(rollout, self._now(rollout, bins, tries), bins.passed)
            if updates and not self._is_proposed(updates, tries):
                tries += 1
                continue
            if after != rollout:
                rollout, tries = after, 0
                pause, since = Pause(self.wait), time.time()
                self._tell_steps(rollout)
            elif time.time() >= since + self.manner.wait_seconds:
                raise MoveEndedError(
                    "applied", late_parts(bins, rollout.sent, self.manner.wait_seconds)
                )
            pause()

    def _now(self, rollout: Rollout, bins: Bins, tries: int) -> Time:
        """Return the time at which a step would be made that is proposed now."""
        now = bins.ahead(self._lead(tries))
        if rollout.begun < len(self.steps):
            now = max(now, self.steps[rollout.begun].earliest)
        return max(now, self.least, -1 if rollout.sent is None else rollout.sent)

    def _lead(self, tries: int) -> float:
        """Return how many seconds ahead a step is proposed: twice as many with each try."""
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
            begun = self.steps[: rollout.begun]
            left = self.steps[rollout.begun :]
            self.steps = (*begun, *_cut(left, throttle.bins))
            self.moved = replace(self.moved, steps=len(self.steps))
        steps = tuple(step.moves for step in self.steps)
        return replace(rollout, steps=steps, gap=gap)

    def _all_prepared(self) -> None:
        """Propose all steps together, each for a time of its own."""
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
        self._follow()

    def _follow(self) -> None:
        """Wait until all that was proposed is complete."""
        assert self.table is not None, "something was proposed"
        pause, until = Pause(self.wait), time.time() + self.manner.wait_seconds
        while not self.table.is_complete:
            bins = self._look()
            steps = [step for step in self.steps if self._is_past(bins, step)]
            self._tell(complete=len(steps), bins_moved=sum(len(step.moves) for step in steps))
            if not self.table.is_complete and time.time() >= until:
                raise MoveEndedError(
                    "applied", late_parts(bins, self.table.last, self.manner.wait_seconds)
                )
            pause()

    def _is_past(self, bins: Bins, step: TimedStep) -> bool:
        """Whether a prepared step is complete: all its bins are where they go."""
        parts = {part.number: part for part in bins.parts}
        for move in step.moves:
            target = parts.get(move.target)
            if target is not None and move.bin not in target.ledger.here:
                return False
        return True  # whoever is gone for good has given on what it had

    def _await_earlier(self) -> None:
        """Wait until what was decided before is complete: whoever has carried it may be dead."""
        pause, until = Pause(self.wait), time.time() + self.manner.wait_seconds
        while True:
            bins = self._look()
            last = bins.moves.configuration.last
            if bins.passed > last or not bins.running:
                return
            self._tell(state="moving")
            if time.time() >= until:
                raise MoveEndedError("applied", late_parts(bins, last, self.manner.wait_seconds))
            pause()

    # ---------------------------------------------------------------- copying ahead

    def _read_ahead(self) -> None:
        """Let whoever takes bins read them, and wait until that is done."""
        self._is_proposed((), 0)
        pause, until = Pause(self.wait), time.time() + self.manner.wait_seconds
        while True:
            self._look()
            count = self._prepared()
            self._tell(state="ahead", prepared=count)
            if count >= len(self.ahead):
                return
            if time.time() >= until:
                reason = f"{count} of {len(self.ahead)} bins were read ahead within "
                raise MoveEndedError("aborted", f"{reason}{self.manner.wait_seconds:g} s")
            pause()

    def _prepared(self) -> int:
        """Return how many bins were read ahead, by all operators of those that take them."""
        found = self.files.prepared()
        count = 0
        for bin, worker in self.ahead:
            takers = [part.runs for part in self.watch.parts.values() if part.number == worker]
            count += all(bin in found.get((each.operator, each.worker), ()) for each in takers)
        return count

    # ---------------------------------------------------------------- one proposal

    def _is_proposed(self, updates: Sequence[Update], tries: int) -> bool:
        """Propose, and wait until it is decided; return whether it is applied. If not, somebody was
        past its time already, and a later one can be proposed.
        """
        bins = self._closed(self._look())
        proposal = self._proposal(bins, updates)
        self._propose(proposal)
        # Whoever is not met here starts later, and sees what is proposed before it reads a row.
        self.watch.meet()
        self.table = StepTable(self.watch.look(), proposal)
        decided = self._decided(proposal)
        if proposal.number % EVERY == 0:
            self._compact()
        if decided.outcome == "applied":
            return True
        later = self._later(proposal)
        if later is None or tries + 1 >= TRIES_MAX:
            raise MoveEndedError("aborted", decided.reason)
        self.least = later
        return False

    def _proposal(self, bins: Bins, updates: Sequence[Update]) -> Proposal:
        return Proposal(
            number=bins.moves.decided,
            updates=tuple(updates),
            at=time.time(),
            timeout_seconds=self.manner.timeout_seconds,
            ahead=self.ahead if self.manner.is_warm else (),
            by=process_name(),
        )

    def _closed(self, bins: Bins) -> Bins:
        """Abort what is proposed, and overdue or of a process that has ended; refuse while it is
        neither.
        """
        while (open_ := bins.moves.open) is not None:
            refuse_under_way(bins)
            reason = f"nobody has decided within {open_.timeout_seconds:g} s"
            if is_gone(open_.by):
                reason = f"{open_.by}, which has proposed it, has ended"
            self.files.decide(open_.number, decided_here("aborted", reason))
            bins = self.watch.look()
        return bins

    def _propose(self, proposal: Proposal) -> None:
        try:
            self.files.propose(proposal)
        except AlreadyThere:
            raise PlanError(
                f"somebody else has proposed move {proposal.number} in this moment",
                hint=command("status", self.files.location),
            ) from None
        except TransientStorageError:
            raise
        except StorageError as error:
            hint = "nothing more was moved: when that is mended, run this command again"
            raise error.with_hint(hint) from None
        first = None
        if proposal.updates:
            first = proposal.earliest
        self._tell(state="proposed", number=proposal.number, time=first)

    def _decided(self, proposal: Proposal) -> Decision:
        """Hear the workers, and decide as the table says."""
        assert self.table is not None, "it is proposed"
        pause = Pause(self.wait)
        while True:
            decided = self.files.decided(proposal.number)
            answers = self.files.answers(proposal.number)
            now = time.time()
            if decided is None:
                self.table.hear(answers, now)
                decided = self._decision(proposal, answers, now)
            self._tell(parts=len(self.table.parts), acknowledged=self.table.acknowledged)
            if decided is not None:
                if decided.outcome == "aborted":
                    self.table.give_up(decided.reason, now)
                    self._tell(silent=self._silent(answers))
                return decided
            pause()

    def _silent(self, answers: Sequence[Answer]) -> tuple[str, ...]:
        """Return the workers for whose answer a proposal has ended; none where one refused it."""
        assert self.table is not None, "it is proposed"
        if any(answer.word == REFUSED for answer in answers) or self.steering.is_stopped:
            return ()
        return tuple(dict.fromkeys(worker for _, worker in self.table.silent(answers)))

    def _decision(
        self, proposal: Proposal, answers: Sequence[Answer], now: float
    ) -> Decision | None:
        """Decide, if it is time to; return what holds."""
        assert self.table is not None, "it is proposed"
        if self.table.is_acknowledged:
            return self.files.decide(proposal.number, decided_here("applied"))
        if self.table.is_refused:
            refusals = [answer for answer in answers if answer.word == REFUSED]
            reason = "; ".join(f"{answer.worker} {answer.reason}" for answer in refusals)
            return self.files.decide(proposal.number, decided_here("aborted", reason))
        if self.steering.is_stopped:
            return self.files.decide(proposal.number, decided_here("aborted", ASKED_TO_STOP))
        if now >= proposal.expires:
            parts = [f"{operator} at {worker}" for operator, worker in self.table.silent(answers)]
            silent = ", ".join(parts) or "nobody"
            reason = f"{silent} did not answer within {proposal.timeout_seconds:g} s"
            return self.files.decide(proposal.number, decided_here("aborted", reason))
        return None

    def _later(self, proposal: Proposal) -> Time | None:
        """Return the first time that is ahead of everybody who has refused; None where time was not
        the reason.
        """
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

    # ---------------------------------------------------------------- what goes on

    def _look(self) -> Bins:
        """Return the group as it is, and hand what is new to the table; end where it is asked
        for.
        """
        bins = self.watch.look()
        if self.table is not None and self.table.is_acknowledged:
            self.table.watch(bins, time.time())
        if self.steering.is_stopped:
            raise MoveEndedError("aborted", ASKED_TO_STOP)
        return bins

    def _is_held_up(self) -> bool:
        """Whether somebody has paused the moves."""
        is_paused = self.steering.is_paused
        self._tell(state="paused" if is_paused else "waiting")
        return is_paused

    def _tell_steps(self, rollout: Rollout) -> None:
        complete = rollout.begun - rollout.waiting
        moved = sum(len(step.moves) for step in self.steps[:complete])
        state: State = "moving" if rollout.waiting else "waiting"
        self._tell(state=state, begun=rollout.begun, complete=complete, bins_moved=moved)

    def _tell(self, **known: object) -> None:
        """Say how far it is, where that is new."""
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


def _cut(steps: Steps, bins: int) -> list[TimedStep]:
    """Return steps cut into ones of at most so many bins."""
    found = []
    for step in steps:
        for first in range(0, len(step.moves), bins):
            found.append(TimedStep(step.moves[first : first + bins], step.earliest))
    return found

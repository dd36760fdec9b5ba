"""A worker of an operator at work: it asks for news, runs a batch as its state says, and commits.

    look          news: moves that are proposed or decided, commits of others
    step          the bins through their stages, by the home that holds them; and one commit
    settle        the end of a commit whose answer was lost
    redistribute  the bins by another number of them, by a commit of its own

If the answer to a commit is lost, it was made, or will be, or was not: whoever does the next step
finds out (`settle`), and goes on from there. Until then the worker counts as having come as far.

A worker never waits for another one: it holds the rows of bins that have not come yet. It waits for
one thing: where its next frontier would pass the time of a move that is acknowledged and not
decided, it waits for the decision, at most for the move's time since it saw it, and then aborts it.

Another number of bins that is decided comes before the next batch (`redistribute`). Until then the
worker knows, and answers, no later decision.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from stateshift.errors import PlanError, TransientStorageError
from stateshift.live.bins.batches import NOTHING, RowBatch
from stateshift.live.bins.bin_run import ArrivedBin, BatchResult
from stateshift.live.bins.commits import (
    BinSnapshot,
    Commit,
    Counts,
    GivenBin,
    Ledger,
    redistribution_commit,
    whole_commit,
)
from stateshift.live.bins.files import (
    ACKNOWLEDGED,
    REFUSED,
    WHOLE_EVERY,
    Answer,
    Files,
    KnownMoves,
    Proposal,
    look,
    look_until_due,
    own_data,
)
from stateshift.live.bins.homes import Home
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.parts import KeyHashing
from stateshift.live.bins.times import Moment, cut
from stateshift.live.bins.upkeep import Cleaning, ReadingAhead
from stateshift.live.bins.worker_state import News, PendingCommit, WorkerState, is_passed
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import Time, retire

POLL_SECONDS = 0.02
LOOKS_IN_VAIN_MAX = 50  # until it is asked whether commits were forgotten before they were read


@dataclass
class KnownWorker:
    """Another worker's commits, and the number of looks since that found nothing new."""

    ledger: Ledger
    looks_in_vain: int = 0


class OtherWorkers:
    """The other workers of an operator, as the worker `me` knows them.

    names     the workers of the group, by number
    ledgers   the commits of each of the others, as far as they were read
    arrived   bin -> time -> the bin as it was given to here for then, until it is taken
    """

    def __init__(self, files: Files, operator: str, me: int, names: Mapping[int, str]) -> None:
        self.names = dict(names)
        self.arrived: dict[int, dict[Time, ArrivedBin]] = {}
        self._files = files
        self._operator = operator
        self._me = me
        self._known: dict[int, KnownWorker] = {}

    @property
    def ledgers(self) -> dict[int, Ledger]:
        """The commits of each, by its number."""
        return {number: known.ledger for number, known in self._known.items()}

    @property
    def with_bins(self) -> list[Moment]:
        """The frontiers of those that have bins, or await some."""
        found: list[Moment] = []
        for known in self._known.values():
            ledger = known.ledger
            if ledger.last is not None and (ledger.here or ledger.awaited):
                if ledger.frontier is None:
                    return []
                found.append(ledger.frontier)
        return found

    @property
    def heard(self) -> dict[str, int]:
        """The last commit of each that is known here, by its name."""
        return {self.names[number]: ledger.number for number, ledger in self.ledgers.items()}

    @property
    def borrowed(self) -> set[str]:
        """The files of other workers that their last commits name."""
        files: set[str] = set()
        for ledger in self.ledgers.values():
            if ledger.last is not None:
                files.update(ledger.last.borrowed)
        return files

    def look(self) -> None:
        """Read the workers that have joined, and the commits of each since."""
        while (joined := self._files.worker(len(self.names))) is not None:
            self.names[joined.number] = joined.name
        for number, name in self.names.items():
            if number != self._me:
                self._look_at(number, name)

    def _look_at(self, number: int, name: str) -> None:
        known = self._known.get(number)
        if known is None:
            known = KnownWorker(Ledger())
            self._read_anew(number, name, known)
            self._known[number] = known
        before = known.ledger.number
        while True:
            number_after = known.ledger.number + 1
            commit = self._files.committed_elsewhere(self._operator, name, number_after)
            if commit is None:
                break
            known.ledger = known.ledger.plus(commit)
            for given in commit.given:
                self._note(number, given)
        known.looks_in_vain = 0 if known.ledger.number > before else known.looks_in_vain + 1
        if known.looks_in_vain == LOOKS_IN_VAIN_MAX:
            known.looks_in_vain = 0
            # The next commit to be read here may lie so far back that it was forgotten.
            if self._files.last_commit(self._operator, name) > known.ledger.number:
                self._read_anew(number, name, known)

    def _read_anew(self, number: int, name: str, known: KnownWorker) -> None:
        known.ledger = self._files.ledger(self._operator, name)
        for given in known.ledger.unclaimed:
            self._note(number, given)

    def _note(self, source: int, given: GivenBin) -> None:
        if given.to == self._me:
            self.arrived.setdefault(given.bin, {})[given.time] = ArrivedBin(source, given.kept)


@dataclass(eq=False)
class Proposals:
    """The moves of a group, read and answered by a worker. A batch is planned by one thread, and
    proposals are answered by another, by the frontier that is planned.
    """

    files: Files
    operator: BinOperator
    name: str
    moves: KnownMoves
    planned: Moment | None
    lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _answered: set[int] = field(default_factory=set, init=False)
    _first_seen: dict[int, float] = field(default_factory=dict, init=False)

    def answer(self, state_of: Callable[[], WorkerState]) -> None:
        """Read the new moves, and answer the one that is proposed, by the state of the worker."""
        with self.lock:
            self.moves = look_until_due(self.files, self.moves)
            proposal = self.moves.open
            if proposal is not None:
                self._first_seen.setdefault(proposal.number, time.monotonic())
                if proposal.number not in self._answered:
                    self._answer(proposal, state_of())

    def _answer(self, proposal: Proposal, state: WorkerState) -> None:
        """Say whether a move can still be made: it is in time, and this worker knows how far it is.
        A move that one worker refuses is aborted, so that nobody waits for it.
        """
        configuration = self.moves.configuration
        if proposal.bins is not None and not state.can_redistribute(configuration):
            return  # not yet: it is asked again
        key = self.operator.key
        reason = state.reason_against(proposal, configuration, self.planned, key)
        answer = Answer(
            operator=self.operator.name,
            worker=self.name,
            word=ACKNOWLEDGED if reason is None else REFUSED,
            at=time.time(),
            reason=reason or "",
            planned=self.planned,
        )
        self.files.answer(proposal.number, answer)
        if reason is not None:
            self._abort(proposal, f"{self.name} {reason}")
        self._answered.add(proposal.number)

    def await_decision(self, proposal: Proposal) -> None:
        """Wait until a move is decided; abort it once its time is over since this worker saw it
        first: the clock of whoever has proposed it may be ahead of this one, or behind it.
        """
        first_seen = self._first_seen.setdefault(proposal.number, time.monotonic())
        while self.files.decided(proposal.number) is None:
            if time.monotonic() >= first_seen + proposal.timeout_seconds:
                reason = f"nobody has decided within {proposal.timeout_seconds:g} s"
                self._abort(proposal, reason)
                return
            time.sleep(POLL_SECONDS)

    def _abort(self, proposal: Proposal, reason: str) -> None:
        self.files.decide(proposal.number, Decision("aborted", time.time(), self.name, reason))


class BinWorker:
    """A worker of an operator, in one process. `step` is called by one thread at a time."""

    def __init__(self, files: Files, operator: BinOperator, name: str, home: Home) -> None:
        self.files, self.operator, self.name, self.home = files, operator, name, home
        begun = files.begun()
        assert begun is not None, "a worker has begun the group"
        keyed = files.keyed(operator.name, name)
        joined = files.joined()
        me = next(one.number for one in joined if one.name == name)
        ledger = files.ledger(operator.name, name)
        key_kinds = () if keyed is None else keyed.kinds
        self.state = WorkerState(me, begun.bins, ledger, key_kinds)
        self._has_said_kinds = False  # since it started
        moves = files.known_moves(begun, len(joined))
        if ledger.last is None:
            # All parts of an operator begin with the same moves, so that a bin which has moved is
            # empty at both ends or at none.
            since = files.begin_part()
            moves = look(files, files.known_moves(begun, len(joined)))
            moves = replace(moves, configuration=retire(moves.configuration, since))
        self.proposals = Proposals(files, operator, name, moves, self.frontier)
        names = {one.number: one.name for one in joined}
        self.others = OtherWorkers(files, operator.name, me, names)
        self._cleaning = Cleaning(files, operator.name, name)
        self._unanswered: PendingCommit | None = None
        self._ahead = ReadingAhead(files, operator.name, name, home.read_ahead)
        # Take up where the commits have ended.
        last = self.ledger.last
        has_other_bins = self.ledger.bins(self.state.begun) != self.bins
        if last is not None and last.moves < self.moves.decided and has_other_bins:
            # Another number was due when this worker ended, so long ago that the moves before it
            # are not read any more.
            self._commit_redistribution(self.bins, self.moves.decided)
        self.answer()
        if self.ledger.last is None:
            self.state = self.state.begin(self.moves.configuration)
        self.redistribute()
        self.look()
        rewritten = self._cleaning.look(self.ledger, self.others.borrowed)
        self.state = replace(self.state, rewritten=rewritten)
        if self.is_to_join:
            self.step()

    @property
    def ledger(self) -> Ledger:
        return self.state.ledger

    @property
    def frontier(self) -> Moment | None:
        return self.state.frontier

    @property
    def moves(self) -> KnownMoves:
        return self.proposals.moves

    @property
    def bins(self) -> int:
        return self.moves.configuration.bins

    @property
    def news(self) -> News:
        moves, others = self.moves, self.others
        is_due = moves.due is not None
        return News(moves.configuration, others.with_bins, others.arrived, is_due)

    def look(self) -> None:
        """Read others' commits, and then the moves: nobody has passed a move not known here."""
        self.others.look()
        self.answer()
        self.state = replace(self.state, ledger=self.ledger.claimed(self.others.ledgers))

    def answer(self) -> None:
        """Read the new moves, and answer the one proposed; while a batch is at work too."""
        self.proposals.answer(lambda: self.state)

    def has_arrived_at(self, number: int) -> None:
        """Take note that a commit's output has arrived, and all before it."""
        self.state = replace(self.state, ledger=self.ledger.arrived(number))

    @property
    def has_arrived(self) -> bool:
        return self.state.has_arrived(self.news)

    @property
    def is_to_join(self) -> bool:
        """Whether this worker has committed nothing, and can say how far it is before any row."""
        return self.state.is_to_join(self.news)

    # ---------------------------------------------------------------- a batch

    def step(
        self, batch: RowBatch = NOTHING, number: int | None = None, query: str = ""
    ) -> BatchResult:
        """Do a batch, or between two what has become possible; commit it."""
        began = time.time()
        if self.settle():
            raise self._made_before()
        self.look()
        before = self.ledger.last
        if batch.key_kinds and not self._has_said_kinds:  # by the first rows since the start
            keyed = KeyHashing(self.operator.name, self.name, batch.key_kinds, time.time())
            self.files.say_keyed(keyed)
            self.state = replace(self.state, key_kinds=batch.key_kinds)
            self._has_said_kinds = True
        if number is None and before is not None:
            number, query = before.batch, before.query
        seen = dict(before.seen) if before is not None else {}
        if batch.seen:
            seen = dict(self.operator.promise.seen(seen, batch.seen))
        frontier = self._plan_frontier(self.operator.promise.frontier(seen))
        plan = self.state.after(batch, self.news, frontier, query)
        came = self.home.run(self.ledger.number + 1, plan.works)
        commit = Commit(
            number=self.ledger.number + 1,
            batch=number,
            query=query,
            began=began,
            at=time.time(),
            frontier=frontier,
            seen=seen,
            moves=self.moves.decided,
            heard=self.others.heard,
            outputs=came.outputs,
            delivered=self.state.delivered,
            bins=self._bins_if_other(self.bins),
        )
        commit = plan.fill(commit, came)
        waiting = plan.waiting_after(commit, came)
        if commit.number % WHOLE_EVERY == 0:
            commit = whole_commit(commit, self.ledger)
        self._commit(PendingCommit(commit, self.ledger, plan.works, waiting))
        return came

    def _plan_frontier(self, own: Moment | None) -> Moment | None:
        """Return the frontier after a batch; it never goes back, all moves before are decided."""
        before = self.frontier
        if before is not None and (own is None or own < before):
            own = before
        while True:
            with self.proposals.lock:
                frontier = self.state.frontier_with(own, self.news)
                # A commit that may still be made counts as well.
                planned, pending = frontier, self._unanswered
                if pending is not None and pending.commit.frontier is not None:
                    planned = max(frontier or pending.commit.frontier, pending.commit.frontier)
                self.proposals.planned = planned
                proposal = self.moves.open
            if proposal is None or not is_passed(proposal, frontier):
                return frontier
            self.proposals.await_decision(proposal)
            self.answer()

    def _bins_if_other(self, bins: int) -> int | None:
        """Return a number of bins as a commit says it: nothing where it is the first one."""
        return None if bins == self.state.begun else bins

    # ---------------------------------------------------------------- its commit

    def _commit(self, made: PendingCommit) -> None:
        mine = (self.operator.name, self.name)
        for runs in self.files.runs() if self.ledger.last is None else ():
            if (runs.operator, runs.worker) == mine and runs.is_evicted:
                raise PlanError(
                    f"worker {self.name} of {self.operator.name} was evicted before its first "
                    "commit",
                    hint="start it again",
                )
        after = self.ledger.plus(made.commit)
        own = own_data(self.operator.name, self.name)
        borrowed = sorted(file for file in after.files if not file.startswith(own))
        commit = replace(made.commit, borrowed=tuple(borrowed))
        made = replace(made, commit=commit, after=replace(after, last=commit))
        try:
            self.files.commit(self.operator.name, self.name, commit)
        except TransientStorageError:
            self._unanswered = made
            raise
        except PlanError:
            if not self.settle():
                raise
            raise self._made_before() from None
        self._go_on_from(made)

    def settle(self) -> bool:
        """Ask for a commit whose answer was lost; return whether it was made."""
        pending = self._unanswered
        if pending is None:
            return False
        if not self.files.is_made(self.operator.name, self.name, pending.commit):
            return False
        self._go_on_from(pending)
        return True

    def _made_before(self) -> TransientStorageError:
        """Return the error of a step that began before the last commit was known to be made."""
        return TransientStorageError(
            f"commit {self.ledger.number} of worker {self.name} was made by an earlier try, whose "
            "answer was lost",
            location=self.files.location,
            hint="start the query again: it goes on from there",
        )

    def _go_on_from(self, made: PendingCommit) -> None:
        bins_before = self.ledger.bins(self.state.begun)
        self.state, self._unanswered = self.state.made(made), None
        self._cleaning.note(made.commit)
        for work in made.works:
            for since in work.taken:
                del self.others.arrived[work.bin][since]
        if self.ledger.bins(self.state.begun) != bins_before:
            self.others.arrived.clear()
        with self.proposals.lock:
            moves = self.proposals.moves
            configuration = self.state.retired(moves.configuration)
            self.proposals.moves = replace(moves, configuration=configuration)

    # ---------------------------------------------------------------- another number of bins

    def redistribute(self) -> bool:
        """Redistribute the bins where another number of them is due; return whether it was so."""
        is_done = False
        while (due := self.moves.due) is not None:
            last = self.ledger.last
            assert due.bins is not None, "another number is due"
            if last is not None and last.moves <= due.number:
                if last.frontier is None or last.frontier < cut(due.since):
                    break
                self._commit_redistribution(due.bins, due.number + 1)
            with self.proposals.lock:
                self.proposals.moves = look_until_due(self.files, self.moves.resized())
            if last is None:
                self.state = self.state.begin(self.moves.configuration)
            is_done = True
        return is_done

    def _commit_redistribution(self, bins: int, moves: int) -> None:
        """Redistribute all bins, and commit nothing else."""
        before, last = self.ledger, self.ledger.last
        assert last is not None, "without a commit there is nothing to redistribute"
        began = time.time()
        parts = list(self.state.redistributions(bins))
        bins_after = self.home.redistribute(before.number + 1, parts)
        commit = Commit(
            number=before.number + 1,
            batch=last.batch,
            query=last.query,
            began=began,
            at=time.time(),
            frontier=last.frontier,
            seen=last.seen,
            moves=moves,
            heard=self.others.heard,
            delivered=self.state.delivered,
            counts=Counts(held=last.counts.held),
            bins=self._bins_if_other(bins),
        )
        self._commit(PendingCommit(redistribution_commit(commit, before, bins_after), before))

    # ---------------------------------------------------------------- upkeep

    def read_ahead(self) -> bool:
        """Read one bin that will come, as it is at the moment; return whether there was one."""
        asked, here = self.moves.ahead, self.ledger.here
        mine = [bin for bin, worker in asked if worker == self.state.me]
        coming = [bin for bin in mine if bin not in here]
        return self._ahead.read_one(asked, coming, self._kept_elsewhere)

    def _kept_elsewhere(self, bin: int) -> BinSnapshot | None:
        """Return a bin as the last other worker has committed it; None if that is not known."""
        for since in reversed(self.moves.configuration.history[bin]):
            if since.worker != self.state.me:
                ledger = self.others.ledgers.get(since.worker)
                if ledger is None or ledger.bins(self.state.begun) != self.bins:
                    return None
                return ledger.here.get(bin)
        return None

    @property
    def is_clean_up_due(self) -> bool:
        return self._cleaning.is_due(self.ledger.number)

    def clean_up(self) -> None:
        """Remove what nothing names any more; note which bins the next batch writes whole."""
        rewritten = self._cleaning.clean_up(self.ledger, self.others.borrowed)
        self.state = replace(self.state, rewritten=rewritten)

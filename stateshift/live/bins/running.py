"""A worker between its commits: what it knows, and what a batch makes of it.

    look      what is new: moves that are proposed or decided, commits of others
    plan      the stages of every bin that the batch touches
    run       the bins through their stages, by the home that holds them
    commit    one file: what has changed, was given, was taken, is held, was put out

If the answer to a commit is lost, it was made, or will be, or was not: whoever does the next step
finds out (`settle`), and goes on from there. Until then the worker counts as having come as far.

A worker never waits for another one. What it has not got yet holds the rows of its bins alone. It
waits for one thing: where its next frontier would pass the time of a move that is acknowledged and
not decided, it waits for the decision, at most for the move's time since it saw it, and then aborts
it.

Where another number of bins is decided, it deals its own anew before its next batch, by a commit of
its own (`deal_anew`): until then it knows, and answers, nothing that is decided later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from stateshift.errors import PlanError, TransientStorageError
from stateshift.live.bins.answers import (
    ACKNOWLEDGED,
    REFUSED,
    is_passed,
    reason_against_moves,
    reason_against_number,
)
from stateshift.live.bins.batch_commit import WaitingRows, fill_commit, waiting_after
from stateshift.live.bins.batches import NOTHING, Batch
from stateshift.live.bins.bin_run import BatchResult, BinWork
from stateshift.live.bins.cleaning import Cleaning
from stateshift.live.bins.commits import (
    BinSnapshot,
    Commit,
    Counts,
    HeldRows,
    Ledger,
    RedistributedBin,
    borrowed_files,
    redistribution_commit,
    whole_commit,
)
from stateshift.live.bins.dealing import BinCounts, OldBin, Redistribution
from stateshift.live.bins.files import (
    WHOLE_EVERY,
    Answer,
    Files,
    GroupStart,
    KnownMoves,
    Proposal,
    look,
    look_until_due,
    own_data,
)
from stateshift.live.bins.operators import Operator
from stateshift.live.bins.other_workers import OtherWorkers
from stateshift.live.bins.parts import KeyHashing
from stateshift.live.bins.reading_ahead import ReadingAhead
from stateshift.live.bins.stages import Position, Stage, Take, has_changes, stages
from stateshift.live.bins.times import BEGIN, Moment, cut
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import groups_to_resize, retire
from stateshift.live.protocol.frontiers import WorkerMoves, frontier_without_bins, is_settled

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.02


class Home(Protocol):
    """The place where bins are: this process, or those of Spark's executors."""

    def reading(self, rows: Any, bins: int) -> AbstractContextManager[Batch]:
        """Return what is to be known of a batch, which is a DataFrame, or Arrow's table. Its rows
        are at hand until the end.
        """
        ...

    def run(self, number: int, works: Sequence[BinWork]) -> BatchResult:
        """Take bins through their stages, and write what has changed."""
        ...

    def deal(self, number: int, deals: Sequence[Redistribution]) -> list[RedistributedBin]:
        """Deal bins anew, by another number of them, and write them."""
        ...

    def read_ahead(self, bin: int, kept: BinSnapshot) -> None:
        """Read what will be taken."""
        ...


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A commit whose answer was lost, and what comes of it if it was made."""

    commit: Commit
    after: Ledger
    works: Sequence[BinWork]
    waiting: Mapping[int, WaitingRows]


class Running:
    """A worker of an operator, in one process. `step` is called by one thread at a time."""

    def __init__(self, files: Files, operator: Operator, name: str, home: Home) -> None:
        self.files = files
        self.operator = operator
        self.name = name
        self.home = home
        begun = files.begun()
        assert begun is not None, "a worker has begun the group"
        self._begun = begun.bins
        keyed = files.keyed(operator.name, name)
        self._key_kinds = () if keyed is None else keyed.kinds
        self._has_said_keyed = False  # since it started
        joined = files.joined()
        names = {one.number: one.name for one in joined}
        self.me = next(one.number for one in joined if one.name == name)
        self.ledger = files.ledger(operator.name, name)
        self.moves = files.known_moves(begun, len(joined))
        if self.ledger.last is None:
            self.moves = _moves_at_first(files, begun, len(joined))
        self.others = OtherWorkers(files, operator.name, self.me, names)
        # what is proposed is answered by the frontier that is planned; a batch is planned by one
        # thread, and answers are given by another
        self._answering = threading.Lock()
        self.planned: Moment | None = self.frontier
        self._answered: set[int] = set()
        # when each proposal was met that was not decided, by this process's own clock
        self._first_seen: dict[int, float] = {}
        self._cleaning = Cleaning(files, operator.name, name)
        self._rewritten: frozenset[int] = frozenset()  # bins that the next batch writes whole
        self._unanswered: PendingCommit | None = None
        self._waiting: Mapping[int, WaitingRows] = {}  # as this process has written them
        self._ahead = ReadingAhead(files, operator.name, name, home.read_ahead)
        self._recover()

    # ---------------------------------------------------------------- what is known

    @property
    def frontier(self) -> Moment | None:
        """The frontier of the last commit."""
        return None if self.ledger.last is None else self.ledger.last.frontier

    @property
    def bins(self) -> int:
        """How many bins there are here."""
        return self.moves.configuration.bins

    def _recover(self) -> None:
        """Take up where the commits have ended."""
        self._deal_what_was_due()
        self.answer()
        if self.ledger.last is None:
            self._begin()
        self.deal_anew()
        self.look()
        self._rewritten = self._cleaning.look(self.ledger, self.others.borrowed)
        if self.is_to_join:
            self.step()

    def _begin(self) -> None:
        """Begin with the bins that are here first, all of them empty."""
        history = self.moves.configuration.history
        mine = [bin for bin, since in enumerate(history) if since[0].worker == self.me]
        self.ledger = Ledger(here=dict.fromkeys(mine, BinSnapshot()))

    def position(self, bin: int) -> Position:
        """Return how far a bin has come here."""
        held = self.ledger.held.get(bin)
        if held is not None and held.since is not None:
            return Position(cut(held.since), "awaited", held.since)
        at = BEGIN if self.frontier is None else self.frontier
        return Position(at, "here" if bin in self.ledger.here else "away")

    def look(self) -> None:
        """Read what is new: what others have committed, and then moves, so that nobody has passed a
        move that is not known here.
        """
        self.others.look()
        self.answer()
        self.ledger = self.ledger.claimed(self.others.ledgers)

    def answer(self) -> None:
        """Read which moves are new, and answer what is proposed; while a batch is at work too."""
        with self._answering:
            self.moves = look_until_due(self.files, self.moves)
            if self.moves.open is not None:
                self._first_seen.setdefault(self.moves.open.number, time.monotonic())
                self._answer(self.moves.open)

    def _answer(self, proposal: Proposal) -> None:
        """Say whether a move can still be made: it is in time, and this worker knows how far it
        is. What one worker refuses is aborted, so that nobody waits for it.
        """
        if proposal.number in self._answered:
            return
        if proposal.bins is not None and not self._can_be_dealt():
            return  # not yet: it is asked again
        reason = self._reason_against(proposal)
        word = ACKNOWLEDGED if reason is None else REFUSED
        answer = Answer(
            operator=self.operator.name,
            worker=self.name,
            word=word,
            at=time.time(),
            reason=reason or "",
            planned=self.planned,
        )
        self.files.answer(proposal.number, answer)
        if reason is not None:
            self._abort(proposal, f"{self.name} {reason}")
        self._answered.add(proposal.number)

    def _abort(self, proposal: Proposal, reason: str) -> None:
        self.files.decide(proposal.number, Decision("aborted", time.time(), self.name, reason))

    def _can_be_dealt(self) -> bool:
        """Whether all moves are behind this worker, and it knows how keys are hashed."""
        ledger = self.ledger
        awaits = sum(held.since is not None for held in ledger.held.values())
        moves = WorkerMoves(self.frontier, awaits, len(ledger.unclaimed))
        return bool(self._key_kinds) and is_settled(self.moves.configuration, moves)

    def _reason_against(self, proposal: Proposal) -> str | None:
        configuration = self.moves.configuration
        if proposal.bins is None:
            return reason_against_moves(proposal, configuration, self.planned)
        key = self.operator.key
        return reason_against_number(proposal.bins, configuration, self._key_kinds, key)

    def has_arrived_at(self, number: int) -> None:
        """Take note that a commit's output has arrived, and all before it."""
        self.ledger = self.ledger.arrived(number)

    # ---------------------------------------------------------------- a batch

    def has_arrived(self) -> bool:
        """Whether something has come that is awaited."""
        arrived = self.others.arrived
        return any(held.since in arrived.get(held.bin, {}) for held in self._awaited())

    def _awaited(self) -> Iterator[HeldRows]:
        """Yield what is held of bins that have not come yet."""
        return (held for held in self.ledger.held.values() if held.since is not None)

    def step(
        self, batch: Batch = NOTHING, number: int | None = None, query: str = ""
    ) -> BatchResult:
        """Do a batch, or between two what has become possible; commit it."""
        began = time.time()
        if self.settle():
            raise self._made_before()
        self.look()
        before = self.ledger.last
        self._note_kinds(batch.key_kinds)
        if number is None and before is not None:
            number, query = before.batch, before.query
        seen = dict(before.seen) if before is not None else {}
        if batch.seen:
            seen = dict(self.operator.promise.seen(seen, batch.seen))
        frontier = self._plan(seen)
        changing = self._changing(frontier)
        batch = batch.read(self._own(changing), frontier)
        left = self._left(batch, frontier, changing, query)
        touched = self._touched(batch, frontier, changing) - left.keys()
        works = [self._work(bin, batch, frontier) for bin in sorted(touched)]
        if before is not None and query != before.query:
            works = self._without_what_comes_again(works)
        came = self.home.run(self.ledger.number + 1, works)
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
            delivered=self._delivered(),
            bins=self._bins_said,
        )
        commit = fill_commit(commit, works, came, batch.size, left.values())
        waiting = waiting_after(commit, came, left.values())
        if commit.number % WHOLE_EVERY == 0:
            commit = whole_commit(commit, self.ledger)
        self._commit(commit, works, waiting)
        return came

    def _plan(self, seen: Mapping[str, Moment]) -> Moment | None:
        """Return the frontier after a batch, which never goes back. What lies before it is decided
        then.
        """
        own = self.operator.promise.frontier(seen)
        before = self.frontier
        if before is not None and (own is None or own < before):
            own = before
        while True:
            with self._answering:
                frontier = self._without_bins(own)
                self.planned = self._furthest(frontier)
                proposal = self.moves.open
            if proposal is None or not is_passed(proposal, frontier):
                return frontier
            self._await(proposal)
            self.answer()

    def _without_bins(self, own: Moment | None) -> Moment | None:
        """Return a frontier, or that of the slowest worker with bins, where none is here."""
        if self.moves.due is not None:
            return own  # what is decided behind it is not known yet
        others = self.others.with_bins
        return frontier_without_bins(self.moves.configuration, self.me, own, others)

    @property
    def is_to_join(self) -> bool:
        """Whether this worker has committed nothing, and can say how far it is before any row."""
        return self.ledger.last is None and self._without_bins(None) is not None

    def _furthest(self, frontier: Moment | None) -> Moment | None:
        """Return a frontier, or that of a commit which may still be made: the later one."""
        pending = None if self._unanswered is None else self._unanswered.commit.frontier
        if pending is None or (frontier is not None and frontier > pending):
            return frontier
        return pending

    def _await(self, proposal: Proposal) -> None:
        """Wait until a move is decided; abort it once its time is over since this worker saw it
        first: the clock of whoever has proposed it may be ahead of this one, or behind it.
        """
        first_seen = self._first_seen.setdefault(proposal.number, time.monotonic())
        until = first_seen + proposal.timeout_seconds
        while self.files.decided(proposal.number) is None:
            if time.monotonic() >= until:
                reason = f"nobody has decided within {proposal.timeout_seconds:g} s"
                self._abort(proposal, reason)
                return
            time.sleep(POLL_SECONDS)

    def _changing(self, frontier: Moment | None) -> set[int]:
        """Return the bins that change their worker up to a frontier."""
        configuration = self.moves.configuration
        at = BEGIN if self.frontier is None else self.frontier
        if frontier is None:
            return set()
        changing = set()
        for bin, history in enumerate(configuration.history):
            if len(history) > 1 and has_changes(history, at, frontier):
                changing.add(bin)
        return changing

    def _own(self, changing: set[int]) -> set[int]:
        """Return the bins whose rows before the next frontier may be this worker's to fold."""
        return {*self.ledger.here, *changing, *(held.bin for held in self._awaited())}

    def _touched(self, batch: Batch, frontier: Moment | None, changing: set[int]) -> set[int]:
        """Return the bins that something happens to: rows, time that has come, or a move."""
        bins = {*batch.rows, *self.ledger.held, *changing}
        bins |= self._rewritten & self.ledger.here.keys()
        return bins | self._due(frontier)

    def _left(
        self, batch: Batch, frontier: Moment | None, changing: set[int], query: str
    ) -> dict[int, WaitingRows]:
        """Return the rows held of bins to which nothing else happens, and that stay as they are.
        Another query reads some of them again.
        """
        before = self.ledger.last
        if before is None or before.query != query:
            return {}
        touched = {*batch.rows, *changing, *self._rewritten, *self._due(frontier)}
        number = self.ledger.number + 1
        return {
            bin: one
            for bin, one in self._waiting.items()
            if bin not in touched and one.is_left(frontier, number)
        }

    def _due(self, frontier: Moment | None) -> set[int]:
        """Return the bins of which something is to be seen again before a frontier."""
        if frontier is None:
            return set()
        here = self.ledger.here.items()
        return {bin for bin, kept in here if kept.due is not None and kept.due < frontier}

    def _work(self, bin: int, batch: Batch, frontier: Moment | None) -> BinWork:
        """Return what a bin goes through."""
        position = self.position(bin)
        arrived = self.others.arrived.get(bin, {})
        after = position
        found: tuple[Stage, ...] = ()
        if frontier is not None:
            history = self.moves.configuration.history[bin]
            found, after = stages(history, self.me, position, frontier, arrived)
        held = self.ledger.held[bin].pieces if bin in self.ledger.held else ()
        taken = {one.time: arrived[one.time] for one in found if isinstance(one, Take)}
        kept, rows = self.ledger.here.get(bin), batch.rows.get(bin)
        is_rewritten = bin in self._rewritten and kept is not None
        return BinWork(bin, found, after, kept, taken, held, rows, self.frontier, is_rewritten)

    def _without_what_comes_again(self, works: list[BinWork]) -> list[BinWork]:
        """Return what bins go through where another query begins: it reads from the frontier or
        from before, so that rows which are held from the frontier on come a second time.
        """
        frontier = BEGIN if self.frontier is None else self.frontier
        return [replace(work, comes_again=frontier) for work in works]

    # ---------------------------------------------------------------- its commit

    def _commit(
        self, commit: Commit, works: Sequence[BinWork], waiting: Mapping[int, WaitingRows]
    ) -> None:
        if self.ledger.last is None:
            self._refuse_evicted()
        after = self.ledger.plus(commit)
        own = own_data(self.operator.name, self.name)
        commit = replace(commit, borrowed=borrowed_files(after, own))
        made = PendingCommit(commit, replace(after, last=commit), works, waiting)
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
        """Find out what became of a commit whose answer was lost; return whether it was made."""
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
        """Take a commit for made."""
        before = self.ledger.bins(self._begun)
        self.ledger, self._unanswered = made.after, None
        self._waiting = made.waiting
        self._cleaning.note(made.commit)
        self._rewritten = frozenset()
        for work in made.works:
            for since in work.taken:
                del self.others.arrived[work.bin][since]
        if self.ledger.bins(self._begun) != before:
            self.others.arrived.clear()
        if made.commit.frontier is not None:
            self._retire(made.commit.frontier)

    def _refuse_evicted(self) -> None:
        """Refuse the first commit of a worker whose name was taken from it meanwhile."""
        for runs in self.files.runs():
            if (runs.operator, runs.worker) == (self.operator.name, self.name) and runs.is_evicted:
                raise PlanError(
                    f"worker {self.name} of {self.operator.name} was evicted before its first "
                    "commit",
                    hint="start it again",
                )

    def _retire(self, frontier: Moment) -> None:
        """Let go of what no time can need any more: what is awaited needs the time before it."""
        since = [held.since for held in self._awaited() if held.since is not None]
        needed = min([frontier[0], *since]) - 1
        with self._answering:
            configuration = self.moves.configuration
            if configuration.last > configuration.since:  # there is something to let go of
                configuration = retire(configuration, needed)
                self.moves = replace(self.moves, configuration=configuration)

    def _delivered(self) -> int:
        """Return the last commit whose output has arrived."""
        waiting = [one.number for one in self.ledger.undelivered]
        return min(waiting) - 1 if waiting else self.ledger.number

    @property
    def _bins_said(self) -> int | None:
        """How many bins there are, as a commit says it."""
        return None if self.bins == self._begun else self.bins

    # ---------------------------------------------------------------- another number of bins

    def _note_kinds(self, kinds: tuple[str, ...]) -> None:
        """Say how keys are hashed, by the first rows since the start."""
        if not kinds or self._has_said_keyed:
            return
        keyed = KeyHashing(self.operator.name, self.name, kinds, time.time())
        self.files.say_keyed(keyed)
        self._key_kinds, self._has_said_keyed = kinds, True

    def deal_anew(self) -> bool:
        """Deal all bins anew where another number of them is due, and go on by that number; return
        whether it was so.
        """
        is_dealt = False
        while (due := self.moves.due) is not None:
            last = self.ledger.last
            assert due.bins is not None, "another number is due"
            if last is not None and last.moves <= due.number:
                if last.frontier is None or last.frontier < cut(due.since):
                    break
                self._commit_dealt(due.bins, due.number + 1)
            with self._answering:
                self.moves = look_until_due(self.files, self.moves.resized())
            if last is None:
                self._begin()
            is_dealt = True
        return is_dealt

    def _deal_what_was_due(self) -> None:
        """Deal bins anew by a number that was due when this worker ended, where that is so long ago
        that the moves before it are not read any more.
        """
        last = self.ledger.last
        if last is None or last.moves >= self.moves.decided:
            return
        if self.ledger.bins(self._begun) != self.bins:
            self._commit_dealt(self.bins, self.moves.decided)

    def _commit_dealt(self, bins: int, moves: int) -> None:
        """Deal all bins anew, and commit nothing else."""
        before, last = self.ledger, self.ledger.last
        assert last is not None, "without a commit there is nothing to be dealt"
        began = time.time()
        dealt_bins = self.home.deal(before.number + 1, list(self._deals(bins)))
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
            delivered=self._delivered(),
            counts=Counts(held=last.counts.held),
            bins=None if bins == self._begun else bins,
        )
        self._commit(redistribution_commit(commit, before, dealt_bins), [], {})

    def _deals(self, bins: int) -> Iterator[Redistribution]:
        """Yield what is dealt anew."""
        before = self.ledger.bins(self._begun)
        numbers = BinCounts(before, bins, self._key_kinds)
        here, held = self.ledger.here, self.ledger.held
        for together in groups_to_resize(here.keys() | held.keys(), before, bins):
            sources = []
            for bin in together:
                pieces = held[bin].pieces if bin in held else ()
                sources.append(OldBin(bin, here.get(bin), pieces))
            yield Redistribution(tuple(sources), numbers)

    # ---------------------------------------------------------------- reading ahead, cleaning up

    def read_ahead(self) -> bool:
        """Read one bin that will come, as it is at the moment; return whether there was one."""
        asked = self.moves.ahead
        mine = [bin for bin, worker in asked if worker == self.me]
        coming = [bin for bin in mine if bin not in self.ledger.here]
        return self._ahead.read_one(asked, coming, self._kept_elsewhere)

    def _kept_elsewhere(self, bin: int) -> BinSnapshot | None:
        """Return a bin as the last worker has committed it that is not this one; None where that is
        not known.
        """
        for since in reversed(self.moves.configuration.history[bin]):
            if since.worker != self.me:
                ledger = self.others.ledgers.get(since.worker)
                if ledger is None or ledger.bins(self._begun) != self.bins:
                    return None
                return ledger.here.get(bin)
        return None

    @property
    def is_clean_up_due(self) -> bool:
        """Whether it is time to clean up behind the last commit."""
        return self._cleaning.is_due(self.ledger.number)

    def clean_up(self) -> None:
        """Remove what nothing names any more; note which bins the next batch writes whole."""
        self._rewritten = self._cleaning.clean_up(self.ledger, self.others.borrowed)


def _moves_at_first(files: Files, begun: GroupStart, workers: int) -> KnownMoves:
    """Return the moves as a part without commits begins with them: all parts of an operator begin
    with the same, so that a bin which has moved is empty at both ends or at none.
    """
    since = files.begin_part()
    moves = look(files, files.known_moves(begun, workers))
    return replace(moves, configuration=retire(moves.configuration, since))

"""A worker of an operator between its commits, as a value, and what follows from it. Pure.

    WorkerState   what its commits come to
    News          the moves that are decided, and the commits of other workers
    after         the plan of a batch: the stages of every bin that it touches
    made          the state once a commit is made

A move can be made while it is ahead of every worker: one that has passed its time, or is planning a
batch that passes it, refuses it (`reason_against`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from stateshift.errors import SpecError
from stateshift.live.bins.batches import RowBatch
from stateshift.live.bins.bin_run import (
    ArrivedBin,
    BatchResult,
    BinWork,
    Position,
    Stage,
    Take,
    stages,
)
from stateshift.live.bins.commits import BinSnapshot, Commit, Counts, HeldRows, Ledger, TakenBin
from stateshift.live.bins.files import Proposal, wide_enough
from stateshift.live.bins.hashing import encoders_of
from stateshift.live.bins.redistribution import BinCounts, OldBin, Redistribution
from stateshift.live.bins.times import BEGIN, Moment, cut
from stateshift.live.protocol.configuration import (
    Configuration,
    Time,
    WorkerMoves,
    complaints,
    frontier_without_bins,
    groups_to_resize,
    is_settled,
    resize_settled,
    retire,
)

HELD_COMMITS = 8  # after which rows that are held are written anew, with those that came since
BUSY = 2.0  # times the mean of the bins of a batch that have folded rows


@dataclass(frozen=True, slots=True)
class News:
    """The moves that are decided, and the other workers, as they were read before a batch."""

    configuration: Configuration
    frontiers: Sequence[Moment] = ()  # of the others that have bins
    # bin -> time -> the bin as it was given to here, until it is taken
    arrived: Mapping[int, Mapping[Time, ArrivedBin]] = field(default_factory=dict)
    is_resize_due: bool = False  # another number of bins is decided, and later moves are unknown


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """Rows held of a bin that wait for the frontier to pass the first one, as written."""

    held: HeldRows
    first: Moment
    rows: int
    commit: int


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The bins that a batch touches, and the held rows of others, which stay as they are."""

    works: tuple[BinWork, ...]
    left: Mapping[int, WaitingRows]
    size: int  # rows of the batch

    def fill(self, commit: Commit, came: BatchResult) -> Commit:
        done = came.done
        late = sum(one.late for one in done)
        after = {work.bin: work.after for work in self.works}
        held = [one.held for one in self.left.values()]
        taken: list[TakenBin] = []
        for one in done:
            position = after[one.bin]
            if one.held or position.place == "awaited":
                held.append(HeldRows(one.bin, position.since, one.held))
        for work in self.works:
            for since, arrived in work.taken.items():
                taken.append(TakenBin(work.bin, since, arrived.source, arrived.kept))
        folding = [one for one in done if one.folded]
        busy_from = BUSY * sum(one.folded for one in folding) / max(1, len(folding))
        waiting = sum(one.rows for one in self.left.values())
        return replace(
            commit,
            changed=tuple(one.changed for one in done if one.changed is not None),
            given=tuple(chain.from_iterable(one.given for one in done)),
            taken=tuple(taken),
            held=tuple(held),
            counts=Counts(
                came=self.size - late,
                folded=sum(one.folded for one in done),
                put_out=came.put_out,
                held=sum(one.rows_held for one in done) + waiting,
                late=late,
            ),
            busy={str(one.bin): one.folded for one in folding if one.folded >= busy_from},
        )

    def waiting_after(self, commit: Commit, came: BatchResult) -> dict[int, WaitingRows]:
        """Return the rows known to be ahead of the frontier after a commit, by bin."""
        waiting = {one.held.bin: one for one in self.left.values()}
        held = {one.bin: one for one in commit.held}
        for done in came.done:
            one = held.get(done.bin)
            if done.held_first is not None and one is not None and one.since is None:
                waiting[done.bin] = WaitingRows(one, done.held_first, done.rows_held, commit.number)
        return waiting


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A commit, the ledger once it is made, and the works and waiting rows that belong to it."""

    commit: Commit
    after: Ledger
    works: Sequence[BinWork] = ()
    waiting: Mapping[int, WaitingRows] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker between two commits."""

    me: int  # its number
    begun: int  # bins that the group began with
    ledger: Ledger
    key_kinds: tuple[str, ...] = ()
    rewritten: frozenset[int] = frozenset()  # bins that the next batch writes whole
    waiting: Mapping[int, WaitingRows] = field(default_factory=dict)  # as this process wrote them

    @property
    def frontier(self) -> Moment | None:
        return self.ledger.frontier

    @property
    def awaited(self) -> dict[int, Time]:
        return self.ledger.awaited

    @property
    def delivered(self) -> int:
        waiting = [one.number for one in self.ledger.undelivered]
        return min(waiting) - 1 if waiting else self.ledger.number

    def begin(self, configuration: Configuration) -> WorkerState:
        """Return the state with the bins that are here first, all of them empty."""
        here = {
            bin: BinSnapshot()
            for bin, since in enumerate(configuration.history)
            if since[0].worker == self.me
        }
        return replace(self, ledger=Ledger(here=here))

    def position(self, bin: int) -> Position:
        """Return the moment to which a bin has come here."""
        held = self.ledger.held.get(bin)
        if held is not None and held.since is not None:
            return Position(cut(held.since), "awaited", held.since)
        at = BEGIN if self.frontier is None else self.frontier
        return Position(at, "here" if bin in self.ledger.here else "away")

    def has_arrived(self, news: News) -> bool:
        return any(since in news.arrived.get(bin, {}) for bin, since in self.awaited.items())

    def frontier_with(self, own: Moment | None, news: News) -> Moment | None:
        """Return a frontier, or that of the slowest worker with bins, where none is here."""
        if news.is_resize_due:
            return own  # later decisions are not known yet
        return frontier_without_bins(news.configuration, self.me, own, news.frontiers)

    def is_to_join(self, news: News) -> bool:
        """Whether this worker has committed nothing, and can say how far it is before any row."""
        return self.ledger.last is None and self.frontier_with(None, news) is not None

    def after(self, batch: RowBatch, news: News, frontier: Moment | None, query: str) -> BatchPlan:
        """Return the plan of a batch up to a frontier."""
        ledger, last = self.ledger, self.ledger.last
        changing = self._changing(news.configuration, frontier)
        due: set[int] = set()  # bins of which something is to be seen again
        if frontier is not None:
            for bin, kept in ledger.here.items():
                if kept.due is not None and kept.due < frontier:
                    due.add(bin)
        # Only rows before the frontier that may be this worker's become rows of Python's.
        batch = batch.read({*ledger.here, *changing, *self.awaited}, frontier)
        touched = {*batch.rows, *changing, *due}
        is_same_query = last is not None and last.query == query
        left = self._left(touched | self.rewritten, frontier) if is_same_query else {}
        touched |= ledger.held.keys() | (self.rewritten & ledger.here.keys())
        works = [self._work(bin, batch, news, frontier) for bin in sorted(touched - left.keys())]
        if last is not None and not is_same_query:
            # It reads from the frontier or from before: rows that are held from there on come a
            # second time.
            at = BEGIN if self.frontier is None else self.frontier
            works = [replace(work, comes_again=at) for work in works]
        return BatchPlan(tuple(works), left, batch.size)

    def _changing(self, configuration: Configuration, frontier: Moment | None) -> set[int]:
        """Return the bins that change their worker up to a frontier."""
        changing: set[int] = set()
        if frontier is None:
            return changing
        at = BEGIN if self.frontier is None else self.frontier
        for bin, history in enumerate(configuration.history):
            times = [cut(since.time) for since in history] if len(history) > 1 else ()
            if any(at < time <= frontier for time in times):
                changing.add(bin)
        return changing

    def _left(self, touched: set[int], frontier: Moment | None) -> dict[int, WaitingRows]:
        """Return the held rows that nothing touches. (Another query reads some of them again.)"""
        left: dict[int, WaitingRows] = {}
        for bin, one in self.waiting.items():
            is_ahead = frontier is None or frontier <= one.first
            is_new = self.ledger.number + 1 < one.commit + HELD_COMMITS
            if is_ahead and is_new and bin not in touched:
                left[bin] = one
        return left

    def _work(self, bin: int, batch: RowBatch, news: News, frontier: Moment | None) -> BinWork:
        position = self.position(bin)
        arrived = news.arrived.get(bin, {})
        after = position
        found: tuple[Stage, ...] = ()
        if frontier is not None:
            history = news.configuration.history[bin]
            found, after = stages(history, self.me, position, frontier, arrived)
        kept = self.ledger.here.get(bin)
        return BinWork(
            bin=bin,
            stages=found,
            after=after,
            kept=kept,
            taken={one.time: arrived[one.time] for one in found if isinstance(one, Take)},
            held=self.ledger.held[bin].pieces if bin in self.ledger.held else (),
            rows=batch.rows.get(bin),
            frontier=self.frontier,
            is_rewritten=bin in self.rewritten and kept is not None,
        )

    def made(self, pending: PendingCommit) -> WorkerState:
        return replace(self, ledger=pending.after, waiting=pending.waiting, rewritten=frozenset())

    def retired(self, configuration: Configuration) -> Configuration:
        """Return the configuration from the frontier on, or from what is awaited."""
        if self.frontier is None or configuration.last <= configuration.since:
            return configuration
        return retire(configuration, min([self.frontier[0], *self.awaited.values()]) - 1)

    def can_redistribute(self, configuration: Configuration) -> bool:
        """Whether this worker has made all moves, and knows how keys are hashed."""
        moves = WorkerMoves(self.frontier, len(self.awaited), len(self.ledger.unclaimed))
        return bool(self.key_kinds) and is_settled(configuration, moves)

    def reason_against(
        self,
        proposal: Proposal,
        configuration: Configuration,
        planned: Moment | None,
        key: Sequence[str],
    ) -> str | None:
        """Return the reason to refuse a proposal; `planned` is the frontier at work."""
        if proposal.bins is not None:
            if proposal.bins == configuration.bins:
                return f"has {proposal.bins} bins already"
            try:
                encoders_of(self.key_kinds, key)
                resize_settled(configuration, proposal.bins)
            except SpecError as error:
                return f"cannot: {error.complaints[0].message}"
            return None
        if not proposal.updates:
            return None
        if planned is None:
            return "has read no rows yet"
        if is_passed(proposal, planned):
            return f"is at {planned[0]} already, and {proposal.earliest} is not ahead of it"
        wide = wide_enough(configuration, proposal.updates)
        wrong = complaints(wide, proposal.updates, wide.bins)
        return wrong[0].message if wrong else None

    def redistributions(self, bins: int) -> Iterator[Redistribution]:
        """Yield the bins that are redistributed together by another number of them."""
        before = self.ledger.bins(self.begun)
        counts = BinCounts(before, bins, self.key_kinds)
        here, held = self.ledger.here, self.ledger.held
        for together in groups_to_resize(here.keys() | held.keys(), before, bins):
            sources = []
            for bin in together:
                pieces = held[bin].pieces if bin in held else ()
                sources.append(OldBin(bin, here.get(bin), pieces))
            yield Redistribution(tuple(sources), counts)


def is_passed(proposal: Proposal, frontier: Moment | None) -> bool:
    """Whether a frontier passes the time of a move."""
    return bool(proposal.updates) and frontier is not None and cut(proposal.earliest) <= frontier

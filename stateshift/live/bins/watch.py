"""A group's bins, watched from outside: where each is, who has come how far, and how fast.

Part    one worker's part in one operator: its ledger, and its last commits
Bins    the group at a moment: where the bins are, and all parts
Watch   follows the commits of all parts; nothing is changed by looking
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from stateshift.errors import PlanError
from stateshift.live.bins.commits import Commit, GivenBin, Ledger, TakenBin
from stateshift.live.bins.files import Files, GroupStart, KnownMoves, look
from stateshift.live.bins.parts import Membership, OperatorStart
from stateshift.live.bins.times import Moment
from stateshift.live.folder import Folder
from stateshift.live.protocol.configuration import BEGIN, Time, related_bins, retire
from stateshift.live.protocol.frontiers import next_move
from stateshift.storage.opening import open_patiently

RECENT = 10  # commits by which it is said how fast a worker is
HINT_NO_BINS = "a worker makes them: live.Worker(GROUP, NAME, OPERATOR, output=…)"

BinAt = tuple[int, Time]  # a bin that is given or taken at a time


@dataclass(frozen=True, slots=True)
class Part:
    """One worker's part in one operator. `given` and `taken` are what its commits have named since
    it is watched.
    """

    runs: OperatorStart
    number: int  # the worker's
    ledger: Ledger
    recent: tuple[Commit, ...] = ()
    given: frozenset[BinAt] = frozenset()
    taken: frozenset[BinAt] = frozenset()

    @property
    def name(self) -> str:
        """The operator and the worker, for people."""
        return f"{self.runs.operator} at {self.runs.worker}"

    @property
    def frontier(self) -> Moment | None:
        """How far it has come; None where it has read no rows."""
        return None if self.ledger.last is None else self.ledger.last.frontier

    @property
    def at(self) -> Time:
        """The time before which everything is done; -1 where nothing is."""
        return -1 if self.frontier is None else math.floor(self.frontier[0])

    @property
    def awaited(self) -> Mapping[int, Time]:
        """The bins that have not come yet, with the times of their moves."""
        held = self.ledger.held.values()
        return {each.bin: each.since for each in held if each.since is not None}

    @property
    def moves_known(self) -> int:
        """How many moves it knew to be decided when it committed last."""
        return 0 if self.ledger.last is None else self.ledger.last.moves

    @property
    def is_evicted(self) -> bool:
        """Whether its name was taken from it, and nobody has started under it since."""
        return self.runs.is_evicted

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits there for whoever goes on under its name."""
        ledger = self.ledger
        return not (ledger.here or ledger.held or ledger.unclaimed)

    @property
    def passed(self) -> Time:
        """The first time whose moves are not all made here: above a time, its moves are."""
        if self.frontier is None:
            return -1
        return min([self.at + 1, *self.awaited.values()])

    @property
    def keys(self) -> int:
        """How many keys its bins have."""
        return sum(kept.keys for kept in self.ledger.here.values())

    @property
    def size(self) -> int:
        """How many bytes its bins have."""
        return sum(kept.size for kept in self.ledger.here.values())

    @property
    def rows_held(self) -> int:
        """How many rows its last commit has put aside."""
        return 0 if self.ledger.last is None else self.ledger.last.counts.held

    @property
    def seconds(self) -> float:
        """The seconds that its last commits have taken."""
        return self.recent[-1].at - self.recent[0].at if len(self.recent) > 1 else 0.0

    @property
    def rate(self) -> float:
        """Units of logical time a second, of late."""
        with_frontier = [each for each in self.recent if each.frontier is not None]
        if len(with_frontier) < 2 or self.seconds <= 0:
            return 0.0
        first, last = with_frontier[0].frontier, with_frontier[-1].frontier
        assert first is not None and last is not None, "chosen so"
        return max(0.0, last[0] - first[0]) / self.seconds

    @property
    def rows_per_second(self) -> float | None:
        """Rows that came a second, of late; None where that is not known."""
        if self.seconds <= 0:
            return None
        return sum(each.counts.came for each in self.recent[1:]) / self.seconds

    def expected(self, seconds: float, now: float) -> float:
        """Return the time that it will have reached in some seconds. Its last commit may be as old
        as its longest pause of late: a batch is at work meanwhile.
        """
        if not self.recent:
            return self.at
        moments = [each.at for each in self.recent]
        pauses = [later - earlier for earlier, later in pairwise(moments)]
        age = min(max(0.0, now - moments[-1]), 2 * max(pauses, default=0.0))
        return self.at + self.rate * (age + seconds)


@dataclass(frozen=True, slots=True)
class Bins:
    """A group's bins at a moment."""

    location: str
    at: float
    workers: tuple[Membership, ...]
    moves: KnownMoves
    parts: tuple[Part, ...]
    begun: int = 0  # how many bins the group began with

    @property
    def count(self) -> int:
        """How many bins there are by all that is decided."""
        return self.moves.configuration.bins

    def count_at(self, part: Part) -> int:
        """Return how many bins there are by a part's numbers: it may not have dealt them anew yet;
        where it has committed nothing, it has nothing to deal.
        """
        return self.count if part.ledger.last is None else part.ledger.bins(self.begun)

    @property
    def running(self) -> tuple[Part, ...]:
        """The parts that were not evicted: they answer what is proposed, and are waited for.

        An evicted part does nothing until somebody starts under its name, who reads all moves
        before the first row. So a move for a time ahead of it needs no answer of it.
        """
        return tuple(part for part in self.parts if not part.is_evicted)

    @property
    def evicted(self) -> frozenset[int]:
        """The numbers of the workers that were evicted in some operator."""
        return frozenset(part.number for part in self.parts if part.is_evicted)

    @property
    def not_dealt(self) -> tuple[Part, ...]:
        """The running parts that have another number of bins still."""
        return tuple(part for part in self.running if self.count_at(part) != self.count)

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names, by number."""
        return tuple(each.name for each in self.workers)

    @property
    def assigned(self) -> tuple[int, ...]:
        """The worker of every bin once all that is decided is done."""
        configuration = self.moves.configuration
        return configuration.at(configuration.last)

    @property
    def counts(self) -> Counter[int]:
        """How many bins each worker has, by its number."""
        return Counter(self.assigned)

    @property
    def furthest(self) -> Part | None:
        """The part that has come furthest; None where there is none."""
        return max(self.parts, key=lambda part: part.at, default=None)

    @property
    def passed(self) -> Time:
        """The first time whose moves are not all made, by every running part."""
        return min((self.passed_by(part) for part in self.running), default=-1)

    def passed_by(self, part: Part) -> Time:
        """Return the first time whose moves a part has not made: those of its own bins. It may be
        far behind, and nobody waits for it where others' bins move. Bins that an evicted worker has
        to give are not waited for either: they come once somebody goes on under its name.
        """
        passed, configuration = part.passed, self.moves.configuration
        if self.evicted and part.frontier is not None:
            stuck = self._stuck()
            awaited = [since for bin, since in part.awaited.items() if bin not in stuck]
            passed = min([part.at + 1, *awaited])
        following = next_move(configuration, part.number, passed)
        return configuration.last + 1 if following is None else following

    def _stuck(self) -> set[int]:
        """Return the bins that somebody awaits from an evicted worker."""
        evicted, configuration = self.evicted, self.moves.configuration
        stuck: set[int] = set()
        for part in self.running:
            for bin, since in part.awaited.items():
                if configuration.worker(since - 1, bin) in evicted:
                    stuck.add(bin)
        return stuck

    def ahead(self, seconds: float) -> Time:
        """Return the first time that nobody will have reached in so many seconds."""
        now = time.time()
        expected = [part.expected(seconds, now) for part in self.parts]
        return math.floor(max(expected, default=-1)) + 1

    def rate(self) -> float:
        """Return how many units of logical time a second has, by the fastest part."""
        return max((part.rate for part in self.parts), default=0.0)

    def weights(self) -> tuple[int, ...]:
        """Return how many bytes every bin has, in all operators."""
        weights = [0] * self.count
        for part in self.parts:
            before = self.count_at(part)
            for bin, kept in part.ledger.here.items():
                same = related_bins(bin, before, self.count)
                for each in same:
                    weights[each] += kept.size // len(same)
        return tuple(weights)

    def parts_of(self, worker: int) -> tuple[Part, ...]:
        """Return the parts of a worker, by its number."""
        return tuple(part for part in self.parts if part.number == worker)


class Watch:
    """The commits of all parts, followed."""

    def __init__(self, files: Files, begun: GroupStart) -> None:
        self.files = files
        workers = files.joined()
        self.begun = begun
        self.moves = files.known_moves(begun, len(workers))
        self.workers = workers
        self.parts: dict[tuple[str, str], Part] = {}
        self.meet()

    def meet(self) -> None:
        """Learn who is there: workers, and what they run; and which moves and commits were made
        meanwhile, if so many that they cannot be read one by one any more.
        """
        self.workers = self.files.joined()
        kept = self.files.known_moves(self.begun, len(self.workers))
        if kept.decided > self.moves.decided:
            self.moves = kept
        numbers = {each.name: each.number for each in self.workers}
        for runs in self.files.runs():
            key = (runs.operator, runs.worker)
            known = self.parts.get(key)
            if known is not None:
                self.parts[key] = self._met_again(replace(known, runs=runs))
            elif runs.worker in numbers:
                self.parts[key] = self._met(runs, numbers[runs.worker])

    def _met_again(self, part: Part) -> Part:
        """Return a part as it is, where its last commit that is known here was forgotten, and the
        next one was, too.
        """
        runs, number = part.runs, part.ledger.number
        for known in (number, number + 1):
            if self.files.has_commit(runs.operator, runs.worker, known):
                return part
        return replace(self._met(runs, part.number), given=part.given, taken=part.taken)

    def _met(self, runs: OperatorStart, number: int) -> Part:
        ledger = self.files.ledger(runs.operator, runs.worker)
        found: list[Commit] = []
        for earlier in range(max(0, ledger.number - RECENT), ledger.number + 1):
            commit = self.files.committed(runs.operator, runs.worker, earlier)
            if commit is not None:
                found.append(commit)
        return Part(runs, number, ledger, tuple(found))

    def look(self) -> Bins:
        """Return the group with what is new."""
        self.moves = look(self.files, self.moves)
        for key, part in self.parts.items():
            self.parts[key] = self._followed(part)
        parts = tuple(sorted(self._there(), key=lambda part: part.name))
        now = time.time()
        return Bins(self.files.location, now, self.workers, self.moves, parts, self.begun.bins)

    def _there(self) -> Iterator[Part]:
        """Yield the parts without those that are gone for good: evicted, and without any bins now
        or on any bin's way that somebody has still to go.
        """
        running = [part.passed for part in self.parts.values() if not part.is_evicted]
        ahead = retire(self.moves.configuration, min(running, default=BEGIN) - 1)
        with_bins = {since.worker for history in ahead.history for since in history}
        for part in self.parts.values():
            if not part.is_evicted or not part.is_empty or part.number in with_bins:
                yield part

    def _followed(self, part: Part) -> Part:
        """Return a part with what it has committed since."""
        runs = part.runs
        while True:
            number = part.ledger.number + 1
            commit = self.files.committed(runs.operator, runs.worker, number)
            if commit is None:
                return part
            part = replace(
                part,
                ledger=part.ledger.plus(commit),
                recent=(*part.recent, commit)[-RECENT:],
                given=part.given.union(_bins_at(commit.given)),
                taken=part.taken.union(_bins_at(commit.taken)),
            )


def _bins_at(named: Iterable[GivenBin | TakenBin]) -> frozenset[BinAt]:
    """Return which bins a commit names, and the times of their moves."""
    return frozenset((each.bin, each.time) for each in named)


def open_bins(location: str) -> tuple[Files, GroupStart] | None:
    """Return the files of a group, and how its bins began; None where it has none. A location that
    is no group's is refused.
    """
    storage = open_patiently(location)
    Folder(storage).check()
    files = Files(storage)
    begun = files.begun()
    return None if begun is None else (files, begun)


def watch_group(location: str) -> Watch:
    """Return a watch over a group that has bins, or refuse one that has none."""
    found = open_bins(location)
    if found is None:
        raise PlanError(f"{location} has no bins: no worker has ever started", hint=HINT_NO_BINS)
    return Watch(*found)

"""A group's bins, watched from outside: the worker of each, the progress and speed of workers, and
the load of bins.

WorkerPart   one worker's part in one operator: its ledger, and its last commits
Bins         the group at a moment: the configuration, and all parts
Watch        follows the commits of all parts; nothing is changed by looking
loads(bins)  the keys, bytes, changed bytes and rows of each bin, in all operators
hot(loads)   those that have far more than the others

Rates are of the last commits of each part. A commit counts the rows of those bins alone that had
many; the other bins of the part share the rest of its rows alike.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from stateshift.live.bins.commits import Commit, Ledger
from stateshift.live.bins.files import Files, GroupStart, KnownMoves, look
from stateshift.live.bins.parts import Membership, OperatorStart
from stateshift.live.bins.times import Moment
from stateshift.live.folder import Folder
from stateshift.live.protocol.configuration import BEGIN, Time, next_move, related_bins, retire
from stateshift.storage.opening import open_patiently

HOT = 4.0  # times the mean of all bins
RECENT = 10  # commits by which the speed of a worker is told
HINT_NO_BINS = "a worker makes them: live.Worker(GROUP, NAME, OPERATOR, output=…)"

BinAt = tuple[int, Time]  # a bin that is given or taken at a time


@dataclass(frozen=True, slots=True)
class WorkerPart:
    """A worker's part in an operator; `given` and `taken` are counted since it is watched."""

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
        """The frontier of its last commit; None where it has read no rows."""
        return self.ledger.frontier

    @property
    def at(self) -> Time:
        """The time before which everything is done; -1 where nothing is."""
        return -1 if self.frontier is None else math.floor(self.frontier[0])

    @property
    def awaited(self) -> Mapping[int, Time]:
        """The bins that have not come yet, with the times of their moves."""
        return self.ledger.awaited

    @property
    def moves_known(self) -> int:
        """The number of moves that it knew to be decided at its last commit."""
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
        return sum(kept.keys for kept in self.ledger.here.values())

    @property
    def size(self) -> int:
        return sum(kept.size for kept in self.ledger.here.values())

    @property
    def rows_held(self) -> int:
        return 0 if self.ledger.last is None else self.ledger.last.counts.held

    @property
    def seconds(self) -> float:
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
    parts: tuple[WorkerPart, ...]
    begun: int = 0  # bins that the group began with

    @property
    def count(self) -> int:
        """The number of bins by all that is decided."""
        return self.moves.configuration.bins

    def count_at(self, part: WorkerPart) -> int:
        """Return a part's number of bins; it may be behind in redistributing them."""
        return self.count if part.ledger.last is None else part.ledger.bins(self.begun)

    @property
    def running(self) -> tuple[WorkerPart, ...]:
        """The parts that were not evicted: they answer proposals, and are waited for.

        An evicted part does nothing until somebody starts under its name, who reads all moves
        before the first row. A move for a time ahead of it therefore needs no answer of it.
        """
        return tuple(part for part in self.parts if not part.is_evicted)

    @property
    def evicted(self) -> frozenset[int]:
        """The numbers of the workers that were evicted in some operator."""
        return frozenset(part.number for part in self.parts if part.is_evicted)

    @property
    def not_dealt(self) -> tuple[WorkerPart, ...]:
        """The running parts that have another number of bins still."""
        return tuple(part for part in self.running if self.count_at(part) != self.count)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.workers)

    @property
    def assigned(self) -> tuple[int, ...]:
        """The worker of every bin once all that is decided is done."""
        configuration = self.moves.configuration
        return configuration.at(configuration.last)

    @property
    def counts(self) -> Counter[int]:
        return Counter(self.assigned)

    @property
    def furthest(self) -> WorkerPart | None:
        """The part that has come furthest; None where there is none."""
        return max(self.parts, key=lambda part: part.at, default=None)

    @property
    def passed(self) -> Time:
        """The first time whose moves are not all made, by every running part."""
        return min((self.passed_by(part) for part in self.running), default=-1)

    def passed_by(self, part: WorkerPart) -> Time:
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
        """Return the units of logical time in a second, by the fastest part."""
        return max((part.rate for part in self.parts), default=0.0)

    def weights(self) -> tuple[int, ...]:
        weights = [0] * self.count
        for part in self.parts:
            before = self.count_at(part)
            for bin, kept in part.ledger.here.items():
                same = related_bins(bin, before, self.count)
                for each in same:
                    weights[each] += kept.size // len(same)
        return tuple(weights)

    def parts_of(self, worker: int) -> tuple[WorkerPart, ...]:
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
        self.parts: dict[tuple[str, str], WorkerPart] = {}
        self.meet()

    def meet(self) -> None:
        """Learn of new workers and operators, and of what was compacted or forgotten meanwhile."""
        self.workers = self.files.joined()
        kept = self.files.known_moves(self.begun, len(self.workers))
        if kept.decided > self.moves.decided:
            self.moves = kept
        numbers = {each.name: each.number for each in self.workers}
        for runs in self.files.runs():
            key = (runs.operator, runs.worker)
            known = self.parts.get(key)
            if known is not None:
                known = self.parts[key] = replace(known, runs=runs)
                number = known.ledger.number
                # The last commit that is known here may be forgotten, and the next one, too.
                if not any(self.files.has_commit(*key, each) for each in (number, number + 1)):
                    part = self._read_part(runs, known.number)
                    self.parts[key] = replace(part, given=known.given, taken=known.taken)
            elif runs.worker in numbers:
                self.parts[key] = self._read_part(runs, numbers[runs.worker])

    def _read_part(self, runs: OperatorStart, number: int) -> WorkerPart:
        ledger = self.files.ledger(runs.operator, runs.worker)
        found: list[Commit] = []
        for earlier in range(max(0, ledger.number - RECENT), ledger.number + 1):
            commit = self.files.committed(runs.operator, runs.worker, earlier)
            if commit is not None:
                found.append(commit)
        return WorkerPart(runs, number, ledger, tuple(found))

    def survey(self) -> Bins:
        """Return the group with all news, and with whoever has just started."""
        self.meet()
        return self.look()

    def look(self) -> Bins:
        """Return the group with all news of the parts that are known."""
        self.moves = look(self.files, self.moves)
        for key in self.parts:
            part = self.parts[key]
            while (commit := self.files.committed(*key, part.ledger.number + 1)) is not None:
                part = replace(
                    part,
                    ledger=part.ledger.plus(commit),
                    recent=(*part.recent, commit)[-RECENT:],
                    given=part.given.union((each.bin, each.time) for each in commit.given),
                    taken=part.taken.union((each.bin, each.time) for each in commit.taken),
                )
            self.parts[key] = part
        parts = tuple(sorted(self._there(), key=lambda part: part.name))
        now = time.time()
        return Bins(self.files.location, now, self.workers, self.moves, parts, self.begun.bins)

    def _there(self) -> Iterator[WorkerPart]:
        """Yield the parts without those that are gone for good: evicted, and without any bins now
        or on any bin's way that somebody has still to go.
        """
        running = [part.passed for part in self.parts.values() if not part.is_evicted]
        ahead = retire(self.moves.configuration, min(running, default=BEGIN) - 1)
        with_bins: set[int] = set()
        for history in ahead.history:
            with_bins.update(since.worker for since in history)
        for part in self.parts.values():
            if not part.is_evicted or not part.is_empty or part.number in with_bins:
                yield part


def open_bins(location: str) -> tuple[Files, GroupStart] | None:
    """Return the files of a group, and the start of its bins; None if it has none."""
    storage = open_patiently(location)
    Folder(storage).check()
    files = Files(storage)
    begun = files.begun()
    return None if begun is None else (files, begun)


# ------------------------------------------------------------------------------------ loads


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a bin, in all operators. `times` is its largest multiple of a mean."""

    bin: int
    worker: str
    keys: int
    size: int
    changed_per_second: float
    times: float = 0.0
    rows_per_second: float = 0.0


def loads(bins: Bins) -> tuple[Load, ...]:
    """Return the load of every bin, by its number."""
    keys, sizes = [0] * bins.count, [0] * bins.count
    changed, rows = [0.0] * bins.count, [0.0] * bins.count
    for part in bins.parts:
        if bins.count_at(part) != bins.count:
            continue
        for bin, kept in part.ledger.here.items():
            keys[bin] += kept.keys
            sizes[bin] += kept.size
        recent = [each for each in part.recent if (each.bins or bins.begun) == bins.count]
        if len(recent) > 1 and recent[-1].at > recent[0].at:
            seconds = recent[-1].at - recent[0].at
            sizes_changed: Counter[int] = Counter()
            for commit in recent[1:]:
                for each in commit.changed:
                    if not each.is_whole:  # a whole one tells nothing of its changes
                        sizes_changed[each.bin] += each.piece.size
            for bin, size in sizes_changed.items():
                changed[bin] += size / seconds
            for bin, count in _rows(part, recent[1:]).items():
                rows[bin] += count / seconds
    measures = [_times(values) for values in (keys, sizes, changed, rows)]
    times = [max(each) for each in zip(*measures, strict=True)]
    return tuple(
        Load(
            bin=bin,
            worker=bins.names[worker],
            keys=keys[bin],
            size=sizes[bin],
            changed_per_second=changed[bin],
            times=times[bin],
            rows_per_second=rows[bin],
        )
        for bin, worker in enumerate(bins.assigned)
    )


def hot(found: Sequence[Load]) -> tuple[Load, ...]:
    """Return the bins with far more than others, hottest first; none with fewer keys than bins."""
    if sum(load.keys for load in found) < len(found):
        return ()
    hottest = [load for load in found if load.times >= HOT]
    return tuple(sorted(hottest, key=lambda load: (-load.times, load.bin)))


def _rows(part: WorkerPart, commits: Sequence[Commit]) -> Mapping[int, float]:
    """Return the rows of each bin of a part that commits have folded."""
    busy: dict[int, float] = {}
    for commit in commits:
        for bin, count in commit.busy.items():
            busy[int(bin)] = busy.get(int(bin), 0) + count
    rest = sum(commit.counts.folded for commit in commits) - sum(busy.values())
    found = dict.fromkeys(part.ledger.here, rest / max(1, len(part.ledger.here)))
    for number, many in busy.items():
        if number in found:
            found[number] += many
    return found


def _times(values: Sequence[float]) -> list[float]:
    """Return each value as a multiple of the mean."""
    mean = sum(values) / len(values)
    return [value / mean if mean else 0.0 for value in values]

"""A worker's commits: one a batch, created if absent. A file that no commit names does not exist.

    Commit     a batch: the bins that changed, were given and were taken, the rows that are held,
               and those that were put out
    Ledger     all commits up to one, folded

A commit names pieces of files that were written before it. Now and then one is whole: it lists all
bins, and no earlier one is needed any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import NamedTuple

from stateshift.live.bins.times import Moment, Seen, cut
from stateshift.live.protocol.configuration import Time
from stateshift.plain import read_fields, to_plain


class FilePiece(NamedTuple):
    """A part of a file, which is named from the group's folder on."""

    file: str
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class BinSnapshot:
    """A bin's state as bytes: a base, and what has changed since, one after the other."""

    pieces: tuple[FilePiece, ...] = ()
    keys: int = 0
    due: Moment | None = None

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)

    @property
    def files(self) -> set[str]:
        return {piece.file for piece in self.pieces}


class BinChange(NamedTuple):
    """A bin that is here, with the piece that was added; or with all of it, where that is whole."""

    bin: int
    piece: FilePiece
    is_whole: bool
    keys: int
    due: Moment | None


class GivenBin(NamedTuple):
    """A bin that goes to another worker at a time, as it is then."""

    bin: int
    time: Time
    to: int
    kept: BinSnapshot


class TakenBin(NamedTuple):
    """A bin that came, as it was given at a time; `source` is the worker that gave it."""

    bin: int
    time: Time
    source: int
    kept: BinSnapshot


class HeldRows(NamedTuple):
    """Rows of a bin that wait for a move of the time `since`; or for the frontier, where None."""

    bin: int
    since: Time | None
    pieces: tuple[FilePiece, ...]


class RedistributedBin(NamedTuple):
    """A bin by another number of them; `kept` is None where others have it, and rows are here."""

    bin: int
    kept: BinSnapshot | None
    held: tuple[FilePiece, ...] = ()


class PendingOutput(NamedTuple):
    """Output of a commit that is not known to have arrived."""

    number: int
    pieces: tuple[FilePiece, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """The rows of a batch."""

    came: int = 0
    folded: int = 0
    put_out: int = 0
    held: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """A worker's batch. Between two of Spark's, `batch` is the number of the last one."""

    number: int
    batch: int | None
    query: str
    began: float
    at: float
    frontier: Moment | None
    seen: Seen
    moves: int  # how many moves were known to be decided
    changed: tuple[BinChange, ...] = ()
    given: tuple[GivenBin, ...] = ()
    taken: tuple[TakenBin, ...] = ()
    held: tuple[HeldRows, ...] = ()  # all that are
    here: Mapping[str, BinSnapshot] | None = None  # by bin, where the commit is whole
    unclaimed: tuple[GivenBin, ...] = ()  # where it is whole: given before, and not taken yet
    undelivered: tuple[PendingOutput, ...] = ()  # where it is whole: put out before
    outputs: tuple[FilePiece, ...] = ()
    delivered: int = -1  # the last commit whose output is known to have arrived
    heard: Mapping[str, int] = field(default_factory=dict)  # by worker, its last commit known here
    borrowed: tuple[str, ...] = ()  # files of others that are needed here
    counts: Counts = Counts()
    bins: int | None = None  # how many there are, where that is not the number they began with
    # by bin, the rows that it folded: of those with twice the mean of the batch's bins at least
    busy: Mapping[str, int] = field(default_factory=dict)

    def to_plain(self) -> dict[str, object]:
        """Make it plain. `bins` and `busy` are left out where they say nothing: versions that know
        neither can read all other commits.
        """
        names = (each.name for each in fields(self) if each.name != "held")
        plain = {name: to_plain(getattr(self, name)) for name in names}
        plain["held"] = [[held.bin, held.since, list(map(list, held.pieces))] for held in self.held]
        if self.bins is None:
            del plain["bins"]
        if not self.busy:
            del plain["busy"]
        return plain


class CommitOfAnother(Commit):
    """Another worker's commit, as it is read at every batch: without the rows that are ahead of its
    frontier. They concern nobody else, and can be most of the file.
    """

    __slots__ = ()

    @classmethod
    def from_plain(cls, plain: object, pointer: str = "") -> Commit:
        """Read all but the rows that wait for no move; an item that does not fit is refused."""
        if isinstance(plain, dict) and isinstance(plain.get("held"), list):
            held = []
            for one in plain["held"]:
                if not (isinstance(one, list) and len(one) == 3 and one[1] is None):
                    held.append(one)
            plain = plain | {"held": held}
        return read_fields(Commit, plain, pointer)


@dataclass(frozen=True, slots=True)
class Ledger:
    """A worker's commits, folded."""

    last: Commit | None = None
    here: Mapping[int, BinSnapshot] = field(default_factory=dict)
    held: Mapping[int, HeldRows] = field(default_factory=dict)
    unclaimed: tuple[GivenBin, ...] = ()
    undelivered: tuple[PendingOutput, ...] = ()

    @property
    def frontier(self) -> Moment | None:
        """The frontier of the last commit; None where it has read no rows."""
        return None if self.last is None else self.last.frontier

    @property
    def awaited(self) -> dict[int, Time]:
        """The bins that have not come yet, with the times of their moves."""
        return {one.bin: one.since for one in self.held.values() if one.since is not None}

    @property
    def number(self) -> int:
        """The number of the last commit; -1 where there is none."""
        return -1 if self.last is None else self.last.number

    def bins(self, begun: int) -> int:
        """Return the number of bins that it counts by; `begun` is the first one."""
        return begun if self.last is None else self.last.bins or begun

    @property
    def files(self) -> set[str]:
        """All files that are needed by what is here, was given, or was put out."""
        pieces = chain(
            chain.from_iterable(kept.pieces for kept in self.here.values()),
            chain.from_iterable(given.kept.pieces for given in self.unclaimed),
            chain.from_iterable(held.pieces for held in self.held.values()),
            chain.from_iterable(one.pieces for one in self.undelivered),
        )
        return {piece.file for piece in pieces}

    def plus(self, commit: Commit) -> Ledger:
        here = dict(self.here)
        if commit.here is not None:
            here = {int(bin): kept for bin, kept in commit.here.items()}
        for taken in commit.taken:
            here[taken.bin] = taken.kept
        for changed in commit.changed:
            here[changed.bin] = add_piece(here.get(changed.bin), changed)
        for given in commit.given:
            here.pop(given.bin, None)
        before = self.unclaimed if commit.here is None else commit.unclaimed
        waiting = self.undelivered if commit.here is None else commit.undelivered
        undelivered = [one for one in waiting if one.number > commit.delivered]
        if commit.outputs:
            undelivered.append(PendingOutput(commit.number, commit.outputs))
        return Ledger(
            last=commit,
            here=here,
            held={held.bin: held for held in commit.held},
            unclaimed=(*before, *commit.given),
            undelivered=tuple(undelivered),
        )

    def arrived(self, number: int) -> Ledger:
        """Return the same once a commit's output has arrived, and all before it."""
        left = tuple(one for one in self.undelivered if one.number > number)
        return replace(self, undelivered=left)

    def claimed(self, takers: Mapping[int, Ledger]) -> Ledger:
        """Return the same without what others have taken, by their numbers."""
        left = tuple(one for one in self.unclaimed if not _has_taken(takers.get(one.to), one))
        return self if len(left) == len(self.unclaimed) else replace(self, unclaimed=left)


def _has_taken(taker: Ledger | None, given: GivenBin) -> bool:
    """Whether a worker has taken a bin: it has passed the time, and does not wait for it."""
    if taker is None or taker.frontier is None:
        return False
    held = taker.held.get(given.bin)
    is_awaited = held is not None and held.since is not None and held.since <= given.time
    return taker.frontier >= cut(given.time) and not is_awaited


def add_piece(before: BinSnapshot | None, changed: BinChange) -> BinSnapshot:
    """Return a bin's state with the piece that was added."""
    earlier = () if before is None or changed.is_whole else before.pieces
    return BinSnapshot((*earlier, changed.piece), changed.keys, changed.due)


def redistribution_commit(
    commit: Commit, before: Ledger, dealt: Iterable[RedistributedBin]
) -> Commit:
    """Return a commit that lists all bins by another number of them, after it."""
    here: dict[str, BinSnapshot] = {}
    held: list[HeldRows] = []
    for one in sorted(dealt, key=lambda each: each.bin):
        if one.kept is not None:
            here[str(one.bin)] = one.kept
        if one.held:
            held.append(HeldRows(one.bin, None, one.held))
    return replace(commit, here=here, held=tuple(held), undelivered=before.undelivered)


def whole_commit(commit: Commit, before: Ledger) -> Commit:
    """Return a commit that lists all bins as they were before it: nothing older is needed."""
    here = {str(bin): kept for bin, kept in sorted(before.here.items())}
    return replace(commit, here=here, unclaimed=before.unclaimed, undelivered=before.undelivered)

"""A worker's upkeep between batches: which files of data it can remove, which bins to write whole
so that it can, and which to read before they come.

A file that no last commit names is removed at the second of two looks that find it so: between the
two, others may have taken over what is in it. The first look is that of the worker's start, so that
one which dies again and again cleans up, too. The share that waits for its second look stays in
proportion to the state: a look is due by what was written since the last one, or by the number of
commits.

A file of data lives as long as one piece of it is needed. A bin that nobody touches keeps the file
that it was written in, with all that has died around it; and a bin that came from another worker
keeps that one's. Both are written anew, a little at a time.

A bin that is read ahead needs only the changes since when it is taken. The last move that was
decided names those that are worth it. Each is read as the worker that has it has last committed it;
while it waits, it is read again.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from stateshift.errors import MissingFile
from stateshift.live.bins.commits import BinSnapshot, Commit, Ledger
from stateshift.live.bins.files import Files, ReadAheadBins, commit_of, data_file

COMMITS_MAX = 5  # from one clean-up to the next
SLACK = 1 << 20  # bytes that files may have beyond what is needed, however small the state is
SHARE = 8  # an eighth of the state is written anew at one time, at most
MOST = 1.5  # files over what is needed, beyond which they are cleaned

AheadOf = tuple[tuple[int, int], ...]  # (bin, worker), as a proposal names them


@dataclass(eq=False)
class Cleaning:
    """A worker's own files of data, as the looks at them find them."""

    _files: Files
    _operator: str
    _worker: str
    _unneeded: set[str] = field(default_factory=set, init=False)  # at the last look
    _written: int = field(default=0, init=False)  # bytes, since then
    _written_max: int = field(default=SLACK, init=False)

    def note(self, commit: Commit) -> None:
        """Count the bytes that were written for a commit."""
        written = data_file(self._operator, self._worker, commit.number, "")
        given = (one.kept.pieces for one in commit.given)
        held = (one.pieces for one in commit.held)
        changed = (one.piece for one in commit.changed)
        for piece in chain(changed, commit.outputs, *given, *held):
            if piece.file.startswith(written):
                self._written += piece.size

    def is_due(self, number: int) -> bool:
        return number % COMMITS_MAX == 0 or self._written > self._written_max

    def clean_up(self, ledger: Ledger, borrowed: Collection[str]) -> frozenset[int]:
        """Remove what was not needed at the last look either, and commits that nobody needs; return
        the bins that are worth being written whole. `borrowed` are files that others still name.
        """
        before = self._unneeded
        rewritten = self.look(ledger, borrowed)
        self._files.remove_data(sorted(self._unneeded & before))
        self._files.forget(self._operator, self._worker, ledger)
        return rewritten

    def look(self, ledger: Ledger, borrowed: Collection[str]) -> frozenset[int]:
        """Note the files that are not needed; return the bins that are worth writing whole."""
        sizes = self._files.data(self._operator, self._worker)
        needed = ledger.files.union(borrowed)
        self._unneeded = {file for file in sizes if commit_of(file) <= ledger.number} - needed
        self._written = 0
        state = sum(kept.size for kept in ledger.here.values())
        self._written_max = max(SLACK, state // 2)
        lasting = {file: size for file, size in sizes.items() if file in needed}
        return frozenset(worth_rewriting(ledger.here, lasting))


def worth_rewriting(here: Mapping[int, BinSnapshot], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the bins to write whole next; `sizes` are of the worker's own needed files. Pure."""
    state = sum(kept.size for kept in here.values())
    wanted = [bin for bin, kept in here.items() if kept.files - sizes.keys()]
    if sum(sizes.values()) > MOST * state + SLACK:
        wanted += _keeping_dead(here, sizes)
    budget = max(SLACK, state // SHARE)
    chosen: list[int] = []
    for bin in dict.fromkeys(wanted):
        budget -= here[bin].size
        if budget < 0:
            break
        chosen.append(bin)
    return tuple(chosen)


def _keeping_dead(here: Mapping[int, BinSnapshot], sizes: Mapping[str, int]) -> Iterator[int]:
    """Yield the bins that keep files, those first that free the most for their cost."""
    alive: Counter[str] = Counter()
    cost: Counter[str] = Counter()
    bins: dict[str, list[int]] = defaultdict(list)
    for bin, kept in here.items():
        for piece in kept.pieces:
            alive[piece.file] += piece.size
        for file in kept.files & sizes.keys():
            bins[file].append(bin)
            cost[file] += kept.size
    gain = {file: (sizes[file] - alive[file]) / max(cost[file], 1) for file in bins}
    for file in sorted(gain, key=lambda file: (-gain[file], file)):
        yield from bins[file]


@dataclass(eq=False)
class ReadingAhead:
    """The bins that a worker has read ahead; `read` reads one into its home."""

    _files: Files
    _operator: str
    _worker: str
    _read: Callable[[int, BinSnapshot], None]
    # As they were then; the oldest first.
    _done: dict[int, BinSnapshot] = field(default_factory=dict, init=False)
    _done_for: AheadOf = field(default=(), init=False)
    _told: set[int] = field(default_factory=set, init=False)

    def read_one(
        self, asked: AheadOf, coming: Sequence[int], kept_of: Callable[[int], BinSnapshot | None]
    ) -> bool:
        """Read one bin of those `coming` here, as `kept_of` says it is kept; return whether there
        was one. Once there is none any more, tell the group which were read. Bins that moves do not
        ask for any more are forgotten.
        """
        if asked != self._done_for:
            self._done_for = asked
            self._done.clear()
        order = {bin: number for number, bin in enumerate(self._done)}
        for bin in sorted(coming, key=lambda bin: order.get(bin, -1)):
            kept = kept_of(bin)
            if kept is None or self._done.get(bin) == kept:
                continue
            self._done.pop(bin, None)
            with contextlib.suppress(MissingFile):  # cleaned up by now: there is a newer one
                self._read(bin, kept)
                self._done[bin] = kept
            if self._done.keys() >= set(coming):
                self._tell()
            return True
        self._tell()
        return False

    def _tell(self) -> None:
        if self._done.keys() != self._told:
            self._told = set(self._done)
            bins = tuple(sorted(self._done))
            self._files.prepare(ReadAheadBins(self._operator, self._worker, bins))

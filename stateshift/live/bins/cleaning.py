"""Which files of data a worker can remove, and when it is worth looking.

What no last commit names is removed at the second of two looks that find it so: between the two,
others may have taken over what is in it. The first look is that of the worker's start, so that one
which dies again and again cleans up, too. How much waits for its second look stays in proportion to
the state: a look is due by what was written since the last one, or by the number of commits.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from stateshift.live.bins.commits import Commit, Ledger
from stateshift.live.bins.compacting import SLACK, worth_rewriting
from stateshift.live.bins.files import Files, commit_of, data_file

COMMITS_MAX = 5  # from one clean-up to the next


class Cleaning:
    """A worker's own files of data, as the looks at them find them."""

    def __init__(self, files: Files, operator: str, worker: str) -> None:
        self._files = files
        self._operator = operator
        self._worker = worker
        self._unneeded: set[str] = set()  # at the last look
        self._written = 0  # bytes, since then
        self._written_max = SLACK

    def note(self, commit: Commit) -> None:
        """Count what was written for a commit."""
        written = data_file(self._operator, self._worker, commit.number, "")
        given = (one.kept.pieces for one in commit.given)
        held = (one.pieces for one in commit.held)
        changed = (one.piece for one in commit.changed)
        for piece in chain(changed, commit.outputs, *given, *held):
            if piece.file.startswith(written):
                self._written += piece.size

    def is_due(self, number: int) -> bool:
        """Whether it is time to clean up behind a commit."""
        return number % COMMITS_MAX == 0 or self._written > self._written_max

    def clean_up(self, ledger: Ledger, borrowed: Collection[str]) -> frozenset[int]:
        """Remove what was not needed at the last look either, and commits that nobody needs; return
        the bins that are worth being written whole.

        Args:
            ledger: what this worker's commits come to.
            borrowed: the files that other workers' last commits name.
        """
        before = self._unneeded
        rewritten = self.look(ledger, borrowed)
        self._files.remove_data(sorted(self._unneeded & before))
        self._files.forget(self._operator, self._worker, ledger)
        return rewritten

    def look(self, ledger: Ledger, borrowed: Collection[str]) -> frozenset[int]:
        """Note what is not needed; return the bins that are worth being written whole."""
        sizes = self._files.data(self._operator, self._worker)
        needed = ledger.files.union(borrowed)
        self._unneeded = {file for file in sizes if commit_of(file) <= ledger.number} - needed
        self._written = 0
        state = sum(kept.size for kept in ledger.here.values())
        self._written_max = max(SLACK, state // 2)
        lasting = {file: size for file, size in sizes.items() if file in needed}
        return frozenset(worth_rewriting(ledger.here, lasting))

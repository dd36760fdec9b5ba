"""Bins that a worker reads before they come, so that taking one needs what has changed since alone.

Which are worth it is said by the last move that was decided. What is read is as the worker that has
the bin has last committed it; while it waits, it is read again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from stateshift.errors import MissingFile
from stateshift.live.bins.commits import BinSnapshot
from stateshift.live.bins.files import Files, ReadAheadBins

AheadOf = tuple[tuple[int, int], ...]  # (bin, worker), as a proposal names them


class ReadingAhead:
    """What a worker has read ahead.

    Args:
        files: the group's.
        operator, worker: whose part it is, by their names.
        read: reads a bin into its home.
    """

    def __init__(
        self, files: Files, operator: str, worker: str, read: Callable[[int, BinSnapshot], None]
    ) -> None:
        self._files = files
        self._operator = operator
        self._worker = worker
        self._read = read
        self._done: dict[int, BinSnapshot] = {}  # as they were then; the oldest first
        self._done_for: AheadOf = ()
        self._told: set[int] = set()

    def read_one(
        self, asked: AheadOf, coming: Sequence[int], kept_of: Callable[[int], BinSnapshot | None]
    ) -> bool:
        """Read one bin that will come; return whether there was one. Once there is none any more,
        say which were read.

        Args:
            asked: what the moves say is worth it; what was read for others is forgotten.
            coming: the bins of it that will come here.
            kept_of: where a bin is kept at the moment; None where that is not known.
        """
        if asked != self._done_for:
            self._done_for = asked
            self._done.clear()
        for bin in self._oldest_first(coming):
            kept = kept_of(bin)
            if kept is not None and self._done.get(bin) != kept:
                self._read_one(bin, kept)
                self._tell(self._done.keys() >= set(coming))
                return True
        self._tell(True)
        return False

    def _oldest_first(self, bins: Sequence[int]) -> list[int]:
        """Return the bins that were not read yet, then those that were, by when."""
        order = {bin: number for number, bin in enumerate(self._done)}
        return sorted(bins, key=lambda bin: order.get(bin, -1))

    def _read_one(self, bin: int, kept: BinSnapshot) -> None:
        self._done.pop(bin, None)
        with contextlib.suppress(MissingFile):  # cleaned up by now: there is a newer one
            self._read(bin, kept)
            self._done[bin] = kept

    def _tell(self, is_all: bool) -> None:
        """Say which bins were read, once it is all of them."""
        if is_all and self._done.keys() != self._told:
            self._told = set(self._done)
            bins = tuple(sorted(self._done))
            self._files.prepare(ReadAheadBins(self._operator, self._worker, bins))

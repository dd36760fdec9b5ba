"""The first moves of a group as one value, once their own files are removed (`migration.compact`).

bins/moves.json           the first moves, folded: nobody reads them again
bins/compactions/N.json   the first time that whoever begins then can ask for
bins/past.json            the first move that is kept, for `live history`
"""

from __future__ import annotations

from dataclasses import dataclass

from stateshift.errors import AlreadyThere
from stateshift.live.protocol.chains import encode, encode_densely
from stateshift.live.protocol.configuration import BEGIN, Configuration, Time
from stateshift.live.values import ValueFiles, number_in

COMMIT_MAX = 1 << 28
MOVES_BASE = "bins/moves.json"
MOVES_KEPT = "bins/past.json"
COMPACTIONS = "bins/compactions"
COMPACTIONS_KEPT = 32


@dataclass(frozen=True, slots=True)
class MovesBase:
    """The first moves, folded: the configuration from the first time on that somebody needs."""

    decided: int
    configuration: Configuration
    ahead: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Compaction:
    """The first time that anybody can ask for who begins after this: a compaction of the moves has
    moved it on, or a part that began has kept it.
    """

    since: Time


@dataclass(frozen=True, slots=True)
class MovesKept:
    """The first move whose files are kept, and the configuration before it."""

    first: int
    configuration: Configuration


class CompactionFiles(ValueFiles):
    """The files about the first moves."""

    def moves_base(self) -> MovesBase | None:
        """Return the first moves, folded; None where there are few."""
        return self._read(MovesBase, MOVES_BASE, COMMIT_MAX)

    def keep_moves(self, base: MovesBase) -> None:
        self._write_durably(MOVES_BASE, encode_densely(base))

    def newest_compaction(self) -> tuple[int, Compaction]:
        """Return the newest compaction with its number; -1 where there is none yet."""
        listed = (file.path.rsplit("/", 1)[1] for file in self.storage.list(COMPACTIONS))
        numbers = (number_in(name.removesuffix(".json")) for name in listed)
        number = max((number for number in numbers if number is not None), default=-1)
        newest = self._read(Compaction, _compaction(number)) or Compaction(BEGIN)
        while (later := self._read(Compaction, _compaction(number + 1))) is not None:
            number, newest = number + 1, later
        return number, newest

    def compacted(self, number: int, compaction: Compaction) -> bool:
        """Make a compaction the newest; return whether it is: others may have been first."""
        try:
            self.storage.create(_compaction(number), encode(compaction))
        except AlreadyThere:
            return False
        # A number that was removed long ago can be created once more.
        return self.newest_compaction()[0] == number

    def forget_compactions(self, number: int) -> None:
        for file in list(self.storage.list(COMPACTIONS)):
            earlier = number_in(file.path.rsplit("/", 1)[1].removesuffix(".json"))
            if earlier is not None and earlier < number - COMPACTIONS_KEPT:
                self.storage.remove(file.path)

    def first_time(self) -> Time:
        """Return the first time that whoever begins now can ask for."""
        base = self.moves_base()
        since = BEGIN if base is None else base.configuration.since
        return max(since, self.newest_compaction()[1].since)

    def begin_part(self) -> Time:
        """Say that a part begins which is in `runs` already; return the first time that it can ask
        for. A compaction that has looked before does not hold after this.
        """
        while True:
            number, newest = self.newest_compaction()
            if self.compacted(number + 1, newest):
                return newest.since

    def forget_moves(self, kept: MovesKept) -> None:
        """Remove the files of moves before the first one that is kept, once that is written."""
        self._write_durably(MOVES_KEPT, encode_densely(kept))
        for file in list(self.storage.list("bins/moves")):
            number = number_in(file.path.split("/")[2])
            if number is not None and number < kept.first:
                self.storage.remove(file.path)


def _compaction(number: int) -> str:
    return f"{COMPACTIONS}/{number:06d}.json"

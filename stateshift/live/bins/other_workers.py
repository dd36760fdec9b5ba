"""The other workers of an operator, as one worker knows them: their commits, and the bins that they
have given to it.

    names     the workers of the group, by number
    ledgers   the commits of each of the others, as far as they were read
    arrived   bin -> time -> the bin as it was given for then, until it is taken

A worker never waits for another one: later commits are read with the next look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stateshift.live.bins.bin_run import ArrivedBin
from stateshift.live.bins.commits import GivenBin, Ledger
from stateshift.live.bins.files import Files
from stateshift.live.bins.times import Moment
from stateshift.live.protocol.configuration import Time

LOOKS_IN_VAIN_MAX = 50  # until it is asked whether commits were forgotten before they were read


@dataclass
class KnownWorker:
    """Another worker's commits, and the number of looks since that found nothing new."""

    ledger: Ledger
    looks_in_vain: int = 0


class OtherWorkers:
    """The other workers of an operator, as the worker `me` knows them."""

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

"""The files of a group that are about bins.

    bins/bins.json                         the number of bins, and the workers that they begin at
    bins/workers, runs, evicted, keys      the workers (`parts`)
    bins/moves/N/proposed.json             move N: which bins go where, and when; or how many there
                                           shall be
    bins/moves/N/words/OPERATOR.NAME.json  a worker's answer to it
    bins/moves/N/decided.json              its end: applied or aborted
    bins/moves.json, compactions, past.json  the first moves, compacted (`compactions`)
    bins/prepared/OPERATOR.NAME.json       the bins that a worker has read ahead
    bins/steer/…                           the steering of moves (`steering`)
    bins/states/OPERATOR/NAME/commits/N    a worker's commit
    bins/states/OPERATOR/NAME/data/N-ONCE  a file of which commits name pieces

`runs`, `keys`, `prepared`, `moves.json`, `past.json` and `steer` are written by their last writer.
Everything else is created if absent, and never changed. A commit that is there already is of a
second process that runs under the same name: whoever finds that ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from stateshift.errors import AlreadyThere, FormatError, PlanError
from stateshift.live.bins.commits import Commit, CommitOfAnother, FilePiece, Ledger
from stateshift.live.bins.compactions import COMMIT_MAX, MOVES_KEPT, CompactionFiles, MovesKept
from stateshift.live.bins.parts import PartFiles, part_file
from stateshift.live.bins.times import Moment
from stateshift.live.folder import file_name
from stateshift.live.protocol.chains import Decision, encode, encode_densely
from stateshift.live.protocol.configuration import (
    BEGIN,
    Configuration,
    Time,
    Update,
    apply_updates,
    initial_configuration,
    resize_settled,
)
from stateshift.live.values import number_in
from stateshift.plain import to_plain

PREPARED = "bins/prepared"
ACKNOWLEDGED, REFUSED = "acknowledged", "refused"  # the words of an answer
WHOLE_EVERY = 20  # commits
KEPT_COMMITS = 40  # of those before the last whole one; others may still read them


@dataclass(frozen=True, slots=True)
class GroupStart:
    """The number of bins of a group; they begin at its first workers, in turn."""

    bins: int
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Bins that shall be elsewhere from a time on. Without updates it is a preparation: whoever
    takes the bins reads them ahead. With `bins` it is neither: all bins are redistributed by that
    number of them, at each worker once it has come to a time.
    """

    number: int
    updates: tuple[Update, ...]
    at: float
    timeout_seconds: float
    ahead: tuple[tuple[int, int], ...] = ()  # (bin, worker): those worth reading ahead
    by: str = ""
    bins: int | None = None
    since: Time = BEGIN

    def to_plain(self) -> dict[str, object]:
        """Make it plain. The fields of a split or a merge are left out elsewhere: versions that
        know neither can read all moves.
        """
        plain = {each.name: to_plain(getattr(self, each.name)) for each in fields(self)}
        if self.bins is None:
            del plain["bins"], plain["since"]
        return plain

    @property
    def earliest(self) -> Time:
        """The first time at which something moves."""
        return min(update.time for update in self.updates)

    @property
    def expires(self) -> float:
        """The time from which anybody may abort it."""
        return self.at + self.timeout_seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """A worker's word on a proposal, and the frontier that it has planned."""

    operator: str
    worker: str
    word: str
    at: float
    reason: str = ""
    planned: Moment | None = None


@dataclass(frozen=True, slots=True)
class ReadAheadBins:
    """The bins that a worker has read ahead, of those that are worth it."""

    operator: str
    worker: str
    bins: tuple[int, ...]


class Files(PartFiles, CompactionFiles):
    """The files of a group that are about bins, on whatever storage they are."""

    # ---------------------------------------------------------------- who is there

    def begin(self, begun: GroupStart) -> GroupStart:
        """Begin a group with some workers; return the beginning that holds: the first one."""
        return self._first(GroupStart, "bins/bins.json", begun)

    def check_declared(self, begun: GroupStart, operator: str, bins: int) -> None:
        """Refuse an operator with a number of bins that the group neither began with nor has."""
        if bins == begun.bins:
            return
        count = look(self, self.known_moves(begun, len(begun.workers))).configuration.bins
        if bins != count:
            raise PlanError(
                f"the group {self.location} has {count} bins, and {operator} is declared with "
                f"{bins}",
                hint=f"declare it with bins={count}, or give it a group of its own",
            )

    def begun(self) -> GroupStart | None:
        """Return the beginning of the group; None if no worker ever started."""
        return self._read(GroupStart, "bins/bins.json")

    # ---------------------------------------------------------------- moves

    def configuration(self, begun: GroupStart, workers: int) -> Configuration:
        """Return the configuration before any move, among so many workers."""
        count = len(begun.workers)
        return initial_configuration(
            [bin % count for bin in range(begun.bins)], max(workers, count)
        )

    def known_moves(self, begun: GroupStart, workers: int) -> KnownMoves:
        """Return the moves that need not be read one by one: `look` goes on from there."""
        base = self.moves_base()
        if base is None:
            return KnownMoves(self.configuration(begun, workers))
        known = base.configuration
        known = replace(known, workers=max(known.workers, workers))
        return KnownMoves(known, base.decided, None, base.ahead)

    def moves_kept(self, begun: GroupStart, workers: int) -> MovesKept:
        """Return the first move whose files are there, and the configuration before it."""
        kept = self._read(MovesKept, MOVES_KEPT, COMMIT_MAX)
        if kept is None:
            return MovesKept(0, self.configuration(begun, workers))
        configuration = kept.configuration
        wide = replace(configuration, workers=max(configuration.workers, workers))
        return replace(kept, configuration=wide)

    def propose(self, proposal: Proposal) -> None:
        """Propose a move; AlreadyThere if somebody else has proposed one of this number."""
        self._create(f"{_move(proposal.number)}/proposed.json", encode(proposal))

    def proposal(self, number: int) -> Proposal | None:
        """Return a move as it was proposed; None if there is none of this number."""
        return self._read(Proposal, f"{_move(number)}/proposed.json")

    def decide(self, number: int, decided: Decision) -> Decision:
        """Decide on a move, and return what holds: the first decision."""
        return self._first(Decision, f"{_move(number)}/decided.json", decided)

    def decided(self, number: int) -> Decision | None:
        """Return the decision on a move; None if nobody has decided."""
        return self._read(Decision, f"{_move(number)}/decided.json")

    def answer(self, number: int, answer: Answer) -> None:
        """Write a worker's answer to a move, unless it has answered."""
        path = part_file(f"{_move(number)}/words", answer.operator, answer.worker)
        with contextlib.suppress(AlreadyThere):
            self.storage.create(path, encode(answer))

    def answers(self, number: int) -> tuple[Answer, ...]:
        return self._all(Answer, f"{_move(number)}/words")

    def prepare(self, prepared: ReadAheadBins) -> None:
        """Write the bins that a worker has read ahead."""
        path = part_file(PREPARED, prepared.operator, prepared.worker)
        self._write(path, encode(prepared))

    def prepared(self) -> dict[tuple[str, str], frozenset[int]]:
        """Return the bins that were read ahead, by operator and worker."""
        found = self._all(ReadAheadBins, PREPARED)
        return {(each.operator, each.worker): frozenset(each.bins) for each in found}

    # ---------------------------------------------------------------- commits

    def commit(self, operator: str, worker: str, commit: Commit) -> None:
        """Make a batch visible; refuse where another process has committed under the name."""
        path = _commit(operator, worker, commit.number)
        is_ours = True
        try:
            self._create(path, encode_densely(commit), COMMIT_MAX)
        except AlreadyThere:
            is_ours = False
        if is_ours:
            # It may have been made before, and forgotten: then the one before it is, too.
            number = commit.number
            was_forgotten = not number and self.last_commit(operator, worker) > 0
            if was_forgotten or (number and not self.has_commit(operator, worker, number - 1)):
                self.storage.remove(path)
                is_ours = False
        if not is_ours:
            raise PlanError(
                f"another process has committed as worker {worker} of {operator}: it has made "
                f"commit {commit.number}",
                hint="this one ends; run one application under a name, and give others another",
            )

    def is_made(self, operator: str, worker: str, commit: Commit) -> bool:
        """Whether a commit is there, and no other of its number."""
        path = _commit(operator, worker, commit.number)
        return self._bytes(path, COMMIT_MAX) == encode_densely(commit)

    def has_commit(self, operator: str, worker: str, number: int) -> bool:
        return self.storage.stat(_commit(operator, worker, number)) is not None

    def committed(self, operator: str, worker: str, number: int) -> Commit | None:
        return self._read(Commit, _commit(operator, worker, number), COMMIT_MAX)

    def committed_elsewhere(self, operator: str, worker: str, number: int) -> Commit | None:
        """Return another worker's commit, as far as it concerns others."""
        path = _commit(operator, worker, number)
        return self._read(CommitOfAnother, path, COMMIT_MAX)

    def last_commit(self, operator: str, worker: str) -> int:
        """Return the number of a worker's last commit that a listing shows; -1 if there is none."""
        return max(self.commit_numbers(operator, worker), default=-1)

    def ledger(self, operator: str, worker: str) -> Ledger:
        """Return all commits of a worker, folded; also those that a listing has not shown."""
        number = self.last_commit(operator, worker)
        if number < 0:
            return Ledger()
        needed: list[Commit] = []
        while number >= 0:
            commit = self.committed(operator, worker, number)
            if commit is None:
                raise FormatError(
                    f"commit {number} of worker {worker} is missing, and later ones need it",
                    f"{self.location}/{_commit(operator, worker, number)}",
                )
            needed.append(commit)
            if commit.here is not None:
                break
            number -= 1
        ledger = Ledger()
        for commit in reversed(needed):
            ledger = ledger.plus(commit)
        while (later := self.committed(operator, worker, ledger.number + 1)) is not None:
            ledger = ledger.plus(later)
        return ledger

    def forget(self, operator: str, worker: str, ledger: Ledger) -> None:
        """Remove commits that nobody needs, the oldest first: those long before the last whole."""
        before = ledger.number - KEPT_COMMITS - WHOLE_EVERY
        for number in sorted(self.commit_numbers(operator, worker)):
            if number < before:
                self.storage.remove(_commit(operator, worker, number))

    def commit_numbers(self, operator: str, worker: str) -> list[int]:
        """Return the numbers of a worker's commits that a listing shows, in no order."""
        under = f"{_of_worker(operator, worker)}/commits"
        found = (number_in(file.path.rsplit("/", 1)[1]) for file in self.storage.list(under))
        return [number for number in found if number is not None]

    # ---------------------------------------------------------------- data

    def write_data(self, path: str, content: bytes) -> None:
        """Write a file that commits will name pieces of."""
        self._create(path, content, len(content))

    def data(self, operator: str, worker: str) -> dict[str, int]:
        return {file.path: file.size for file in self.storage.list(own_data(operator, worker))}

    def remove_data(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.storage.remove(path)

    def read(self, piece: FilePiece) -> bytes:
        """Return a piece of a file. A file of empty pieces alone was never written."""
        if piece.size == 0:
            return b""
        content = bytearray()
        for chunk in self.storage.chunks(piece.file, piece.at):
            content += chunk[: piece.size - len(content)]
            if len(content) == piece.size:
                return bytes(content)
        raise FormatError(
            f"{piece.size} bytes from {piece.at} on are not there", f"{self.location}/{piece.file}"
        )


@dataclass(frozen=True, slots=True)
class KnownMoves:
    """The moves of a group, as far as they are decided, and the one that is not. `due` is another
    number of bins that is decided, and not reached yet by whoever knows this.
    """

    configuration: Configuration
    decided: int = 0
    open: Proposal | None = None
    ahead: tuple[tuple[int, int], ...] = ()
    due: Proposal | None = None

    def resized(self) -> KnownMoves:
        """Return the moves by the number of bins that is due."""
        assert self.due is not None and self.due.bins is not None, "another number is due"
        return KnownMoves(apply_proposal(self.configuration, self.due), self.decided + 1)


def look(files: Files, known: KnownMoves) -> KnownMoves:
    """Return the moves with all news."""
    while True:
        known = look_until_due(files, known)
        if known.due is None:
            return known
        known = known.resized()


def look_until_due(files: Files, known: KnownMoves) -> KnownMoves:
    """Return the moves with all news, as far as they are by the same number of bins."""
    if known.due is not None:
        return known
    configuration, number, ahead = known.configuration, known.decided, known.ahead
    while True:
        proposal = known.open if known.open is not None and known.open.number == number else None
        proposal = proposal or files.proposal(number)
        if proposal is None:
            return KnownMoves(configuration, number, None, ahead)
        decided = files.decided(number)
        if decided is None:
            return KnownMoves(configuration, number, proposal, ahead)
        if decided.outcome == "applied" and proposal.bins is not None:
            return KnownMoves(configuration, number, None, ahead, proposal)
        if decided.outcome == "applied":
            configuration = apply_proposal(configuration, proposal)
            ahead = proposal.ahead
        number += 1


def apply_proposal(configuration: Configuration, proposal: Proposal) -> Configuration:
    """Return the configuration once a move, or another number of bins, is applied."""
    if proposal.bins is not None:
        return resize_settled(configuration, proposal.bins)
    return apply_updates(wide_enough(configuration, proposal.updates), proposal.updates)


def wide_enough(configuration: Configuration, updates: Iterable[Update]) -> Configuration:
    """Return a configuration that knows the workers that updates name."""
    workers = 1 + max((update.worker for update in updates), default=-1)
    if configuration.workers >= workers:
        return configuration
    return replace(configuration, workers=workers)


def own_data(operator: str, worker: str) -> str:
    """Return the folder of a worker's data, from the group's on."""
    return f"{_of_worker(operator, worker)}/data"


def data_file(operator: str, worker: str, number: int, once: str) -> str:
    """Return the name of a file of data that a commit will name; `once` is nobody else's."""
    return f"{own_data(operator, worker)}/{number:09d}-{once}"


def commit_of(file: str) -> int:
    """Return the number of the commit that a file of data was written for."""
    return int(file.rsplit("/", 1)[1].split("-")[0])


def _of_worker(operator: str, worker: str) -> str:
    return f"bins/states/{file_name(operator)}/{file_name(worker)}"


def _commit(operator: str, worker: str, number: int) -> str:
    return f"{_of_worker(operator, worker)}/commits/{number:09d}"


def _move(number: int) -> str:
    return f"bins/moves/{number:06d}"

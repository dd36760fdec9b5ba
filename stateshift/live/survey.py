"""A group, for whoever looks at it: its chains and changes, the words of workers about each change,
and the latest work of their tasks; its bins, and their past as far as files have it. Nothing is
changed by looking. Texts and documents are made of these values.

    GroupSurvey   a group: its chains, the queries that run them, what is under way
    PastChange    a change: what became of it, and when workers ran it
    BinsSurvey    its bins: the workers, their parts, what is on its way
    PastMove      a move of bins, and what became of it
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from stateshift.live import acts
from stateshift.live.bins.commits import Commit, Ledger
from stateshift.live.bins.files import (
    ACKNOWLEDGED,
    REFUSED,
    Answer,
    Files,
    GroupStart,
    Proposal,
    apply_proposal,
    wide_enough,
)
from stateshift.live.bins.steering import MoveCarrier, Steering, Throttle
from stateshift.live.bins.watch import Bins, Load, Watch, WorkerPart, hot, loads, open_bins
from stateshift.live.folder import KEPT_BATCHES, Folder, Seal, TaskMeasure, WorkerWord
from stateshift.live.proposals import GroupState, read_group
from stateshift.live.protocol.chains import (
    Decision,
    Declaration,
    KnownChange,
    Version,
    names_of,
)
from stateshift.live.protocol.configuration import Time
from stateshift.live.rates import Sample, samples, version_of
from stateshift.storage.locations import redact

LATE_BATCHES = 12  # measured ones, by which the speed of a query is told
SILENT_SECONDS = 60.0  # a worker that commits nothing for so long, while others do, may be dead


@dataclass(frozen=True, slots=True)
class PastChange:
    """A change, the words of workers about it, and whether it is signed."""

    known: KnownChange
    said: tuple[WorkerWord, ...]
    is_signed: bool

    @property
    def chains(self) -> dict[str, tuple[str, ...]]:
        """Its chains, with the names of their functions in order."""
        return {name: names_of(new.links) for name, new in self.known.change.chains.items()}

    @property
    def acknowledged(self) -> int:
        """The number of workers that have acknowledged it."""
        return len(self.of("acknowledged"))

    @property
    def running(self) -> int:
        """The number of workers that have run it."""
        return len(self.of("running"))

    @property
    def outcome(self) -> Literal["under-way", "applied", "aborted", "reverted"]:
        if self.known.decided is None:
            return "under-way"
        if self.known.decided.outcome == "aborted":
            return "aborted"
        return "applied" if self.known.reverted is None else "reverted"

    @property
    def reason(self) -> str:
        """Why it was aborted, or taken back; empty where it holds."""
        if self.known.reverted is not None:
            return self.known.reverted.error
        return "" if self.known.decided is None else self.known.decided.reason

    def of(self, word: str) -> tuple[WorkerWord, ...]:
        """Return all of one word that workers have said."""
        return tuple(said for said in self.said if said.word == word)

    @property
    def refusals(self) -> Mapping[str, str]:
        """The workers that have refused it, and why."""
        return {said.worker.name: said.reason for said in self.of("refused")}

    @property
    def first_seconds(self) -> float | None:
        """The seconds from the proposal until the first worker ran it."""
        return min(self._seconds_until_running(), default=None)

    @property
    def last_seconds(self) -> float | None:
        """The seconds from the proposal until the last worker that had acknowledged it ran it."""
        return max(self._seconds_until_running(), default=None)

    def _seconds_until_running(self) -> list[float]:
        running, asked = self.of("running"), {said.worker for said in self.of("acknowledged")}
        took_part = [said for said in running if said.worker in asked] or running
        return [said.at - self.known.change.at for said in took_part]


@dataclass(frozen=True, slots=True)
class BinMoves:
    """Bins that one proposal takes from one worker to another, at one time."""

    source: str
    target: str
    time: Time
    bins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PastMove:
    """A move and its end; without `went`, bins are copied ahead, or are another number."""

    proposal: Proposal
    decided: Decision | None
    answers: tuple[Answer, ...]
    went: tuple[BinMoves, ...]

    @property
    def acknowledged(self) -> int:
        return sum(answer.word == ACKNOWLEDGED for answer in self.answers)

    @property
    def refusals(self) -> dict[str, str]:
        """The parts that have refused it, and why."""
        refused = (answer for answer in self.answers if answer.word == REFUSED)
        return {f"{each.operator} at {each.worker}": each.reason for each in refused}

    @property
    def outcome(self) -> Literal["under-way", "applied", "aborted"]:
        return "under-way" if self.decided is None else self.decided.outcome

    @property
    def reason(self) -> str:
        """Why it was aborted; empty where it was not."""
        return "" if self.decided is None else self.decided.reason

    @property
    def ahead(self) -> tuple[int, ...]:
        """The bins that are copied ahead."""
        return tuple(sorted(bin for bin, _ in self.proposal.ahead))


@dataclass(frozen=True, slots=True)
class CommitPast:
    """A commit, and how many bins the part has after it."""

    commit: Commit
    bins: int


@dataclass(frozen=True, slots=True)
class PartPast:
    """The last commits of one worker's part in one operator."""

    operator: str
    worker: str
    commits: tuple[CommitPast, ...]


@dataclass(frozen=True, slots=True)
class PartNow:
    """One worker's part in one operator. `lag` is how far it is behind the furthest; it `is_silent`
    where it has committed nothing for long, while others have.
    """

    part: WorkerPart
    lag: int | None
    seconds_since: float | None
    is_silent: bool = False

    @property
    def bins(self) -> int:
        """The number of its bins."""
        return len(self.part.ledger.here)

    @property
    def time(self) -> int | None:
        """The logical time that it has come to; None before any row."""
        return None if self.part.frontier is None else self.part.at

    @property
    def awaited(self) -> list[int]:
        """The bins that have not come yet."""
        return sorted(self.part.awaited)


@dataclass(frozen=True, slots=True)
class BinsSurvey:
    """The bins of a group, the steering of their moves, and their past if it was asked for."""

    bins: Bins
    carried: MoveCarrier | None
    is_paused: bool
    throttle: Throttle
    moves: tuple[PastMove, ...] = ()
    commits: tuple[PartPast, ...] = ()

    @property
    def location(self) -> str:
        """The location of the group's folder, without credentials."""
        return redact(self.bins.location)

    @property
    def open(self) -> Proposal | None:
        """The proposal that is not decided."""
        return self.bins.moves.open

    @property
    def on_their_way(self) -> int:
        """How many bins are awaited somewhere."""
        return sum(len(part.awaited) for part in self.bins.parts)

    @property
    def is_moving(self) -> bool:
        """Whether something is proposed, or bins are on their way."""
        return self.open is not None or self.carried is not None or self.on_their_way > 0

    @property
    def parts(self) -> tuple[PartNow, ...]:
        """The parts of all workers, by operator and name."""
        furthest = self.bins.furthest
        commits = [part.ledger.last for part in self.bins.parts]
        newest = max((commit.at for commit in commits if commit is not None), default=0.0)
        parts = []
        for part, last in zip(self.bins.parts, commits, strict=True):
            lag = seconds_since = None
            if part.frontier is not None and furthest is not None:
                lag = furthest.at - part.at
            if last is not None:
                seconds_since = max(0.0, self.bins.at - last.at)
            is_silent = last is not None and newest - last.at > SILENT_SECONDS
            parts.append(PartNow(part, lag, seconds_since, is_silent))
        return tuple(parts)

    @property
    def hot(self) -> tuple[Load, ...]:
        """The bins that have far more than the others, the hottest first."""
        return hot(loads(self.bins))

    @property
    def without_part(self) -> tuple[str, ...]:
        """The workers that have joined and run nothing."""
        running = {part.number for part in self.bins.parts}
        return tuple(name for number, name in enumerate(self.bins.names) if number not in running)


@dataclass(frozen=True, slots=True)
class ChainQuery:
    """A query that runs a chain."""

    schema_name: ClassVar = "LiveQuery"
    chain: Annotated[str, "the chain"]
    query: Annotated[str, "the query's id"]
    living: Annotated[bool, "whether it has begun a batch in the last ten minutes"]
    workers: Annotated[int, "its tasks"]
    version: Annotated[int, "the version of the chain that its last batch began with"]
    batch: Annotated[int | None, "the last batch that it began"]
    begun_seconds_ago: Annotated[float | None, "how long ago that was"]
    # These three are of the last batch of which they are known.
    rows_in_per_second: Annotated[float | None, "rows that came into the chain, of late"]
    rows_out_per_second: Annotated[float | None, "rows that came out of it, of late"]
    task_seconds: Annotated[float | None, "how long a task took for its rows, of late"]
    sample: Sample | None  # the last batch that was measured


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A change that is not decided: who has answered, and who has not."""

    past: PastChange
    workers: int
    silent: tuple[str, ...]
    seconds: float
    seconds_left: float


@dataclass(frozen=True)
class GroupSurvey:
    """A group at a moment; `seals` are of the measured batches and the next ones, by query."""

    location: str
    at: float
    standing: GroupState
    changes: tuple[PastChange, ...]
    measures: tuple[TaskMeasure, ...] = ()
    seals: Mapping[str, Mapping[int, Seal]] = field(default_factory=dict)
    bins: BinsSurvey | None = None

    @property
    def shown_location(self) -> str:
        """The location of the group's folder, without credentials."""
        return redact(self.location)

    @property
    def has_chains(self) -> bool:
        """Whether its chains are worth showing: it has some, or has nothing else."""
        return self.bins is None or bool(self.standing.declarations)

    @property
    def state(self) -> Literal["idle", "under-way"]:
        """Whether a change is under way."""
        return "idle" if self.under_way is None else "under-way"

    @property
    def versions(self) -> dict[str, Version]:
        """The version of each chain."""
        return {each.name: self.standing.newest_of(each.name) for each in self.declarations}

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """The chains, by name."""
        by_name = self.standing.declarations
        return tuple(by_name[name] for name in sorted(by_name))

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The measured batches of all chains, in the order of their times."""
        return samples(self)

    @cached_property
    def queries(self) -> tuple[ChainQuery, ...]:
        """The queries that have ever run a chain, those of late first."""
        counts: dict[tuple[str, str], int] = {}
        for said in self.standing.workers:
            counts[said.chain, said.query] = counts.get((said.chain, said.query), 0) + 1
        found = [self._query(chain, query, count) for (chain, query), count in counts.items()]
        return tuple(sorted(found, key=lambda each: (not each.living, each.chain, each.query)))

    def _query(self, chain: str, query: str, workers: int) -> ChainQuery:
        now = self.standing
        begun = now.last_begun.get(query)
        of_it = [each for each in self.samples if (each.chain, each.query) == (chain, query)]
        counted = [each for each in of_it if each.rows_in_per_second is not None]
        return ChainQuery(
            chain=chain,
            query=query,
            workers=workers,
            batch=now.last_batches.get(query),
            begun_seconds_ago=None if begun is None else max(0.0, self.at - begun),
            living=chain in now.declarations and query in now.queries(chain),
            version=version_of(now.changes, chain, now.last_versions.get(query, 0)),
            task_seconds=of_it[-1].seconds_mean if of_it else None,
            sample=of_it[-1] if of_it else None,
            rows_in_per_second=counted[-1].rows_in_per_second if counted else None,
            rows_out_per_second=counted[-1].rows_out_per_second if counted else None,
        )

    @property
    def under_way(self) -> UnderWay | None:
        """The change that is not decided; None if everything is."""
        if not self.changes or self.changes[-1].known.decided is not None:
            return None
        past = self.changes[-1]
        workers = {said.worker for said in self.standing.living}
        silent = workers - {said.worker for said in past.said}
        return UnderWay(
            past=past,
            workers=len(workers),
            silent=tuple(sorted(worker.name for worker in silent)),
            seconds=self.at - past.known.change.at,
            seconds_left=max(0.0, past.known.change.expires - self.at),
        )

    @property
    def last(self) -> PastChange | None:
        """The newest change that is decided and among those looked at."""
        decided = [past for past in self.changes if past.known.decided is not None]
        return decided[-1] if decided else None


def look(location: str, is_whole: bool = False) -> GroupSurvey:
    """Return the group now: with the last changes and measures, or with all that are kept."""
    folder = acts.open_group(location)
    now = read_group(folder)
    holding = [place for place, known in enumerate(now.changes) if known.holds]
    first = 0 if is_whole or not holding else holding[-1]  # the newest that holds says what runs
    changes = _with_words(folder, now.changes[first:])
    measures = folder.measures(KEPT_BATCHES if is_whole else LATE_BATCHES)
    batches: dict[str, set[int]] = {}  # those measured, and the ones after them
    for measured in measures:
        batches.setdefault(measured.query, set()).update((measured.batch, measured.batch + 1))
    seals: dict[str, dict[int, Seal]] = {query: {} for query in batches}
    for query, numbers in batches.items():
        for number in sorted(numbers):
            seal = folder.sealed(query, number)
            if seal is not None:
                seals[query][number] = seal
    return GroupSurvey(
        location=folder.location,
        at=time.time(),
        standing=now,
        changes=changes,
        measures=measures,
        seals=seals,
        bins=look_at_bins(location, is_whole),
    )


def look_at_bins(location: str, is_whole: bool = False) -> BinsSurvey | None:
    """Return the bins of a group, and all of their past if wanted; None where it has none."""
    found = open_bins(location)
    if found is None:
        return None
    files, begun = found
    steering = Steering(files.storage)
    return BinsSurvey(
        bins=Watch(files, begun).look(),
        carried=steering.carried,
        is_paused=steering.is_paused,
        throttle=steering.throttled,
        moves=past_moves(files, begun) if is_whole else (),
        commits=past_parts(files) if is_whole else (),
    )


def moves_of_bins(location: str) -> tuple[PastMove, ...]:
    """Return the moves of a group's bins that are kept, oldest first; none where it has no bins."""
    found = open_bins(location)
    return () if found is None else past_moves(*found)


def history(location: str, chain: str | None = None) -> GroupSurvey:
    """Return all changes, or those of one chain, with the words of workers about them."""
    folder = acts.open_group(location)
    now = read_group(folder)
    changes = now.changes
    if chain is not None:
        now.declaration(chain)
        changes = tuple(known for known in changes if chain in known.change.chains)
    return GroupSurvey(folder.location, time.time(), now, _with_words(folder, changes))


def _with_words(folder: Folder, changes: Sequence[KnownChange]) -> tuple[PastChange, ...]:
    return tuple(
        PastChange(known, folder.said(known.number), folder.is_signed(known.number))
        for known in changes
    )


def past_moves(files: Files, begun: GroupStart) -> tuple[PastMove, ...]:
    """Return the moves of a group that are kept, oldest first."""
    names = {joined.number: joined.name for joined in files.joined()}
    kept = files.moves_kept(begun, len(names))
    configuration = kept.configuration
    found: list[PastMove] = []
    while (proposal := files.proposal(kept.first + len(found))) is not None:
        decided = files.decided(proposal.number)
        configuration = wide_enough(configuration, proposal.updates)
        before = dict(enumerate(configuration.at(configuration.last)))
        between: dict[tuple[Time, int, int], list[int]] = {}
        for at_time, bin, worker in sorted(proposal.updates):
            between.setdefault((at_time, before[bin], worker), []).append(bin)
            before[bin] = worker
        moves = []
        for (at_time, source, target), bins in sorted(between.items()):
            ends = names.get(source, str(source)), names.get(target, str(target))
            moves.append(BinMoves(*ends, at_time, tuple(bins)))
        went = tuple(moves)
        found.append(PastMove(proposal, decided, files.answers(proposal.number), went))
        if decided is not None and decided.outcome == "applied":
            configuration = apply_proposal(configuration, proposal)
    return tuple(found)


def past_parts(files: Files) -> tuple[PartPast, ...]:
    """Return the last commits of all parts, by operator and worker."""
    parts = []
    for runs in sorted(files.runs(), key=lambda each: (each.operator, each.worker)):
        ledger = Ledger()
        found: list[CommitPast] = []  # from the first kept one that lists all bins
        for number in sorted(files.commit_numbers(runs.operator, runs.worker)):
            commit = files.committed(runs.operator, runs.worker, number)
            if commit is None or (ledger.last is None and commit.here is None):
                continue
            ledger = ledger.plus(commit)
            found.append(CommitPast(commit, len(ledger.here)))
        parts.append(PartPast(runs.operator, runs.worker, tuple(found)))
    return tuple(parts)

"""A group whose functions change while its jobs run: the facts that all views share, and its
documents. Pure.

    ChangeFacts    one change that somebody asks for: what was checked, and how far it has come
    PastFacts      one change of the past: what became of it, and when workers ran it
    StatusFacts    the group: its chains, the queries that run them, what is under way
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypedDict

from stateshift.documents.bins import (
    BinsFacts,
    LiveBinsDocument,
    LivePastMoveDocument,
    PastMoveFacts,
)
from stateshift.documents.live_rates import Sample, samples, version_of
from stateshift.documents.problems import ErrorDocument
from stateshift.documents.shape import At, OrNone, document_of, documents_of
from stateshift.live.values import live_command
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.live.acts import CheckedChange
    from stateshift.live.folder import ChainWorker, WorkerWord
    from stateshift.live.proposals import ChangeProgress
    from stateshift.live.protocol.chains import (
        Decision,
        Declaration,
        KnownChange,
        Links,
        ProposedChange,
        Version,
    )
    from stateshift.live.survey import ChangeWords, GroupSurvey, PartPast

ChangeOutcome = Literal["under-way", "applied", "aborted", "reverted"]
ChangeState = Literal["checked", "finished", "applied", "aborted", "reverted"]


@dataclass(frozen=True, slots=True)
class ChainFacts:
    """What a change makes of one chain."""

    schema_name: ClassVar = "LiveChainChange"
    chain: Annotated[str, "its name"]
    before: Annotated[tuple[str, ...], "its functions before, in their order"]
    after: Annotated[tuple[str, ...], "its functions with the change"]
    when: Annotated[
        Literal["batch", "message", "column"],
        "where it begins to hold: at a batch, at once, or for the rows that say so",
    ]
    types_checked: Annotated[bool, "whether its functions were run on no rows, and fit"]


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """A change that was checked; `carried` says how far it has come, unless it was checked only."""

    checked: CheckedChange
    carried: ChangeProgress | None = None

    @property
    def location(self) -> str:
        """The location of the group's folder, without credentials."""
        return redact(self.checked.folder.location)

    @property
    def number(self) -> Version | None:
        """Its number, which is the version of its chains; None if it was checked only."""
        return None if self.carried is None else self.carried.change.number

    @property
    def decided(self) -> Decision | None:
        """The decision, with its author."""
        return None if self.carried is None else self.carried.decided

    @property
    def state(self) -> ChangeState:
        """How far it came: checked only, aborted, applied, run by every worker, or taken back by
        its first error.
        """
        if self.carried is None or self.decided is None:
            return "checked"
        if self.decided.outcome == "aborted":
            return "aborted"
        if self.carried.reverted is not None:
            return "reverted"
        return "finished" if self.carried.state == "finished" else "applied"

    @property
    def reason(self) -> str | None:
        """Why it was aborted, or taken back; None where it holds."""
        if self.carried is not None and self.carried.reverted is not None:
            return self.carried.reverted.error
        if self.decided is not None and self.decided.outcome == "aborted":
            return self.decided.reason
        return None

    @property
    def chains(self) -> tuple[ChainFacts, ...]:
        """The change of each chain."""
        before = self.checked.before
        return tuple(
            ChainFacts(
                chain=name,
                before=names_of(before.links(name)),
                after=names_of(new.links),
                when=new.when,
                types_checked=name in self.checked.typed,
            )
            for name, new in self.checked.asked.chains.items()
        )

    @property
    def delay_seconds(self) -> float | None:
        """The seconds from the proposal until the last worker ran it; None before that."""
        is_everywhere = self.carried is not None and self.state == "finished"
        return self.carried.last_seconds if self.carried and is_everywhere else None

    @property
    def workers(self) -> int:
        """The number of workers that have to acknowledge it."""
        return len(self.checked.before.living)

    @property
    def queries(self) -> int:
        """How many queries these workers are of."""
        return len({said.query for said in self.checked.before.living})

    @property
    def versions(self) -> Mapping[str, Version]:
        """The version of each of its chains, as things are now."""
        if self.state in ("finished", "applied") and self.number is not None:
            return dict.fromkeys(self.checked.asked.chains, self.number)
        before = self.checked.before
        changes = before.changes
        return {
            name: version_of(changes, name, before.version) for name in self.checked.asked.chains
        }

    @property
    def status_command(self) -> str:
        """The command that shows how far it is."""
        return live_command("status", self.location)

    @property
    def revert_command(self) -> str:
        """The command that takes it back."""
        return live_command("revert", self.location, *self.checked.asked.chains)


# ------------------------------------------------------------------------------------ the past


@dataclass(frozen=True, slots=True)
class PastFacts:
    """A change of the past, and what workers have said of it."""

    told: ChangeWords

    @property
    def known(self) -> KnownChange:
        """The change, and what was decided."""
        return self.told.known

    @property
    def change(self) -> ProposedChange:
        """The change itself."""
        return self.told.known.change

    @property
    def chains(self) -> dict[str, tuple[str, ...]]:
        """Its chains, with the names of their functions in order."""
        return {name: names_of(new.links) for name, new in self.change.chains.items()}

    @property
    def acknowledged(self) -> int:
        """The number of workers that have acknowledged it."""
        return len(self.of("acknowledged"))

    @property
    def running(self) -> int:
        """The number of workers that have run it."""
        return len(self.of("running"))

    @property
    def became(self) -> ChangeOutcome:
        """Its outcome."""
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
        return tuple(said for said in self.told.said if said.word == word)

    @property
    def refusals(self) -> Mapping[str, str]:
        """The workers that have refused it, and why."""
        return {worker_name(said): said.reason for said in self.of("refused")}

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


# ------------------------------------------------------------------------------------ the group


@dataclass(frozen=True, slots=True)
class QueryFacts:
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
class UnderWayFacts:
    """A change that is not decided: who has answered, and who has not."""

    past: PastFacts
    workers: int
    silent: tuple[str, ...]
    seconds: float
    seconds_left: float


@dataclass(frozen=True)
class StatusFacts:
    """A group: its chains, the queries that run them, what is under way."""

    survey: GroupSurvey

    @property
    def location(self) -> str:
        """The location of the group's folder, without credentials."""
        return redact(self.survey.location)

    @property
    def state(self) -> Literal["idle", "under-way"]:
        """Whether a change is under way."""
        return "idle" if self.under_way is None else "under-way"

    @property
    def versions(self) -> dict[str, Version]:
        """The version of each chain."""
        return {each.name: self.version(each.name) for each in self.declarations}

    @property
    def bins(self) -> BinsFacts | None:
        """Its bins; None where it has none."""
        found = self.survey.bins
        if found is None:
            return None
        return BinsFacts(found.bins, found.carried, found.is_paused, found.throttle)

    @property
    def moves(self) -> tuple[PastMoveFacts, ...]:
        """All moves of its bins, where the survey is whole."""
        found = self.survey.bins
        return () if found is None else tuple(PastMoveFacts(move) for move in found.moves)

    @property
    def parts_past(self) -> tuple[PartPast, ...]:
        """The last commits of its workers, where the survey is whole."""
        return () if self.survey.bins is None else self.survey.bins.parts

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """The chains, by name."""
        by_name = self.survey.standing.declarations
        return tuple(by_name[name] for name in sorted(by_name))

    def version(self, chain: str) -> Version:
        """Return the newest change that holds for a chain."""
        return self.survey.standing.newest_of(chain)

    def links(self, chain: str) -> Links:
        """Return the functions of a chain as they are now."""
        return self.survey.standing.links(chain)

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The measured batches of all chains, in the order of their times."""
        return samples(self.survey)

    @cached_property
    def queries(self) -> tuple[QueryFacts, ...]:
        """The queries that have ever run a chain, those of late first."""
        counts: dict[tuple[str, str], int] = {}
        for said in self.survey.standing.workers:
            counts[said.chain, said.query] = counts.get((said.chain, said.query), 0) + 1
        found = [self._query(chain, query, count) for (chain, query), count in counts.items()]
        return tuple(sorted(found, key=lambda each: (not each.living, each.chain, each.query)))

    def _query(self, chain: str, query: str, workers: int) -> QueryFacts:
        now = self.survey.standing
        begun = now.last_begun.get(query)
        of_it = [each for each in self.samples if (each.chain, each.query) == (chain, query)]
        counted = [each for each in of_it if each.rows_in_per_second is not None]
        return QueryFacts(
            chain=chain,
            query=query,
            workers=workers,
            batch=now.last_batches.get(query),
            begun_seconds_ago=None if begun is None else max(0.0, self.survey.at - begun),
            living=chain in now.declarations and query in now.queries(chain),
            version=version_of(now.changes, chain, now.last_versions.get(query, 0)),
            task_seconds=of_it[-1].seconds_mean if of_it else None,
            sample=of_it[-1] if of_it else None,
            rows_in_per_second=counted[-1].rows_in_per_second if counted else None,
            rows_out_per_second=counted[-1].rows_out_per_second if counted else None,
        )

    @property
    def under_way(self) -> UnderWayFacts | None:
        """The change that is not decided; None if everything is."""
        told = self.survey.told[-1:]
        if not told or told[0].known.decided is not None:
            return None
        past = PastFacts(told[0])
        change = past.known.change
        workers = {said.worker for said in self.survey.standing.living}
        answered = {said.worker for said in past.told.said}
        silent = workers - answered
        return UnderWayFacts(
            past=past,
            workers=len(workers),
            silent=tuple(sorted(map(worker_name, silent))),
            seconds=self.survey.at - change.at,
            seconds_left=max(0.0, change.expires - self.survey.at),
        )

    @property
    def last(self) -> PastFacts | None:
        """The newest change that is decided and among those looked at."""
        decided = [told for told in self.survey.told if told.known.decided is not None]
        return PastFacts(decided[-1]) if decided else None


def worker_name(worker: ChainWorker | WorkerWord) -> str:
    """Return a worker's name for people."""
    return f"{worker.chain}-{worker.partition}"


def names_of(links: Links) -> tuple[str, ...]:
    """Return the names of a chain's functions."""
    return tuple(str(link) for link in links)


# ---- documents -----------------------------------------------------------------------------------


class LiveCodeDocument(TypedDict):
    """A function that is shipped."""

    function: Annotated[str, "MODULE:FUNCTION", At("name")]
    hash: Annotated[
        str,
        "the SHA-256 of its file, which is the file's name in the group's folder",
        At("digest"),
    ]


class LiveChangeDocument(TypedDict):
    """A change of chains that run: what was checked, and how far it has come."""

    state: Annotated[
        Literal["checked", "finished", "applied", "aborted", "reverted"],
        "finished: every worker runs it. applied: it is decided, and not yet seen everywhere "
        "(exit code 9, where somebody runs it). "
        "reverted: its first error has taken it back",
    ]
    group: Annotated[str, "the group's folder", At("location")]
    change: Annotated[int | None, "its number; null if it was checked only", At("number")]
    act: Annotated[str, "replace, introduce, remove or revert", At("checked.asked.act")]
    chains: Annotated[list[ChainFacts], "what it makes of each chain"]
    code: Annotated[
        list[LiveCodeDocument], "the functions that it ships", At("checked.asked.packages")
    ]
    versions: Annotated[dict[str, int], "the version of each of its chains, as things are now"]
    scheduler: Annotated[str, "epoch or fries", At("checked.asked.scheduler")]
    scheduler_reason: Annotated[str, "why it is this one", At("checked.choice.reason")]
    on_error: Annotated[
        Literal["fail", "revert"],
        "what an error of a new function leads to",
        At("checked.asked.on_error"),
    ]
    workers: Annotated[int, "workers of the group that have to acknowledge it"]
    acknowledged: Annotated[int, "those that have", At("carried.acknowledged", none=0)]
    running: Annotated[int, "those that run it", At("carried.running", none=0)]
    reason: Annotated[str | None, "why it was aborted or taken back"]
    first_seconds: Annotated[
        float | None,
        "from the proposal until the first worker ran it",
        At("carried.first_seconds"),
    ]
    delay_seconds: Annotated[float | None, "from the proposal until the last worker ran it"]


class AbortedLiveChangeDocument(LiveChangeDocument, ErrorDocument):
    """A change that was aborted or taken back: all workers run on as before. It holds the error's
    keys, too.
    """


class LiveAbortDocument(TypedDict):
    """What `stateshift live abort` has aborted."""

    state: Annotated[Literal["aborted"], "all workers run on as before"]
    change: Annotated[int, "the number of the change", At("number")]
    act: Annotated[str, "replace, introduce, remove or revert"]
    chains: Annotated[list[str], "the chains that it would have changed"]


class LivePastDocument(TypedDict):
    """A change of the past."""

    change: Annotated[int, "its number, which is a version of its chains", At("change.number")]
    at: Annotated[float, "when it was proposed, in seconds since 1970", At("change.at")]
    act: Annotated[str, "replace, introduce, remove or revert", At("change.act")]
    chains: Annotated[dict[str, list[str]], "its chains, with their functions in order"]
    scheduler: Annotated[str, "epoch or fries", At("change.scheduler")]
    on_error: Annotated[
        Literal["fail", "revert"],
        "what an error of a new function leads to",
        At("change.on_error"),
    ]
    by: Annotated[str, "who proposed it: host and process", At("change.by")]
    signed: Annotated[bool, "whether it is signed", At("told.is_signed")]
    outcome: Annotated[
        Literal["under-way", "applied", "aborted", "reverted"],
        "what became of it; reverted: an error of its function has taken it back",
        At("became"),
    ]
    decided_at: Annotated[
        float | None, "when it was decided, in seconds since 1970", At("known.decided.at")
    ]
    decided_by: Annotated[str | None, "who decided", At("known.decided.by")]
    reason: Annotated[
        str | None, "why it was aborted, or the error that took it back", OrNone("reason")
    ]
    acknowledged: Annotated[int, "workers that have acknowledged it"]
    refused: Annotated[dict[str, str], "workers that have refused it, and why", At("refusals")]
    running: Annotated[int, "workers that have run it"]
    first_seconds: Annotated[float | None, "from the proposal until the first worker ran it"]
    delay_seconds: Annotated[
        float | None, "from the proposal until the last worker ran it", At("last_seconds")
    ]


class LiveHistoryDocument(TypedDict):
    """All changes of a group, or of one of its chains, and all moves of its bins, oldest first."""

    group: Annotated[str, "the group's folder"]
    changes: Annotated[list[LivePastDocument], "the changes"]
    moves: Annotated[list[LivePastMoveDocument], "the moves; none where a chain is named"]


class LiveChainDocument(TypedDict):
    """A chain as it is now."""

    chain: Annotated[str, "its name", At("name")]
    version: Annotated[int, "the newest change that holds for it; 0: as the job began"]
    functions: Annotated[list[str], "its functions, in their order"]
    stamp: Annotated[str | None, "the column into which it writes each row's version"]
    follow: Annotated[str | None, "the column from which it takes it"]
    python: Annotated[str, "the job's Python"]
    pyarrow: Annotated[str, "the job's pyarrow"]


class LiveUnderWayDocument(TypedDict):
    """A change that is not decided."""

    change: Annotated[int, "its number", At("past.change.number")]
    act: Annotated[str, "replace, introduce, remove or revert", At("past.change.act")]
    chains: Annotated[list[str], "its chains", At("past.change.chains")]
    by: Annotated[str, "who proposed it: host and process", At("past.change.by")]
    seconds: Annotated[float, "since when it is under way"]
    seconds_left: Annotated[float, "after which everybody may abort it"]
    workers: Annotated[int, "workers that have to acknowledge it"]
    acknowledged: Annotated[int, "those that have", At("past.acknowledged")]
    silent: Annotated[list[str], "those that have not answered: chain and partition"]


class LiveStatusDocument(TypedDict):
    """A group whose functions change, or whose bins move, while its jobs run."""

    state: Annotated[Literal["idle", "under-way"], "whether a change is under way"]
    group: Annotated[str, "the group's folder", At("location")]
    versions: Annotated[dict[str, int], "the version of each chain"]
    delay_seconds: Annotated[
        float | None,
        "of the last change, until the last worker ran it",
        At("last.last_seconds"),
    ]
    chains: Annotated[list[LiveChainDocument], "its chains", At(_chain_documents)]
    queries: Annotated[list[QueryFacts], "the queries that run them"]
    under_way: Annotated[LiveUnderWayDocument | None, "the change that is not decided"]
    last: Annotated[LivePastDocument | None, "the last change that is"]
    bins: Annotated[LiveBinsDocument | None, "its bins; null where no worker has any"]
    page: Annotated[str | None, "the page that was written (--html)"]


def history(
    location: str, changes: Sequence[PastFacts], moves: Sequence[PastMoveFacts] = ()
) -> LiveHistoryDocument:
    """Return the document of the changes and moves of the past."""
    return {
        "group": redact(location),
        "changes": documents_of(LivePastDocument, changes),
        "moves": documents_of(LivePastMoveDocument, moves),
    }


def _chain_documents(facts: StatusFacts) -> list[LiveChainDocument]:
    """Return the documents of all chains as they are now."""
    return [
        document_of(
            LiveChainDocument,
            declaration,
            version=facts.version(declaration.name),
            functions=list(names_of(facts.links(declaration.name))),
        )
        for declaration in facts.declarations
    ]

"""The JSON documents of `stateshift live`: values in, typed dictionaries out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, cast

from stateshift.documents import bins_json
from stateshift.documents.bins_json import LiveBinsDocument, LivePastMoveDocument
from stateshift.documents.live import names_of
from stateshift.documents.problems import ErrorDocument, error_document
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stateshift.documents.bins import PastMoveFacts
    from stateshift.documents.live import (
        ChainFacts,
        ChangeFacts,
        PastFacts,
        QueryFacts,
        StatusFacts,
        UnderWayFacts,
    )
    from stateshift.errors import StateshiftError
    from stateshift.live.protocol.chains import Declaration, Known


class LiveChainChangeDocument(TypedDict):
    """What a change makes of one chain."""

    chain: Annotated[str, "its name"]
    before: Annotated[list[str], "its functions before, in their order"]
    after: Annotated[list[str], "its functions with the change"]
    when: Annotated[
        Literal["batch", "message", "column"],
        "where it begins to hold: at a batch, at once, or for the rows that say so",
    ]
    types_checked: Annotated[bool, "whether its functions were run on no rows, and fit"]


class LiveCodeDocument(TypedDict):
    """A function that is shipped."""

    function: Annotated[str, "MODULE:FUNCTION"]
    hash: Annotated[str, "the SHA-256 of its file, which is the file's name in the group's folder"]


class LiveChangeDocument(TypedDict):
    """A change of chains that run: what was checked, and how far it has come."""

    state: Annotated[
        Literal["checked", "finished", "applied", "aborted", "reverted"],
        "finished: every worker runs it. applied: it is decided, and not yet seen everywhere "
        "(exit code 9, where somebody runs it). "
        "reverted: its first error has taken it back",
    ]
    group: Annotated[str, "the group's folder"]
    change: Annotated[int | None, "its number; null if it was checked only"]
    act: Annotated[str, "replace, introduce, remove or revert"]
    chains: Annotated[list[LiveChainChangeDocument], "what it makes of each chain"]
    code: Annotated[list[LiveCodeDocument], "the functions that it ships"]
    versions: Annotated[dict[str, int], "the version of each of its chains, as things are now"]
    scheduler: Annotated[str, "epoch or fries"]
    scheduler_reason: Annotated[str, "why it is this one"]
    on_error: Annotated[Literal["fail", "revert"], "what an error of a new function leads to"]
    workers: Annotated[int, "workers of the group that have to acknowledge it"]
    acknowledged: Annotated[int, "those that have"]
    running: Annotated[int, "those that run it"]
    reason: Annotated[str | None, "why it was aborted or taken back"]
    first_seconds: Annotated[float | None, "from the proposal until the first worker ran it"]
    delay_seconds: Annotated[float | None, "from the proposal until the last worker ran it"]


class AbortedLiveChangeDocument(LiveChangeDocument, ErrorDocument):
    """A change that was aborted or taken back: all workers run on as before. It holds the error's
    keys, too.
    """


class LiveAbortDocument(TypedDict):
    """What `stateshift live abort` has aborted."""

    state: Annotated[Literal["aborted"], "all workers run on as before"]
    change: Annotated[int, "the number of the change"]
    act: Annotated[str, "replace, introduce, remove or revert"]
    chains: Annotated[list[str], "the chains that it would have changed"]


class LivePastDocument(TypedDict):
    """A change of the past."""

    change: Annotated[int, "its number, which is a version of its chains"]
    at: Annotated[float, "when it was proposed, in seconds since 1970"]
    act: Annotated[str, "replace, introduce, remove or revert"]
    chains: Annotated[dict[str, list[str]], "its chains, with their functions in order"]
    scheduler: Annotated[str, "epoch or fries"]
    on_error: Annotated[Literal["fail", "revert"], "what an error of a new function leads to"]
    by: Annotated[str, "who proposed it: host and process"]
    signed: Annotated[bool, "whether it is signed"]
    outcome: Annotated[
        Literal["under-way", "applied", "aborted", "reverted"],
        "what became of it; reverted: an error of its function has taken it back",
    ]
    decided_at: Annotated[float | None, "when it was decided, in seconds since 1970"]
    decided_by: Annotated[str | None, "who decided"]
    reason: Annotated[str | None, "why it was aborted, or the error that took it back"]
    acknowledged: Annotated[int, "workers that have acknowledged it"]
    refused: Annotated[dict[str, str], "workers that have refused it, and why"]
    running: Annotated[int, "workers that have run it"]
    first_seconds: Annotated[float | None, "from the proposal until the first worker ran it"]
    delay_seconds: Annotated[float | None, "from the proposal until the last worker ran it"]


class LiveHistoryDocument(TypedDict):
    """All changes of a group, or of one of its chains, and all moves of its bins, oldest first."""

    group: Annotated[str, "the group's folder"]
    changes: Annotated[list[LivePastDocument], "the changes"]
    moves: Annotated[list[LivePastMoveDocument], "the moves; none where a chain is named"]


class LiveChainDocument(TypedDict):
    """A chain as it is now."""

    chain: Annotated[str, "its name"]
    version: Annotated[int, "the newest change that holds for it; 0: as the job began"]
    functions: Annotated[list[str], "its functions, in their order"]
    stamp: Annotated[str | None, "the column into which it writes each row's version"]
    follow: Annotated[str | None, "the column from which it takes it"]
    python: Annotated[str, "the job's Python"]
    pyarrow: Annotated[str, "the job's pyarrow"]


class LiveQueryDocument(TypedDict):
    """A query that runs a chain."""

    chain: Annotated[str, "the chain"]
    query: Annotated[str, "the query's id"]
    living: Annotated[bool, "whether it has begun a batch in the last ten minutes"]
    workers: Annotated[int, "its tasks"]
    version: Annotated[int, "the version of the chain that its last batch began with"]
    batch: Annotated[int | None, "the last batch that it began"]
    begun_seconds_ago: Annotated[float | None, "how long ago that was"]
    rows_in_per_second: Annotated[float | None, "rows that came into the chain, of late"]
    rows_out_per_second: Annotated[float | None, "rows that came out of it, of late"]
    task_seconds: Annotated[float | None, "how long a task took for its rows, of late"]


class LiveUnderWayDocument(TypedDict):
    """A change that is not decided."""

    change: Annotated[int, "its number"]
    act: Annotated[str, "replace, introduce, remove or revert"]
    chains: Annotated[list[str], "its chains"]
    by: Annotated[str, "who proposed it: host and process"]
    seconds: Annotated[float, "since when it is under way"]
    seconds_left: Annotated[float, "after which everybody may abort it"]
    workers: Annotated[int, "workers that have to acknowledge it"]
    acknowledged: Annotated[int, "those that have"]
    silent: Annotated[list[str], "those that have not answered: chain and partition"]


class LiveStatusDocument(TypedDict):
    """A group whose functions change, or whose bins move, while its jobs run."""

    state: Annotated[Literal["idle", "under-way"], "whether a change is under way"]
    group: Annotated[str, "the group's folder"]
    versions: Annotated[dict[str, int], "the version of each chain"]
    delay_seconds: Annotated[float | None, "of the last change, until the last worker ran it"]
    chains: Annotated[list[LiveChainDocument], "its chains"]
    queries: Annotated[list[LiveQueryDocument], "the queries that run them"]
    under_way: Annotated[LiveUnderWayDocument | None, "the change that is not decided"]
    last: Annotated[LivePastDocument | None, "the last change that is"]
    bins: Annotated[LiveBinsDocument | None, "its bins; null where no worker has any"]
    page: Annotated[str | None, "the page that was written (--html)"]


def change(facts: ChangeFacts) -> LiveChangeDocument:
    """Return a change, and how far it has come."""
    asked, carried = facts.checked.asked, facts.carried
    is_everywhere = facts.state == "finished"
    return {
        "state": facts.state,
        "group": facts.location,
        "change": facts.number,
        "act": asked.act,
        "chains": [_chain(chain) for chain in facts.chains],
        "code": [{"function": each.name, "hash": each.digest} for each in asked.packages],
        "versions": dict(facts.versions),
        "scheduler": asked.scheduler,
        "scheduler_reason": facts.checked.choice.reason,
        "on_error": asked.on_error,
        "workers": facts.workers,
        "acknowledged": 0 if carried is None else carried.acknowledged,
        "running": 0 if carried is None else carried.running,
        "reason": facts.reason,
        "first_seconds": None if carried is None else carried.first_seconds,
        "delay_seconds": carried.last_seconds if carried and is_everywhere else None,
    }


def failed_change(facts: ChangeFacts, error: StateshiftError) -> AbortedLiveChangeDocument:
    """Return a change that was aborted or taken back, and the error that says so."""
    return cast("AbortedLiveChangeDocument", {**change(facts), **error_document(error)})


def aborted(known: Known) -> LiveAbortDocument:
    """Return what was aborted."""
    change = known.change
    return {
        "state": "aborted",
        "change": change.number,
        "act": change.act,
        "chains": list(change.chains),
    }


def _chain(facts: ChainFacts) -> LiveChainChangeDocument:
    return {
        "chain": facts.name,
        "before": list(names_of(facts.before)),
        "after": list(names_of(facts.after)),
        "when": facts.when,
        "types_checked": facts.typed,
    }


# ------------------------------------------------------------------------------------ the group


def history(
    location: str, changes: Sequence[PastFacts], moves: Sequence[PastMoveFacts] = ()
) -> LiveHistoryDocument:
    """Return the changes and the moves of the past."""
    return {
        "group": redact(location),
        "changes": [_past(each) for each in changes],
        "moves": [bins_json.past(each) for each in moves],
    }


def _past(facts: PastFacts) -> LivePastDocument:
    change, decided = facts.known.change, facts.known.decided
    return {
        "change": change.number,
        "at": change.at,
        "act": change.act,
        "chains": {name: list(names_of(new.links)) for name, new in change.chains.items()},
        "scheduler": change.scheduler,
        "on_error": change.on_error,
        "by": change.by,
        "signed": facts.told.is_signed,
        "outcome": facts.became,
        "decided_at": None if decided is None else decided.at,
        "decided_by": None if decided is None else decided.by,
        "reason": facts.reason or None,
        "acknowledged": len(facts.of("acknowledged")),
        "refused": dict(facts.refusals),
        "running": len(facts.of("running")),
        "first_seconds": facts.first_seconds,
        "delay_seconds": facts.last_seconds,
    }


def status(facts: StatusFacts, page: str | None = None) -> LiveStatusDocument:
    """Return a group as it is now."""
    last, under_way = facts.last, facts.under_way
    return {
        "state": "idle" if under_way is None else "under-way",
        "group": facts.location,
        "versions": {each.name: facts.version(each.name) for each in facts.declarations},
        "delay_seconds": None if last is None else last.last_seconds,
        "chains": [_chain_now(facts, each) for each in facts.declarations],
        "queries": [_query(each) for each in facts.queries],
        "under_way": None if under_way is None else _under_way(under_way),
        "last": None if last is None else _past(last),
        "bins": None if facts.bins is None else bins_json.status(facts.bins),
        "page": page,
    }


def _chain_now(facts: StatusFacts, declaration: Declaration) -> LiveChainDocument:
    return {
        "chain": declaration.name,
        "version": facts.version(declaration.name),
        "functions": list(names_of(facts.links(declaration.name))),
        "stamp": declaration.stamp,
        "follow": declaration.follow,
        "python": declaration.python,
        "pyarrow": declaration.pyarrow,
    }


def _query(facts: QueryFacts) -> LiveQueryDocument:
    sample = facts.sample
    return {
        "chain": facts.chain,
        "query": facts.query,
        "living": facts.is_living,
        "workers": facts.workers,
        "version": facts.version,
        "batch": facts.batch,
        "begun_seconds_ago": facts.seconds_since,
        "rows_in_per_second": facts.rows_in_per_second,
        "rows_out_per_second": facts.rows_out_per_second,
        "task_seconds": None if sample is None else sample.seconds_mean,
    }


def _under_way(facts: UnderWayFacts) -> LiveUnderWayDocument:
    change = facts.past.known.change
    return {
        "change": change.number,
        "act": change.act,
        "chains": list(change.chains),
        "by": change.by,
        "seconds": facts.seconds,
        "seconds_left": facts.seconds_left,
        "workers": facts.workers,
        "acknowledged": len(facts.past.of("acknowledged")),
        "silent": list(facts.silent),
    }

"""The documents of a group whose functions change while its jobs run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from stateshift.documents.bins import LiveBinsDocument, LivePastMoveDocument
from stateshift.documents.problems import ErrorDocument
from stateshift.documents.shape import At, OrNone, document_of, documents_of
from stateshift.live.acts import ChainChange
from stateshift.live.protocol.chains import names_of
from stateshift.live.survey import ChainQuery, GroupSurvey, PastChange, PastMove
from stateshift.storage.locations import redact


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
    chains: Annotated[list[ChainChange], "what it makes of each chain"]
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

    change: Annotated[
        int, "its number, which is a version of its chains", At("known.change.number")
    ]
    at: Annotated[float, "when it was proposed, in seconds since 1970", At("known.change.at")]
    act: Annotated[str, "replace, introduce, remove or revert", At("known.change.act")]
    chains: Annotated[dict[str, list[str]], "its chains, with their functions in order"]
    scheduler: Annotated[str, "epoch or fries", At("known.change.scheduler")]
    on_error: Annotated[
        Literal["fail", "revert"],
        "what an error of a new function leads to",
        At("known.change.on_error"),
    ]
    by: Annotated[str, "who proposed it: host and process", At("known.change.by")]
    signed: Annotated[bool, "whether it is signed", At("is_signed")]
    outcome: Annotated[
        Literal["under-way", "applied", "aborted", "reverted"],
        "what became of it; reverted: an error of its function has taken it back",
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

    change: Annotated[int, "its number", At("past.known.change.number")]
    act: Annotated[str, "replace, introduce, remove or revert", At("past.known.change.act")]
    chains: Annotated[list[str], "its chains", At("past.known.change.chains")]
    by: Annotated[str, "who proposed it: host and process", At("past.known.change.by")]
    seconds: Annotated[float, "since when it is under way"]
    seconds_left: Annotated[float, "after which everybody may abort it"]
    workers: Annotated[int, "workers that have to acknowledge it"]
    acknowledged: Annotated[int, "those that have", At("past.acknowledged")]
    silent: Annotated[list[str], "those that have not answered: chain and partition"]


class LiveStatusDocument(TypedDict):
    """A group whose functions change, or whose bins move, while its jobs run."""

    state: Annotated[Literal["idle", "under-way"], "whether a change is under way"]
    group: Annotated[str, "the group's folder", At("shown_location")]
    versions: Annotated[dict[str, int], "the version of each chain"]
    delay_seconds: Annotated[
        float | None,
        "of the last change, until the last worker ran it",
        At("last.last_seconds"),
    ]
    chains: Annotated[list[LiveChainDocument], "its chains", At(_chain_documents)]
    queries: Annotated[list[ChainQuery], "the queries that run them"]
    under_way: Annotated[LiveUnderWayDocument | None, "the change that is not decided"]
    last: Annotated[LivePastDocument | None, "the last change that is"]
    bins: Annotated[LiveBinsDocument | None, "its bins; null where no worker has any"]
    page: Annotated[str | None, "the page that was written (--html)"]


def history(
    location: str, changes: Sequence[PastChange], moves: Sequence[PastMove] = ()
) -> LiveHistoryDocument:
    """Return the document of the changes and moves of the past."""
    return {
        "group": redact(location),
        "changes": documents_of(LivePastDocument, changes),
        "moves": documents_of(LivePastMoveDocument, moves),
    }


def _chain_documents(survey: GroupSurvey) -> list[LiveChainDocument]:
    """Return the documents of all chains as they are now."""
    return [
        document_of(
            LiveChainDocument,
            declaration,
            version=survey.standing.newest_of(declaration.name),
            functions=list(names_of(survey.standing.links(declaration.name))),
        )
        for declaration in survey.declarations
    ]

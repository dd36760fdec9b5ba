"""The documents of `stateshift live import`, `export`, `evict` and `buffer`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from stateshift.documents.shape import At

if TYPE_CHECKING:
    from stateshift.live.buffer.runner import BufferSurvey


class LiveImportDocument(TypedDict):
    """State that was brought into a group."""

    keys: Annotated[int, "how many keys have a state"]
    bins: Annotated[int, "how many bins have keys"]
    bytes: Annotated[int, "what the state takes in the group's folder", At("size")]
    workers: Annotated[list[str], "the workers that the bins begin at, in turn"]


class LiveExportDocument(TypedDict):
    """State that was written to a file."""

    to: Annotated[str, "the file"]
    keys: Annotated[int, "how many keys it has"]
    bytes: Annotated[int, "its size"]


class LiveEvictedDocument(TypedDict):
    """Where whoever goes on under an evicted worker's name has to begin."""

    operator: Annotated[str, "the operator"]
    worker: Annotated[str, "the name that is free"]
    commit: Annotated[int, "the number of the commit that nobody else can make now"]
    frontier: Annotated[list[int] | None, "rows before it are folded; null if there is none"]
    bins: Annotated[int, "the bins that wait under the name"]
    last_commit_at: Annotated[
        float | None,
        "its own last commit, in seconds since 1970; null if there is none",
        At("at"),
    ]


class LiveEvictDocument(TypedDict):
    """What `stateshift live evict` has done."""

    evicted: Annotated[list[LiveEvictedDocument], "one for each operator of the worker"]


# ---- a buffer


class LiveBufferReaderDocument(TypedDict):
    """A reader of a buffer."""

    reader: Annotated[str, "its name"]
    next: Annotated[int, "the number that it reads next"]
    behind: Annotated[int, "records that it has not read"]
    at: Annotated[float, "when it said so, in seconds since 1970"]


class LiveBufferDocument(TypedDict):
    """A buffer before a streaming job."""

    state: Annotated[
        Literal["running", "failing", "stopped"],
        "failing: it runs, and its last write failed. stopped: nobody runs it",
        At(state_of),
    ]
    directory: Annotated[str, "its directory", At(lambda seen: str(seen.directory))]
    id: Annotated[str, "its id, which offsets of readers name", At("status.id")]
    listens: Annotated[list[str], "where producers come", At("running.listens", none=())]
    serves: Annotated[str | None, "where readers come", At("running.serves")]
    first: Annotated[int, "the number of the oldest record that is kept", At("status.first")]
    next: Annotated[
        int, "the number that the next record gets: all below are durable", At("status.next")
    ]
    waiting: Annotated[int, "accepted records that are not durable yet", At("status.waiting")]
    refused: Annotated[
        int, "records that were refused, each time they were sent", At("status.refused")
    ]
    memory_bytes: Annotated[int, "what memory holds", At("status.memory_bytes")]
    memory_limit: Annotated[int, "what it may hold; 0 if nobody runs it", At("status.memory_limit")]
    disk_bytes: Annotated[int, "what the disk holds", At("status.disk_bytes")]
    disk_limit: Annotated[int, "what it may hold; 0 if nobody runs it", At("status.disk_limit")]
    refusal: Annotated[str | None, "why records were refused last", At("status.refusal")]
    failure: Annotated[str | None, "why the last write failed", At("status.failure")]
    readers: Annotated[list[LiveBufferReaderDocument], "its readers", At(readers_of)]


def readers_of(seen: BufferSurvey) -> list[LiveBufferReaderDocument]:
    """Return the readers of a buffer, and the number of records before each of them."""
    end = seen.status.next
    return [
        {
            "reader": reader.name,
            "next": reader.next,
            "behind": end - reader.next,
            "at": reader.at,
        }
        for reader in seen.status.readers
    ]


def state_of(seen: BufferSurvey) -> Literal["running", "failing", "stopped"]:
    """Return the state of a buffer in one word."""
    if seen.running is None:
        return "stopped"
    return "running" if seen.status.failure is None else "failing"

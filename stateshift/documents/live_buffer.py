"""The JSON document of `stateshift live buffer`: values in, typed dictionaries out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

if TYPE_CHECKING:
    from stateshift.live.buffer.running import Seen


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
    ]
    directory: Annotated[str, "its directory"]
    id: Annotated[str, "its id, which offsets of readers name"]
    listens: Annotated[list[str], "where producers come"]
    serves: Annotated[str | None, "where readers come"]
    first: Annotated[int, "the number of the oldest record that is kept"]
    next: Annotated[int, "the number that the next record gets: all below are durable"]
    waiting: Annotated[int, "accepted records that are not durable yet"]
    refused: Annotated[int, "records that were refused, each time they were sent"]
    memory_bytes: Annotated[int, "what memory holds"]
    memory_limit: Annotated[int, "what it may hold; 0 if nobody runs it"]
    disk_bytes: Annotated[int, "what the disk holds"]
    disk_limit: Annotated[int, "what it may hold; 0 if nobody runs it"]
    refusal: Annotated[str | None, "why records were refused last"]
    failure: Annotated[str | None, "why the last write failed"]
    readers: Annotated[list[LiveBufferReaderDocument], "its readers"]


def buffer(seen: Seen) -> LiveBufferDocument:
    """Return a buffer as it is."""
    status, running = seen.status, seen.running
    return {
        "state": state_of(seen),
        "directory": str(seen.directory),
        "id": status.id,
        "listens": [] if running is None else list(running.listens),
        "serves": None if running is None else running.serves,
        "first": status.first,
        "next": status.next,
        "waiting": status.waiting,
        "refused": status.refused,
        "memory_bytes": status.memory_bytes,
        "memory_limit": status.memory_limit,
        "disk_bytes": status.disk_bytes,
        "disk_limit": status.disk_limit,
        "refusal": status.refusal,
        "failure": status.failure,
        "readers": [
            {
                "reader": reader.name,
                "next": reader.next,
                "behind": status.next - reader.next,
                "at": reader.at,
            }
            for reader in status.readers
        ],
    }


def state_of(seen: Seen) -> Literal["running", "failing", "stopped"]:
    """Return how a buffer is, in one word."""
    if seen.running is None:
        return "stopped"
    return "running" if seen.status.failure is None else "failing"

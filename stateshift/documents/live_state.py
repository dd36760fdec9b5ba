"""The documents of `stateshift live import`, `export` and `evict`. Pure."""

from __future__ import annotations

from typing import Annotated, TypedDict

from stateshift.documents.shape import At


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

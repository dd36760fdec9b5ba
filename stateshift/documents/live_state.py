"""The JSON documents of `stateshift live import`, `export` and `evict`: values in, typed
dictionaries out. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stateshift.live.bins.adopting import BroughtIn
    from stateshift.live.bins.evicting import Evicted


class LiveImportDocument(TypedDict):
    """State that was brought into a group."""

    keys: Annotated[int, "how many keys have a state"]
    bins: Annotated[int, "how many bins have keys"]
    bytes: Annotated[int, "what the state takes in the group's folder"]
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
        float | None, "its own last commit, in seconds since 1970; null if there is none"
    ]


class LiveEvictDocument(TypedDict):
    """What `stateshift live evict` has done."""

    evicted: Annotated[list[LiveEvictedDocument], "one for each operator of the worker"]


def imported(came: BroughtIn) -> LiveImportDocument:
    """Return what was brought in."""
    return {
        "keys": came.keys,
        "bins": came.bins,
        "bytes": came.size,
        "workers": list(came.workers),
    }


def exported(to: str, keys: int, size: int) -> LiveExportDocument:
    """Return what was written."""
    return {"to": to, "keys": keys, "bytes": size}


def evicted(all_evicted: Sequence[Evicted]) -> LiveEvictDocument:
    """Return from where to go on."""
    return {"evicted": [_evicted(one) for one in all_evicted]}


def _evicted(one: Evicted) -> LiveEvictedDocument:
    return {
        "operator": one.operator,
        "worker": one.worker,
        "commit": one.commit,
        "frontier": None if one.frontier is None else list(one.frontier),
        "bins": one.bins,
        "last_commit_at": one.at,
    }

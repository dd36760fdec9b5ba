"""A group as whoever changes it finds it, and the change that is asked of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stateshift.errors import PlanError
from stateshift.live import code
from stateshift.live.folder import Folder, WorkerWord
from stateshift.live.protocol.chains import (
    Declaration,
    KnownChange,
    Links,
    NewChain,
    OnError,
    Version,
    links_at,
    newest,
)

# A query that has begun no batch for so long is not waited for: it reads what is decided when it
# begins one.
ALIVE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A wish: new chains by name, and the way to bring them in."""

    act: str
    chains: Mapping[str, NewChain]
    scheduler: str
    packages: tuple[code.Package, ...] = ()
    on_error: OnError = "fail"
    timeout_seconds: float = 60.0
    key: str | None = None
    # Whether it may be decided although no worker of the targets is there to acknowledge it.
    unattended: bool = False


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group as a controller finds it: its chains, its changes, and its workers."""

    group: str
    declarations: Mapping[str, Declaration]
    changes: tuple[KnownChange, ...]
    workers: tuple[WorkerWord, ...]
    # when each query last began a batch, which, and with which version
    last_begun: Mapping[str, float]
    last_batches: Mapping[str, int]
    last_versions: Mapping[str, Version]

    @property
    def living(self) -> tuple[WorkerWord, ...]:
        """The workers of queries that have begun a batch of late, or one that they had begun before
        they went back to an older checkpoint.
        """
        last_seen = dict(self.last_begun)
        for said in self.workers:
            last_seen[said.query] = max(said.at, last_seen.get(said.query, 0.0))
        since = time.time() - ALIVE_SECONDS
        return tuple(said for said in self.workers if last_seen[said.query] > since)

    def newest_of(self, chain: str) -> Version:
        """Return the newest change of a chain that holds; 0 if it was never changed."""
        for known in reversed(self.changes):
            if known.holds and chain in known.change.chains:
                return known.number
        return 0

    @property
    def version(self) -> Version:
        return newest(self.changes)

    def declaration(self, chain: str) -> Declaration:
        """Return the declaration of a chain, or refuse with those there are."""
        if chain not in self.declarations:
            known = ", ".join(sorted(self.declarations)) or "none"
            raise PlanError(f"there is no chain {chain!r}", hint=f"chains of the group: {known}")
        return self.declarations[chain]

    def links(self, chain: str, version: Version | None = None) -> Links:
        """Return a chain's functions as of a version, or as they are now."""
        at = self.version if version is None else version
        return links_at(self.changes, chain, self.declaration(chain).first, at)

    def queries(self, chain: str) -> frozenset[str]:
        return frozenset(said.query for said in self.living if said.chain == chain)


def read_group(folder: Folder) -> GroupState:
    """Return a group as it is, or refuse a folder that is none."""
    group = folder.check()
    declarations = {}
    for name in folder.chains():
        declaration = folder.declaration(name)
        if declaration is not None:
            declarations[name] = declaration
    last_begun, last_versions = {}, {}
    last_batches = folder.last_batches()
    for query, number in last_batches.items():
        seal = folder.sealed(query, number)
        last_begun[query] = 0.0 if seal is None else seal.at
        last_versions[query] = 0 if seal is None else seal.version
    # A change may have taken itself back after it was read: none can once a later one is applied.
    changes = list(folder.changes())
    last = newest(changes)
    for place, known in enumerate(changes):
        if known.number < last and takes_itself_back(known):
            changes[place] = replace(known, reverted=folder.reverted(known.number))
    return GroupState(
        group=group,
        declarations=declarations,
        changes=tuple(changes),
        workers=folder.workers(),
        last_begun=last_begun,
        last_batches=last_batches,
        last_versions=last_versions,
    )


def takes_itself_back(known: KnownChange) -> bool:
    """Whether a change may still take itself back at an error."""
    return known.change.on_error == "revert" and known.applied and known.reverted is None

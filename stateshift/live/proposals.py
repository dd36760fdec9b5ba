"""Changes are proposed to everybody, one at a time, and followed until all run them.

    propose   ship the code, then propose the change
    follow    hear the workers, and decide
    abort     end what is proposed and not decided

A change is *requested* when it is proposed; every worker *acknowledges* it, also where it has no
part in it; it is *completed* when it is decided and every worker runs it. Whoever refuses aborts
it, and so does time. A worker that has no task at the moment cannot answer, and need not: it reads
what is decided before its next task begins. It counts as having answered once its query has begun a
second batch since.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stateshift import signing
from stateshift.errors import FormatError, PlanError, StalePlan
from stateshift.live import code
from stateshift.live.folder import ChainWorker, Folder, WorkerWord
from stateshift.live.member import ACKNOWLEDGED, REFUSED, RUNNING, decided_here, process_name
from stateshift.live.protocol.chains import (
    Decision,
    Declaration,
    KnownChange,
    Links,
    NewChain,
    OnError,
    Outcome,
    ProposedChange,
    Reversal,
    Version,
    encode,
    links_at,
    newest,
)
from stateshift.live.values import Pause, live_command, proposing

logger = logging.getLogger(__name__)

SETTLED_EVERY = 10  # changes; as many are read one by one by a worker that begins
COUNT_SECONDS = 0.3
# A query that has begun no batch for so long is not waited for: it reads what is decided when it
# begins one.
ALIVE_SECONDS = 600.0


def propose(folder: Folder, now: GroupState, asked: ChangeRequest) -> ProposedChange:
    """Ship the code, then propose the change; one at a time."""
    close_overdue(folder, now)
    change = ProposedChange(
        group=now.group,
        number=len(now.changes) + 1,
        act=asked.act,
        chains=asked.chains,
        at=time.time(),
        timeout_seconds=asked.timeout_seconds,
        scheduler=asked.scheduler,
        on_error=asked.on_error,
        by=process_name(),
    )
    signature = None
    if asked.key is not None:
        signature = signing.private_key(asked.key).sign(encode(change))
    with proposing(f"change {change.number}", "nothing has changed", folder.location):
        settled = [known for known in now.changes if known.number < now.version]
        if settled and len(settled) % SETTLED_EVERY == 0:
            folder.settle(settled)
        for package in asked.packages:
            folder.write_code(package.digest, package.content)
        folder.propose(change, signature)
    return change


def close_overdue(folder: Folder, now: GroupState) -> None:
    """Abort the change that is under way if its time is over, else refuse."""
    if not now.changes or now.changes[-1].decided is not None:
        return
    change = now.changes[-1].change
    if time.time() < change.expires:
        raise PlanError(
            f"change {change.number} is under way since {max(0.0, time.time() - change.at):.0f} s",
            hint=f"wait for it, or: {live_command('abort', folder.location)}",
        )
    if folder.decide(change.number, decided_here("aborted", change.overdue)).outcome == "applied":
        raise StalePlan(
            f"change {change.number} was applied in this moment",
            hint="run this command again: it goes by what runs now",
        )


def abort(folder: Folder, now: GroupState) -> KnownChange:
    """Abort the change that is under way, and return it."""
    if not now.changes or now.changes[-1].decided is not None:
        raise PlanError("nothing is under way", hint=_way_back(folder, now.changes))
    known = now.changes[-1]
    held = folder.decide(known.number, decided_here("aborted", "stateshift live abort"))
    known = replace(known, decided=held)
    if known.applied:
        raise PlanError(
            f"change {known.number} was applied in this moment", hint=_way_back(folder, (known,))
        )
    return known


def _way_back(folder: Folder, changes: Sequence[KnownChange]) -> str:
    """Return the command that takes the newest change back, or the one that shows the group."""
    held = [known for known in changes if known.holds]
    if not held:
        return live_command("status", folder.location)
    return live_command("revert", folder.location, *held[-1].change.chains)


@dataclass(frozen=True, slots=True)
class ChangeProgress:
    """A change so far, and when each point was reached. It is `finished` once it is applied and
    every worker runs it.
    """

    change: ProposedChange
    state: Literal["proposed", "applied", "finished", "aborted"]
    workers: int
    acknowledged: int
    running: int
    decided: Decision | None
    first_seconds: float | None
    last_seconds: float | None
    # the error that has taken it back, if one has while it was waited for
    reverted: Reversal | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """The seconds to wait for workers once a change is decided; for nobody if unattended."""

    seconds: float
    unattended: bool = False


def follow(
    folder: Folder,
    now: GroupState,
    change: ProposedChange,
    patience: Patience,
    progress: Callable[[ChangeProgress], None] = lambda carried: None,
) -> ChangeProgress:
    """Follow a change to its end, or as long as is waited; it is never left undecided."""
    carrier = _Carrier(folder, now, change, patience.unattended)
    pause = Pause(time.sleep)
    while True:
        carried = carrier.step()
        progress(carried)
        if carried.state in ("finished", "aborted"):
            return carried
        if carried.decided and not carried.workers:
            return carried
        if carried.decided and time.time() >= carried.decided.at + patience.seconds:
            return carried
        pause()


class _Carrier:
    """One change on its way, over a group's folder."""

    def __init__(
        self, folder: Folder, now: GroupState, change: ProposedChange, unattended: bool
    ) -> None:
        self.folder = folder
        self.change = change
        self.unattended = unattended
        self.previous = now.version
        last = now.changes[now.version - 1] if now.version else None
        self._may_be_taken_back = last is not None and takes_itself_back(last)
        self.workers = frozenset(said.worker for said in now.living)
        self.acknowledged: set[ChainWorker] = set()
        self.running: set[ChainWorker] = set()
        self.heard: dict[str, WorkerWord] = {}
        self.decided: Decision | None = None
        self.before = self.folder.last_batches()
        self.begun = self.before
        self.counted = 0.0

    def step(self) -> ChangeProgress:
        """Hear what is new, and decide where it is time to."""
        for path in self.folder.words(self.change.number):
            if path in self.heard:
                continue
            try:
                said = self.heard[path] = self.folder.word(path)
            except FormatError as error:  # as if it had not been said
                logger.warning("%s: %s", error.path, error.fact)
                continue
            if said.worker in self.workers:
                self._take(said.worker, said.word, said.reason)
        # Count the workers that have no task as having answered: those whose query has begun two
        # batches without a word of theirs. A task that begins reads what is decided first.
        if self.unattended and not self.workers and self.decided is None:
            self._apply()
        now = time.time()
        if now - self.counted >= COUNT_SECONDS and not self.unattended:
            self.counted = now
            self.begun = self.folder.last_batches()
        for worker in self.workers:
            begun = self.begun.get(worker.query, -1) - self.before.get(worker.query, -1)
            if self.unattended or begun >= 2:
                self._take(worker, ACKNOWLEDGED if self.decided is None else RUNNING)
        self._take_over()
        running = [said.at for said in self.heard.values() if said.word == RUNNING]
        reverted = None
        if self.change.on_error == "revert" and self.decided is not None:
            reverted = self.folder.reverted(self.change.number)
        return ChangeProgress(
            change=self.change,
            state=self._state(),
            workers=len(self.workers),
            acknowledged=len(self.acknowledged),
            running=len(self.running),
            decided=self.decided,
            first_seconds=min(running) - self.change.at if running else None,
            last_seconds=max(running) - self.change.at if running else None,
            reverted=reverted,
        )

    def _state(self) -> Literal["proposed", "applied", "finished", "aborted"]:
        if self.decided is None:
            return "proposed"
        if self.decided.outcome == "aborted":
            return "aborted"
        runs_everywhere = self.workers and self.running >= self.workers
        return "finished" if runs_everywhere else "applied"

    def _take(self, worker: ChainWorker, word: str, reason: str = "") -> None:
        """Take a worker's word. The last one to acknowledge the change decides that it holds; the
        first one to refuse it, that it does not, unless somebody has decided before.
        """
        if word == RUNNING:
            self.running.add(worker)
        elif word != REFUSED:
            self.acknowledged.add(worker)
            if self.decided is None and self.acknowledged >= self.workers:
                self._apply()
        elif self.decided is None:
            self._decide("aborted", f"{worker.name}: {reason}")

    def _apply(self) -> Decision:
        """Decide that the change holds, unless the one before it has taken itself back since: then
        it was made for a chain that is another one now. From here on that one holds for good.
        """
        reverted = self.folder.keep(self.previous) if self._may_be_taken_back else None
        if reverted is not None:
            reason = f"change {self.previous} was taken back in this moment: {reverted.error}"
            return self._decide("aborted", reason)
        return self._decide("applied")

    def _decide(self, outcome: Outcome, reason: str = "") -> Decision:
        self.decided = self.folder.decide(self.change.number, decided_here(outcome, reason))
        self.before = self.begun = self.folder.last_batches()
        return self.decided

    def _take_over(self) -> None:
        """Take over a decision of somebody else, and abort the change when it is overdue."""
        if self.decided is None:
            self.decided = self.folder.decided(self.change.number)
        if self.decided is None and time.time() >= self.change.expires:
            seconds = self.change.timeout_seconds
            self._decide("aborted", f"{self._silent()} did not answer within {seconds:g} s")

    def _silent(self) -> str:
        """Return the workers that have not answered, for people."""
        answered = {said.worker for said in self.heard.values()}
        silent = sorted(worker.name for worker in self.workers - answered)
        more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
        return f"{', '.join(silent[:3])}{more}" if silent else "nobody"


# ------------------------------------------------------------------------------------ the group


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
        """The workers of queries that have begun a batch of late, or that went back to an older."""
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

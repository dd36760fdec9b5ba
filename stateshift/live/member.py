"""What one process that runs chains knows of its group, and what it says there.

    look     reads what is new: proposals are prepared and acknowledged, decisions taken over
    seal     says with which version a batch begins, the same for all tasks that ever run it
    links    a chain's functions at a version, fetched, checked and loaded once

A member never waits. It acknowledges a proposal once its code is here, has the hash that is its
name, and has run on no rows; else it refuses, with the reason. A proposal that nobody has decided
in time is aborted by whichever member sees that first: whoever asked for it may be dead.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from stateshift.errors import Incompatible, StateshiftError
from stateshift.live import code, signing
from stateshift.live.folder import KEPT_BATCHES, Folder, Said, Seal, Worker
from stateshift.live.protocol.chains import (
    Change,
    Decided,
    Known,
    Link,
    Links,
    NewChain,
    Reverted,
    Version,
    links_at,
    newest,
)
from stateshift.storage.protocol import Storage

logger = logging.getLogger(__name__)

ACKNOWLEDGED, REFUSED, RUNNING = "acknowledged", "refused", "running"
# Between two looks at a storage that is asked over a network, where one would cost a record its
# latency. A local one is asked before every Arrow batch: a few microseconds.
LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose code a job runs: by a public key, and by who may own the folder of code."""

    key: str | None = None
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Here:
    """Which task of a chain this process is at the moment: the worker, and the batch it is in."""

    worker: Worker
    batch: int


@dataclass
class _Mine:
    """What a chain brings along into the process that runs it."""

    own: Sequence[code.Function]
    # Whether the chain's functions fit: run on no rows. None as long as no rows have come by.
    fits: Callable[[Sequence[code.Function]], None] | None = None


@dataclass
class Member:
    """A process's knowledge of one group. Not shared between processes; cheap to make again."""

    folder: Folder
    code_storage: Storage
    trust: Trust
    changes: list[Known] = field(default_factory=list)
    pending: Change | None = None
    is_near: bool = True
    _looked: float = 0.0
    _measured: float = 0.0
    _answered: set[tuple[Version, str]] = field(default_factory=set)
    _loaded: dict[str, code.Function] = field(default_factory=dict)
    _mine: dict[str, _Mine] = field(default_factory=dict)
    _guarded: bool = False
    _distrusted: dict[Version, StateshiftError] = field(default_factory=dict)

    def bring(self, chain: str, own: Sequence[code.Function]) -> None:
        """Take the job's own functions of a chain along, which came with the job."""
        self._mine.setdefault(chain, _Mine(own)).own = own

    def fit(self, chain: str, fits: Callable[[Sequence[code.Function]], None]) -> None:
        """Say how functions are tried on no rows of what comes into a chain."""
        self._mine[chain].fits = fits

    @property
    def known(self) -> Version:
        """The newest version that is applied."""
        return newest(self.changes)

    # ---------------------------------------------------------------- what is new

    def look(self, here: Here, at_once: bool = False) -> None:
        """Read what is new in the group, if it is time to, and answer a proposal."""
        now = time.monotonic()
        if not at_once and not self.is_near and now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        self._read_changes()
        if self.pending is not None:
            self._answer(self.pending, here)

    def _read_changes(self) -> None:
        """Take over what is decided, up to a proposal that is not, or to the last."""
        if not self.changes and self.trust.key is None:  # signatures are checked one by one
            self.changes = list(self.folder.settled())
        while (known := self._next()) is not None:
            if known.decided is None:
                known = self._aborted_if_late(known)
            if known.decided is None:
                self.pending = known.change
                return
            known = self._as_trusted(known)
            self.changes.append(known)
            self.pending = None
            logger.info("change %d %s", known.number, "is applied" if known.applied else "is not")

    def _next(self) -> Known | None:
        """Return the first change that is not taken over yet; None if there is none."""
        number = len(self.changes) + 1
        change = self.pending if self.pending is not None else self._proposed(number)
        if change is None:
            return None
        return Known(change, self.folder.decided(number), self.folder.reverted(number))

    def _proposed(self, number: Version) -> Change | None:
        """Return a proposal, and note where it is none that this job would take."""
        if not self.folder.is_proposed(number):
            return None
        content = self.folder.proposal(number)
        change = self.folder.read_proposal(number, content)
        try:
            self._check_signed(change, number, content)
        except StateshiftError as error:
            self._distrusted[number] = error
        return replace(change, number=number)

    def _check_signed(self, change: Change, number: Version, content: bytes) -> None:
        """Refuse a proposal that nobody has signed for this group and this place, where the job
        insists on it.
        """
        if self.trust.key is None:
            return
        signing.check(content, self.folder.signature(number), self.trust.key)
        if (change.number, change.group) != (number, self.folder.check()):
            raise Incompatible(
                "the change was signed for another group or another place in it",
                hint="propose it again, here",
            )

    def _as_trusted(self, known: Known) -> Known:
        """Return a change as this job takes it: as if it were aborted where it may not be run."""
        error = self._distrusted.get(known.number)
        if error is None or not known.applied:
            return known
        logger.error("change %d is ignored here: %s", known.number, error.fact)
        ignored = Decided("aborted", time.time(), process_name(), error.fact)
        return replace(known, decided=ignored)

    def _aborted_if_late(self, known: Known) -> Known:
        if time.time() < known.change.expires:
            return known
        seconds = known.change.timeout_seconds
        reason = f"nobody decided on it within {seconds:g} s"
        decided = Decided("aborted", time.time(), process_name(), reason)
        return replace(known, decided=self.folder.decide(known.number, decided))

    def look_for_reversal(self) -> None:
        """Read whether the newest change has taken itself back: older ones do so no more."""
        number = self.known
        if number and self.changes[number - 1].change.on_error == "revert":
            self._reread(number)

    def revert(self, number: Version, reverted: Reverted) -> Known:
        """Take a change back, at its first error."""
        self.folder.revert(number, reverted)
        return self._reread(number)

    def _reread(self, number: Version) -> Known:
        known = replace(self.changes[number - 1], reverted=self.folder.reverted(number))
        self.changes[number - 1] = known
        return known

    # ---------------------------------------------------------------- answers

    def _answer(self, change: Change, here: Here) -> None:
        """Acknowledge a proposal for this task, or refuse it."""
        if (change.number, here.worker.file_name) in self._answered:
            return
        self._answered.add((change.number, here.worker.file_name))
        try:
            self._prepare(change, here.worker.chain)
        except StateshiftError as error:
            logger.warning("change %d is refused: %s", change.number, error.fact)
            self._say(change.number, here, REFUSED, error.fact)
            return
        self._say(change.number, here, ACKNOWLEDGED)

    def _prepare(self, change: Change, chain: str) -> None:
        """Load what a change needs of this chain and try it on no rows. Others ignore it."""
        new = change.chains.get(chain)
        if change.number in self._distrusted:
            raise self._distrusted[change.number]
        if new is None:
            return
        functions = self.functions(chain, new.links)
        self._load_state_transform(new)
        fits = self._mine[chain].fits
        if fits is not None:
            fits(functions)

    def _load_state_transform(self, new: NewChain) -> None:
        if new.state is not None:
            self._load(new.state.code)

    def runs(self, here: Here, version: Version) -> None:
        """Say, once, that this task runs a version."""
        if version == 0 or (-version, here.worker.file_name) in self._answered:
            return
        self._answered.add((-version, here.worker.file_name))
        self._say(version, here, RUNNING)

    def register(self, here: Here) -> None:
        """Say, once, that this task runs its chain."""
        if (0, here.worker.file_name) not in self._answered:
            self._answered.add((0, here.worker.file_name))
            self.folder.register(said_by(here, "registered"))

    def _say(self, number: Version, here: Here, word: str, reason: str = "") -> None:
        self.folder.say(number, said_by(here, word, reason))

    # ---------------------------------------------------------------- batches

    def seal(self, query: str, batch: int) -> Version:
        """Return the version that a batch begins with: the newest that is known here, or the one
        that it was sealed with before.
        """
        seal = self.folder.sealed(query, batch)
        if seal is None:
            seal = self.folder.seal(query, batch, Seal(self.known, time.time()))
            if batch % (KEPT_BATCHES // 10) == 0:
                self.folder.forget_before(query, batch - KEPT_BATCHES)
        if self.known < seal.version:
            self._read_changes()  # another worker has sealed it with a newer one
        return seal.version

    def catch_up(self, version: Version) -> None:
        """Read changes until a version is known that a row carries: it was decided before."""
        if version > self.known:
            self._read_changes()

    def is_time_to_measure(self, every: float, news: float) -> bool:
        """Whether to write down what ran: now and then, and always near a change."""
        now = time.time()
        last = self.changes[-1].decided if self.changes else None
        is_news = last is not None and now - last.at < news
        if is_news or self.pending is not None or now - self._measured >= every:
            self._measured = now
            return True
        return False

    # ---------------------------------------------------------------- functions

    def functions_at(self, chain: str, first: Links, version: Version) -> tuple[code.Function, ...]:
        """Return a chain's functions as of a version."""
        return self.functions(chain, links_at(self.changes, chain, first, version))

    def functions(self, chain: str, links: Iterable[Link]) -> tuple[code.Function, ...]:
        """Return the functions of links, fetched and loaded unless they are here."""
        own = self._mine[chain].own
        return tuple(self._function(link, own) for link in links)

    def _function(self, link: Link, own: Sequence[code.Function]) -> code.Function:
        outer = own[link.own] if link.own is not None else self._load(link.code)
        if link.inner is None:
            return outer
        return Around(outer, self._function(link.inner, own))

    def _load(self, digest: str) -> code.Function:
        if digest not in self._loaded:
            self._guard()
            self._loaded[digest] = code.unpack(self.folder.code(digest), digest)
        return self._loaded[digest]

    def _guard(self) -> None:
        if not self._guarded:
            code.guard(self.code_storage, self.trust.owners)
            self._guarded = True


@dataclass(frozen=True, slots=True)
class Around:
    """A function that was put around another one: it is given the rows and the inner function."""

    outer: code.Function
    inner: code.Function

    def __call__(self, rows: object) -> object:
        return self.outer(rows, self.inner)


def said_by(here: Here, word: str, reason: str = "") -> Said:
    """Return a word of this process."""
    worker = here.worker
    return Said(
        chain=worker.chain,
        query=worker.query,
        partition=worker.partition,
        word=word,
        at=time.time(),
        batch=here.batch,
        host=socket.gethostname(),
        process=os.getpid(),
        reason=reason,
        python=code.python_version(),
        pyarrow=code.pyarrow_version(),
    )


def process_name() -> str:
    """Return this process's name for people."""
    return f"{socket.gethostname()}:{os.getpid()}"

"""What one process that runs chains knows of its group, and what it says there.

    look     reads what is new: proposals are prepared and acknowledged, decisions taken over
    seal     says with which version a batch begins, the same for all tasks that ever run it
    claim    says whether a run of a batch puts out rows by a change that may take itself back
    links    a chain's functions at a version, fetched, checked and loaded once

A member never waits. It acknowledges a proposal once its code is here, has the hash that is its
name, and has run on no rows; else it refuses, with the reason. A proposal that nobody has decided
in time is aborted by whichever member sees that first: whoever asked for it may be dead. So is one
that cannot be read.

What a batch runs has to be certain: a seal or a decision that cannot be read or written fails it.
What a member says and measures has not: where it cannot be written, the batch goes on, and whoever
waits for the word aborts the change. A job that takes signed changes only ignores every other one:
also what was decided without it, or changed after it was signed.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from stateshift.errors import FormatError, Incompatible, StateshiftError, StorageError
from stateshift.live import code, signing
from stateshift.live.folder import (
    KEPT_BATCHES,
    ChainWorker,
    Failure,
    Folder,
    Seal,
    TaskMeasure,
    WorkerWord,
)
from stateshift.live.protocol.chains import (
    Change,
    Decision,
    KnownChange,
    Link,
    NewChain,
    Outcome,
    Reversal,
    Version,
    damaged_change,
    decode,
    newest,
    transforms,
)
from stateshift.live.state import function_of
from stateshift.storage.protocol import Storage

logger = logging.getLogger(__name__)

ACKNOWLEDGED, REFUSED, RUNNING = "acknowledged", "refused", "running"
# Between two looks at a storage that is asked over a network, where one would cost a record its
# latency. A local one is asked before every Arrow batch: a few microseconds.
LOOK_SECONDS = 0.25
REGISTER_SECONDS = 60.0  # between two words of a process that it is there


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose code a job runs: by a public key, and by who may own the folder of code."""

    key: str | None = None
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Which task of a chain this process is at the moment: the worker, and the batch it is in."""

    worker: ChainWorker
    batch: int


@dataclass
class _OwnChain:
    """What a chain brings along into the process that runs it."""

    own: Sequence[code.Function]
    # Whether the chain's functions fit: run on no rows. None as long as no rows have come by.
    fits: Callable[[Sequence[code.Function]], None] | None = None


@dataclass
class Member:
    """A process's knowledge of one group. Not shared between processes; cheap to make again. The
    queries of one driver share it among their threads.
    """

    folder: Folder
    code_storage: Storage
    trust: Trust
    changes: list[KnownChange] = field(default_factory=list)
    pending: Change | None = None
    is_near: bool = True
    # grows whenever more is known of the changes
    revision: int = 0
    _looked: float = 0.0
    # the file that the next proposal will be, where nothing else is awaited
    _awaited: str | None = None
    _measured: float = 0.0
    _registered: float = 0.0
    # when each proposal was met that was not decided, by this process's own clock
    _first_seen: dict[Version, float] = field(default_factory=dict)
    _answered: set[tuple[Version, str]] = field(default_factory=set)
    _loaded: dict[str, code.Function] = field(default_factory=dict)
    _mine: dict[str, _OwnChain] = field(default_factory=dict)
    _guarded: bool = False
    _distrusted: dict[Version, StateshiftError] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def bring(self, chain: str, own: Sequence[code.Function]) -> None:
        """Take the job's own functions of a chain along, which came with the job."""
        self._mine.setdefault(chain, _OwnChain(own)).own = own

    def fit(self, chain: str, fits: Callable[[Sequence[code.Function]], None]) -> None:
        """Say how functions are tried on no rows of what comes into a chain."""
        self._mine[chain].fits = fits

    @property
    def known(self) -> Version:
        """The newest version that is applied."""
        return newest(self.changes)

    # ---------------------------------------------------------------- what is new

    def look(self, here: TaskPlace, at_once: bool = False) -> None:
        """Read what is new in the group, if it is time to, and answer a proposal. In the middle of
        a batch, a storage that does not answer is asked again later.
        """
        if not at_once and not self._may_be_news():
            return
        self._looked = time.monotonic()
        try:
            self._read_changes()
        except StorageError as error:
            if at_once:
                raise
            logger.warning("%s cannot be looked at: %s", self.folder.location, error.fact)
        if self.pending is not None:
            self._answer(self.pending, here)

    def _may_be_news(self) -> bool:
        """Whether it is time to look; before each Arrow batch, so a file is asked for as directly
        as can be.
        """
        if self._awaited is not None:
            return os.access(self._awaited, os.F_OK)
        return self.is_near or time.monotonic() - self._looked >= LOOK_SECONDS

    def _read_changes(self) -> None:
        """Take over what is decided, up to a proposal that is not, or to the last."""
        with self._lock:
            if self.revision == 0:
                self._begin()
            while (known := self._next()) is not None:
                if known.decided is None:
                    known = self._aborted_if_late(known)
                if known.decided is None:
                    self.pending = known.change
                    self._awaited = None
                    return
                self._take_over(self._as_trusted(known))
            self._awaited = self.folder.file_of(len(self.changes) + 1)

    def _begin(self) -> None:
        """Take over in one what nobody can alter any more. Signatures are checked one by one."""
        if self.trust.key is None:
            self.changes = list(self.folder.settled())
        self.revision = 1

    def _take_over(self, known: KnownChange) -> None:
        # What came before could take itself back until this one was decided.
        self.look_for_reversal()
        self.changes.append(known)
        self.revision += 1
        self.pending = None
        logger.info("change %d %s", known.number, "is applied" if known.applied else "is not")

    def _next(self) -> KnownChange | None:
        """Return the first change that is not taken over yet; None if there is none."""
        number = len(self.changes) + 1
        if self.pending is not None:
            decided = self.folder.decided(number)
            reverted = None if decided is None else self.folder.reverted(number)
            return KnownChange(self.pending, decided, reverted)
        if not self.folder.is_proposed(number):
            return None
        return self._read(number)

    def _read(self, number: Version) -> KnownChange:
        """Return a change that is proposed, and note where it is none that this job would take."""
        content = self.folder.proposal(number)
        try:
            self._check_signed(number, content)
        except StorageError:
            raise
        except StateshiftError as error:
            self._distrusted[number] = error
        try:
            return self.folder.known(number, content)
        except FormatError:
            if number not in self._distrusted:
                raise
            return KnownChange(damaged_change(number), self.folder.decided(number))

    def _check_signed(self, number: Version, content: bytes) -> None:
        """Refuse a proposal that nobody has signed for this group and this place, where the job
        insists on it.
        """
        if self.trust.key is None:
            return
        signing.check(content, self.folder.signature(number, content), self.trust.key)
        change = decode(Change, content, self.folder.location)
        if (change.number, change.group) != (number, self.folder.check()):
            raise Incompatible(
                "the change was signed for another group or another place in it",
                hint="propose it again, here",
            )

    def _as_trusted(self, known: KnownChange) -> KnownChange:
        """Return a change as this job takes it: as if it were aborted where it may not be run."""
        error = self._distrusted.get(known.number)
        if error is None or not known.applied:
            return known
        logger.error("change %d is ignored here: %s", known.number, error.fact)
        return replace(known, decided=decided_here("aborted", error.fact))

    def _aborted_if_late(self, known: KnownChange) -> KnownChange:
        """Return a change, aborted if nobody has decided on it for its whole time since this
        process saw it first: clocks differ from one machine to another.
        """
        now = time.monotonic()
        first_seen = self._first_seen.setdefault(known.number, now)
        if now < first_seen + known.change.timeout_seconds:
            return known
        logger.warning("change %d is aborted: %s", known.number, known.change.overdue)
        held = self.folder.decide(known.number, decided_here("aborted", known.change.overdue))
        if held.outcome == "aborted":
            return replace(known, decided=held)
        return self._read(known.number)  # of one that cannot be read, an error

    def look_for_reversal(self) -> None:
        """Read whether the newest change has taken itself back: older ones do so no more."""
        number = self.known
        if number == 0:
            return
        known = self.changes[number - 1]
        if known.change.on_error == "revert" and known.reverted is None:
            self._reread(number)

    def revert(self, number: Version, reverted: Reversal) -> KnownChange:
        """Take a change back, at its first error; unless a later one was applied before that."""
        self.folder.revert(number, reverted)
        return self._reread(number)

    def _reread(self, number: Version) -> KnownChange:
        known = replace(self.changes[number - 1], reverted=self.folder.reverted(number))
        self.changes[number - 1] = known
        self.revision += 1
        return known

    # ---------------------------------------------------------------- answers

    def _answer(self, change: Change, here: TaskPlace) -> None:
        """Acknowledge a proposal for this task, or refuse it."""
        if (change.number, here.worker.file_name) in self._answered:
            return
        word, reason = ACKNOWLEDGED, ""
        try:
            self._prepare(change, here.worker.chain)
        except StorageError as error:
            logger.warning("change %d cannot be answered: %s", change.number, error.fact)
            return  # at the next look perhaps
        except StateshiftError as error:
            logger.warning("change %d is refused: %s", change.number, error.fact)
            word, reason = REFUSED, error.fact
        with self._as_far_as_possible(f"the answer to change {change.number}"):
            self._say(change.number, here, word, reason)
            self._answered.add((change.number, here.worker.file_name))

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

    def runs(self, here: TaskPlace, version: Version) -> None:
        """Say, once, that this task runs a version."""
        if version == 0 or (-version, here.worker.file_name) in self._answered:
            return
        with self._as_far_as_possible(f"that it runs change {version}"):
            self._say(version, here, RUNNING)
            self._answered.add((-version, here.worker.file_name))

    def register(self, here: TaskPlace) -> None:
        """Say that this task runs its chain: at first, and one of this process's now and then."""
        now = time.monotonic()
        is_known = (0, here.worker.file_name) in self._answered
        if is_known and now - self._registered < REGISTER_SECONDS:
            return
        with self._as_far_as_possible("that it runs"):
            self.folder.register(word_of(here, "registered"))
            self._answered.add((0, here.worker.file_name))
            self._registered = now

    def write_input(self, chain: str, schema: bytes) -> None:
        """Write the schema of what comes into a chain, where it is another one than before."""
        with self._as_far_as_possible("the schema of what comes in"):
            if self.folder.input_of(chain) != schema:
                self.folder.write_input(chain, schema)

    def measure(self, measured: TaskMeasure) -> None:
        """Write down what a task did."""
        with self._as_far_as_possible("what was measured"):
            self.folder.measure(measured)

    @contextmanager
    def _as_far_as_possible(self, what: str) -> Iterator[None]:
        """Let a batch go on that cannot say something: its rows do not depend on that."""
        try:
            yield
        except StorageError as error:
            logger.warning("%s is not written down: %s", what, error.fact)

    def _say(self, number: Version, here: TaskPlace, word: str, reason: str = "") -> None:
        self.folder.say(number, word_of(here, word, reason))

    # ---------------------------------------------------------------- batches

    def seal(self, here: TaskPlace, run: str) -> Seal:
        """Return the version that a batch begins with: the newest that is known here, or the one
        that it was sealed with before.
        """
        query, batch = here.worker.query, here.batch
        seal = self.folder.sealed(query, batch)
        if seal is None:
            seal = self.folder.seal(query, batch, self._new_seal(run))
            if batch % (KEPT_BATCHES // 10) == 0:
                with self._as_far_as_possible("that old batches are forgotten"):
                    self.folder.forget_before(query, batch - KEPT_BATCHES)
        if self.known < seal.version:
            self._read_changes()  # another worker has sealed it with a newer one
        if self.known < seal.version:
            raise FormatError(
                f"batch {batch} of {query} was sealed with change {seal.version}, which is not "
                "applied here",
                f"{self.folder.location}/changes",
                hint="put the folder back as it was, or give the group a new one",
            )
        return seal if seal.run == run else self._sealed_again(here, run, seal)

    def _new_seal(self, run: str) -> Seal:
        self.look_for_reversal()
        return Seal(self.known, time.time(), run, self._taken_back())

    def _taken_back(self) -> Version:
        """Return the newest change that is applied, if it has taken itself back; else 0."""
        number = self.known
        return number if number and self.changes[number - 1].reverted is not None else 0

    def _sealed_again(self, here: TaskPlace, run: str, first: Seal) -> Seal:
        """Return the seal of a later run of a batch: as the first run's, so that it puts out the
        same rows. But if a chain's function has failed it, and the chain was changed since, the
        newest: else nothing could ever mend it.
        """
        query, batch = here.worker.query, here.batch
        held = self.folder.sealed(query, batch, run)
        if held is not None:
            return held
        seal = self._new_seal(run)
        failure = self.folder.failure(query, batch)
        since = [known.change.chains for known in self.changes[first.version :] if known.holds]
        if failure is None or not any(failure.chain in chains for chains in since):
            seal = replace(seal, version=first.version)
        return self.folder.seal(query, batch, seal, again=True)

    def claim(self, here: TaskPlace, run: str, number: Version, holds: bool) -> bool:
        """Say whether this run of the batch puts out rows by a change that may take itself back;
        return what the first of its tasks has said.
        """
        return self.folder.claim(here.worker.query, here.batch, run, number, holds)

    def fails(self, here: TaskPlace, error: Exception) -> None:
        """Write down that a chain's function fails the batch."""
        text = f"{type(error).__name__}: {error}"[:1000]
        with self._as_far_as_possible("what fails the batch"):
            self.folder.fail(here.worker.query, here.batch, Failure(here.worker.chain, text))

    def catch_up(self, version: Version) -> None:
        """Read changes until a version is known that a row carries: it was decided before."""
        if version > self.known:
            self._read_changes()
        if version > self.known:
            raise FormatError(
                f"rows carry change {version}, which is not applied here",
                f"{self.folder.location}/changes",
                hint="put the folder back as it was; or empty the column of rows that were written "
                "with another folder",
            )

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

    def transforms(self, chain: str, after: Version, until: Version) -> tuple[code.Function, ...]:
        """Return what transforms a chain's state from one version to a later one, in order."""
        return self.functions(chain, transforms(self.changes, chain, after, until))

    def functions(self, chain: str, links: Iterable[Link]) -> tuple[code.Function, ...]:
        """Return the functions of links, fetched and loaded unless they are here."""
        own = self._mine[chain].own

        def load(link: Link) -> code.Function:
            return self._load(link.code) if link.own is None else own[link.own]

        return tuple(function_of(link, load) for link in links)

    def _load(self, digest: str) -> code.Function:
        if digest not in self._loaded:
            self._guard()
            self._loaded[digest] = code.unpack(self.folder.code(digest), digest)
        return self._loaded[digest]

    def _guard(self) -> None:
        if not self._guarded:
            code.guard(self.code_storage, self.trust.owners)
            self._guarded = True


def word_of(here: TaskPlace, word: str, reason: str = "") -> WorkerWord:
    """Return a word of this process."""
    worker = here.worker
    return WorkerWord(
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


def decided_here(outcome: Outcome, reason: str = "") -> Decision:
    """Return a decision of this process, now."""
    return Decision(outcome, time.time(), process_name(), reason)


def process_name() -> str:
    """Return this process's name for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_gone(process: str) -> bool:
    """Whether a process, by its name, has ended: one of this machine that is not there."""
    host, _, number = process.rpartition(":")
    if host != socket.gethostname() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)  # no signal: it only asks whether somebody would have it
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False

"""A process that runs chains: what it knows of its group, and what it says there.

    look     reads news: proposals are prepared and acknowledged, decisions taken over
    seal     says with which version a batch begins, the same for all tasks that ever run it
    claim    says whether a run of a batch puts out rows by a change that may take itself back
    links    a chain's functions at a version, fetched, checked and loaded once

A member never waits. It acknowledges a proposal once its code is here, has the hash that is its
name, and has run on no rows; else it refuses, with the reason. A proposal that nobody has decided
in time is aborted by whichever member sees that first: whoever asked for it may be dead. A proposal
that cannot be read is aborted, too.

A batch has to be certain: a seal or a decision that cannot be read or written fails it. The words
and measures of a member need not be: where one cannot be written, the batch goes on, and whoever
waits for the word aborts the change. A job that takes signed changes only ignores every other one:
also one that was decided without it, or changed after it was signed.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from stateshift import signing
from stateshift.errors import FormatError, Incompatible, StateshiftError, StorageError
from stateshift.live import code
from stateshift.live.folder import (
    KEPT_BATCHES,
    BatchFailure,
    ChainWorker,
    Folder,
    Seal,
    TaskMeasure,
    WorkerWord,
)
from stateshift.live.protocol.chains import (
    ChangeLog,
    Decision,
    KnownChange,
    Link,
    Outcome,
    ProposedChange,
    Reversal,
    Version,
    damaged_change,
    decode,
    transforms,
)
from stateshift.live.state import function_of
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently, open_storage
from stateshift.storage.protocol import Storage

logger = logging.getLogger(__name__)

ACKNOWLEDGED, REFUSED, RUNNING = "acknowledged", "refused", "running"
# Between two looks at a storage that is asked over a network, where one would cost a record its
# latency. A local one is asked before every Arrow batch: a few microseconds.
LOOK_SECONDS = 0.25
REGISTER_SECONDS = 60.0  # between two words of a process that it is there

Functions = Sequence[code.Function]


@dataclass(frozen=True, slots=True)
class Group:
    """The folder that the workers of some jobs share, and whose changes they take.

    Args:
        location: a directory that all machines see, HDFS, or an object store.
        key: a public key of Ed25519, as text or the name of a file; then only signed changes count.
        owners: who besides the job's own user may own the folder of code.
    """

    location: str
    key: str | None = None
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A task of a chain that this process runs at the moment: the worker, and its batch."""

    worker: ChainWorker
    batch: int


class Member:
    """A process's knowledge of one group. Not shared between processes; cheap to make again. The
    queries of one driver share it among their threads.
    """

    def __init__(
        self, folder: Folder, code_storage: Storage, group: Group, is_near: bool = True
    ) -> None:
        self.folder = folder
        self.group = group
        self.log = ChangeLog()
        self._code_storage = code_storage
        self._is_near = is_near
        self._loaded: dict[str, code.Function] = {}  # by their hashes
        self._own: dict[str, Functions] = {}  # by chain, those that came with the job
        # By chain: refuses functions that do not fit, run on no rows; once rows have come by.
        self._fits: dict[str, Callable[[Functions], None]] = {}
        self._awaited: str | None = None  # the file of the next proposal, where nothing else is new
        self._looked_at = 0.0
        self._lock = threading.RLock()
        # when each proposal was met that was not decided, by this process's own clock
        self._first_seen: dict[Version, float] = {}
        self._distrusted: dict[Version, StateshiftError] = {}
        self._said: set[tuple[str, Version, ChainWorker]] = set()
        self._measured_at = self._registered_at = 0.0

    @property
    def known(self) -> Version:
        return self.log.newest

    def bring(self, chain: str, own: Functions) -> None:
        """Take the job's own functions of a chain along, which came with the job."""
        self._own[chain] = own

    def fit(self, chain: str, fits: Callable[[Functions], None]) -> None:
        """Set the trial of functions on no rows of a chain's input."""
        self._fits[chain] = fits

    # ---------------------------------------------------------------- news

    def look(self, here: TaskPlace, at_once: bool = False) -> None:
        """Read the news of the group, if it is time to, and answer a proposal. In the middle of a
        batch, a storage that does not answer is asked again later.
        """
        if not at_once and not self._is_look_due():
            return
        self._looked_at = time.monotonic()
        try:
            self._read_changes()
        except StorageError as error:
            if at_once:
                raise
            logger.warning("%s cannot be looked at: %s", self.folder.location, error.fact)
        if self.log.pending is not None:
            self._answer(self.log.pending, here)

    def _is_look_due(self) -> bool:
        """Whether to look for news: asked before each Arrow batch, so as cheaply as can be."""
        if self._awaited is not None:
            return os.access(self._awaited, os.F_OK)
        return self._is_near or time.monotonic() - self._looked_at >= LOOK_SECONDS

    def _read_changes(self) -> None:
        """Take over decisions, up to a proposal that has none, or to the last."""
        with self._lock:
            if self.log.revision == 0:  # settled changes come in one; signatures are checked singly
                settled = self.folder.settled() if self.group.key is None else ()
                self.log = ChangeLog(settled, revision=1)
            while (known := self._next()) is not None:
                if known.decided is None:
                    known = self._aborted_if_late(known)
                if known.decided is None:
                    self.log = self.log.await_decision(known.change)
                    self._awaited = None
                    return
                # The change before could take itself back until this one was decided.
                self.look_for_reversal()
                known = self._as_trusted(known)
                self.log = self.log.take_over(known)
                logger.info(
                    "change %d %s", known.number, "is applied" if known.applied else "is not"
                )
            self._awaited = self.folder.file_of(self.log.next)

    def _next(self) -> KnownChange | None:
        """Return the first change that is not taken over yet; None if there is none."""
        number, pending = self.log.next, self.log.pending
        if pending is not None:
            decided = self.folder.decided(number)
            reverted = None if decided is None else self.folder.reverted(number)
            return KnownChange(pending, decided, reverted)
        return self._read(number) if self.folder.is_proposed(number) else None

    def _read(self, number: Version) -> KnownChange:
        """Return a change that is proposed, and note where it is none that this job would take."""
        content = self.folder.proposal(number)
        try:
            # Refuse a proposal that nobody has signed for this place, where the job insists.
            if self.group.key is not None:
                check_signed(content, self.folder.signature(number, content), self.group.key)
                change = decode(ProposedChange, content, self.folder.location)
                if (change.number, change.group) != (number, self.folder.check()):
                    raise Incompatible(
                        "the change was signed for another group or another place in it",
                        hint="propose it again, here",
                    )
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
        if self.log.revertible:
            self._read_reversal(self.log.revertible)

    def revert(self, number: Version, reverted: Reversal) -> KnownChange:
        """Take a change back, at its first error; unless a later one was applied before that."""
        self.folder.revert(number, reverted)
        self._read_reversal(number)
        return self.log.changes[number - 1]

    def _read_reversal(self, number: Version) -> None:
        reverted = self.folder.reverted(number)
        with self._lock:
            self.log = self.log.corrected(number, reverted)

    # ---------------------------------------------------------------- words

    def _answer(self, change: ProposedChange, here: TaskPlace) -> None:
        """Acknowledge a proposal for this task, or refuse it."""
        if ("answer", change.number, here.worker) in self._said:
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
            self.folder.say(change.number, word_of(here, word, reason))
            self._said.add(("answer", change.number, here.worker))

    def _prepare(self, change: ProposedChange, chain: str) -> None:
        """Load the functions that a change brings to this chain, and try them on no rows."""
        if change.number in self._distrusted:
            raise self._distrusted[change.number]
        new = change.chains.get(chain)
        if new is None:
            return
        functions = self.functions(chain, new.links)
        if new.state is not None:
            self._load(new.state.code)
        fits = self._fits.get(chain)
        if fits is not None:
            fits(functions)

    def runs(self, here: TaskPlace, version: Version) -> None:
        """Say, once, that this task runs a version."""
        if version == 0 or ("runs", version, here.worker) in self._said:
            return
        with self._as_far_as_possible(f"that it runs change {version}"):
            self.folder.say(version, word_of(here, RUNNING))
            self._said.add(("runs", version, here.worker))

    def register(self, here: TaskPlace) -> None:
        """Say that this task runs its chain: at first, and one of this process's now and then."""
        now = time.monotonic()
        is_known = ("registered", 0, here.worker) in self._said
        if is_known and now - self._registered_at < REGISTER_SECONDS:
            return
        with self._as_far_as_possible("that it runs"):
            self.folder.register(word_of(here, "registered"))
            self._said.add(("registered", 0, here.worker))
            self._registered_at = now

    def write_input(self, chain: str, schema: bytes) -> None:
        with self._as_far_as_possible("the schema of what comes in"):
            if self.folder.input_of(chain) != schema:
                self.folder.write_input(chain, schema)

    def measure(self, measured: TaskMeasure) -> None:
        with self._as_far_as_possible("what was measured"):
            self.folder.measure(measured)

    def is_time_to_measure(self, every: float, news: float) -> bool:
        """Whether to write down what ran: now and then, and always near a change."""
        now = time.time()
        last = self.log.changes[-1].decided if self.log.changes else None
        is_news = last is not None and now - last.at < news
        if is_news or self.log.pending is not None or now - self._measured_at >= every:
            self._measured_at = now
            return True
        return False

    @contextmanager
    def _as_far_as_possible(self, what: str) -> Iterator[None]:
        """Let a batch go on that cannot say something: its rows do not depend on that."""
        try:
            yield
        except StorageError as error:
            logger.warning("%s is not written down: %s", what, error.fact)

    # ---------------------------------------------------------------- batches

    def seal(self, here: TaskPlace, run: str) -> Seal:
        """Return the version that a batch begins with: the newest here, or that of its seal."""
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
        return Seal(self.known, time.time(), run, self.log.taken_back)

    def _sealed_again(self, here: TaskPlace, run: str, first: Seal) -> Seal:
        """Return the seal of a later run of a batch, by its first run's."""
        query, batch = here.worker.query, here.batch
        held = self.folder.sealed(query, batch, run)
        if held is not None:
            return held
        seal = self._new_seal(run)
        failure = self.folder.failure(query, batch)
        failed_chain = None if failure is None else failure.chain
        version = self.log.version_again(first.version, failed_chain)
        return self.folder.seal(query, batch, replace(seal, version=version), again=True)

    def fails(self, here: TaskPlace, error: Exception) -> None:
        """Write down that a chain's function fails the batch."""
        text = f"{type(error).__name__}: {error}"[:1000]
        with self._as_far_as_possible("what fails the batch"):
            self.folder.fail(here.worker.query, here.batch, BatchFailure(here.worker.chain, text))

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

    # ---------------------------------------------------------------- functions

    def transforms(self, chain: str, after: Version, until: Version) -> Functions:
        """Return the functions that transform a chain's state from one version to a later one."""
        return self.functions(chain, transforms(self.log.changes, chain, after, until))

    def functions(self, chain: str, links: Iterable[Link]) -> tuple[code.Function, ...]:
        """Return the functions of links, fetched and loaded unless they are here."""
        own = self._own[chain]

        def load(link: Link) -> code.Function:
            return self._load(link.code) if link.own is None else own[link.own]

        return tuple(function_of(link, load) for link in links)

    def _load(self, digest: str) -> code.Function:
        """Load code once, from a folder that nobody else may write to."""
        if digest not in self._loaded:
            if not self._loaded:
                code.guard(self._code_storage, self.group.owners)
            self._loaded[digest] = code.unpack(self.folder.code(digest), digest)
        return self._loaded[digest]


_members: dict[Group, Member] = {}


def member_of(group: Group) -> Member:
    """Return this process's knowledge of a group."""
    if group not in _members:
        folder = Folder(open_patiently(group.location))
        folder.check()
        code_storage = open_storage(f"{group.location.rstrip('/')}/code")
        is_near = locations.scheme(group.location) == "file"
        _members[group] = Member(folder, code_storage, group, is_near=is_near)
    return _members[group]


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


def check_signed(content: bytes, signature: bytes | None, trusted: str) -> None:
    """Refuse a proposal not signed by the holder of the trusted key, given as text. Nobody without
    it can ship code, or put code that was shipped before elsewhere; whoever can write into the
    folder can still delete from it, abort and revert.
    """
    if signature is None:
        raise Incompatible(
            "the change is not signed, and this job takes signed ones only",
            hint="propose it again with --key FILE",
        )
    if not signing.has_signed(signing.public_key(trusted), signature, content):
        raise Incompatible(
            "the change is not signed with the key that this job trusts",
            hint="propose it again with the key that belongs to it",
        )

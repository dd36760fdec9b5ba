"""The folder of a group: its jobs' workers, and whoever changes them, tell each other all in it.

    group.json                                 the group's id; a newer stateshift's is refused
    code/HASH                                  functions, each named by the hash of its file
    chains/CHAIN/chain.json                    the chain as its job declares it
    chains/CHAIN/input.arrow                   the Arrow schema of its input, and its kind
    chains/CHAIN/workers/QUERY/PARTITION.json  a worker that has run it
    changes/settled.json                       the changes that nobody can alter any more, in one
    changes/N/proposed.json                    change N, as it is asked for
    changes/N/signature-HASH                   its signature, by the hash of the bytes signed
    changes/N/words/WORKER.WORD.json           a worker's word about it
    changes/N/decided.json                     its end: applied or aborted
    changes/N/reverted.json                    its first error, where it takes itself back; no error
                                               once a later change is applied: it holds for good
    batches/QUERY/BATCH.json                   the version that a batch began with: its seal
    runs/QUERY/BATCH/RUN.json                  the seal of a later run of it, after a failure
    runs/QUERY/BATCH/failed.json               the chain whose function has failed it
    runs/QUERY/BATCH/N@RUN.json                whether a run of it puts out rows by change N, which
                                               may take itself back
    measured/QUERY/BATCH/CHAIN.PARTITION.json  a task's versions, rows and time
    states/QUERY/CHAIN/BATCH                   the state of a chain's stateful functions

Proposals, decisions, reversals, seals and all below `runs` are created if absent: of several that
try, the first one holds, and the others read it. Everything else is written whole, by its last
writer. Nothing is ever read by its order in a listing. The folder is shared by all workers and by
whoever changes them: a directory that all machines see, HDFS, an object store that can create a
file exclusively.

A file that cannot be read is a FormatError with its path; but a proposal that cannot be read, and
was not applied, is a change of nothing, which whoever meets it aborts.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, unquote

from stateshift.errors import AlreadyThere, FormatError, PlanError
from stateshift.live.protocol.chains import (
    Decision,
    Declaration,
    GroupFile,
    KnownChange,
    ProposedChange,
    Reversal,
    Version,
    damaged_change,
    decode,
    decode_group,
    encode,
)
from stateshift.live.values import SMALL, ValueFiles, number_in
from stateshift.storage import locations

logger = logging.getLogger(__name__)

T = TypeVar("T")

CODE_MAX = 1 << 28
KEPT_BATCHES = 500  # seals and measures older than that are removed


FOR_GOOD = Reversal(chain="", query="", run="", batch=-1, error="", at=0.0)


@dataclass(frozen=True, slots=True)
class Seal:
    """The version that a run of a batch began with; `without` is a change among those, or one by
    message, that had taken itself back before.
    """

    version: Version
    at: float
    run: str = ""
    without: Version = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """Whether all tasks of a run put out rows by a change that may take itself back, or none."""

    holds: bool


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """The chain whose function has failed a batch, at first."""

    chain: str
    error: str


@dataclass(frozen=True, slots=True)
class ChainWorker:
    """One task of a chain: what runs it in one partition of a query."""

    chain: str
    query: str
    partition: int

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"{self.chain}-{self.partition}"

    @property
    def file_name(self) -> str:
        return f"{file_name(self.chain)}@{file_name(self.query)}@{self.partition}"


@dataclass(frozen=True, slots=True)
class WorkerWord:
    """A word of a worker about a change, and the process that said it."""

    chain: str
    query: str
    partition: int
    word: str
    at: float
    batch: int
    host: str
    process: int
    reason: str = ""
    python: str = ""
    pyarrow: str = ""

    @property
    def worker(self) -> ChainWorker:
        return ChainWorker(self.chain, self.query, self.partition)


@dataclass(frozen=True, slots=True)
class SettledChanges:
    """The first changes of a group, all of them decided, and none that could take itself back."""

    changes: tuple[KnownChange, ...]


@dataclass(frozen=True, slots=True)
class VersionRows:
    """A number of rows that a task ran with one version, one after the other."""

    version: Version
    rows: int


@dataclass(frozen=True, slots=True)
class TaskMeasure:
    """The work of one task in one batch."""

    chain: str
    query: str
    batch: int
    partition: int
    began: float
    ended: float
    rows_in: int
    rows_out: int
    ran: tuple[VersionRows, ...]


_HINTS: dict[type, str] = {
    Seal: "measured/QUERY/BATCH says which version its tasks ran: put the file back with that one, "
    "or remove it if nothing is there",
    Decision: "put the file back; or stop the group's jobs, remove it, and start them again",
    Reversal: "put the file back; or stop the group's jobs, remove it, and start them again",
    Declaration: "remove the file, and start the chain's job again: it declares the chain",
    WorkerWord: "remove the file: workers go on without it",
    TaskMeasure: "remove the file: only what was measured is lost",
    Claim: "stop the query, remove the file, and start the query again",
    BatchFailure: "remove the file: the batch is run again with the version of its seal",
}


class Folder(ValueFiles):
    """A group's folder, on whatever storage it is."""

    hints = _HINTS

    # ---------------------------------------------------------------- the group

    def ensure(self) -> str:
        """Make the folder a group's, or check that it is one; return the group's id."""
        self._refuse_shared_creates()
        with contextlib.suppress(AlreadyThere):
            self.storage.create("group.json", encode(GroupFile(uuid.uuid4().hex)))
        return self.check()

    def check(self) -> str:
        """Refuse what is no group's folder, or a newer stateshift's; return the group's id."""
        self._refuse_shared_creates()
        content = self._bytes("group.json", SMALL)
        if content is None:
            raise PlanError(
                f"{self.location} is no group: there is no group.json",
                hint="a job makes it, when it declares its first chain: live.chain(NAME, GROUP, …)",
            )
        return decode_group(content, f"{self.location}/group.json").id

    def _refuse_shared_creates(self) -> None:
        """Refuse a storage on which two could create one file: two decisions would hold."""
        if not self.storage.traits.exclusive:
            raise PlanError(
                f"{self.location} cannot create a file exclusively",
                hint="put the group on a local disk that all workers see, on HDFS, or on an object "
                "store with conditional writes",
            )

    # ---------------------------------------------------------------- chains

    def declaration(self, chain: str) -> Declaration | None:
        return self._read(Declaration, f"chains/{file_name(chain)}/chain.json")

    def declare(self, declaration: Declaration) -> None:
        path = f"chains/{file_name(declaration.name)}/chain.json"
        self._write_durably(path, encode(declaration))

    def chains(self) -> tuple[str, ...]:
        names = {unquote(file.path.split("/")[1]) for file in self.storage.list("chains")}
        return tuple(sorted(names))

    def input_of(self, chain: str) -> bytes | None:
        """Return the schema of a chain's input, as its workers have seen it."""
        return self._bytes(f"chains/{file_name(chain)}/input.arrow", SMALL)

    def write_input(self, chain: str, schema: bytes) -> None:
        self._write(f"chains/{file_name(chain)}/input.arrow", schema)

    def register(self, said: WorkerWord) -> None:
        path = (
            f"chains/{file_name(said.chain)}/workers/{file_name(said.query)}/{said.partition}.json"
        )
        self._write(path, encode(said))

    def workers(self) -> tuple[WorkerWord, ...]:
        """Return all workers that have ever run a chain, as they were when they began."""
        found = []
        for file in self.storage.list("chains"):
            if "/workers/" in file.path and file.path.endswith(".json"):
                said = self._read(WorkerWord, file.path)
                if said is not None:
                    found.append(said)
        return tuple(sorted(found, key=lambda said: (said.chain, said.query, said.partition)))

    # ---------------------------------------------------------------- code

    def code(self, digest: str) -> bytes:
        """Return a file of code, unchecked."""
        content = self._bytes(f"code/{digest}", CODE_MAX)
        if content is None:
            raise PlanError(
                f"the code {digest[:12]} is not in {self.location}/code",
                hint="replace the function once more: its code is shipped again",
            )
        return content

    def write_code(self, digest: str, content: bytes) -> None:
        """Ship a file of code, unless it is there whole."""
        try:
            self.storage.create(f"code/{digest}", content)
        except AlreadyThere:
            if self._bytes(f"code/{digest}", CODE_MAX) != content:
                self._write(f"code/{digest}", content)

    # ---------------------------------------------------------------- changes

    def settled(self) -> tuple[KnownChange, ...]:
        """Return the settled changes; none if they cannot be read: each is read by itself then."""
        try:
            settled = self._read(SettledChanges, "changes/settled.json", CODE_MAX)
        except FormatError as error:
            logger.warning("%s is passed over: %s", error.path, error.fact)
            return ()
        return () if settled is None else settled.changes

    def settle(self, changes: Sequence[KnownChange]) -> None:
        """Write down changes in one file, so that a new worker need not read each of them."""
        self._write_durably("changes/settled.json", encode(SettledChanges(tuple(changes))))

    def changes(self) -> Iterator[KnownChange]:
        """Yield every change, in their order, with what is known of it."""
        settled = self.settled()
        yield from settled
        number = len(settled) + 1
        while (known := self.change(number)) is not None:
            yield known
            number += 1

    def change(self, number: Version) -> KnownChange | None:
        """Return one change with what is known of it; None if it is not proposed."""
        content = self._bytes(_proposed(number), SMALL)
        return None if content is None else self.known(number, content)

    def known(self, number: Version, content: bytes) -> KnownChange:
        """Return a change with what is known of it, by the bytes of its proposal."""
        decided = self.decided(number)
        try:
            path = f"{self.location}/{_proposed(number)}"
            change = decode(ProposedChange, content, path)
            if change.number != number:
                raise FormatError(f"the proposal of change {change.number}", path)
        except FormatError:
            if decided is not None and decided.outcome == "applied":
                raise
            change = damaged_change(number)
        return KnownChange(change, decided, None if decided is None else self.reverted(number))

    def is_proposed(self, number: Version) -> bool:
        """Whether there is a change of this number: the cheapest question."""
        return self.storage.stat(_proposed(number)) is not None

    def file_of(self, number: Version) -> str | None:
        """Return the file of this machine that a proposal will be; None where it will be none."""
        root = locations.local_path(self.location)
        return None if root is None else f"{root}/{_proposed(number)}"

    def proposal(self, number: Version) -> bytes:
        """Return a proposal's bytes: they are signed."""
        return self.storage.read(_proposed(number), SMALL)

    def propose(self, change: ProposedChange, signature: bytes | None) -> None:
        """Propose a change; AlreadyThere if somebody else has proposed one of this number. The
        signature is there before what it signs.
        """
        content = encode(change)
        if signature is not None:
            self._write(_signature(change.number, content), signature)
        self._create(_proposed(change.number), content)

    def signature(self, number: Version, content: bytes) -> bytes | None:
        """Return the signature of a proposal by its bytes; None if nobody signed it."""
        return self._bytes(_signature(number, content), SMALL)

    def is_signed(self, number: Version) -> bool:
        """Whether somebody has signed a proposal; who, is for each job to check."""
        content = self._bytes(_proposed(number), SMALL)
        return content is not None and self.signature(number, content) is not None

    def decide(self, number: Version, decided: Decision) -> Decision:
        """Decide on a change, and return what holds: the first decision."""
        path = f"{_change(number)}/decided.json"
        return self._first(Decision, path, decided)

    def decided(self, number: Version) -> Decision | None:
        return self._read(Decision, f"{_change(number)}/decided.json")

    def revert(self, number: Version, reverted: Reversal) -> Reversal | None:
        """Take a change back, and return the first error that did; None if it holds for good."""
        held = self._first(Reversal, f"{_change(number)}/reverted.json", reverted)
        return None if held == FOR_GOOD else held

    def keep(self, number: Version) -> Reversal | None:
        """Let a change hold for good; return the error that took it back before."""
        return self.revert(number, FOR_GOOD)

    def reverted(self, number: Version) -> Reversal | None:
        """Return the error that took a change back; None if it holds."""
        held = self._read(Reversal, f"{_change(number)}/reverted.json")
        return None if held == FOR_GOOD else held

    def say(self, number: Version, said: WorkerWord) -> None:
        """Write a worker's word about a change, unless it, or one before it, has said it."""
        path = f"{_change(number)}/words/{said.worker.file_name}.{said.word}.json"
        with contextlib.suppress(AlreadyThere):
            self.storage.create(path, encode(said))

    def words(self, number: Version) -> tuple[str, ...]:
        under = f"{_change(number)}/words"
        files = (file.path for file in self.storage.list(under))
        return tuple(sorted(path for path in files if path.endswith(".json")))

    def word(self, path: str) -> WorkerWord:
        said = self._read(WorkerWord, path)
        assert said is not None, "a word is never taken back"
        return said

    def said(self, number: Version) -> tuple[WorkerWord, ...]:
        """Return all words about a change, in the order of their times."""
        found = [self.word(path) for path in self.words(number)]
        return tuple(sorted(found, key=lambda said: (said.at, said.worker.file_name)))

    # ---------------------------------------------------------------- batches

    def seal(self, query: str, batch: int, seal: Seal, again: bool = False) -> Seal:
        """Seal a batch, or a later run of it; return the seal that holds: the first one."""
        path = _run(query, batch, seal.run) if again else _batch(query, batch)
        return self._first(Seal, path, seal)

    def sealed(self, query: str, batch: int, run: str | None = None) -> Seal | None:
        """Return the seal of a batch, or of a later run of it; None if it has not begun."""
        path = _batch(query, batch) if run is None else _run(query, batch, run)
        return self._read(Seal, path)

    def claim(self, query: str, batch: int, run: str, number: Version, holds: bool) -> bool:
        """Claim that a run of a batch puts out rows by a change, or not; return the first claim."""
        return self._first(Claim, _run(query, batch, f"{number}@{run}"), Claim(holds)).holds

    def fail(self, query: str, batch: int, failure: BatchFailure) -> None:
        """Write down that a chain's function has failed a batch."""
        self._first(BatchFailure, _run(query, batch, "failed"), failure)

    def failure(self, query: str, batch: int) -> BatchFailure | None:
        """Return the failure of a batch; None if no function of a chain has failed it."""
        return self._read(BatchFailure, _run(query, batch, "failed"))

    def batches(self) -> dict[str, tuple[int, ...]]:
        """Return the batches of every query whose seals are kept, ascending."""
        numbers: dict[str, list[int]] = {}
        for file in self.storage.list("batches"):
            _, *query, name = file.path.split("/")
            number = _number(name)
            if number is not None and len(query) == 1:
                numbers.setdefault(unquote(query[0]), []).append(number)
        return {query: tuple(sorted(found)) for query, found in numbers.items()}

    def last_batches(self) -> dict[str, int]:
        """Return the last batch of every query that has begun one."""
        return {query: numbers[-1] for query, numbers in self.batches().items()}

    def measure(self, measured: TaskMeasure) -> None:
        place = f"measured/{file_name(measured.query)}/{measured.batch}"
        self._write(
            f"{place}/{file_name(measured.chain)}.{measured.partition}.json", encode(measured)
        )

    def measures(self, last: int = KEPT_BATCHES) -> tuple[TaskMeasure, ...]:
        """Return the measures of the last batches of every query, as far as they are kept."""
        paths: dict[str, dict[int, list[str]]] = {}
        for file in self.storage.list("measured"):
            _, query, *middle, _ = file.path.split("/")
            batch = _number("/".join(middle))
            if batch is not None and file.path.endswith(".json"):
                paths.setdefault(query, {}).setdefault(batch, []).append(file.path)
        found = []
        for by_batch in paths.values():
            for number in sorted(by_batch)[-last:]:
                found += [self._read(TaskMeasure, path) for path in by_batch[number]]
        kept = [measured for measured in found if measured is not None]
        return tuple(sorted(kept, key=lambda one: (one.began, one.chain, one.partition)))

    def forget_before(self, query: str, batch: int) -> None:
        """Remove the seals and measures of a query's batches before one."""
        for under in ("batches", "measured", "runs"):
            for file in list(self.storage.list(f"{under}/{file_name(query)}")):
                number = _number(file.path.split("/")[2])
                if number is not None and number < batch:
                    self.storage.remove(file.path)

    # ---------------------------------------------------------------- states

    def state(self, query: str, chain: str, batch: int) -> bytes | None:
        """Return the state of a chain after a batch."""
        return self._bytes(_state(query, chain, batch), CODE_MAX)

    def write_state(self, query: str, chain: str, batch: int, content: bytes) -> None:
        """Write the state of a chain after a batch. A batch that is run again writes it again: the
        state goes with what was written last. Spark takes the batch as done behind this.
        """
        self._write_durably(_state(query, chain, batch), content)

    def state_batches(self, query: str, chain: str) -> tuple[int, ...]:
        """Return the batches after which a state is kept, ascending."""
        under = f"states/{file_name(query)}/{file_name(chain)}"
        numbers = [_number(file.path.split("/")[3]) for file in self.storage.list(under)]
        return tuple(sorted(number for number in numbers if number is not None))

    def remove_state(self, query: str, chain: str, batch: int) -> None:
        self.storage.remove(_state(query, chain, batch))


def file_name(text: str) -> str:
    """Return a name as a file's name: no slash, no dot that could lead elsewhere."""
    return quote(text, safe="").replace(".", "%2E").replace("@", "%40")


def _change(number: Version) -> str:
    return f"changes/{number:06d}"


def _proposed(number: Version) -> str:
    return f"{_change(number)}/proposed.json"


def _signature(number: Version, content: bytes) -> str:
    """Return the path of these bytes' signature: no two proposers write over each other's."""
    return f"{_change(number)}/signature-{hashlib.sha256(content).hexdigest()}"


def _number(name: str) -> int | None:
    """Return the number that names a value or a directory."""
    return number_in(name.removesuffix(".json"))


def _batch(query: str, batch: int) -> str:
    return f"batches/{file_name(query)}/{batch}.json"


def _run(query: str, batch: int, name: str) -> str:
    return f"runs/{file_name(query)}/{batch}/{quote(name, safe='@')}.json"


def _state(query: str, chain: str, batch: int) -> str:
    return f"states/{file_name(query)}/{file_name(chain)}/{batch}"

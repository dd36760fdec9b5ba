"""Workers of an operator without Spark: a log that each reads at its own pace, and a group's folder
in memory.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import ClassVar, TypeVar

import pyarrow as pa
import xxhash

from stateshift import live
from stateshift.live.bins.arrow_tables import from_bytes
from stateshift.live.bins.bin_worker import BinWorker
from stateshift.live.bins.commits import Commit, GivenBin
from stateshift.live.bins.files import ACKNOWLEDGED, Files, GroupStart, Proposal, look
from stateshift.live.bins.hashing import HASH
from stateshift.live.bins.homes import Home, InDriver, InExecutors
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.parts import Membership, OperatorStart
from stateshift.live.bins.state_acts import evict
from stateshift.live.protocol.applying import Folded
from stateshift.live.protocol.chains import Decision, decode
from stateshift.live.protocol.configuration import Configuration, Update
from stateshift.live.values import SMALL
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from tests.live.bins.twins import TwinTasks

T = TypeVar("T")

BINS = 8
KEYS = 30
KNOWN_MAX = 20_000
TIES = 3  # rows of one time
LATER = 40  # units of time until a row is seen again
OUT = "number long, key long, n long"


@live.operator(bins=BINS, key="key", time=("at", "number"), out=OUT, values="number")
def count_and_ask(key, state, values):
    """Count a key's rows, and see every fifth row again."""
    n = state or 0
    outputs, later = [], []
    for number in values:
        n += 1
        outputs.append((number, key, n))
        if number >= 0 and number % 5 == 0:
            later.append((number // TIES + LATER, -number - 1))
    return Folded(n, tuple(outputs), tuple(later))


@cache
def hash_of(key: int) -> int:
    """The hash that Spark's xxhash64 has of a long."""
    return xxhash.xxh64_intdigest(key.to_bytes(8, "little", signed=True), seed=42)


def key_of(number: int, keys: int = KEYS) -> int:
    """The key of a row of the log."""
    return (number * 7919 + 13) % keys


def table_of(numbers: Sequence[int], keys: int) -> pa.Table:
    """Rows of the log: some have one time, the number tells them apart."""
    key = [key_of(number, keys) for number in numbers]
    hashes = [hash_of(one) for one in key]
    signed = [one - (1 << 64) if one >= 1 << 63 else one for one in hashes]
    return pa.table(
        {
            "number": pa.array(numbers, pa.int64()),
            "at": pa.array([number // TIES for number in numbers], pa.int64()),
            "key": pa.array(key, pa.int64()),
            "side": pa.array(["lr"[number // 4 % 2] for number in numbers]),
            HASH: pa.array(signed, pa.int64()),
        }
    )


def alone(operator: BinOperator, until: int, keys: int = KEYS) -> list[tuple[int, ...]]:
    """What one worker puts out that reads everything at once."""
    one = Ground(operator, ["alone"], keys)
    one.workers["alone"].read(until)
    return one.put_out()


class Remembering(Files):
    """Files that are decoded once for equal bytes: a value does not change."""

    known: ClassVar[dict[tuple[type, bytes], object]] = {}

    def _read(self, kind: type[T], path: str, size_max: int = SMALL) -> T | None:
        content = self._bytes(path, size_max)
        if content is None:
            return None
        found = self.known.get((kind, content))
        if found is None:
            if len(self.known) > KNOWN_MAX:
                self.known.clear()
            found = self.known[kind, content] = decode(kind, content, path)
        return found  # type: ignore[return-value]  # decoded as this kind


class Reader:
    """One worker, with how far it has read."""

    def __init__(self, ground: Ground, name: str, offsets: Sequence[int] = (0,)) -> None:
        self.ground, self.name = ground, name
        self.storage = ground.storage
        self.offsets = list(offsets)  # where each batch began
        self.query = ""  # Spark's id of it, another one for each checkpoint
        self.start()

    def start(self) -> None:
        """Begin, or go on from the commits as after a crash."""
        ground = self.ground
        self.files = ground.kind(self.storage)
        self.home = ground.home_of(self)
        self.running = BinWorker(self.files, ground.operator, self.name, self.home)
        last = self.running.ledger.last
        self.batch = 0 if last is None or last.batch is None else last.batch + 1
        self.read_to = self.offsets[self.batch]

    def read(self, until: int) -> None:
        """Read the log up to a number, in one batch."""
        numbers = list(range(self.read_to, max(until, self.read_to)))
        random.Random(until).shuffle(numbers)
        table = table_of(numbers, self.ground.keys)
        self.offsets[self.batch + 1 :] = [max(until, self.read_to)]
        self.running.look()
        self.running.redistribute()
        with self.home.reading(table, self.running.bins) as batch:
            self.running.step(batch, self.batch, self.query)
        self.batch += 1
        self.read_to = max(until, self.read_to)
        self.deliver()
        self.running.clean_up()

    def deliver(self) -> None:
        """Deliver what is not known to have arrived; again what has, after a crash."""
        for waiting in self.running.ledger.undelivered:
            tables = [from_bytes(self.files.read(piece)) for piece in waiting.pieces]
            columns = pa.concat_tables(tables).to_pydict().values()
            rows = tuple(zip(*columns, strict=True))
            name = (self.name, waiting.number)
            assert self.ground.delivered.setdefault(name, rows) == rows
            self.running.has_arrived_at(waiting.number)

    def between(self) -> None:
        """Do what has become possible between two batches."""
        self.running.settle()
        self.running.look()
        if self.running.redistribute():
            return
        if self.running.has_arrived or self.running.is_to_join:
            self.running.step()
        else:
            self.running.read_ahead()


class Ground:
    """A group with its workers."""

    def __init__(
        self,
        operator: BinOperator,
        names: Sequence[str],
        keys: int = KEYS,
        storage: Storage | None = None,
        homes: Sequence[str] = ("driver",),
        kind: type[Files] = Files,
    ) -> None:
        self.operator, self.keys, self.homes, self.kind = operator, keys, homes, kind
        self.starts = 0
        self.delivered: dict[tuple[str, int], tuple[tuple[int, ...], ...]] = {}
        self.storage = storage or MemoryStorage(MemoryDisk(), "memory://group")
        self.files = kind(self.storage)
        self.files.begin(GroupStart(operator.bins, (names[0],)))
        for name in names:
            self._declare(name)
        self.workers = {name: Reader(self, name) for name in names}
        self.moves = 0
        self.gone: str | None = None  # a worker that is evicted, as long as nobody has its name

    def add(self, name: str) -> Reader:
        """Start one worker more."""
        self._declare(name)
        self.workers[name] = Reader(self, name)
        return self.workers[name]

    def _declare(self, name: str) -> None:
        """Say what a worker runs, as it does when it starts."""
        operator = self.operator
        self.files.join(Membership(-1, name, 0.0))
        self.files.run(
            OperatorStart(operator.name, name, "fold", operator.key, (), "", "", "", 0.0)
        )

    # ---------------------------------------------------------------- a worker that is evicted

    @property
    def living(self) -> list[Reader]:
        """The workers that somebody runs."""
        return [worker for name, worker in self.workers.items() if name != self.gone]

    def evict(self, name: str) -> None:
        """Let a worker die, and take its name from it."""
        evict(self.files, self.operator.name, name)
        self.gone = name

    def go_on_as(self, name: str) -> None:
        """Start an application under the name of one that was evicted."""
        self.workers[name] = Reader(self, name, self.workers[name].offsets)
        self.gone = None

    def is_between_the_living(self, update: Update) -> bool:
        """Whether a bin neither goes to an evicted worker nor comes from one."""
        if self.gone is None:
            return True
        gone = list(self.workers).index(self.gone)
        configuration = self.configuration
        at_last = configuration.worker(configuration.last, update.bin)
        return gone not in (at_last, update.worker)

    def gone_has_settled(self) -> bool:
        """Whether all moves are behind the worker that is evicted, if one is."""
        if self.gone is None:
            return True
        ledger = self.files.ledger(self.operator.name, self.gone)
        awaits = any(held.since is not None for held in ledger.held.values())
        assert ledger.last is not None, "it was evicted"
        frontier = ledger.last.frontier
        return not awaits and frontier is not None and frontier >= (self.configuration.last,)

    def home_of(self, reader: Reader) -> Home:
        """A home for a worker that starts: the group's homes in turn."""
        self.starts += 1
        if self.homes[self.starts % len(self.homes)] == "driver":
            return InDriver(reader.files, self.operator, reader.name)
        tasks = TwinTasks(reader.files, self.operator, self.starts)
        return InExecutors(self.files.location, self.operator, reader.name, tasks)

    def propose(self, updates: Sequence[Update], ahead: Sequence[tuple[int, int]] = ()) -> None:
        """Propose a move, unless one is open."""
        self.files.propose(Proposal(self.moves, tuple(updates), time.time(), 30.0, tuple(ahead)))
        self.moves += 1

    def move_nothing(self, count: int) -> None:
        """Decide on so many proposals that move nothing."""
        for _ in range(count):
            self.propose([])
            self.files.decide(self.moves - 1, Decision("applied", 0.0, "test"))

    def propose_bins(self, bins: int, since: int = -1) -> None:
        """Propose another number of bins, unless something is open."""
        proposal = Proposal(self.moves, (), time.time(), 30.0, bins=bins, since=since)
        self.files.propose(proposal)
        self.moves += 1

    @property
    def bins(self) -> int:
        """How many bins there are by all that is decided."""
        return self.configuration.bins

    @property
    def configuration(self) -> Configuration:
        """Where the bins are by all that is decided."""
        begun = self.files.begun()
        assert begun is not None
        known = look(self.files, self.files.known_moves(begun, len(self.workers)))
        return known.configuration

    def decide(self) -> str:
        """Decide on the last move by what all workers say; nothing while one is silent."""
        number = self.moves - 1
        answers = self.files.answers(number)
        if any(answer.word != ACKNOWLEDGED for answer in answers):
            self.files.decide(number, Decision("aborted", 0.0, "test", "refused"))
            return "aborted"
        if {worker.name for worker in self.living} <= {answer.worker for answer in answers}:
            self.files.decide(number, Decision("applied", 0.0, "test"))
            return "applied"
        return ""

    def commits(self, name: str) -> Iterator[Commit]:
        """Yield a worker's commits that are there, in their order."""
        for number in range(self.workers[name].running.ledger.number + 1):
            commit = self.files.committed(self.operator.name, name, number)
            if commit is not None:
                yield commit

    def given(self) -> list[GivenBin]:
        """All bins that the workers' commits give."""
        found: list[GivenBin] = []
        for name in self.workers:
            for commit in self.commits(name):
                found += commit.given
        return found

    def put_out(self) -> list[tuple[int, ...]]:
        """All rows that the workers have delivered, sorted."""
        return sorted(chain.from_iterable(map(self.put_out_by, self.workers)))

    def put_out_by(self, name: str) -> Iterator[tuple[int, ...]]:
        """Yield the rows of a worker, in their order."""
        self.workers[name].deliver()
        for (worker, _), rows in sorted(self.delivered.items()):
            if worker == name:
                yield from rows

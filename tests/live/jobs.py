"""Three queries in a row, with a log between each two, in a group whose chains change meanwhile.

    a ──log──▶ m ──log──▶ b        a stamps each row's version; m and b follow it, m hands it on

    Query    batches that are planned once, run by tasks that can die, and committed as a whole
    Jobs     all three, and what must hold of every row that has come through
    changes  the functions of change N give rows the number N, each chain in a column of its own

Every task is a generator that is advanced a part at a time, so that a walk can do anything between
two parts. What a query does is what Spark does: a batch's rows are fixed before its first task
begins, a task that dies is run again, a query that dies runs its last batch again.
"""

from __future__ import annotations

import random as randoms
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow

from stateshift.live import scheduling
from stateshift.live.member import Member
from stateshift.live.proposals import ChangeRequest, read_group
from stateshift.live.protocol.chains import KnownChange, Links, When, links_at
from stateshift.live.scheduling import Scheduler, Target
from stateshift.live.task import Chain
from stateshift.storage.protocol import Storage
from tests.contracts.faulty import Killed
from tests.live.ground import Ground, asked, giving, running

COLUMNS = {"a": "k", "m": "l", "b": "j"}
NAMES = ("v", "at", *COLUMNS.values())
PARTITIONS = 2
Row = dict[str, int]


def schema(count: int) -> pyarrow.Schema:
    """Return the first columns of a row that has come so far."""
    return pyarrow.schema([(name, pyarrow.int64()) for name in NAMES[:count]])


def parts(rows: Sequence[Row], columns: Sequence[str]) -> list[pyarrow.RecordBatch]:
    """Return rows as two Arrow batches."""
    half = (len(rows) + 1) // 2
    kind = pyarrow.schema([(name, pyarrow.int64()) for name in columns])
    pieces = [piece for piece in (rows[:half], rows[half:]) if piece] or [rows]
    return [pyarrow.RecordBatch.from_pylist(list(piece), schema=kind) for piece in pieces]


class Query:
    """A query of one chain, from a log of rows to a log of rows."""

    def __init__(self, jobs: Jobs, chain: Chain, columns: Sequence[str], source: Query | None):
        self.jobs, self.chain, self.columns, self.source = jobs, chain, columns, source
        self.log: list[Row] = []
        self.offset = 0
        self.batch = 0
        self.runs = 0
        self.planned: list[Row] | None = None
        self.tasks: dict[int, Iterator[Any]] = {}
        self.out: dict[int, list[Row]] = {}
        self.done: set[int] = set()
        self.seen: dict[tuple[int, int], list[list[Row]]] = {}
        self.members = [self.process(), self.process()]

    @property
    def name(self) -> str:
        return f"q{self.chain.name}"

    def process(self) -> Member:
        """Return a new process that runs tasks."""
        return self.jobs.ground.member(storage=self.jobs.storage_of(self.chain.name))

    def step(self, partition: int) -> None:
        """Plan a batch, or advance one of its tasks; commit it when all have ended."""
        if self.planned is None:
            self._plan()
            return
        if partition not in self.done:
            self._advance(partition)
        if len(self.done) == PARTITIONS:
            self._commit()

    def _plan(self) -> None:
        rows = [{"v": self.offset + number} for number in range(2 * PARTITIONS)]
        if self.source is not None:
            rows = self.source.log[self.offset :]
        if rows:
            self.planned = rows
            self.offset += len(rows)

    def _advance(self, partition: int) -> None:
        if partition not in self.tasks:
            self.tasks[partition] = self._task(partition)
            self.out[partition] = []
        try:
            batch = next(self.tasks[partition], None)
        except Killed:
            self.die(partition)
            return
        if batch is not None:
            self.out[partition] += batch.to_pylist()
            return
        self.done.add(partition)
        self.seen.setdefault((self.batch, partition), []).append(self.out[partition])

    def _task(self, partition: int) -> Iterator[Any]:
        assert self.planned is not None, "a batch is planned before its tasks"
        mine = [row for row in self.planned if row["v"] % PARTITIONS == partition]
        return running(
            self.chain,
            self.members[partition],
            self.batch,
            *parts(mine, self.columns),
            query=self.name,
            partition=partition,
            run_id=str(self.runs),
        )

    def die(self, partition: int) -> None:
        """Lose the process of a task: it is run again by another one."""
        self.tasks.pop(partition, None)
        self.done.discard(partition)
        self.members[partition] = self.process()

    def restart(self) -> None:
        """Lose the query: its batch is run again as it was planned."""
        self.runs += 1
        for partition in range(PARTITIONS):
            self.die(partition)

    def _commit(self) -> None:
        for partition in range(PARTITIONS):
            self.log += self.out[partition]
        self.batch += 1
        self.planned = None
        self.tasks, self.out, self.done = {}, {}, set()


class Jobs:
    """The three queries, and whoever changes their chains."""

    def __init__(
        self,
        ground: Ground,
        storage_of: Callable[[str], Storage | None] = lambda chain: None,
    ) -> None:
        self.ground = ground
        self.storage_of = storage_of
        a = ground.chain("a", schema=schema(3), functions=(giving(0, "k"),), stamp="at")
        m = ground.chain(
            "m", schema=schema(4), functions=(giving(0, "l"),), stamp="at", follow="at"
        )
        b = ground.chain("b", schema=schema(5), functions=(giving(0, "j"),), follow="at")
        self.a = Query(self, a, NAMES[:1], None)
        self.m = Query(self, m, NAMES[:3], self.a)
        self.b = Query(self, b, NAMES[:4], self.m)

    @property
    def queries(self) -> tuple[Query, ...]:
        return (self.a, self.m, self.b)

    def work(self, steps: int = 1) -> None:
        """Advance every task of every query, in turn."""
        for _ in range(steps):
            for query in self.queries:
                for partition in range(PARTITIONS):
                    query.step(partition)

    def drain(self) -> None:
        """Work until all that was read has come through."""
        read = max(self.a.offset, 1)
        while len(self.b.log) < read:
            self.work()

    def wander(self, random: randoms.Random, steps: int) -> None:
        """Do anything: mostly, advance some task."""
        for _ in range(steps):
            query, partition = random.choice(self.queries), random.randrange(PARTITIONS)
            match random.random():
                case chance if chance < 0.03:
                    query.restart()
                case chance if chance < 0.08:
                    query.die(partition)
                case _:
                    query.step(partition)

    def asked(
        self, names: Sequence[str], scheduler: Scheduler | None = None, **more: Any
    ) -> ChangeRequest:
        """Return the change of some chains that is due, as the scheduler would have it."""
        now = read_group(self.ground.folder)
        number = len(now.changes) + 1
        targets = [Target(now.declaration(name), frozenset((f"q{name}",))) for name in names]
        when = scheduling.choose(targets, None, scheduler).when
        return self.changing(number, when, **more)

    def changing(self, number: int, when: dict[str, When] | Any, **more: Any) -> ChangeRequest:
        """Return change `number` of chains, each in its own way."""
        made = [
            asked({name: giving(number, COLUMNS[name])}, how, **more) for name, how in when.items()
        ]
        chains = {name: new for each in made for name, new in each.chains.items()}
        packages = tuple(package for each in made for package in each.packages)
        return ChangeRequest("replace", chains, "epoch", packages, **more)

    # ---------------------------------------------------------------- what must hold

    def torn_rows(self) -> list[Row]:
        """Return the rows that met an old function in one chain of a change, and a new one in
        another.
        """
        torn = []
        for known in self.ground.folder.changes():
            columns = [COLUMNS[name] for name in known.change.chains]
            if known.applied and known.reverted is None:
                torn += [row for row in self.b.log if _is_torn(row, columns, known.number)]
        return torn

    def check(self, with_messages: bool = False) -> None:
        """Check that no row is torn, that a batch that was run again gave the same, and that no
        row was lost.
        """
        assert self.torn_rows() == []
        for query in self.queries:
            values = sorted(row["v"] for row in query.log)
            assert values == sorted(set(values)), "a row came twice"
            if not with_messages:
                self._check_again(query)

    def _check_again(self, query: Query) -> None:
        for place, outputs in query.seen.items():
            assert all(out == outputs[0] for out in outputs), f"{query.name} {place}: {outputs}"

    def check_seals(self) -> None:
        """Check that every batch of the first query ran what its seal says."""
        changes = list(self.ground.folder.changes())
        for (batch, _), outputs in self.a.seen.items():
            seal = self.ground.folder.sealed("qa", batch)
            assert seal is not None
            links = links_at(changes, "a", (), seal.version)
            expected = _number_of(changes, links)
            for row in outputs[0]:
                assert row["k"] == expected


def _number_of(changes: Sequence[KnownChange], links: Links) -> int:
    """Return the change that brought a chain's functions; 0 where the job did."""
    for known in changes:
        new = known.change.chains.get("a")
        if links and new is not None and new.links == links:
            return known.number
    return 0


def _is_torn(row: Row, columns: Sequence[str], number: int) -> bool:
    """Whether a row met a change in one of its chains, and not in another."""
    return len({row[column] >= number for column in columns}) > 1

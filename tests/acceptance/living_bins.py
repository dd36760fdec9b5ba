"""Applications that share an operator (jobs/live_bins.py), moves between them, and what came out.

with group(folder, "west", "east") as bins:
    bins.begin()
    bins.move({0: "east"}, seconds=2)
    bins.until_the_end()
assert bins.outputs() == bins.alone()
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import ClassVar, TypeVar

import pyarrow as pa
import pyarrow.parquet

from stateshift.live.bins.batches import unread_batch
from stateshift.live.bins.bin_run import (
    Apply,
    BinWork,
    Memory,
    Position,
    Writing,
    put_out_as_tables,
    run,
)
from stateshift.live.bins.commits import BinSnapshot, Commit, Ledger, TakenBin
from stateshift.live.bins.files import Files, Proposal
from stateshift.live.bins.hashing import HASH
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.times import BEGIN, Moment
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import Update
from stateshift.storage.opening import open_patiently
from tests.acceptance.live_operators import BINS, visits
from tests.acceptance.support import JOBS, environment, wait_until
from tests.support.open_loop import TIES, rows

FIRST = 100  # rows that are there at once: a first batch takes long
SECONDS_MAX = 400.0
TIMEOUT_SECONDS = 60.0  # of a move
Row = tuple[int, ...]
A = TypeVar("A", bound="Applications")


@dataclass
class Applications:
    """A group's applications in a folder, running or not: workers of some operators."""

    folder: Path
    names: tuple[str, ...]
    rate: int = 300
    rows: int = 6000
    keys: int = 200
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: int = 0

    script: ClassVar[Path] = JOBS / "live_bins.py"
    operators: ClassVar[tuple[BinOperator, ...]] = (visits,)

    def __post_init__(self) -> None:
        self.files = Files(open_patiently(self.location))

    @property
    def location(self) -> str:
        """Where the group is."""
        return str(self.folder / "group")

    def words(self, name: str) -> tuple[object, ...]:
        """What a worker's application is started with."""
        source = ("--first", FIRST, "--rate", self.rate, "--rows", self.rows, "--keys", self.keys)
        return ("--folder", self.folder, "--name", name, *source)

    def start(self, name: str) -> None:
        """Start a worker, for the first time or again. A Spark that was killed while it wrote its
        first offsets wants its checkpoint removed.
        """
        (self.folder / name).mkdir(exist_ok=True)
        checkpoint = self.folder / name / "checkpoint"
        if checkpoint.exists() and not (checkpoint / "offsets" / "0").exists():
            shutil.rmtree(checkpoint)
        self.starts += 1
        with open(self.folder / f"{name}-{self.starts}.log", "wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, str(self.script), *map(str, self.words(name))],
                env={**environment(), "PYSPARK_DRIVER_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End a worker and all that it has started by SIGKILL."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        """Let all of them end as they would by themselves; kill those that do not."""
        (self.folder / "stop").touch()
        for name, process in list(self.processes.items()):
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            self.kill(name)

    def begin(self) -> None:
        """Let the open loop begin, once all have read its first rows."""
        self.wait(self.has_begun, "the first rows are not read")
        begin = self.folder / "begin.new"
        begin.write_text(str(time.time()))
        begin.rename(self.folder / "begin")

    def end_the_log(self) -> None:
        """Let the open loop end in a few seconds, whatever rows are still to come."""
        began = float((self.folder / "begin").read_text())
        self.rows = FIRST + int((time.time() - began + 5.0) * self.rate)
        end = self.folder / "end.new"
        end.write_text(str(self.rows))
        end.rename(self.folder / "end")

    def wait(self, done: object, otherwise: str) -> None:
        """Wait for something while the workers run."""
        assert callable(done)
        wait_until(lambda: self.is_alive() and done(), otherwise, SECONDS_MAX, self.folder)

    def is_alive(self) -> bool:
        """Whether all run; fail with what was said by one that has ended."""
        for name, process in self.processes.items():
            said = "".join(path.read_text()[-3000:] for path in self.folder.glob(f"{name}-*.log"))
            assert process.poll() is None, f"{name} has ended\n{said}"
        return True

    # ---------------------------------------------------------------- how far they are

    def commits(self, operator: str, name: str, number: int = 0) -> Iterator[Commit]:
        """Yield a worker's commits from a number on, in their order. One that joined without bins
        begins where the others are.
        """
        for kept in sorted(self.files.commit_numbers(operator, name)):
            commit = self.files.committed(operator, name, kept) if kept >= number else None
            if commit is not None:
                yield commit

    def ledgers(self) -> Iterator[Ledger]:
        """Yield what each worker has committed of each operator."""
        for operator in self.operators:
            for name in self.names:
                yield self.files.ledger(operator.name, name)

    def has_begun(self) -> bool:
        """Whether all have committed rows."""
        lasts = [ledger.last for ledger in self.ledgers()]
        return all(last is not None and last.frontier is not None for last in lasts)

    def until_the_end(self) -> None:
        """Wait until all workers have read everything, and what is awaited has come."""
        self.wait(self._is_done, "the log is not read to its end")

    @property
    def end_of_log(self) -> Moment:
        """The frontier behind the last row."""
        return ((self.rows - 1) // TIES, self.rows - 1, 0)

    def _is_done(self) -> bool:
        ledgers = list(self.ledgers())
        is_read = all(ledger.last and ledger.last.frontier == self.end_of_log for ledger in ledgers)
        return is_read and not any(ledger.held for ledger in ledgers)

    def put_out(self, operator: str = visits.name) -> Iterator[tuple[str, Row]]:
        """Yield every row in the output of an operator, with the worker that has put it out."""
        for path in sorted((self.folder / "output").glob(f"{operator}-*.parquet")):
            table = pyarrow.parquet.read_table(path)
            for row in zip(*table.to_pydict().values(), strict=True):
                yield path.name.split("-")[1], row


@dataclass
class Bins(Applications):
    """Applications of one operator, and its moves."""

    moves: int = 0

    # ---------------------------------------------------------------- its moves

    def propose(self, bins: Mapping[int, str], seconds: float) -> int:
        """Propose a move, so many seconds ahead of the open loop, and return its number."""
        numbers = {joined.name: joined.number for joined in self.files.joined()}
        began = float((self.folder / "begin").read_text())
        at = (FIRST + int((time.time() + seconds - began) * self.rate)) // TIES
        updates = tuple(Update(at, bin, numbers[name]) for bin, name in sorted(bins.items()))
        number = self.moves
        self.files.propose(Proposal(number, updates, time.time(), TIMEOUT_SECONDS))
        self.moves += 1
        return number

    def decide(self, number: int) -> str:
        """Decide by what all workers say, and return what became of the move."""
        self.wait(lambda: len(self.files.answers(number)) == len(self.names), "no answers")
        words = {answer.word for answer in self.files.answers(number)}
        outcome = "applied" if words == {"acknowledged"} else "aborted"
        return self.files.decide(number, Decision(outcome, time.time(), "test")).outcome

    def move(self, bins: Mapping[int, str], seconds: float) -> int:
        """Move bins, and return the time at which they do."""
        number = self.propose(bins, seconds)
        assert self.decide(number) == "applied", self.files.answers(number)
        proposal = self.files.proposal(number)
        assert proposal is not None
        return proposal.earliest

    # ---------------------------------------------------------------- what came out

    def given(self) -> list[int]:
        """The bins that west's commits have given."""
        given = chain.from_iterable(commit.given for commit in self.commits(visits.name, "west"))
        return sorted(one.bin for one in given)

    def taken(self) -> list[TakenBin]:
        """What east's commits have taken, by bin."""
        taken = chain.from_iterable(commit.taken for commit in self.commits(visits.name, "east"))
        return sorted(taken, key=lambda one: one.bin)

    def outputs(self) -> list[Row]:
        """All rows in the output, sorted."""
        return sorted(row for _, row in self.put_out())

    def alone(self) -> list[Row]:
        """What one worker alone puts out, sorted."""
        table = pa.Table.from_batches([rows(0, self.rows, self.keys)])
        return put_out_alone(visits, table, self.end_of_log)


def put_out_alone(operator: BinOperator, table: pa.Table, frontier: Moment) -> list[Row]:
    """Return what one worker alone puts out, sorted: all rows folded at once, as one bin."""
    table = table.append_column(HASH, pa.array([0] * table.num_rows, pa.int64()))
    batch = unread_batch(table, operator, operator.bins).read((), None)
    work = BinWork(
        bin=0,
        stages=(Apply(frontier),),
        after=Position(BEGIN, "here"),
        kept=BinSnapshot(),
        taken={},
        held=(),
        rows=batch.rows[0],
    )
    put_out: list[object] = []
    run(work, Memory(operator, lambda piece: b""), Writing(operator.name, "alone", 0), put_out)
    tables = put_out_as_tables(operator, put_out)
    return sorted(zip(*pa.concat_tables(tables).to_pydict().values(), strict=True))


@contextmanager
def group(folder: Path, *names: str) -> Iterator[Bins]:
    """Applications of a group, running."""
    with running(Bins(folder, names)) as bins:
        yield bins


@contextmanager
def running(applications: A) -> Iterator[A]:
    """Start all of them; end them behind."""
    try:
        for name in applications.names:
            applications.start(name)
        yield applications
    finally:
        applications.end()


def half(begin: int = 0) -> list[int]:
    """Every second bin."""
    return list(range(begin, BINS, 2))

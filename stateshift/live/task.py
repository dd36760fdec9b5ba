"""A chain at work: in a task of Spark's, or in the job's own process for foreachBatch."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateshift.errors import PlanError
from stateshift.live import code, state
from stateshift.live.folder import Measured, Ran, Worker
from stateshift.live.member import Here, Member
from stateshift.live.protocol.chains import (
    Known,
    Moment,
    Reverted,
    Version,
    effective,
)
from stateshift.live.rows import Rows, input_schema, no_rows, rows_of, versions_in, with_column

if TYPE_CHECKING:
    from stateshift.live.chains import Chain

logger = logging.getLogger(__name__)

MEASURE_SECONDS = 5.0  # a process writes down what it ran so often, and always beside a change
NEWS_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The functions of a version, loaded."""

    version: Version
    functions: tuple[code.Function, ...]


class Task:
    """One task's run of a chain."""

    def __init__(self, of: Chain, member: Member, here: Here, run_id: str) -> None:
        self.chain = of
        self.member = member
        self.here = here
        self.run_id = run_id
        self.sealed: Version = 0
        self.column: Version | None = None
        self.fitted = False
        # what holds for rows of a column's version, as far as the member knows
        self.known_at = 0
        self.ready: dict[Version | None, Ready] = {}
        self.ran: list[list[int]] = []  # versions, one after the other, and how many rows each
        self.rows_out = 0

    def run(self, rows: Iterator[Rows]) -> Iterator[Rows]:
        """Yield what the chain makes of the rows."""
        began = time.time()
        self._begin()
        for batch in rows:
            if not self.fitted:
                self._fit(batch)
            self.member.look(self.here)
            if self.chain.follow is None:
                yield self._apply(batch)
                continue
            for part in self._parts(batch, self.chain.follow):
                yield self._apply(part)
        self._end(began)

    def run_whole(self, frame: Rows) -> None:
        """Run the chain over a whole batch, and keep its state."""
        began = time.time()
        self._begin()
        place = (self.here.worker.query, self.chain.name, self.here.batch)
        kept = state.load(self.member.folder, *place)
        while True:
            version = effective(
                self.member.changes, self.chain.name, Moment(self.sealed, self.sealed)
            )
            try:
                slots = self._slots_after(frame, kept, version)
                self.member.runs(self.here, version)
                break
            except Exception as error:
                self._take_back(version, error)
        if slots:
            after = state.Kept(version, slots, kept.since)
            state.store(self.member.folder, *place, after)
        self._count(version, 0)
        self._end(began)

    def _begin(self) -> None:
        member = self.member
        member.bring(self.chain.name, self.chain.own)
        member.look(self.here, at_once=True)
        self.sealed = self._seal()
        member.look_for_reversal()
        self._refuse_torn_batch()
        member.register(self.here)

    def _slots_after(self, frame: Rows, kept: state.Kept, version: Version) -> dict[str, object]:
        """Return the states after a batch that is run with a version."""
        member, chain = self.member, self.chain
        transforms = member.transforms(chain.name, kept.version, version)
        slots = state.transformed(transforms, kept.slots)
        return state.run(self._functions_at(version), frame, slots)[1]

    def _seal(self) -> Version:
        """Return the version of the batch; outside of a stream the newest one."""
        if self.here.batch < 0:
            return self.member.known
        return self.member.seal(self.here.worker.query, self.here.batch)

    @property
    def version(self) -> Version:
        """The version that holds now."""
        moment = Moment(self.sealed, self.member.known, self.column)
        return effective(self.member.changes, self.chain.name, moment)

    def _refuse_torn_batch(self) -> None:
        """Refuse to go on with a batch in which a change of several chains has failed: parts of it
        have run with the change. It is run again as a whole.
        """
        for known in self.member.changes:
            torn = known.reverted
            if torn is None or len(known.change.chains) == 1:
                continue
            here = (self.here.worker.query, self.run_id, self.here.batch)
            if (torn.query, torn.run, torn.batch) == here:
                raise _torn(known)

    def _fit(self, batch: Rows) -> None:
        """Take the schema of what comes in: by it functions are tried, here and by whoever changes
        them.
        """
        self.fitted = True
        empty = no_rows(batch)
        self.member.fit(
            self.chain.name, lambda functions: self.chain.try_on_no_rows(functions, empty)
        )
        self.member.write_input(self.chain.name, input_schema(empty))

    def _parts(self, batch: Rows, column: str) -> Iterator[Rows]:
        """Yield the rows of a batch by the version that they carry in a column."""
        for version in versions_in(batch, column):
            self.column = version
            self.member.catch_up(version)
            yield rows_of(batch, column, version)

    def _apply(self, rows: Rows) -> Rows:
        ready = self._ready_now()
        version = self.version if ready is None else ready.version
        try:
            functions = self._functions_at(version) if ready is None else ready.functions
            out = rows
            for function in functions:
                out = function(out)
        except Exception as error:
            self._take_back(version, error)
            return self._apply(rows)
        if ready is None and len(rows):  # on no rows a function may pass that fails on the first
            self.ready[self.column] = Ready(version, functions)
            self.member.runs(self.here, version)
        self._count(version, len(rows))
        self.rows_out += len(out)
        return out if self.chain.stamp is None else self._stamped(out, version)

    def _ready_now(self) -> Ready | None:
        """Return what has been found for rows like these, unless more is known since."""
        if self.known_at != self.member.revision:
            self.known_at = self.member.revision
            self.ready.clear()
        return self.ready.get(self.column)

    def _functions_at(self, version: Version) -> tuple[code.Function, ...]:
        return self.member.functions_at(self.chain.name, self.chain.first, version)

    def _take_back(self, version: Version, error: Exception) -> None:
        """Take the change back that brought the function, if it wants that; else raise the error as
        the job's own.
        """
        known = self.member.changes[version - 1] if version else None
        if known is None or not _takes_itself_back(known, self.chain.name, self.member.known):
            raise error
        logger.warning("change %d is taken back: %s", version, error)
        here = self.here
        text = f"{type(error).__name__}: {error}"
        reverted = Reverted(
            chain=self.chain.name,
            query=here.worker.query,
            run=self.run_id,
            batch=here.batch,
            error=text[:1000],
            at=time.time(),
        )
        known = self.member.revert(version, reverted)
        if known.reverted is None:  # a later change was applied in this moment
            raise error
        if len(known.change.chains) > 1:
            raise _torn(known) from error

    def _count(self, version: Version, rows: int) -> None:
        if self.ran and self.ran[-1][0] == version:
            self.ran[-1][1] += rows
        else:
            self.ran.append([version, rows])

    def _stamped(self, out: Rows, version: Version) -> Rows:
        """Return the rows with their version in the column that the chain stamps. A column that it
        follows as well it hands on: a chain downstream goes by what the rows have met first.
        """
        assert self.chain.stamp is not None and self.chain.output is not None
        column = self.chain.stamp
        if column == self.chain.follow and self.column is not None:
            version = self.column
        return with_column(out, column, version, self.chain.output.names.index(column))

    def _end(self, began: float) -> None:
        """Write down what ran, if it is time to or a change is near. A task without rows has run
        its version, too.
        """
        if not any(rows for _, rows in self.ran):
            self.member.runs(self.here, self.version)
        member, here = self.member, self.here
        if here.batch < 0 or not member.is_time_to_measure(MEASURE_SECONDS, NEWS_SECONDS):
            return
        measured = Measured(
            chain=self.chain.name,
            query=here.worker.query,
            batch=here.batch,
            partition=here.worker.partition,
            began=began,
            ended=time.time(),
            rows_in=sum(rows for _, rows in self.ran),
            rows_out=self.rows_out,
            ran=tuple(Ran(version, rows) for version, rows in self.ran),
        )
        member.measure(measured)


def _takes_itself_back(known: Known, chain_name: str, newest: Version) -> bool:
    """Whether an error of a chain's function takes the change back that brought it."""
    is_newest = known.number == newest
    return is_newest and known.change.on_error == "revert" and chain_name in known.change.chains


def _torn(known: Known) -> PlanError:
    assert known.reverted is not None
    return PlanError(
        f"change {known.number} has failed and was taken back: {known.reverted.error}",
        hint="start the query again: the batch is run as a whole, without the change",
    )


def place(chain_name: str) -> tuple[Here, str]:
    """Return which task of which batch this is, and of which run of its query."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return Here(Worker(chain_name, "-", 0), -1), "-"
    query = context.getLocalProperty("sql.streaming.queryId") or "-"
    batch = context.getLocalProperty("streaming.sql.batchId")
    run_id = context.getLocalProperty("spark.jobGroup.id") or "-"
    number = -1 if batch is None else int(batch)
    return Here(Worker(chain_name, query, context.partitionId()), number), run_id


# ------------------------------------------------------------------------------ in foreachBatch


def run_batch(of: Chain, member: Member, frame: Rows, batch: int) -> None:
    """Run a chain over a batch of Spark's, in the job's own process. How many rows it has would
    cost a job of its own to know: they are not counted.
    """
    context = frame.sparkSession.sparkContext
    query = context.getLocalProperty("sql.streaming.queryId") or "-"
    run_id = context.getLocalProperty("spark.jobGroup.id") or "-"
    Task(of, member, Here(Worker(of.name, query, 0), batch), run_id).run_whole(frame)

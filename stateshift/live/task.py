"""A chain: functions that a job runs, and that can change while it runs; and the chain at work, in
a task of Spark's, or in the job's own process for foreachBatch.

    score = live.chain("score", "s3://live/orders", "id long, score double", add_score)
    orders.mapInArrow(score, "id long, score double")

A job hands a chain to mapInArrow (its functions take and return an Arrow RecordBatch), to
mapInPandas (DataFrames of pandas) or to foreachBatch (DataFrames of Spark; the last function
writes). Which functions run is read from the group's folder: once a batch by its seal, and, for
changes that may overtake data, before each Arrow batch.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from stateshift import signing
from stateshift.errors import Complaint, PlanError, SpecError
from stateshift.live import code, state
from stateshift.live.folder import ChainWorker, Folder, Seal, TaskMeasure, VersionRows
from stateshift.live.member import Group, Member, TaskPlace, member_of
from stateshift.live.protocol.chains import (
    Declaration,
    KnownChange,
    Links,
    Reversal,
    RowMoment,
    Version,
    doubtful,
    effective,
    links_at,
)
from stateshift.live.rows import (
    Rows,
    Schema,
    arrow_schema,
    check_returned,
    from_base64,
    in_base64,
    input_schema,
    is_arrow,
    rows_of,
    run_on_no_rows,
    versions_in,
    with_column,
)
from stateshift.live.state import Stateful
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently

if TYPE_CHECKING:
    import pyarrow


logger = logging.getLogger(__name__)

TAKEN_BACK = "has failed and was taken back"  # by this an error is known that ends a query
MEASURE_SECONDS = 5.0  # a process writes down what it ran so often, and always beside a change
NEWS_SECONDS = 60.0
_PROCESS = uuid.uuid4().hex[:8]


@dataclass
class Chain:
    """A chain as its job holds it; pickled with the job's tasks and its first functions."""

    name: str
    group: Group
    output: pyarrow.Schema | None
    own: tuple[code.Function, ...]
    stamp: str | None = None
    follow: str | None = None
    made_by: str = field(default=_PROCESS, repr=False)
    first: Links = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.first = self.declaration(()).first

    def declaration(self, codes: tuple[str, ...]) -> Declaration:
        """Return the chain as its group knows it; `codes` are the hashes of its functions."""
        return Declaration(
            name=self.name,
            functions=tuple(code.name_of(function) for function in self.own),
            codes=codes,
            output="" if self.output is None else in_base64(self.output),
            python=code.python_version(),
            pyarrow=code.pyarrow_version(),
            stamp=self.stamp,
            follow=self.follow,
        )

    def __call__(self, rows: Rows, batch_id: int | None = None) -> Rows:
        """Run the chain, over a task's batches, or over a DataFrame and its batch's number."""
        if batch_id is None:
            return Task(self, member_of(self.group), *place(self)).run(rows)
        return run_batch(self, member_of(self.group), rows, batch_id)

    def try_on_no_rows(self, functions: Sequence[code.Function], rows: Rows) -> None:
        """Refuse functions that do not return what the chain returns, run on no rows."""
        rows = run_on_no_rows(self.name, functions, rows)
        if self.output is not None:
            check_returned(self.name, rows, self.output, self.stamp)


@dataclass(frozen=True, slots=True)
class LoadedVersion:
    """The functions of a version, loaded."""

    version: Version
    functions: tuple[code.Function, ...]


class Task:
    """One task's run of a chain."""

    def __init__(self, of: Chain, member: Member, here: TaskPlace, run_id: str) -> None:
        self.chain = of
        self.member = member
        self.here = here
        self.run_id = run_id
        self.seal = Seal(0, 0.0)
        self.is_whole = False
        # by change that may take itself back: whether this run of the batch puts out rows by it
        self.claims: dict[Version, bool] = {}
        self.column: Version | None = None
        self.fitted = False
        # what holds for rows of a column's version, as far as the member knows
        self.known_at = 0
        self.ready: dict[Version | None, LoadedVersion] = {}
        self.ran: list[list[int]] = []  # versions, one after the other, and how many rows each
        self.rows_out = 0

    def run(self, rows: Iterator[Rows]) -> Iterator[Rows]:
        began = time.time()
        self._begin()
        for batch in rows:
            if not self.fitted:
                self._fit(batch)
            self.member.look(self.here)
            if self.chain.follow is None:
                yield self._apply(batch)
                continue
            for version in versions_in(batch, self.chain.follow):
                self.column = version
                self.member.catch_up(version)
                yield self._apply(rows_of(batch, self.chain.follow, version))
        self._end(began)

    def run_whole(self, frame: Rows) -> None:
        """Run the chain over a whole batch, and keep its state."""
        began = time.time()
        self.is_whole = True
        self._begin()
        place = (self.here.worker.query, self.chain.name, self.here.batch)
        kept = state.load(self.member.folder, *place)
        while True:
            version = effective(self.changes, self.chain.name, self._moment)
            is_shared = version > 0 and len(self.changes[version - 1].change.chains) > 1
            if is_shared and not self._agrees():
                continue
            try:
                member, chain = self.member, self.chain
                transforms = member.transforms(chain.name, kept.version, version)
                slots = state.transform_slots(transforms, kept.slots)
                slots = state.run(self._functions_at(version), frame, slots)[1]
                self.member.runs(self.here, version)
                break
            except Exception as error:
                self._take_back(version, error)
        if slots:
            after = state.SlotStates(version, slots, kept.since)
            state.store(self.member.folder, *place, after)
        self._count(version, 0)
        self._end(began)

    def _begin(self) -> None:
        member = self.member
        member.bring(self.chain.name, self.chain.own)
        member.look(self.here, at_once=True)
        self.seal = (
            member.seal(self.here, self.run_id) if self.is_streaming else Seal(member.known, 0.0)
        )
        member.look_for_reversal()
        # A change may have been taken back in the middle of this run of the batch. It goes on with
        # it, if rows are put out by it already. If the change has failed this run, it fails here as
        # well: another run puts out the whole batch without it.
        run = (self.here.worker.query, self.run_id, self.here.batch)
        for known in list(self._in_doubt()):
            torn = known.reverted
            if torn is None or not self._claims(known.number, False):
                continue
            if (torn.query, torn.run, torn.batch) == run:
                raise _torn(known)
        member.register(self.here)

    @property
    def is_streaming(self) -> bool:
        """Whether this is a batch of a stream: others have no seal."""
        return self.here.batch >= 0

    @property
    def changes(self) -> Sequence[KnownChange]:
        """The changes as this run takes them: those it puts out rows by hold for all of it."""
        if not any(self.claims.values()):
            return self.member.log.changes
        return [
            replace(known, reverted=None) if self.claims.get(known.number) else known
            for known in self.member.log.changes
        ]

    @property
    def version(self) -> Version:
        return effective(self.changes, self.chain.name, self._moment)

    @property
    def _moment(self) -> RowMoment:
        known = self.seal.version if self.is_whole else self.member.known
        return RowMoment(self.seal.version, known, self.column)

    def _in_doubt(self) -> Iterator[KnownChange]:
        """Yield the changes of which this run has to say whether it puts out rows by them."""
        if not self.is_streaming:
            return
        for known in doubtful(self.member.log.changes, self.chain.name, self._moment):
            concerns = self.chain.name in known.change.chains or self.chain.stamp is not None
            is_open = known.reverted is not None or known.number == self.member.known
            is_new = known.number not in self.claims and known.number != self.seal.without
            if concerns and is_open and is_new:
                yield known

    def _claims(self, number: Version, wanted: bool) -> bool:
        """Claim whether this run puts out rows by a change; return the claim that holds."""
        query, batch = self.here.worker.query, self.here.batch
        holds = self.member.folder.claim(query, batch, self.run_id, number, wanted)
        self.claims[number] = holds
        self.ready.clear()
        if not holds:
            self.member.look_for_reversal()
        return holds

    def _agrees(self) -> bool:
        """Whether this run, before its first row, puts out rows by the changes that hold."""
        agrees = True
        for known in list(self._in_doubt()):
            wanted = known.reverted is None
            agrees = self._claims(known.number, wanted) == wanted and agrees
        return agrees

    def _fit(self, batch: Rows) -> None:
        """Take the input's schema: by it functions are tried, here and by whoever changes them."""
        self.fitted = True
        empty = batch.slice(0, 0) if is_arrow(batch) else batch.iloc[:0]
        self.member.fit(
            self.chain.name, lambda functions: self.chain.try_on_no_rows(functions, empty)
        )
        self.member.write_input(self.chain.name, input_schema(empty))

    def _apply(self, rows: Rows) -> Rows:
        if self.known_at != self.member.log.revision:
            self.known_at = self.member.log.revision
            self.ready.clear()
        ready = self.ready.get(self.column)  # found for rows like these, and nothing new is known
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
            if not self._agrees():
                return self._apply(rows)
            self.ready[self.column] = LoadedVersion(version, functions)
            self.member.runs(self.here, version)
        self._count(version, len(rows))
        self.rows_out += len(out)
        return out if self.chain.stamp is None else self._stamped(out, version)

    def _functions_at(self, version: Version) -> tuple[code.Function, ...]:
        links = links_at(self.changes, self.chain.name, self.chain.first, version)
        return self.member.functions(self.chain.name, links)

    def _take_back(self, version: Version, error: Exception) -> None:
        """Take the change back that brought the function, if it wants that; else raise the error as
        the job's own. If rows of the batch are put out by the change, it has to run again.
        """
        known = self.member.log.changes[version - 1] if version else None
        if known is None or version != self.member.log.newest:
            raise self._failing(error)
        if known.change.on_error != "revert" or self.chain.name not in known.change.chains:
            raise self._failing(error)
        logger.warning("change %d is taken back: %s", version, error)
        here = self.here
        text = f"{type(error).__name__}: {error}"
        reverted = Reversal(
            chain=self.chain.name,
            query=here.worker.query,
            run=self.run_id,
            batch=here.batch,
            error=text[:1000],
            at=time.time(),
        )
        known = self.member.revert(version, reverted)
        if known.reverted is None:  # a later change was applied in this moment
            raise self._failing(error)
        if not self.is_streaming or self._claims(version, False):
            raise _torn(known) from error

    def _failing(self, error: Exception) -> Exception:
        """Return the error of a function, written down."""
        if self.is_streaming:
            self.member.fails(self.here, error)
        return error

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
        """Write down what ran, if it is time to; a task without rows has run its version, too."""
        if not any(rows for _, rows in self.ran):
            self.member.runs(self.here, self.version)
        member, here = self.member, self.here
        if here.batch < 0 or not member.is_time_to_measure(MEASURE_SECONDS, NEWS_SECONDS):
            return
        measured = TaskMeasure(
            chain=self.chain.name,
            query=here.worker.query,
            batch=here.batch,
            partition=here.worker.partition,
            began=began,
            ended=time.time(),
            rows_in=sum(rows for _, rows in self.ran),
            rows_out=self.rows_out,
            ran=tuple(VersionRows(version, rows) for version, rows in self.ran),
        )
        member.measure(measured)


def _torn(known: KnownChange) -> PlanError:
    assert known.reverted is not None
    return PlanError(
        f"change {known.number} {TAKEN_BACK}: {known.reverted.error}",
        hint="start the query again: the batch is run as a whole, without the change; "
        "live.keep_running does so by itself",
    )


def place(of: Chain) -> tuple[TaskPlace, str]:
    """Return the task and batch that this is, and the run of its query."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskPlace(ChainWorker(of.name, "-", 0), -1), "-"
    query = context.getLocalProperty("sql.streaming.queryId") or "-"
    batch = context.getLocalProperty("streaming.sql.batchId")
    number = -1 if batch is None else int(batch)
    run_id = _run_of(of, context.getLocalProperty)
    return TaskPlace(ChainWorker(of.name, query, context.partitionId()), number), run_id


def _run_of(of: Chain, local: Callable[[str], str | None]) -> str:
    """Return the run of a batch: the driver's process, and the execution to which all of its jobs
    belong. Spark before 3.4 has no such number: there it is the group of the query's jobs, which a
    function of foreachBatch may set.
    """
    number = local("spark.sql.execution.root.id") or local("spark.jobGroup.id")
    return f"{of.made_by}.{number or '-'}"


def run_batch(of: Chain, member: Member, frame: Rows, batch: int) -> None:
    """Run a chain over a batch, in the job's own process; to count its rows would cost a job."""
    context = frame.sparkSession.sparkContext
    query = context.getLocalProperty("sql.streaming.queryId") or "-"
    run_id = _run_of(of, context.getLocalProperty)
    Task(of, member, TaskPlace(ChainWorker(of.name, query, 0), batch), run_id).run_whole(frame)


class Query(Protocol):
    """A query of Spark's."""

    def awaitTermination(self) -> object: ...


def keep_running(start: Callable[[], Query]) -> None:
    """Start a query and wait until it is stopped. It is started again if a change took itself back
    in the middle of a batch; any other error is raised. No change does that twice.

        live.keep_running(lambda: orders.mapInArrow(score, SCHEMA).writeStream.….start())

    Spark cannot run one batch again: it ends the query. The next start runs the batch as a whole,
    without the change.
    """
    while True:
        try:
            start().awaitTermination()
            return
        except Exception as error:
            if TAKEN_BACK not in str(error):
                raise
            logger.warning("the query is started again: a change was taken back within a batch")


NAME_BYTES_MAX = 100  # it is a part of files' names, beside a query's


def group(location: str, key: str | None = None, owners: Sequence[str] = ()) -> Group:
    """Return the group at a location; the key is read here, where the job is started."""
    if key is not None and "BEGIN PUBLIC KEY" not in key:
        try:
            with open(key, encoding="utf-8") as file:
                key = file.read()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            complaint = Complaint("key", f"{key} cannot be read: {error}")
            raise SpecError((complaint,), hint="name a public key of PEM") from None
    if key is not None:
        signing.public_key(key)
    return Group(locations.normal(location, os.getcwd()), key, tuple(owners))


def chain(
    name: str,
    group_of: Group | str,
    schema: Schema = None,
    *functions: code.Function,
    stamp: str | None = None,
    follow: str | None = None,
) -> Chain:
    """Return a chain of functions that can change while the job runs, declared in its group.

    Args:
        name: by which commands name it; one chain of a name in a group.
        group_of: the group, or its location.
        schema: what the chain returns, as DDL, as Spark's or as Arrow's; None for foreachBatch.
        functions: what the chain begins with; none returns the rows as they are.
        stamp: the column into which it writes each row's version, of type long.
        follow: the column from which it takes it: the one that a chain upstream has stamped.

    Raises:
        PlanError: the group cannot be used, or has another chain of this name.
    """
    if not name or "/" in name or len(quote(name)) > NAME_BYTES_MAX:
        raise SpecError((Complaint("name", f"{name!r} is no name of a chain", name),))
    if schema is not None and any(isinstance(function, Stateful) for function in functions):
        complaint = Complaint("functions", f"{name}: only a chain of foreachBatch keeps a state")
        raise SpecError((complaint,), hint="leave out the schema, and hand it to foreachBatch")
    if isinstance(group_of, str):
        group_of = group(group_of)
    made = Chain(name, group_of, arrow_schema(schema), tuple(functions), stamp, follow)
    declare(made, Folder(open_patiently(group_of.location)))
    return made


def declare(chain: Chain, folder: Folder) -> None:
    """Write down a chain, for those who change it; refuse another one of its name."""
    folder.ensure()
    packages = [code.package(function) for function in chain.own]
    for package in packages:
        folder.write_code(package.digest, package.content)
    declaration = chain.declaration(tuple(package.digest for package in packages))
    before = folder.declaration(chain.name)
    if before is not None:
        # Refuse a chain of another's name; first functions may differ until a live change.
        for what in ("output", "stamp", "follow"):
            old, new = getattr(before, what), getattr(declaration, what)
            if what == "output":  # one schema may be written in two ways
                old, new = (from_base64(text) if text else None for text in (old, new))
            if old != new:
                raise PlanError(
                    f"{folder.location} has a chain {declaration.name} already, with another "
                    f"{what.replace('output', 'schema')}",
                    hint="give one of them another name, or the job another group",
                )
        is_changed = any(declaration.name in known.change.chains for known in folder.changes())
        if len(before.functions) != len(declaration.functions) and is_changed:
            raise PlanError(
                f"{declaration.name} had {len(before.functions)} functions when it was changed "
                f"live, the job now brings {len(declaration.functions)}",
                hint="give the chain another name: what was changed live does not fit any more",
            )
    folder.declare(declaration)

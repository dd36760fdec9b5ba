"""A worker of a live operator, which a job hands to foreachBatch, and the outputs of its rows.

    worker = live.Worker("s3://live/orders", "west", visits, output=live.files("s3://lake/visits"))
    orders.writeStream.foreachBatch(worker).option("checkpointLocation", …).start()

All workers of a group read the same input, each folds the rows of the bins that it has. Between two
batches a thread answers proposals, takes bins that have come, and reads those ahead that will.

    files("s3://lake/visits")   Parquet, one file a commit; a name says the worker and the commit
    any function f(delivery)    which has to know a delivery that it has had already

After a crash the last deliveries come again, each with the rows and the number that it had: a sink
that keeps the number beside the rows takes each of them once. `delivery.worker` and
`delivery.number` are what Delta calls txnAppId and txnVersion.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from stateshift.errors import AlreadyThere, Complaint, PlanError, SpecError, TransientStorageError
from stateshift.live.bins.arrow_tables import from_bytes
from stateshift.live.bins.bin_run import BatchResult
from stateshift.live.bins.bin_worker import BinWorker
from stateshift.live.bins.files import Files, GroupStart
from stateshift.live.bins.hashing import HASH
from stateshift.live.bins.homes import Home, InDriver, InExecutors, SparkTasks
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.parts import Membership, OperatorStart
from stateshift.live.code import package, python_version
from stateshift.live.folder import Folder
from stateshift.live.member import Group
from stateshift.live.task import group
from stateshift.storage.opening import open_patiently

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.1

Frame = Any  # a DataFrame of Spark
HomeName = Literal["driver", "executors"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """The rows of one commit."""

    operator: str
    worker: str
    number: int
    table: pyarrow.Table


Output = Callable[[Delivery], None]


def files(location: str) -> Output:
    """Return an output that writes Parquet files, one for each commit that puts out rows."""

    def write(delivery: Delivery) -> None:
        import pyarrow
        import pyarrow.parquet

        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(delivery.table, sink)
        content = sink.getvalue().to_pybytes()
        name = f"{delivery.operator}-{delivery.worker}-{delivery.number:09d}.parquet"
        storage = open_patiently(location)
        try:
            storage.create(name, content)
        except AlreadyThere:
            if not _has_same_rows(storage.read(name), content):
                raise PlanError(
                    f"{storage.location}/{name} is there already, with other rows",
                    hint="give each group, and each of its operators, a location of its own: "
                    "live.files(…)",
                ) from None

    return write


def _has_same_rows(one: bytes, other: bytes) -> bool:
    """Whether two files of Parquet have the same rows: a delivery that comes again."""
    import pyarrow
    import pyarrow.parquet

    if one == other:
        return True
    try:
        here, there = (
            pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content)).read(use_threads=False)
            for content in (one, other)
        )
    except pyarrow.ArrowException:
        return False
    if here.equals(there):
        return True
    return repr(here.to_pylist()) == repr(there.to_pylist())  # for Arrow no NaN is like another


class Worker:
    """One application's part in an operator, under a name that no other one has.

    Args:
        group_of: the folder that the workers share, or its location.
        name: by which commands name it; the same after a restart.
        operator: what it runs.
        output: takes its rows: `live.files(…)`, or a function of a delivery.
        first: the workers that the bins begin at, in turn; this one alone where none is named. Only
            the first worker that ever starts is asked.
        home: the place of its bins: `driver`, in this process, the fastest up to one core, or
            `executors`, in the processes of Spark's tasks. Both kinds of workers share a group.
    """

    def __init__(
        self,
        group_of: Group | str,
        name: str,
        operator: BinOperator,
        output: Output,
        first: Sequence[str] = (),
        home: HomeName = "driver",
    ) -> None:
        _check(name, operator, output, home)
        self.group = group(group_of) if isinstance(group_of, str) else group_of
        self.name = name
        self.operator = operator
        self.output = output
        storage = open_patiently(self.group.location)
        Folder(storage).ensure()
        self.files = Files(storage)
        self._join(tuple(first) or (name,), home)
        self.home: Home = InDriver(self.files, operator, name)
        if home == "executors":
            self.home = InExecutors(self.group.location, operator, name, SparkTasks(operator))
        self.running = BinWorker(self.files, operator, name, self.home)
        self._working = threading.Lock()
        self._failed: Exception | None = None
        self._ends = threading.Event()
        self._deliver_all()
        self._between = threading.Thread(target=self._tick, name=f"live-{name}", daemon=True)
        self._between.start()

    def __call__(self, frame: Frame, batch: int) -> None:
        self._raise_what_failed()
        context = frame.sparkSession.sparkContext
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        with self._working:
            self.running.settle()
            last = self.running.ledger.last
            committed = -1 if last is None or last.batch is None else last.batch
            if last is not None and last.query == query and batch <= committed:
                self._deliver_all()  # Spark does a batch again that is committed
            else:
                self.step(_with_hashes(frame, self.operator), batch, query)
        self._raise_what_failed()

    def step(self, rows: Frame | pyarrow.Table, batch: int | None = None, query: str = "") -> None:
        """Do a batch: a DataFrame or Arrow's table, with hashes. Nobody else calls this now."""
        self.running.answer()
        self.running.redistribute()  # a batch is read by the number of bins that holds for it
        with self.home.reading(rows, self.running.bins) as read:
            came = self.running.step(read, batch, query)
        self._after_commit(came)

    def stop(self) -> None:
        """End the thread between batches. Commits stay."""
        self._ends.set()
        self._between.join()

    def _join(self, first: tuple[str, ...], home: HomeName) -> None:
        """Take part in the group, or refuse what does not fit it."""
        held = self.files.begin(GroupStart(self.operator.bins, first))
        self.files.check_declared(held, self.operator.name, self.operator.bins)
        for name in (*held.workers, self.name):
            self.files.join(Membership(-1, name, time.time()))
        operator = self.operator
        runs = OperatorStart(
            operator=operator.name,
            worker=self.name,
            form=operator.form,
            key=operator.key,
            time=operator.time,
            output=", ".join(f"{one.name} {one.type}" for one in operator.output),
            code=package(operator.function).digest,
            python=python_version(),
            at=time.time(),
            home=home,
            host=socket.gethostname(),
        )
        for other in self.files.runs():
            if other.operator == operator.name and other.worker != self.name:
                # Refuse an operator that is declared otherwise at another worker: states would not
                # fit.
                for field in ("form", "key", "time", "output"):
                    here, there = getattr(runs, field), getattr(other, field)
                    if here != there:
                        raise PlanError(
                            f"{runs.operator} has {field} {here} here, and {there} at worker "
                            f"{other.worker}",
                            hint="declare it the same at all workers, or give it another name",
                        )
        self.files.run(runs)

    def _deliver_all(self, came: BatchResult | None = None) -> None:
        """Deliver what is not known to have arrived; `came` has the last commit's tables."""
        import pyarrow

        last = self.running.ledger.number
        for waiting in self.running.ledger.undelivered:
            tables = came.tables if came is not None and waiting.number == last else None
            if not tables:
                tables = [from_bytes(self.files.read(piece)) for piece in waiting.pieces]
            table = pyarrow.concat_tables(tables)
            self.output(Delivery(self.operator.name, self.name, waiting.number, table))
            self.running.has_arrived_at(waiting.number)

    def _after_commit(self, came: BatchResult) -> None:
        self._deliver_all(came)
        if self.running.is_clean_up_due:
            self.running.clean_up()

    def _tick(self) -> None:
        """Answer, take and read ahead, until the worker ends."""
        while not self._ends.wait(TICK_SECONDS):
            if self._failed is not None:
                continue  # the next batch says so
            try:
                self.running.answer()
                if self._working.acquire(blocking=False):
                    try:
                        self.between()
                    finally:
                        self._working.release()
            except TransientStorageError as error:
                logger.warning("worker %s: %s", self.name, error)
            except Exception as error:
                logger.exception("worker %s, between two batches", self.name)
                self._failed = error

    def between(self) -> None:
        """Do all that has become possible since the last batch."""
        if self.running.settle():
            self._deliver_all()
        self.running.look()
        if self.running.redistribute():
            return
        if self.running.has_arrived or self.running.is_to_join:
            self._after_commit(self.running.step())
            return
        until = time.monotonic() + TICK_SECONDS  # a batch waits for no longer
        while self.running.read_ahead() and time.monotonic() < until:
            pass

    def _raise_what_failed(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


def _check(name: str, operator: object, output: object, home: str) -> None:
    wrong = []
    if not name or "/" in name:
        wrong.append(Complaint("name", f"{name!r} is no name of a worker", name))
    if not isinstance(operator, BinOperator):
        wrong.append(Complaint("operator", "no operator: decorate it with live.operator"))
    if not callable(output):
        wrong.append(Complaint("output", "not callable: live.files(…) is one"))
    if home not in get_args(HomeName):
        expected = ", ".join(get_args(HomeName))
        wrong.append(Complaint("home", f"there is no home {home!r}", home, expected))
    if wrong:
        hint = "live.Worker(GROUP, NAME, OPERATOR, output=live.files(LOCATION))"
        raise SpecError(tuple(wrong), hint=hint)


def _with_hashes(frame: Frame, operator: BinOperator) -> Frame:
    """Return a DataFrame with the columns that an operator needs, and each key's hash."""
    from pyspark.sql import functions

    missing = [name for name in (*operator.key, *operator.time) if name not in frame.columns]
    if missing:
        complaint = Complaint("columns", f"{operator.name}: the batch has no {', '.join(missing)}")
        raise SpecError((complaint,), hint=f"its columns are {', '.join(frame.columns)}")
    needed = [name for name in frame.columns if operator.needs(name)]
    return frame.select(*needed, functions.xxhash64(*operator.key).alias(HASH))

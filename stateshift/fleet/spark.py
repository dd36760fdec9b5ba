"""The carrier: one Spark application; for each order one job of one task.

A job for each order, and not one job for all: results come one by one and are journaled as they
come, a failure is its step's alone, and no step waits for the slowest of its neighbours. That costs
some ten milliseconds of the driver, which is little beside a bundle. Tasks are tried once by Spark
(the Crew repeats them, and says so), and never speculatively.

A run that is stopped cancels the orders at work; a Spark that has no executors is waited for, with
open eyes.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from stateshift.errors import ClusterError, Interrupted, StateshiftError
from stateshift.fleet import application
from stateshift.fleet.carrier import Lost, add_attempt
from stateshift.fleet.masters import end_error, hopeless, kind_of, reason_of, refuse_unreachable
from stateshift.world import Meter

SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_ALONE_MAX = 300.0
SECONDS_ALONE_REPORTED = 15.0
WAITING_MAX = 256  # handed over to a Spark that takes more executors the more tasks wait


def open_carrier(master: str, log: Path, meter: Meter, stop: threading.Event) -> SparkCarrier:
    """Start a Spark application on this master. Refuse before a JVM starts what can be."""
    kind_of(master)
    application.refuse_without_java()
    refuse_unreachable(master)
    return SparkCarrier(master, log, meter, stop)


class SparkCarrier:
    """The application, from its start to `close`."""

    def __init__(self, master: str, log: Path, meter: Meter, stop: threading.Event) -> None:
        self._master, self._log, self._meter, self._stop = master, log, meter, stop
        self._folder = Path(tempfile.mkdtemp(prefix="stateshift-fleet-"))
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._at_work = 0
        self._over: StateshiftError | None = None
        try:
            self._context = application.start_application(master, log, self._folder)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._watch = threading.Thread(target=self._watching, name="fleet", daemon=True)
        self._watch.start()

    # -- what the Crew asks

    @property
    def master(self) -> str:
        return self._master

    @property
    def far(self) -> bool:
        return kind_of(self._master) != "local"

    @property
    def description(self) -> str:
        return f"Spark {self._context.version}, Python {self._context.pythonVer}"

    def slots(self, waiting: int) -> int:
        if self._over is not None or self._stop.is_set():
            return 1
        try:
            grows = self._context.getConf().get("spark.dynamicAllocation.enabled", "false")
            if waiting and str(grows).lower() == "true":
                return WAITING_MAX
            return int(self._context.defaultParallelism)
        except Exception:
            return 1  # the next order shows why

    def carry(self, order: str, label: str) -> str:
        with self._lock:
            self._at_work += 1
        try:
            self._check()
            context, group = self._context, f"stateshift {label}"
            context.setJobGroup(group, f"stateshift: {label}", interruptOnCancel=True)
            job = context.parallelize([order], 1).mapPartitions(_task())
            answer, attempt = job.collect()[0]
        except StateshiftError:
            raise
        except Exception as error:
            raise self._meaning_of(error) from error
        finally:
            with self._lock:
                self._at_work -= 1
        return add_attempt(answer, attempt)

    def close(self) -> None:
        """End the application. The JVM ends when nobody holds the other end of its stdin."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        self._watch.join(5)
        with contextlib.suppress(Exception):
            self._context.stop()
        application.end_jvm()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- at work

    def _check(self) -> None:
        if self._stop.is_set():
            raise Interrupted("interrupted; what was done is written down")
        if self._over is not None:
            raise self._over

    def _meaning_of(self, error: Exception) -> Exception:
        """Return the error for the order, of a failure of Spark's, not of the work."""
        try:
            self._check()
        except StateshiftError as known:
            return known
        java = getattr(error, "java_exception", None)
        if java is None:  # no answer from the JVM at all
            reason = f"{type(error).__name__}: {error} (see {self._log})"
            self._over = end_error(self._master, reason)
            return self._over
        message = str(java.toString())
        fatal = hopeless(message, self._master)
        if fatal is None:
            return Lost(reason_of(message))
        self._over = fatal
        return fatal

    def _watching(self) -> None:
        """Cancel the orders at work once somebody asked to stop, and wait for executors."""
        alone_since, reported = None, False
        while not self._closed.wait(SECONDS_BETWEEN_LOOKS):
            with contextlib.suppress(Exception):
                # The driver counts as one, and is the one if local.
                blocks = int(self._context._jsc.sc().getExecutorMemoryStatus().size())
                if not self._at_work or blocks > int(self.far):
                    alone_since, reported = None, False
                else:
                    alone_since = alone_since or time.monotonic()
                    seconds = time.monotonic() - alone_since
                    if seconds > SECONDS_ALONE_MAX:
                        self._over = self._alone_too_long()
                    elif seconds > SECONDS_ALONE_REPORTED and not reported:
                        reported = True
                        missing = f"no executor of {self._master} is there"
                        self._meter.say(f"fleet: {missing}; waiting for one")
                is_over = self._stop.is_set() or self._over is not None
                if is_over and self._at_work:
                    self._context.cancelAllJobs()

    def _alone_too_long(self) -> ClusterError:
        return ClusterError(
            f"no executor of {self._master} has been there for {SECONDS_ALONE_MAX:.0f} s",
            cluster=self._master,
            hint="look at the master: workers, and free cores and memory "
            "(spark.executor.memory); go on with or without it: stateshift resume WORKDIR",
        )


def _task() -> Callable[[Iterable[str]], Iterator[tuple[str, int]]]:
    """Return the function for executors, pickled by value: our package may be missing there."""

    def task(orders: Iterable[str]) -> Iterator[tuple[str, int]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for order in orders:
            try:
                from stateshift.fleet.task import carry_out
            except ImportError as error:
                import json
                import socket

                missing = (error.name or str(error)).partition(".")[0]
                yield json.dumps({"host": socket.gethostname(), "missing": missing}), 0
            else:
                yield carry_out(order), context.attemptNumber() if context is not None else 0

    return task

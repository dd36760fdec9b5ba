"""The carrier: one Spark application; for each order one job of one task.

A job for each order, and not one job for all: results come one by one and are journaled as they come, a failure is its
step's alone, and no step waits for the slowest of its neighbours. What that costs, some ten milliseconds of the driver,
is little beside a bundle. Tasks are tried once by Spark (the Crew repeats them, and says so), and never speculatively.

What Spark's own Java processes print goes to the log, not between our lines. Spark's settings come from where they
always come from: spark-defaults.conf, SPARK_CONF_DIR, PYSPARK_SUBMIT_ARGS, PYSPARK_PYTHON.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from stateshift.errors import ClusterError, Interrupted, StateshiftError
from stateshift.fleet import ending
from stateshift.fleet.crew import Lost, answered
from stateshift.fleet.masters import kind_of, refuse_unreachable
from stateshift.fleet.package import write_package
from stateshift.world import Meter

SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_ALONE_MAX = 300.0
SECONDS_ALONE_TOLD = 15.0
WAITING_MAX = 256  # handed over to a Spark that takes more executors the more tasks wait
LOG_TAIL = 4000

OURS = {
    "spark.app.name": "stateshift",
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
}
LOCAL = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}


def open_carrier(master: str, log: Path, meter: Meter, stop: threading.Event) -> SparkCarrier:
    """A Spark application on this master; everything that can be told before a JVM starts is."""
    kind_of(master)
    java = _java()
    refuse_unreachable(master)
    return SparkCarrier(master, java, log, meter, stop)


class SparkCarrier:
    """The application, from its start to `close`."""

    def __init__(self, master: str, java: str, log: Path, meter: Meter, stop: threading.Event) -> None:
        self._master, self._log, self._meter, self._stop = master, log, meter, stop
        self._folder = Path(tempfile.mkdtemp(prefix="stateshift-fleet-"))
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._at_work = 0
        self._over: StateshiftError | None = None
        try:
            with log.open("ab") as output, ThreadPoolExecutor(1) as elsewhere, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Spark has views on other packages' versions: nobody's business here
                # Not in the main thread: there Spark would take Ctrl-C for itself.
                self._context = elsewhere.submit(self._start, java, output).result()
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
    def told(self) -> str:
        return f"Spark {self._context.version}, Python {self._context.pythonVer}"

    def slots(self, waiting: int) -> int:
        if self._over is not None or self._stop.is_set():
            return 1
        try:
            if waiting and self._grows:
                return WAITING_MAX
            return int(self._context.defaultParallelism)
        except Exception:
            return 1  # the next order tells why

    def carry(self, order: str, label: str) -> str:
        with self._working():
            self._check()
            try:
                context = self._context
                context.setJobGroup(f"stateshift {label}", f"stateshift: {label}", interruptOnCancel=True)
                answer, attempt = context.parallelize([order], 1).mapPartitions(_errand()).collect()[0]
            except Exception as error:
                raise self._told_of(error) from error
        return answered(answer, attempt)

    def close(self) -> None:
        """End the application. The JVM ends when nobody holds the other end of its stdin."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        self._watch.join(5)
        with contextlib.suppress(Exception):
            self._context.stop()
        _end_jvm()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- at work

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        with self._lock:
            self._at_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1

    def _check(self) -> None:
        if self._stop.is_set():
            raise Interrupted("interrupted; what was done is written down")
        if self._over is not None:
            raise self._over

    def _told_of(self, error: Exception) -> Exception:
        """What a failure of Spark's, not of the work, means for the order."""
        with contextlib.suppress(Exception):
            self._check()
        if self._stop.is_set():
            return Interrupted("interrupted; what was done is written down")
        if self._over is not None:
            return self._over
        java = getattr(error, "java_exception", None)
        if java is None:  # no answer from the JVM at all
            self._over = ending.ended(self._master, f"{type(error).__name__}: {error} (see {self._log})")
            return self._over
        message = str(java.toString())
        found = ending.hopeless(message, self._master)
        if found is not None:
            self._over = found
            return found
        return Lost(ending.reason_of(message))

    def _watching(self) -> None:
        """Cancel what is at work once somebody asked to stop, and wait for executors with open eyes."""
        alone_since, told = None, False
        while not self._closed.wait(SECONDS_BETWEEN_LOOKS):
            with contextlib.suppress(Exception):
                if not self._at_work or self._executors():
                    alone_since, told = None, False
                else:
                    alone_since = alone_since or time.monotonic()
                    told = self._alone(time.monotonic() - alone_since, told)
                if self._at_work and (self._stop.is_set() or self._over is not None):
                    self._context.cancelAllJobs()

    def _alone(self, seconds: float, told: bool) -> bool:
        if seconds > SECONDS_ALONE_MAX:
            self._over = ClusterError(
                f"no executor of {self._master} has been there for {SECONDS_ALONE_MAX:.0f} s",
                cluster=self._master,
                hint="look at the master: workers, and free cores and memory (spark.executor.memory); go on with or "
                "without it: stateshift resume WORKDIR",
            )
        elif seconds > SECONDS_ALONE_TOLD and not told:
            self._meter.say(f"fleet: no executor of {self._master} is there; waiting for one")
            return True
        return told

    def _executors(self) -> int:
        there = int(self._context._jsc.sc().getExecutorMemoryStatus().size())
        return there if not self.far else there - 1  # the driver counts as one; with a local master it is the one

    @property
    def _grows(self) -> bool:
        return str(self._context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true"

    # -- the start

    def _start(self, java: str, output: IO[bytes]) -> Any:
        SparkConf, SparkContext, launch_gateway = _pyspark()
        conf = SparkConf(loadDefaults=False)
        for key, value in {**OURS, **(LOCAL if not self.far else {}), "spark.master": self._master}.items():
            conf.set(key, value)
        try:
            if SparkContext._gateway is None:  # else some Python program of its own uses us, and has one
                gateway = launch_gateway(conf, {"stdout": output, "stderr": output})
                SparkContext._ensure_initialized(gateway=gateway, conf=conf)
            context = SparkContext(conf=conf)
        except Exception as error:
            _end_jvm()
            raise self._cannot_start(error) from error
        context.setLogLevel("WARN")
        if not self.far and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable
        context.addPyFile(str(write_package(self._folder)))
        return context

    def _cannot_start(self, error: Exception) -> ClusterError:
        java = getattr(error, "java_exception", None)
        message = str(java.toString()) if java is not None else str(error)
        if java is None:
            message = _last_words(self._log) or message
        return ClusterError(
            f"Spark does not start for {self._master}: {ending.reason_of(message)}",
            cluster=self._master,
            hint=f"its log says more: {self._log}; the driver's Spark must be of the cluster's version (SPARK_HOME, or "
            "pip install pyspark==VERSION), with a Java that it runs on (JAVA_HOME)",
        )


def _pyspark() -> tuple[Any, Any, Any]:
    """What we need of it."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
    except ImportError as error:
        raise ClusterError(
            f"the Python package pyspark cannot be imported ({error})",
            cluster="fleet",
            hint="pip install pyspark==VERSION, with the version of the cluster's Spark",
        ) from error
    return SparkConf, SparkContext, launch_gateway


def _errand() -> Any:
    """What is sent to executors: a function of its own, pickled by value, so that it can say what is missing there."""

    def errand(orders: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        for order in orders:
            try:
                from stateshift.fleet.errand import carry_out
            except ImportError as error:
                import json
                import socket

                missing = (error.name or str(error)).partition(".")[0]
                yield json.dumps({"host": socket.gethostname(), "missing": missing}), 0
            else:
                yield carry_out(order), context.attemptNumber() if context is not None else 0

    return errand


def _java() -> str:
    """The Java that Spark will use: JAVA_HOME's, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not os.access(found, os.X_OK):
        raise ClusterError(
            f"there is no Java at {found} (JAVA_HOME)" if home else "there is no Java: JAVA_HOME is not set, and no "
            "java is on the path",
            cluster="fleet",
            hint="install a JRE (17 for Spark 4) and set JAVA_HOME; without --fleet none is needed",
        )
    return found


def _last_words(log: Path) -> str:
    """The line of the log's end that tells of an error."""
    text = log.read_bytes()[-LOG_TAIL:].decode("utf-8", "replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "xception" in line]
    return (errors or lines or [""])[0]


def _end_jvm() -> None:
    """Let go of the JVM, so that it ends and another one can be started by this process."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None or getattr(gateway, "proc", None) is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    with contextlib.suppress(Exception):
        gateway.proc.stdin.close()
    with contextlib.suppress(Exception):
        gateway.proc.wait(10)
    SparkContext._gateway = SparkContext._jvm = None

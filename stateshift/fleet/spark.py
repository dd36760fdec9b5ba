"""The carrier: one Spark application; for each order one job of one task.

A job for each order, and not one job for all: results come one by one and are journaled as they
come, a failure is its step's alone, and no step waits for the slowest of its neighbours. That costs
some ten milliseconds of the driver, which is little beside a bundle. Tasks are tried once by Spark
(the Crew repeats them, and says so), and never speculatively. A run that is stopped cancels the
orders at work; a Spark that has no executors is waited for, with open eyes.

The output of Spark's own processes goes to the log, not between our lines. Spark's settings come
from where they always come from: spark-defaults.conf, SPARK_CONF_DIR, PYSPARK_SUBMIT_ARGS,
PYSPARK_PYTHON; ours are only those that a fleet depends on.

`addPyFile` hands our own package as a zip to every executor, also to those that come later.
Executors get it always: it comes before an installation on their path, and both ends are the same
code, not only the same version. It holds sources and, beside each, its compiled form: a module that
is imported from a zip is never kept compiled, and a hundred take each Python worker a second.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import re
import shutil
import struct
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import IO, Any, TypeAlias

import stateshift
from stateshift.errors import ClusterError, Interrupted, StateshiftError
from stateshift.fleet.carrier import Lost, add_attempt
from stateshift.fleet.masters import end_error, hopeless, kind_of, reason_of, refuse_unreachable
from stateshift.private_files import open_private
from stateshift.world import Meter

# Objects of pyspark and py4j, which are imported late, and have no types that mypy could read.
Spark: TypeAlias = Any

LOG_TAIL = 4000
PACKAGE = "stateshift.zip"
OURS = {
    "spark.app.name": "stateshift",
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
}
_ERROR = re.compile("[Ee]rror|[Ee]xception")
LOCAL = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}

SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_ALONE_MAX = 300.0
SECONDS_ALONE_REPORTED = 15.0
WAITING_MAX = 256  # handed over to a Spark that takes more executors the more tasks wait


def open_carrier(master: str, log: Path, meter: Meter, stop: threading.Event) -> SparkCarrier:
    """Start a Spark application on this master. Refuse before a JVM starts what can be."""
    kind_of(master)
    # Refuse to start without Java. Spark takes JAVA_HOME's, else the one on the path.
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java")
    fact = "there is no Java: JAVA_HOME is not set, and no java is on the path"
    if home:
        java = str(Path(home) / "bin" / "java")
        fact = f"there is no Java at {java} (JAVA_HOME)"
    if java is None or not os.access(java, os.X_OK):
        hint = "install a JRE (17 for Spark 4) and set JAVA_HOME; without --fleet none is needed"
        raise ClusterError(fact, cluster="fleet", hint=hint)
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
            self._context = start_application(master, log, self._folder)
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
        end_jvm()
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


def start_application(master: str, log: Path, folder: Path) -> Spark:
    """Start an application; return its SparkContext. Executors get our package from `folder`."""
    appending = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with (
        open_private(log, appending) as output,
        ThreadPoolExecutor(1) as elsewhere,
        warnings.catch_warnings(),
    ):
        # Spark has views on other packages' versions: nobody's business here.
        warnings.simplefilter("ignore")
        # Not in the main thread: there Spark would take Ctrl-C for itself.
        return elsewhere.submit(_started, master, log, folder, output).result()


def _started(master: str, log: Path, folder: Path, output: IO[bytes]) -> Spark:
    SparkConf, SparkContext, launch_gateway = _pyspark()
    near = kind_of(master) == "local"
    conf = SparkConf(loadDefaults=False)
    settings = {**OURS, "spark.master": master}
    if near:
        settings |= LOCAL
    for key, value in settings.items():
        conf.set(key, value)
    if SparkContext._active_spark_context is not None:
        fact = "this process has a Spark application of its own"
        raise ClusterError(fact, cluster=master, hint="stop it first, or run the command line")
    try:
        # A Python program that uses us may have a gateway of its own.
        if SparkContext._gateway is None:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})
            gateway.of_a_fleet = True
            SparkContext._ensure_initialized(gateway=gateway, conf=conf)
        context = SparkContext(conf=conf)
    except Exception as error:
        end_jvm()
        java = getattr(error, "java_exception", None)
        message = str(java.toString()) if java is not None else _last_words(log) or str(error)
        raise ClusterError(
            f"Spark does not start for {master}: {reason_of(message)}",
            cluster=master,
            hint=f"its log says more: {log}; the driver's Spark must be of the cluster's version "
            "(SPARK_HOME, or pip install pyspark==VERSION), with a Java that it runs on "
            "(JAVA_HOME)",
        ) from error
    context.setLogLevel("WARN")
    if near and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    context.addPyFile(str(write_package(folder)))
    return context


def _pyspark() -> tuple[Spark, Spark, Spark]:
    """Return the parts of pyspark that we need."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
    except ImportError as error:
        fact = f"a fleet on Spark needs pyspark, which cannot be imported ({error})"
        hint = "pip install 'stateshift[spark]' pyspark==VERSION, with the cluster's version"
        raise ClusterError(fact, cluster="fleet", hint=hint) from error
    return SparkConf, SparkContext, launch_gateway


def _last_words(log: Path) -> str:
    """Return the line of the log's end that names an error."""
    if not log.exists():
        return ""
    text = log.read_bytes()[-LOG_TAIL:].decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = filter(_ERROR.search, lines)
    return next(errors, lines[0] if lines else "")


def end_jvm() -> None:
    """Let go of the JVM, if it is ours: it ends, and this process can start another one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None or not getattr(gateway, "of_a_fleet", False):
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    with contextlib.suppress(Exception):
        gateway.proc.stdin.close()
    with contextlib.suppress(Exception):
        gateway.proc.wait(10)
    SparkContext._gateway = SparkContext._jvm = None


def write_package(folder: Path) -> Path:
    """Write the zip of our own package into this folder. Return its path."""
    root = Path(stateshift.__file__).parent
    path = folder / PACKAGE
    # A compiled form is marked as not to be checked against its source (PEP 552, flags 0b01).
    head = importlib.util.MAGIC_NUMBER + struct.pack("<L", 0b01)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(root.rglob("*")):
            if "__pycache__" in file.parts or file.suffix == ".pyc" or not file.is_file():
                continue
            inside = str(file.relative_to(root.parent))
            archive.write(file, inside)
            if file.suffix == ".py":
                # Python mostly has the code compiled already.
                code = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
                stamp = importlib.util.source_hash(file.read_bytes())
                info = zipfile.ZipInfo(inside + "c")
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, head + stamp + marshal.dumps(code))
    return path

"""The Spark application of a fleet: its JVM started, its context made, and let go.

The output of Spark's own processes goes to the log, not between our lines. Spark's settings come
from where they always come from: spark-defaults.conf, SPARK_CONF_DIR, PYSPARK_SUBMIT_ARGS,
PYSPARK_PYTHON; ours are only those that a fleet depends on.

`addPyFile` hands our own package as a zip to every executor, also to those that come later.
Executors get it always, whether they have an installation or not: it comes before that on their
path, and both ends are the same code, not only the same version. It holds sources and, beside each,
its compiled form: a module that is imported from a zip is never kept compiled, and compiling a
hundred of them takes each Python worker a second.
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
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import IO, Any, TypeAlias

import stateshift
from stateshift.errors import ClusterError
from stateshift.fleet.masters import kind_of, reason_of
from stateshift.private_files import open_private

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
        raise ClusterError(
            "this process has a Spark application of its own",
            cluster=master,
            hint="stop it first, or run the command line",
        )
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
        raise ClusterError(
            f"the Python package pyspark cannot be imported ({error})",
            cluster="fleet",
            hint="pip install pyspark==VERSION, with the version of the cluster's Spark",
        ) from error
    return SparkConf, SparkContext, launch_gateway


def refuse_without_java() -> None:
    """Refuse to start without Java. Spark takes JAVA_HOME's, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java")
    fact = "there is no Java: JAVA_HOME is not set, and no java is on the path"
    if home:
        java = str(Path(home) / "bin" / "java")
        fact = f"there is no Java at {java} (JAVA_HOME)"
    if java is None or not os.access(java, os.X_OK):
        raise ClusterError(
            fact,
            cluster="fleet",
            hint="install a JRE (17 for Spark 4) and set JAVA_HOME; without --fleet none is needed",
        )


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

"""The small files beside an image, as a job reads and writes them: directly on a local path, else
through Hadoop's FileSystem in the session's JVM, which knows every scheme that Spark itself knows.

A local path is never touched through Hadoop: it would leave checksums that do not fit what others
write there.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any, TypeAlias

from stateshift.errors import PlanError
from stateshift.formats.marks import TEMPORARY
from stateshift.specification.location import NoLocation, normal

# Objects of the JVM, by py4j, and the SparkContext that leads to it. They have no types here.
Java: TypeAlias = Any


def reachable(place: str) -> bool:
    """Whether files can be read and written at this location now."""
    return _local(place) is not None or jvm() is not None


def read(place: str, path: str) -> bytes | None:
    """Return the whole file, None if there is none."""
    local = _local(place)
    if local is None:
        return _read_hadoop(_file(place, path))
    try:
        return (local / path).read_bytes()
    except FileNotFoundError:
        return None


def write(place: str, path: str, content: bytes) -> None:
    """Write the whole file durably: a job does not start with an index that is torn."""
    local = _local(place)
    if local is None:
        _write_hadoop(_file(place, path), content)
        return
    file = local / path
    _make_directory(file.parent)
    temporary = file.parent / _temporary(file.name)
    with temporary.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    temporary.replace(file)
    _sync_directory(file.parent)


def _make_directory(directory: Path) -> None:
    """Make a directory and those above it, whose names survive a crash of the machine."""
    if directory.is_dir():
        return
    _make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary(name: str) -> str:
    return f"{TEMPORARY}{name}-{os.getpid()}-{threading.get_ident()}.tmp"


def _local(place: str) -> Path | None:
    try:
        url = normal(place, os.getcwd())
    except NoLocation:
        return None
    if not url.startswith(("file://", "/")):
        return None
    return Path(url.removeprefix("file://"))


def _file(place: str, path: str) -> Java:
    java = jvm()
    if java is None:
        raise PlanError(
            f"{place} is reached through Spark, and there is no classic Spark session",
            hint="build the SparkSession first (Spark Connect has no file systems to lend)",
        )
    return java.org.apache.hadoop.fs.Path(f"{place.rstrip('/')}/{path}")


def _read_hadoop(file: Java) -> bytes | None:
    from py4j.protocol import Py4JJavaError

    try:
        stream = _file_system(file).open(file)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == "java.io.FileNotFoundException":
            return None
        raise
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def _write_hadoop(file: Java, content: bytes) -> None:
    """Write a file under another name first, then rename it over what was there, as Spark does
    (CheckpointFileManager.scala, FileContextBasedCheckpointFileManager). Without such a rename, a
    file of an object store appears whole.
    """
    from py4j.protocol import Py4JJavaError

    context = _context()
    fs = context._jvm.org.apache.hadoop.fs
    try:
        renaming = fs.FileContext.getFileContext(file.toUri(), context._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        if not error.java_exception.getClass().getName().endswith("UnsupportedFileSystemException"):
            raise
        _create(file, content)
        return
    temporary = fs.Path(file.getParent(), _temporary(file.getName()))
    _create(temporary, content)
    rename = getattr(fs, "Options$Rename")
    overwrite = context._gateway.new_array(rename, 1)
    overwrite[0] = rename.OVERWRITE
    renaming.rename(temporary, file, overwrite)


def _create(file: Java, content: bytes) -> None:
    stream = _file_system(file).create(file, True)
    try:
        stream.write(bytearray(content))
    finally:
        stream.close()


def _file_system(file: Java) -> Java:
    return file.getFileSystem(_context()._jsc.hadoopConfiguration())


def jvm() -> Java:
    """Return the session's JVM as py4j shows it; None if there is no session."""
    context = _context()
    return context._jvm if context is not None else None


def setting(name: str) -> str | None:
    """Return a setting of the session; None if it has none, or if there is no session."""
    context = _context()
    if context is None:
        return None
    value = context.getConf().get(name)
    return None if value is None else str(value)


def _context() -> Java:
    """Return the running SparkContext, without importing pyspark into a process that has none."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._active_spark_context

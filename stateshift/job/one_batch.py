"""Run a PySpark file with its sinks replaced by nothing, until what its sources hold now is read.

    spark-submit one_batch.py FILE [ARGUMENT ...]

It is the start of a drill: the file's queries are restored from a copy of their checkpoints, at or
below $STATESHIFT_CHECKPOINT. Each query writes to Spark's sink `noop`, and ends by itself; one that
has found nothing to read says so, as `stateshift.job` does. A query with another
checkpoint is refused before it begins, and so is whatever else Spark would write. Functions of
`foreach` and `foreachBatch` are not called.

This file imports nothing but Spark: the job's Python need not have stateshift.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable

    from stateshift.job.files import Java  # of Spark, and of no type here

WAY_OUT = 'say how a drill is started: "drill": {"submit": {...}} in the spec of the standby'
IDLE = "_stateshift/idle"
BATCH_WRITES = (
    *("save", "saveAsTable", "insertInto", "jdbc", "json", "parquet", "text", "csv", "orc", "xml"),
    *("create", "replace", "createOrReplace", "append", "overwrite", "overwritePartitions"),
)


class NotReplacedError(Exception):
    """A drill would write something."""

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact}; {WAY_OUT}")


def path_in(location: str) -> str:
    """Return a location in one spelling: file:/a, file:///a/ and /a are one."""
    scheme, mark, rest = location.partition(":")
    if not mark or scheme != "file":
        return location.rstrip("/")
    return "/" + unquote(rest).strip("/")


def is_within(location: str, place: str) -> bool:
    """Whether a location is a place, or below it."""
    inner, outer = path_in(location), path_in(place)
    return inner == outer or inner.startswith(f"{outer}/")


class NoSink:
    """The methods of stream writers that are replaced, for queries at or below a place."""

    def __init__(self, writers: Java, place: str, tag: str) -> None:
        self._start, self._format = writers.start, writers.format
        self._trigger, self._option = writers.trigger, writers.option
        self._place, self._tag = place, tag
        self._threads: list[threading.Thread] = []

    def install(self, writers: Java) -> None:
        """Put the methods in the place of the class's own."""

        def unchanged(writer: Java, *arguments: Java, **named: Java) -> Java:
            return writer

        for name in ("format", "trigger", "partitionBy", "clusterBy", "foreach", "foreachBatch"):
            setattr(writers, name, unchanged)
        writers.start = lambda writer, *sink, **options: self.start(writer, **options)
        writers.toTable = lambda writer, name, *sink, **options: self.start(writer, **options)
        writers.option = lambda writer, key, value: self.option(writer, key, value)
        writers.options = lambda writer, **options: self.options(writer, options)

    def option(self, writer: Java, key: str, value: Java) -> Java:
        """Set an option, and note the checkpoint of the query."""
        if key.lower() == "checkpointlocation":
            writer._drilled_checkpoint = str(value)
        return self._option(writer, key, value)

    def options(self, writer: Java, options: dict[str, object]) -> Java:
        """Set options, one by one."""
        for key, value in options.items():
            self.option(writer, key, value)
        return writer

    def start(self, writer: Java, **options: Java) -> Java:
        """Start a query that writes nothing, and ends once it has read what there is."""
        mode, name = options.pop("outputMode", None), options.pop("queryName", None)
        for sink in ("path", "format", "partitionBy"):
            options.pop(sink, None)
        self.options(writer, options)
        if mode:
            writer.outputMode(mode)
        if name:
            writer.queryName(name)
        checkpoint = getattr(writer, "_drilled_checkpoint", None)
        if checkpoint is None or not is_within(checkpoint, self._place):
            fact = f"a query has the checkpoint {checkpoint}, and the drill is at {self._place}"
            raise NotReplacedError(fact)
        self._format(writer, "noop")
        try:
            self._trigger(writer, availableNow=True)
        except TypeError:  # before Spark 3.3
            self._trigger(writer, once=True)
        query = self._start(writer)
        thread = threading.Thread(target=self._note_end, args=(query, writer._spark, checkpoint))
        thread.start()
        self._threads.append(thread)
        return query

    def wait(self) -> None:
        """Wait until all queries have ended."""
        for thread in self._threads:
            thread.join()

    def _note_end(self, query: Java, spark: Java, checkpoint: str) -> None:
        """Write down that a query has ended well. If it has a batch by then, that counts."""
        try:
            query.awaitTermination()
        except Exception:  # the file itself meets it, too, or it is the log's
            return
        context = spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(f"{checkpoint.rstrip('/')}/{IDLE}")
        stream = path.getFileSystem(context._jsc.hadoopConfiguration()).create(path, True)
        stream.write(bytearray(json.dumps({"tag": self._tag}).encode()))
        stream.close()


def refuse_writes(*writers: Java) -> None:
    """Make classes of batch writers write nothing."""
    for writer in writers:
        for name in BATCH_WRITES:
            if hasattr(writer, name):
                setattr(writer, name, _refused(f"{writer.__name__}.{name}"))


def _refused(name: str) -> Callable[..., None]:
    def refuse(*arguments: Java, **named: Java) -> None:
        raise NotReplacedError(f"the job calls {name} itself, and a drill writes nothing")

    return refuse


def main() -> None:
    """Run the file that the first argument names."""
    from pyspark.sql import DataFrameWriter, DataFrameWriterV2, SparkSession
    from pyspark.sql.streaming import DataStreamWriter  # type: ignore[attr-defined]

    sys.argv = sys.argv[1:]
    file = path_in(sys.argv[0])
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    place, tag = os.environ["STATESHIFT_CHECKPOINT"], os.environ.get("STATESHIFT_TAG", "")
    no_sink = NoSink(DataStreamWriter, place, tag)
    no_sink.install(DataStreamWriter)
    refuse_writes(DataFrameWriter, DataFrameWriterV2)
    stop = SparkSession.stop

    def stop_after_queries(session: Java) -> None:
        no_sink.wait()
        stop(session)

    SparkSession.stop = stop_after_queries  # type: ignore[assignment, method-assign]
    runpy.run_path(file, run_name="__main__")
    no_sink.wait()


if __name__ == "__main__":
    main()

"""Run a user's file in a local PySpark, and write down the queries that it would start.

Runs in any environment that has PySpark 4: it imports nothing of stateshift. REQUEST holds

    file, arguments    the user's file, and its own arguments
    main_class         of a jar; null for the one that its manifest names
    answer             where the answer goes
    scratch            an empty folder for throwaway checkpoints
    image              a folder with the logs and schemas of the checkpoint; null without one
    rehearse           null, or the query that is really started: its name and location, and `from`,
                       the folder of a fork of its checkpoint
    stub               whether no source is to be reached
    batch_writes       whether the file may also write tables that are no stream

No query starts: `DataStreamWriter.start` and `toTable` are replaced. Spark plans each query as it
would plan a first batch, on a throwaway checkpoint: it writes there the schemas and the metadata of
its operators (IncrementalExecution). Then it plans the query once more on a copy of the logs and
schemas of the checkpoint, as it would plan the next batch: the error which that raises is Spark's
own refusal. Neither opens a source or reads a row of state.

The `main` of a jar runs in the JVM of PySpark. Its first query is caught by a rule of Spark's
analyzer, which refuses the plan of the start: `main` gets an error. Spark would open the checkpoint
and the log of a file sink before that: there it finds nothing and writes nothing.

To rehearse, one query starts from the fork, and writes to Spark's sink `noop`; functions of
`foreach` and `foreachBatch` are not called. It is stopped after its first batch, or ends when there
is nothing to read.

The answer:

    spark      the version
    error      why the file did not get as far as a query; null if it did
    stubbed    sources that were replaced by empty ones
    queries    name, location, mode, sink, settings, sources, operators;
               invalid: the error by which Spark refuses the query itself
               refused: the error by which it refuses the checkpoint
    rehearsed  seconds, batch, rows, error (null if it ran); null where nothing was to start
"""

from __future__ import annotations

import base64
import json
import re
import runpy
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any as Java  # an object of the JVM, as Py4J shows it, or one of PySpark

Json = dict[str, Java]

STREAMING = "org.apache.spark.sql.execution.streaming"
LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
PARTITIONS = "spark.sql.shuffle.partitions"
TEXT_MAX = 2_000
BETWEEN_LOOKS = 0.05  # seconds
WHICH = ("name", "location")  # which query it is
# The options of a source that tell what it reads. Others may hold secrets.
SHOWN_OPTIONS = frozenset(
    (
        *("path", "topic", "subscribe", "subscribepattern", "assign", "table", "streamname"),
        *("startingoffsets", "startingversion", "startingtimestamp", "rowspersecond", "host"),
        *("port", "failondataloss"),
    )
)
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
# Spark makes one for each place of a checkpoint or of the log of a file sink. Compiled by Janino,
# which Spark has for the code that it generates.
NO_FILES = """
import org.apache.hadoop.fs.*;

public class NoFiles implements FileManager {
  private final Path place;

  public NoFiles(Path place, org.apache.hadoop.conf.Configuration settings) { this.place = place; }

  public FileManager.CancellableFSDataOutputStream createAtomic(Path file, boolean overwrites) {
    throw new IllegalStateException("a check writes nothing: " + file);
  }
  public FSDataInputStream open(Path file) throws java.io.IOException {
    throw new java.io.FileNotFoundException(file.toString());
  }
  public FileStatus[] list(Path folder, PathFilter filter) { return new FileStatus[0]; }
  public FileStatus[] list(Path folder) { return new FileStatus[0]; }
  public void mkdirs(Path folder) {}
  public boolean exists(Path file) { return false; }
  public void delete(Path file) {}
  public boolean isLocal() { return false; }
  public Path createCheckpointDirectory() { return place; }
  public void close() {}
}
"""
# Commands of Spark that write nothing, by the names of their plans.
READING = re.compile(
    "Show|Describe|Explain|List|(Set|Reset|SetCatalog|SetNamespace|AddJars|AddFiles)Command"
    "|SetCatalogAndNamespace|(Unc|C)acheTable|Refresh"
)
KAFKA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int"
)
KAFKA_HEADERS = ", headers array<struct<key: string, value: binary>>"
# The words of errors by which a source or its connector is not there, and the file not to blame.
UNREACHABLE = re.compile(
    "DATA_SOURCE_NOT_FOUND|Failed to find data source|PATH_NOT_FOUND|No FileSystem for scheme"
    "|UnsupportedFileSystemException|ClassNotFoundException|UnknownHostException|ConnectException"
    "|NoAuthWithAWSException"
)
FILES = ("json", "csv", "parquet", "orc", "text", "xml")


class Finished(BaseException):
    """The file waits for its queries: it has started all that it starts."""


class RefusedFile(Exception):
    """The file does something that a check does not do."""


class Caught:
    """A query that would have started: it has ended, and has done nothing."""

    id = runId = "00000000-0000-0000-0000-000000000000"
    isActive = False
    lastProgress = None
    recentProgress: tuple[object, ...] = ()

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.status = {"message": "caught by stateshift check", "isDataAvailable": False}

    def awaitTermination(self, timeout: object = None) -> bool:
        return True

    def __getattr__(self, name: str) -> Java:
        """Return a method that does nothing."""
        return lambda *_, **__: None


class Capture:
    """The queries of one file, and the sources that were replaced."""

    def __init__(self, request: Json) -> None:
        self.request = request
        self.scratch = Path(request["scratch"])
        self.queries: list[Json] = []
        self.stubs: dict[str, Json] = {}
        self.rehearsed: Json | None = None

    # ---- catching ---------------------------------------------------------------------------

    def install(self) -> None:
        """Replace what would start a query, write a table or reach a cluster."""
        from pyspark.sql import SparkSession
        from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2
        from pyspark.sql.streaming.query import StreamingQueryManager
        from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

        localize_sessions(SparkSession.Builder)
        self._record(DataStreamWriter)
        self._replace_sources(DataStreamReader)

        def finish(*_: object) -> None:
            raise Finished

        manager: Java = StreamingQueryManager
        manager.awaitAnyTermination = finish
        if self.request["batch_writes"]:
            return
        names = ("save", "saveAsTable", "insertInto", *FILES, "jdbc")
        for name in names:
            _forbid(DataFrameWriter, name)
        for name in ("create", "replace", "createOrReplace", "append", "overwrite"):
            _forbid(DataFrameWriterV2, name)
        _forbid(DataFrameWriterV2, "overwritePartitions")

    def _record(self, writer: Java) -> None:
        """Let a writer remember what it was asked for, and hand its query to us when it starts."""
        for method in ("outputMode", "queryName", "format"):
            _remember(writer, method)
        _remember_options(writer)

        def call(this: Java, *_: object, **__: object) -> Java:
            _asked(this)["format"] = "foreach"
            return this

        def accept(this: Java, *_: object, **__: object) -> Java:
            return this

        # The parameters of both, in their order, but for the path or the table.
        names = ("format", "outputMode", "partitionBy", "queryName")

        def start(this: Java, path: object = None, *given: Java, **values: Java) -> Caught:
            named = dict(zip(names, given, strict=False))
            return self._catch(this, {**named, "path": path, **values})

        def to_table(this: Java, tableName: object, *given: Java, **values: Java) -> Caught:
            return start(this, None, *given, **{"table": tableName, **values})

        self.original_start, self.original_trigger = writer.start, writer.trigger
        writer.start, writer.toTable = start, to_table
        writer.trigger, writer.foreachBatch, writer.foreach = accept, call, call

    def _catch(self, writer: Java, given: Json) -> Caught:
        asked, frame = {**_asked(writer)}, writer._df
        given = {key: value for key, value in given.items() if value is not None}
        asked.update(given)
        options = {**asked.get("options", {})}
        options.update({key.lower(): str(value) for key, value in given.items()})
        location = options.get("checkpointlocation")
        if location is None:
            root = frame.sparkSession.conf.get("spark.sql.streaming.checkpointLocation", None)
            if root is not None and asked.get("queryName"):
                location = f"{root.rstrip('/')}/{asked['queryName']}"
        query: Json = {
            "name": asked.get("queryName"),
            "location": location,
            "mode": str(asked.get("outputMode", "append")).lower(),
            "sink": {
                "kind": asked.get("format") or ("table" if "table" in given else "parquet"),
                "options": _shown(options),
            },
        }
        self.accept(query, frame, writer, asked)
        return Caught(query["name"])

    def accept(self, query: Json, frame: Java, writer: Java, asked: Json) -> None:
        """Plan a query that was caught; or start it, if it is the one to rehearse."""
        rehearsal = self.request["rehearse"]
        if rehearsal is None:
            place = self.scratch / f"query-{len(self.queries)}"
            query |= Planned(frame, str(query["mode"]), place, self).facts()
        elif self.rehearsed is None and all(query[key] == rehearsal[key] for key in WHICH):
            self.rehearsed = self._rehearse(writer, asked, rehearsal["from"])
        self.queries.append(query)

    def _rehearse(self, writer: Java, asked: Json, fork: str) -> Json:
        """Start a query from the fork, and stop it after a batch."""
        for method in ("outputMode", "queryName"):
            if method in asked:
                getattr(writer, method)(asked[method])
        writer.format("noop").option("checkpointLocation", fork)
        self.original_trigger(writer, availableNow=True)
        begun = time.monotonic()
        progress, error = None, None
        try:
            query = self.original_start(writer)
            while query.isActive and not query.recentProgress:
                time.sleep(BETWEEN_LOOKS)
            query.stop()
            progress, error = query.lastProgress, query.exception()
        except Exception as refusal:
            error = refusal
        return {
            "seconds": round(time.monotonic() - begun, 1),
            "batch": None if progress is None else progress["batchId"],
            "rows": None if progress is None else progress["numInputRows"],
            "error": None if error is None else _reason(error),
        }

    # ---- sources ----------------------------------------------------------------------------

    def _replace_sources(self, reader: Java) -> None:
        """Let sources that cannot be reached be empty ones of the same columns."""
        _remember(reader, "format")
        _remember(reader, "schema")
        _remember_options(reader)
        original_load = reader.load

        def load(
            this: Java, path: Java = None, format: Java = None, schema: Java = None, **values: Java
        ) -> Java:
            kind = str(format or _asked(this).get("format") or "parquet").lower()
            given = {**values, **({} if path is None else {"path": path})}

            def reach() -> Java:
                return original_load(this, path, format, schema, **values)

            return self._opened(this, kind, schema, given, reach)

        def load_files(kind: str) -> Java:
            original = getattr(reader, kind)

            def read(this: Java, path: Java, *more: Java, **values: Java) -> Java:
                schema = values.get("schema")
                if more and kind in ("json", "csv"):
                    schema = more[0]

                def reach() -> Java:
                    return original(this, path, *more, **values)

                return self._opened(this, kind, schema, {"path": path}, reach)

            return read

        reader.load = load
        for kind in FILES:
            if hasattr(reader, kind):
                setattr(reader, kind, load_files(kind))

    def _opened(self, reader: Java, kind: str, schema: Java, given: Json, reach: Java) -> Java:
        """Return a reader's stream; an empty one if it shall not be reached, or cannot be."""
        options = {**_asked(reader).get("options", {})}
        options.update({key.lower(): _text(value) for key, value in given.items()})
        columns = columns_of(kind, schema or _asked(reader).get("schema"), options)
        if columns is not None and self.request["stub"]:
            return self._stub(reader, kind, columns, options)
        try:
            return reach()
        except Exception as error:
            is_needed = columns is None or self.request["rehearse"] is not None
            if is_needed or not UNREACHABLE.search(str(error)):
                raise
            return self._stub(reader, kind, columns, options, _first_line(error))

    def _stub(
        self,
        reader: Java,
        kind: str,
        columns: Java,
        options: dict[str, str],
        why: str | None = None,
    ) -> Java:
        """Return a stream of no rows with these columns: of a folder without files."""
        folder = self.scratch / f"stub-{len(self.stubs)}"
        folder.mkdir(parents=True)
        shown = _shown(options)
        self.stubs[str(folder)] = {"kind": kind, "options": shown, "reason": why}
        fresh = type(reader)(reader._spark)
        schema: Java = columns
        if not isinstance(columns, str):
            schema = reader._spark._jsparkSession.parseDataType(columns.json())
        return fresh._df(fresh._jreader.schema(schema).json(str(folder)))


def localize_sessions(builder: Java) -> None:
    """Let every session be a small local one, whatever master the file names."""
    original = builder.getOrCreate

    def get_or_create(this: Java) -> Java:
        options = this._options
        if "spark.remote" in options:
            raise RefusedFile("the file uses Spark Connect, whose plans are not in this process")
        options.update({"spark.master": "local[1]", "spark.ui.enabled": "false"})
        return original(this)

    builder.getOrCreate = get_or_create


class Planned:
    """One query as Spark plans it."""

    def __init__(self, frame: Java, mode: str, place: Path, capture: Capture) -> None:
        self.frame, self.mode, self.place, self.capture = frame, mode, place, capture
        self.jvm: Java = frame.sparkSession._jvm
        # A query has a session of its own, without adaptive plans (StreamExecution).
        self.session: Java = frame.sparkSession._jsparkSession.cloneSession()
        for key in ("spark.sql.adaptive.enabled", "spark.sql.cbo.enabled"):
            self.session.conf().set(key, "false")

    def facts(self) -> Json:
        """Return the parts of the query, and the errors of Spark."""
        logical = self.frame._jdf.queryExecution().analyzed()
        if not logical.isStreaming():
            raise RefusedFile("a query has no streaming source")
        own = self._settings()
        facts: Json = {"settings": own["conf"], "sources": self._sources(logical)}
        facts.update(operators=[], invalid=None, refused=None)
        state = self.place / "state"
        try:
            checker = self.jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
            checker.checkForStreaming(logical, self._output_mode())
            settings = self._pinned(own)
            offsets = self.place / "offsets" / "0"  # as a batch writes it before it is planned
            offsets.parent.mkdir(parents=True)
            offsets.touch()
            plan = self._plan(logical, state, 0, settings)
        except Exception as error:
            facts["invalid"] = _reason(error)
            return facts
        facts["operators"] = self._operators(plan, state)
        if self.capture.request["image"] is not None:
            facts["refused"] = self._refusal(logical, settings)
        return facts

    def _pinned(self, own: Json) -> Json:
        """Return the settings as a start from the checkpoint has them; the session has them, too.

        Those of its offset log win; one that it does not have is as it was before Spark knew it.
        """
        from py4j.protocol import Py4JError

        if self.capture.request["image"] is None:
            return own
        _, line = _newest_offsets(Path(self.capture.request["image"]))
        metadata = _module(self._class("OffsetSeqMetadata$", "checkpointing"))
        try:
            metadata.setSessionConf(metadata.apply(line), self.session.sessionState().conf())
        except Py4JError:  # until 4.0 it takes the session's other face
            metadata.setSessionConf(metadata.apply(line), self.session.conf())
        return self._settings()

    def _refusal(self, logical: Java, settings: Json) -> dict[str, str] | None:
        """Return the error by which Spark refuses to plan the next batch; None if it plans it."""
        copy = self.place / "image"
        shutil.copytree(self.capture.request["image"], copy)
        newest, _ = _newest_offsets(copy)
        shutil.copy(copy / "offsets" / str(newest), copy / "offsets" / str(newest + 1))
        try:
            self._plan(logical, copy / "state", newest + 1, settings)
        except Exception as error:
            return _reason(error)
        return None

    def _settings(self) -> Json:
        """Return the settings that Spark keeps in the offset log, with this session's values."""
        metadata = _module(self._class("OffsetSeqMetadata$", "checkpointing"))
        settings = json.loads(metadata.apply(0, 0, self.session.conf()).json())
        settings["conf"][PARTITIONS] = self.session.conf().get(PARTITIONS)
        return dict(settings)

    def _output_mode(self) -> Java:
        modes = self.jvm.org.apache.spark.sql.streaming.OutputMode
        names = {"append": "Append", "update": "Update", "complete": "Complete"}
        return getattr(modes, names[self.mode])()

    def _plan(self, logical: Java, state: Path, batch: int, settings: Json) -> Java:
        execution = self._class("IncrementalExecution", "runtime")
        propagator = _module(self._class("WatermarkPropagator$", "runtime")).noop()
        metadata = _module(self._class("OffsetSeqMetadata$", "checkpointing"))
        (constructor,) = execution.getConstructors()
        uuid = self.jvm.java.util.UUID
        none = self.jvm.scala.Option.empty()
        offsets = metadata.apply(json.dumps(settings))
        arguments = [self.session, logical, self._output_mode(), str(state), uuid.randomUUID()]
        arguments += [uuid.randomUUID(), batch, none, offsets, propagator, True]
        methods = {method.getName(): method for method in execution.getMethods()}
        gateway = self.frame.sparkSession.sparkContext._gateway
        for number in range(len(arguments) + 1, constructor.getParameterCount() + 1):
            default = methods[f"$lessinit$greater$default${number}"]
            arguments.append(default.invoke(None, gateway.new_array(self.jvm.java.lang.Object, 0)))
        array = gateway.new_array(self.jvm.java.lang.Object, len(arguments))
        for number, argument in enumerate(arguments):
            array[number] = argument
        return constructor.newInstance(array).executedPlan()

    def _class(self, name: str, package: str) -> Java:
        return streaming_class(self.jvm, name, package)

    def _sources(self, logical: Java) -> list[Json]:
        """Return the sources in the order of Spark's offset log; equal relations are one source."""
        relations: list[Java] = []
        for node in _nodes(logical):
            is_source = node.nodeName() in ("StreamingRelation", "StreamingRelationV2")
            if is_source and not any(node.equals(other) for other in relations):
                relations.append(node)
        sources = []
        for relation in relations:
            if relation.nodeName() == "StreamingRelation":
                kind = relation.dataSource().className()
                options = _map(relation.dataSource().options())
            else:
                kind = relation.sourceName()
                options = _map(relation.extraOptions().asCaseSensitiveMap())
            path = options.get("path", "")
            own = {"kind": kind, "options": _shown(options)}
            sources.append(self.capture.stubs.get(path, own))
        return sources

    def _operators(self, plan: Java, state: Path) -> list[Json]:
        writer = self._class("StateStoreWriter", "operators.stateful")
        nodes = {}
        for node in _nodes(plan):
            if writer.isInstance(node) and node.stateInfo().isDefined():
                nodes[str(node.stateInfo().get().operatorId())] = node
        operators = []
        for number, node in sorted(nodes.items(), key=lambda pair: int(pair[0])):
            files = {}
            for file in sorted((state / number).rglob("*")):
                if file.is_file() and not file.name.endswith(".crc"):
                    path = str(file.relative_to(state.parent))
                    files[path] = base64.b64encode(file.read_bytes()).decode()
            operators.append({"id": number, "files": files, **_described(node, writer)})
        return operators


class JarMain:
    """The `main` of a jar, run until it starts a query."""

    def __init__(self, capture: Capture) -> None:
        from pyspark import SparkConf, SparkContext

        self.capture = capture
        self.is_off = False  # while we plan or rehearse ourselves
        self.refusal: Exception | None = None
        settings = {"spark.ui.enabled": "false", FILE_MANAGER: "NoFiles"}
        conf = SparkConf().setMaster("local[1]").setAll(list(settings.items()))
        self.context: Java = SparkContext(conf=conf)
        self.jvm: Java = self.context._jvm

    def run(self) -> None:
        """Run it in a session whose analyzer shows us each plan."""
        from pyspark import java_gateway

        start_callbacks: Java = java_gateway.ensure_callback_server_started
        start_callbacks(self.context._gateway)
        self.jvm.java.lang.System.setProperty("java.io.tmpdir", str(self.capture.scratch))
        # Let `main` and its threads find the class that opens no file.
        kind = streaming_class(self.jvm, "CheckpointFileManager", "checkpointing")
        thread = self.jvm.java.lang.Thread.currentThread()
        compiler = self.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(thread.getContextClassLoader())
        compiler.cook(NO_FILES.replace("FileManager", kind.getName()))
        thread.setContextClassLoader(compiler.getClassLoader())

        def rule_of(session: Java) -> Function:
            return Function(lambda plan: self._look(session, plan))

        def extend(extensions: Java) -> None:
            extensions.injectCheckRule(Function(rule_of))

        builder = self.jvm.org.apache.spark.sql.SparkSession.builder()
        builder.withExtensions(Function(extend)).getOrCreate()
        main_class = self.capture.request["main_class"]
        manifest = self.jvm.java.util.jar.JarFile(self.capture.request["file"]).getManifest()
        if main_class is None and manifest is not None:
            main_class = manifest.getMainAttributes().getValue("Main-Class")
        if main_class is None:
            raise RefusedFile("the jar's manifest names no main class: name it by --class")
        failure = self._failure_of(str(main_class), self.capture.request["arguments"])
        failure = self.refusal or failure
        if failure is not None and not self.capture.queries:
            raise failure

    def _failure_of(self, main_class: str, words: list[str]) -> Exception | None:
        """Call the `main` of a class; return the error by which it ends, if it does."""
        new_array = self.context._gateway.new_array
        given = new_array(self.jvm.java.lang.String, len(words))
        for number, word in enumerate(words):
            given[number] = word
        kinds = new_array(self.jvm.java.lang.Class, 1)
        kinds[0] = given.getClass()
        values = new_array(self.jvm.java.lang.Object, 1)
        values[0] = given
        load = self.jvm.org.apache.spark.util.Utils.classForName
        try:
            load(main_class, True, False).getMethod("main", kinds).invoke(None, values)
        except Exception as error:
            thrown: Java = getattr(error, "java_exception", None)
            if thrown is None:
                return RefusedFile(f"its JVM has ended: {_first_line(error)}")
            cause = thrown.getCause() or thrown
            return RefusedFile(str(cause.toString()).split("\n")[0])
        return None

    def _look(self, session: Java, plan: Java) -> None:
        """Refuse the plan of a start, once it is caught, and plans that write."""
        if self.is_off:
            return
        name = plan.getClass().getSimpleName()
        self.is_off = True
        try:
            if name == "WriteToStream":
                self._catch(session, plan)
                raise RefusedFile("stateshift check has caught the query: it does not start")
            if self._may_write(plan) and not self.capture.request["batch_writes"]:
                raise RefusedFile(
                    f"the file runs {name}, and may write: --allow-batch-writes lets it"
                )
        except Exception as error:
            if self.refusal is None and not self.capture.queries:
                self.refusal = error
            raise
        finally:
            self.is_off = False

    def _may_write(self, plan: Java) -> bool:
        """Whether a plan is a command, and none that only reads or makes a temporary view."""
        load = self.jvm.org.apache.spark.util.Utils.classForName
        name = plan.getClass().getSimpleName()
        if name == "CreateViewCommand":
            return bool(plan.viewType().toString() == "PersistedView")
        if name == "CreateFunctionCommand":
            return not plan.isTemp()
        is_command = load(f"{LOGICAL}.Command", True, False).isInstance(plan)
        return bool(is_command) and not READING.match(name)

    def _catch(self, session: Java, plan: Java) -> None:
        from pyspark.sql import DataFrame, SparkSession

        rows = self.jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan.inputQuery())
        frame: Java = DataFrame(rows, SparkSession(self.context, session))
        mode, sink = plan.outputMode().toString(), plan.sink()
        writer: Java = frame.writeStream.outputMode(mode)
        if plan.name() is not None:
            writer.queryName(plan.name())
        kind = re.sub(r"(Writer|Batch)?(Sink|Table)\$?$", "", sink.getClass().getSimpleName())
        file_sink = re.fullmatch(r"FileSink\[(.*)\]", sink.toString())
        query: Json = {
            "name": plan.name(),
            "location": plan.resolvedCheckpointLocation(),
            "mode": mode.lower(),
            "sink": {
                "kind": "parquet" if file_sink else kind.lower(),
                "options": {"path": file_sink[1]} if file_sink else {},
            },
        }
        frame.sparkSession.conf.unset(FILE_MANAGER)
        try:
            self.capture.accept(query, frame, writer, _asked(writer))
        finally:
            frame.sparkSession.conf.set(FILE_MANAGER, "NoFiles")


class Function:
    """A function of one argument, as Scala calls it."""

    def __init__(self, call: Callable[..., object]) -> None:
        self.call = call

    def apply(self, value: object) -> object:
        """Return the result for a value."""
        return self.call(value)

    class Java:
        """The interfaces that Py4J has it implement."""

        implements = ("scala.Function1",)


def _newest_offsets(image: Path) -> tuple[int, str]:
    """Return the newest batch of an offset log, and the line of its metadata."""
    newest = max(int(file.name) for file in (image / "offsets").iterdir())
    lines = (image / "offsets" / str(newest)).read_text().split("\n")
    return newest, lines[1]


# ---- plans ----------------------------------------------------------------------------------


def _described(operator: Java, writer: Java) -> Json:
    """Return the lines of an operator's plan, down to the stateful ones and the sources below."""
    lines: list[str] = []
    windows: list[dict[str, int]] = []
    gaps: list[str] = []

    def visit(node: Java) -> None:
        lines.append(_line(node))
        for expression in _seq(node.expressions()):
            _find_windows(expression, windows, gaps)
        for child in _seq(node.children()):
            if not writer.isInstance(child):
                visit(child)

    visit(operator)
    wrappers = ("WholeStageCodegen", "InputAdapter", "Exchange", "Sort ", "StateStoreRestore")
    kept = [line for line in lines if not line.startswith(wrappers)]
    return {"code": kept, "windows": windows, "gaps": sorted(set(gaps))}


def _line(node: Java) -> str:
    text = node.simpleString(1000)
    text = re.sub(r"state info \[.*?\]( stateStoreCkptIds = [^,]*)?,?", "", text)
    text = re.sub(r"#\d+L?", "", text)
    text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b,?", "", text)
    return re.sub(r"\s+", " ", text).strip()[:TEXT_MAX]


def _find_windows(expression: Java, windows: list[dict[str, int]], gaps: list[str]) -> None:
    """Find the structs of start and end that `window` and `session_window` become."""
    name = expression.getClass().getSimpleName()
    parts = _seq(expression.children())
    if name == "CreateNamedStruct" and len(parts) == 4:
        first, start, second, end = parts
        names = (str(first), str(second))
        if names == ("start", "end"):
            _window_in(start, end, windows, gaps)
            return
    for child in parts:
        _find_windows(child, windows, gaps)


def _window_in(start: Java, end: Java, windows: list[dict[str, int]], gaps: list[str]) -> None:
    length = end
    while length.getClass().getSimpleName() in ("KnownNullable", "PreciseTimestampConversion"):
        length = length.children().apply(0)
    if length.getClass().getSimpleName() == "Add":
        found = {"length_us": int(str(length.right())), "slide_us": 0, "start_us": 0}
        for node in _expressions(start):
            if node.getClass().getSimpleName() == "Remainder":
                slide, begin = node.right(), node.left().right()
                found["slide_us"] = int(str(slide))
                found["start_us"] = int(str(begin))
        if found not in windows:
            windows.append(found)
        return
    text = str(end)
    text = re.sub(r"#\d+L?(-T\d+ms)?", "", text)
    gap = re.search(r" \+ ([^,()]+)", text)
    gaps.append(gap[1] if gap else text)


def _expressions(expression: Java) -> list[Java]:
    found = [expression]
    for child in _seq(expression.children()):
        found += _expressions(child)
    return found


def _nodes(plan: Java) -> list[Java]:
    found = [plan]
    for child in _seq(plan.children()):
        found += _nodes(child)
    return found


# ---- Scala ----------------------------------------------------------------------------------


def _seq(sequence: Java) -> Java:
    return [sequence.apply(number) for number in range(sequence.size())]


def _map(values: Java) -> dict[str, str]:
    from py4j.java_collections import JavaMap

    if isinstance(values, JavaMap):
        return {str(key): str(value) for key, value in values.items()}
    pairs = values.toSeq()
    return {str(pair._1()): str(pair._2()) for pair in _seq(pairs)}


def streaming_class(jvm: Java, name: str, package: str) -> Java:
    """Return a class of Spark, which 4.1 has moved into a package of its own."""
    load = jvm.org.apache.spark.util.Utils.classForName
    try:
        return load(f"{STREAMING}.{package}.{name}", True, False)
    except Exception:
        return load(f"{STREAMING}.{name}", True, False)


def _module(kind: Java) -> Java:
    return kind.getField("MODULE$").get(None)


# ---- small ----------------------------------------------------------------------------------


def _asked(owner: Java) -> Json:
    asked: Json = owner.__dict__.setdefault("_stateshift", {})
    return asked


def _remember(kind: Java, method: str) -> None:
    original = getattr(kind, method)

    def remember(this: Java, value: Java) -> Java:
        _asked(this)[method] = value
        return original(this, value)

    setattr(kind, method, remember)


def _remember_options(kind: Java) -> None:
    original_option, original_options = kind.option, kind.options

    def option(this: Java, key: str, value: object) -> Java:
        _asked(this).setdefault("options", {})[key.lower()] = _text(value)
        return original_option(this, key, value)

    def options(this: Java, **values: object) -> Java:
        own = {key.lower(): _text(value) for key, value in values.items()}
        _asked(this).setdefault("options", {}).update(own)
        return original_options(this, **values)

    kind.option, kind.options = option, options


def _forbid(kind: Java, method: str) -> None:
    if not hasattr(kind, method):
        return

    def refuse(*_: object, **__: object) -> None:
        raise RefusedFile(
            f"the file writes a table that is no stream ({kind.__name__}.{method}): a check runs it"
        )

    setattr(kind, method, refuse)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(options: dict[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in options.items() if key.lower() in SHOWN_OPTIONS}


def columns_of(kind: str, schema: Java, options: dict[str, str]) -> Java:
    """Return the columns of a source, if nobody has to ask it for them."""
    if kind != "kafka":
        return "value string" if kind == "text" and schema is None else schema
    has_headers = options.get("includeheaders") == "true"
    return f"{KAFKA}{KAFKA_HEADERS if has_headers else ''}"


def _reason(error: BaseException) -> dict[str, str]:
    """Return the class and the text of an error of Spark; the innermost of nested ones."""
    text = str(error)
    found = re.findall(
        r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]\s*([^\n]*(?:\n(?!\s*at |===|JVM)[^\n]*)*)", text
    )
    known = [pair for pair in found if pair[0] != "STREAM_FAILED"]
    if known:
        name, message = known[-1]
        return {"class": name, "message": message.strip()[:TEXT_MAX]}
    return {"class": type(error).__name__, "message": _first_line(error)}


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:TEXT_MAX]


def run_user_file(file: Path) -> None:
    """Run a Python file, or the cells of a notebook without their magics, as the main program."""
    if file.suffix != ".ipynb":
        runpy.run_path(str(file), run_name="__main__")
        return
    from pyspark.sql import SparkSession

    lines: list[str] = []
    for cell in json.loads(file.read_text())["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"]).splitlines()
            has_other_language = bool(code) and code[0].startswith("%%")
            lines += (
                [] if has_other_language else [re.sub(r"^\s*[%!].*", "", each) for each in code]
            )
    names = {"__name__": "__main__", "spark": SparkSession.builder.getOrCreate()}
    exec(compile("\n".join(lines), str(file), "exec"), names)


def run(request: Json) -> Json:
    """Run the file; return the answer."""
    import pyspark

    answer: Json = {"spark": pyspark.__version__, "error": None}
    capture = Capture(request)
    if int(pyspark.__version__.split(".")[0]) >= 4:
        capture.install()
        file = Path(request["file"])
        sys.argv = [str(file), *request["arguments"]]
        try:
            if file.suffix == ".jar":
                JarMain(capture).run()
            else:
                run_user_file(file)
        except Finished:
            pass
        except SystemExit as error:
            if error.code not in (None, 0) and not capture.queries:
                answer["error"] = f"it ended with exit code {error.code}"
        except BaseException as error:
            traceback.print_exc()
            answer["error"] = f"{type(error).__name__}: {_first_line(error)}"
    caught = {"queries": capture.queries, "rehearsed": capture.rehearsed}
    return {**answer, "stubbed": list(capture.stubs.values()), **caught}

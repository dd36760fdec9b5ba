"""Plan the job of a jar or of a file of SQL by Flink itself, and write down its operators.

REQUEST holds

    file, arguments    the user's file, and the arguments of a jar
    main_class         of a jar; null for the one that its manifest names
    parallelism        as `flink run -p` has it; null for Flink's configuration
    jars, conf         the class path of a distribution, and the folder of its configuration or null
    rehearse           null, or the job that is really restored: its name, `from`, the folder of an
                       image, and the `backend` where neither the code nor `conf` names one
    answer, scratch    where the answer goes; an empty folder for what Flink writes

No cluster is there, and no job starts. Flink runs in a JVM of its own, through Py4J. A jar's `main`
runs as in `flink info` (PackagedProgram, StreamPlanEnvironment): what it would execute first ends
it, and is its job. Statements of SQL are executed one by one, and each that would start a job is
planned only. The ids of operators are those that Flink's own StreamGraphHasherV2 gives.

To rehearse, a MiniCluster in the same JVM restores the keyed operators of a job, each with one
subtask. It opens them, and compares the types of their state. All other operators, sources and
sinks among them, are not there: silent sources take the place of those that a keyed one reads.

The answer:

    flink      the version
    error      why the file did not get as far as a job; null if it did
    rehearsed  seconds, operators (their names), error (null if they were restored), is_short (of
               memory), is_of_state (Flink refuses the state), opened: the names of the keyed states
               that were asked for, by id; null where nothing was to restore
    jobs       name, backend (null: neither code nor configuration names it), operators:
               id, user_id (setUidHash), uid, name, source
               numbered     whether the planner of SQL made the uid with a number that another run
                            gives to another node: no file keeps the plan
               plain_id     the id it had without its uid, where that is known
               key          the serializer of its keys, as a savepoint has it (base64); null of an
                            operator that is not keyed
               code         of a keyed one that SQL's planner described: its expressions, and those
                            of the operators without keys that it reads from
               vertex, parallelism, max_parallelism (null: not set)
"""

from __future__ import annotations

import base64
import os
import re
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any as Java  # an object of the JVM, as Py4J shows it

from stateshift.engines.flink.jvm import TEXT_MAX, causes, launch

Json = dict[str, Java]

# A comment, a text, a name, or anything else, letter by letter.
TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|`[^`]*`|\w+|.", re.DOTALL)
PLAN = re.compile(
    r"(COMPILE|EXECUTE|COMPILE\s+AND\s+EXECUTE)\s+PLAN\s+'([^']*)'(\s+IF\s+NOT\s+EXISTS)?"
    r"(?:\s+FOR\s+(.*))?",
    re.IGNORECASE | re.DOTALL,
)
SETTING = re.compile(r"SET\s+'((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)'", re.IGNORECASE)
NUMBERED = re.compile(r"\d+_[a-z]")  # as ExecNodeBase makes uids
# Settings of a job by which it would write elsewhere.
WRITES = (
    *("execution.checkpointing.", "state.checkpoint", "state.savepoints.", "dstl."),
    *("state.changelog.", "state.backend.changelog."),
)
STATE_ERRORS = ("StateMigrationException", "BackendBuildingException")
# Errors of a backend that say nothing about the state.
OTHER_ERRORS = (
    *("No space left", "UnsatisfiedLinkError", "NoClassDefFoundError", "ClassNotFoundException"),
    *("Could not load the native", "OutOfMemoryError", "Permission denied"),
)
BETWEEN_LOOKS = 0.1  # seconds
SHOWING = ("SHOW", "DESCRIBE", "DESC", "EXPLAIN", "SELECT", "WITH", "VALUES", "QUIT", "EXIT")


class RefusedFile(Exception):
    """The file does something that a check does not understand."""


class Flink:
    """A Flink in a JVM, and the jobs that were caught in it."""

    def __init__(self, gateway: Java, request: Json) -> None:
        self.gateway, self.request = gateway, request
        self.flink = gateway.jvm.org.apache.flink
        loading = self.flink.configuration.GlobalConfiguration
        conf = request["conf"]
        plain = self.flink.configuration.Configuration
        self.configuration = loading.loadConfiguration(conf) if conf else plain()
        self.jobs: list[Json] = []
        self.jars: Java = []
        self.rehearsed: Json | None = None
        self.opened: dict[str, list[str]] = {}

    def version(self) -> str:
        return str(self.flink.runtime.util.EnvironmentInformation.getVersion())

    def array(self, kind: Java, values: list[Java]) -> Java:
        array = self.gateway.new_array(kind, len(values))
        for number, value in enumerate(values):
            array[number] = value
        return array

    # ---- jars -------------------------------------------------------------------------------

    def plan_jar(self) -> None:
        """Run the jar's main up to its first job."""
        program = self.flink.client.program.PackagedProgram.newBuilder()
        program.setJarFile(self.gateway.jvm.java.io.File(self.request["file"]))
        if self.request["main_class"] is not None:
            program.setEntryPointClassName(self.request["main_class"])
        program.setArguments(self.array(self.gateway.jvm.String, self.request["arguments"]))
        program.setConfiguration(self.configuration)
        planning = self.flink.client.program.PackagedProgramUtils
        parallelism = self.request["parallelism"] or -1
        built = program.build()
        graph = planning.getPipelineFromProgram(built, self.configuration, parallelism, False)
        self.gateway.jvm.Thread.currentThread().setContextClassLoader(
            built.getUserCodeClassLoader()
        )
        self.jars = built.getJobJarAndDependencies()
        self.catch(graph)

    # ---- SQL --------------------------------------------------------------------------------

    def plan_sql(self) -> None:
        """Execute the statements of a file of SQL, but for those that would start a job."""
        loader = self.gateway.jvm.Thread.currentThread().getContextClassLoader()
        planning = self.flink.client.program.StreamPlanEnvironment
        parallelism = self.request["parallelism"] or -1
        environment = planning(self.configuration, loader, parallelism)
        environment.setAsContext()
        settings = self.flink.table.api.EnvironmentSettings.newInstance().inStreamingMode()
        tables = self.flink.table.api.TableEnvironment.create(
            settings.withConfiguration(self.configuration).build()
        )
        plans: dict[str, Java] = {}
        for statement in statements(Path(self.request["file"]).read_text()):
            self.execute(statement, environment, tables, plans)

    def execute(self, statement: str, environment: Java, tables: Java, plans: Json) -> None:
        """Execute one statement; what would start a job is caught."""
        setting, plan = SETTING.fullmatch(statement), PLAN.fullmatch(statement)
        first = statement.split(None, 1)[0].upper()
        if setting is not None:
            key, value = (text.replace("''", "'") for text in setting.groups())
            tables.getConfig().set(key, value)
        elif plan is not None:
            self.execute_plan(plan, environment, tables, plans)
        elif first in SHOWING:
            return
        elif first in ("SET", "RESET"):
            raise RefusedFile(f"{statement} is not understood: SET 'key' = 'value' is")
        elif first in ("INSERT", "EXECUTE", "DELETE", "UPDATE"):
            self.catch_start(environment, lambda: tables.executeSql(statement))
        else:
            tables.executeSql(statement)

    def execute_plan(
        self, words: re.Match[str], environment: Java, tables: Java, plans: Json
    ) -> None:
        """Compile a plan in memory, or catch the job of one. No file is written.

        As in Flink, a plan that is kept in a file counts, unless `table.plan.force-recompile`.
        """
        action, path, is_careful, query = words.groups()
        path = path.removeprefix("file://")
        if "://" in path:
            raise RefusedFile(f"the plan {path} is not on this machine")
        settings = tables.getConfig().getConfiguration()
        is_forced = settings.getString("table.plan.force-recompile", "false") == "true"
        is_kept = os.path.exists(path) and (query is None or not is_forced)
        if is_kept and action.upper() == "COMPILE" and not is_careful:
            raise RefusedFile(f"{path} is there: Flink compiles no other plan into it")
        if query is not None and not is_kept:
            is_set = query.upper().startswith("STATEMENT SET")
            plans[path] = tables.compilePlanSql(f"EXECUTE {query}" if is_set else query)
        if action.upper() == "COMPILE":
            return
        if path not in plans:
            plans[path] = tables.loadPlan(self.flink.table.api.PlanReference.fromFile(path))
        self.catch_start(environment, lambda: plans[path].execute(), is_kept)

    def catch_start(self, environment: Java, start: Java, is_kept: bool = False) -> None:
        """Do what would start a job, and catch it."""
        from py4j.protocol import Py4JJavaError

        before = environment.getPipeline()
        try:
            start()
        except Py4JJavaError:
            if environment.getPipeline() == before:
                raise
        if environment.getPipeline() == before:
            raise RefusedFile("a statement that writes did not become a job of this Flink")
        self.catch(environment.getPipeline(), is_kept)

    # ---- graphs -----------------------------------------------------------------------------

    def catch(self, graph: Java, is_kept: bool = False) -> None:
        """Write down a job's operators. `is_kept` says that a file has its plan."""
        hasher = self.flink.streaming.api.graph.StreamGraphHasherV2()
        name = str(graph.getJobName())
        listed = self.gateway.jvm.java.util.ArrayList(graph.getStreamNodes())
        nodes = sorted(listed, key=lambda node: int(node.getId()))
        ids = hashes(hasher, graph)
        vertices = {}
        for number, vertex in enumerate(
            graph.getJobGraph().getVerticesSortedTopologicallyFromSources()
        ):
            facts = {
                "vertex": number,
                "parallelism": vertex.getParallelism(),
                "max_parallelism": vertex.getMaxParallelism()
                if vertex.getMaxParallelism() > 0
                else None,
            }
            for pair in vertex.getOperatorIDs():
                vertices[str(pair.getGeneratedOperatorID())] = facts
        operators = []
        for node in nodes:
            own = ids[node.getId()]
            facts = {
                "id": own,
                "user_id": node.getUserHash(),
                "uid": node.getTransformationUID(),
                "numbered": not is_kept
                and NUMBERED.match(node.getTransformationUID() or "") is not None,
                "name": str(node.getOperatorName()),
                "source": node.getInEdges().isEmpty(),
                "key": self.snapshot(node.getStateKeySerializer()),
                "code": descriptions_of(graph, node) if node.getStateKeySerializer() else [],
            }
            known = {"plain_id": None, "node": node.getId()}
            operators.append({**facts, **vertices[own], **known})
        self.jobs.append({"name": name, "backend": self.backend(graph), "operators": operators})
        rehearsal = self.request["rehearse"]
        if rehearsal is not None and rehearsal["name"] == name:
            self.rehearsed = self.rehearse(graph, nodes, ids)
            return
        plain = self.plain_hashes(hasher, graph, nodes)
        for operator in operators:
            operator["plain_id"] = plain.get(operator.pop("node"))

    def backend(self, graph: Java) -> str | None:
        """Return the state backend that the code or the configuration names."""
        chosen = graph.getStateBackend()
        if chosen is not None:
            return str(chosen.getClass().getSimpleName())
        for settings in (graph.getJobConfiguration().toMap(), self.configuration.toMap()):
            for key in ("state.backend.type", "state.backend"):
                if key in settings:
                    return str(settings[key])
        return None

    def plain_hashes(self, hasher: Java, graph: Java, nodes: list[Java]) -> dict[int, str]:
        """Return the ids that the operators had without uids; the graph has none afterwards."""
        string = self.gateway.jvm.Class.forName("java.lang.String")
        kind = nodes[0].getClass()
        types = self.array(self.gateway.jvm.Class, [string])
        clear = kind.getDeclaredMethod("setTransformationUID", types)
        clear.setAccessible(True)
        nothing = self.array(self.gateway.jvm.Object, [None])
        for node in nodes:
            clear.invoke(node, nothing)
        try:
            return hashes(hasher, graph)
        except Exception:  # Flink makes no ids where the job forbids it
            return {}

    # ---- rehearsing -------------------------------------------------------------------------

    def rehearse(self, graph: Java, nodes: list[Java], ids: dict[int, str]) -> Json:
        """Restore the keyed operators of a job from an image, and stop once they are open."""
        begun = time.monotonic()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            names = self.keep_keyed(graph, nodes, ids, silent.getsockname()[1])
            error = self.restore(graph) if names else None
        text = error or ""
        is_refused = any(name in text for name in STATE_ERRORS)
        return {
            "seconds": round(time.monotonic() - begun, 1),
            "operators": names,
            "opened": self.opened,
            "error": error and causes(error),
            "is_short": "OutOfMemoryError" in (error or ""),
            "is_of_state": is_refused and not any(name in text for name in OTHER_ERRORS),
        }

    def keep_keyed(
        self, graph: Java, nodes: list[Java], ids: dict[int, str], port: int
    ) -> list[str]:
        """Leave the keyed operators of a graph, and silent sources for what they read."""
        keyed = [node for node in nodes if node.getStateKeySerializer() is not None]
        for node in nodes:
            node.setParallelism(1)
            node.setSlotSharingGroup("default")
            if node in keyed:
                node.setUserHash(node.getUserHash() or ids[node.getId()])
                continue
            for edge in list(node.getInEdges()):
                graph.getStreamNode(edge.getSourceId()).getOutEdges().remove(edge)
            self.field(node, "inEdges").set(node, self.gateway.jvm.java.util.ArrayList())
        graph.getSourceIDs().clear()
        graph.getSinkIDs().clear()
        for node in nodes:
            if node in keyed:
                continue
            if node.getOutEdges().isEmpty():
                self.field(graph, "streamNodes").get(graph).remove(node.getId())
            else:
                self.silence(node, port)
                graph.getSourceIDs().add(node.getId())
        return [str(node.getOperatorName()) for node in keyed]

    def silence(self, node: Java, port: int) -> None:
        """Make a source of a node that waits for a line from a port, and never gets one."""
        streaming = self.flink.streaming
        functions = streaming.api.functions.source
        try:
            read = functions.SocketTextStreamFunction("127.0.0.1", port, "\n", 0)
        except TypeError:  # Flink 2 has moved it
            read = functions.legacy.SocketTextStreamFunction("127.0.0.1", port, "\n", 0)
        operators = streaming.api.operators
        factory = operators.SimpleOperatorFactory.of(operators.StreamSource(read))
        task = self.gateway.jvm.Class.forName(
            "org.apache.flink.streaming.runtime.tasks.SourceStreamTask"
        )
        self.field(node, "operatorFactory").set(node, factory)
        self.field(node, "jobVertexClass").set(node, task)
        serializers = self.array(self.flink.api.common.typeutils.TypeSerializer, [])
        self.field(node, "typeSerializersIn").set(node, serializers)
        node.setUserHash(None)

    def field(self, owner: Java, name: str) -> Java:
        field = owner.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field

    def restore(self, graph: Java) -> str | None:
        """Run a graph from an image until all its tasks run; return the error if they do not."""
        rehearsal = self.request["rehearse"]
        runtime = self.flink.runtime
        storage = runtime.state.storage.JobManagerCheckpointStorage()
        graph.setCheckpointStorage(storage)
        graph.getCheckpointConfig().disableCheckpointing()
        settings = graph.getJobConfiguration()
        for key in list(settings.toMap()):
            if key.startswith(WRITES):
                settings.removeKey(key)
        loader = self.gateway.jvm.Thread.currentThread().getContextClassLoader()
        translating = self.flink.client.FlinkPipelineTranslationUtil
        job = translating.getJobGraphUnderUserClassLoader(loader, graph, self.configuration, 1)
        job.addJars(self.jars)
        restoring = runtime.jobgraph.SavepointRestoreSettings
        job.setSavepointRestoreSettings(restoring.forPath(rehearsal["from"], True))
        own = self.flink.configuration.Configuration()
        for key, value in self.configuration.toMap().items():
            if key.startswith("state.backend") and not key.startswith(WRITES):
                own.setString(key, value)
        if self.backend(graph) is None and rehearsal["backend"] is not None:
            own.setString("state.backend.type", rehearsal["backend"])
        own.setString("rest.port", "0")
        own.setString("io.tmp.dirs", self.request["scratch"])
        building = runtime.minicluster.MiniClusterConfiguration.Builder()
        cluster = runtime.minicluster.MiniCluster(building.setConfiguration(own).build())
        try:
            cluster.start()
            cluster.submitJob(job).get()
            return self.opening_error(graph, cluster, job.getJobID())
        finally:
            cluster.closeAsync()

    def opening_error(self, graph: Java, cluster: Java, job: Java) -> str | None:
        """Wait until all tasks of a job run; return the error if they do not."""
        while True:
            execution = cluster.getExecutionGraph(job).get()
            failure = execution.getFailureInfo()
            if failure is not None:
                return str(failure.getExceptionAsString())
            tasks = []
            vertices = execution.getAllExecutionVertices().iterator()
            while vertices.hasNext():
                tasks.append(str(vertices.next().getExecutionState()))
            if tasks and all(task == "RUNNING" for task in tasks):
                with suppress(Exception):  # then no state is known to have been opened
                    self.opened = self.opened_states(graph, cluster, job)
                return None
            time.sleep(BETWEEN_LOOKS)

    def opened_states(self, graph: Java, cluster: Java, job: Java) -> dict[str, list[str]]:
        """Return the keyed states that the tasks of a job have asked for, by operator.

        Flink tells it nowhere: it is read from the backends, and of another kind of them nothing.
        A task knows its operators by the ids of the smaller graph.
        """
        hasher = self.flink.streaming.api.graph.StreamGraphHasherV2()
        own = {id_: graph.getStreamNode(node) for node, id_ in hashes(hasher, graph).items()}
        opened: dict[str, list[str]] = {}
        for manager in self.held(cluster, "taskManagers"):
            tasks = self.held(manager, "taskSlotTable").getTasks(job)
            while tasks.hasNext():
                wrapper = self.held(
                    tasks.next(), "invokable", "operatorChain", "firstOperatorWrapper"
                )
                while wrapper is not None:
                    operator = self.held(wrapper, "wrapped")
                    states = self.held(
                        operator, "stateHandler", "keyedStateBackend", "keyValueStatesByName"
                    )
                    node = own[str(operator.getOperatorID())]
                    opened[str(node.getUserHash())] = list(states or ())
                    wrapper = self.held(wrapper, "next")
        return opened

    def held(self, owner: Java, *names: str) -> Java:
        """Return the value of a private field, and of a field of that; None where one is not."""
        for name in names:
            kind = None if owner is None else owner.getClass()
            field = None
            while kind is not None and field is None:
                own = {each.getName(): each for each in kind.getDeclaredFields()}
                field, kind = own.get(name), kind.getSuperclass()
            if field is None:
                return None
            field.setAccessible(True)
            owner = field.get(owner)
        return owner

    def snapshot(self, serializer: Java) -> str | None:
        """Return the snapshot of a serializer, as a savepoint holds it."""
        if serializer is None:
            return None
        out = self.flink.core.memory.DataOutputSerializer(256)
        writing = self.flink.api.common.typeutils.TypeSerializerSnapshot
        writing.writeVersionedSnapshot(out, serializer.snapshotConfiguration())
        return base64.b64encode(bytes(out.getCopyOfBuffer())).decode()


def descriptions_of(graph: Java, node: Java) -> list[str]:
    """Return the descriptions of a keyed operator and of those before it, down to keyed ones."""
    lines: list[str] = []
    waiting, seen = [node], {node.getId()}
    while waiting:
        each = waiting.pop()
        text = re.sub(r"^\[\d+\]:", "", str(each.getOperatorDescription()))
        if not lines and re.match(r"\w+\(", text) is None:
            return []  # a function of the user's, which is nowhere described
        lines.append(text[:TEXT_MAX])
        for edge in reversed(list(each.getInEdges())):
            before = graph.getStreamNode(edge.getSourceId())
            if before.getStateKeySerializer() is None and before.getId() not in seen:
                waiting.append(before)
                seen.add(before.getId())
    return lines


def hashes(hasher: Java, graph: Java) -> dict[int, str]:
    """Return the ids of a graph's operators by the numbers of its nodes."""
    found = hasher.traverseStreamGraphAndGenerateHashes(graph)
    return {int(number): bytes(value).hex() for number, value in found.items()}


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a file of SQL, without comments. A statement set is one."""
    words: list[str] = []
    in_set = False
    for token in TOKEN.findall(f"{text}\n;"):
        if token.startswith(("--", "/*")):
            continue
        said = [word.upper() for word in words if not word.isspace()]
        if token == ";" and said == ["BEGIN", "STATEMENT", "SET"]:  # as SQL's client has it
            words, in_set = ["EXECUTE STATEMENT SET BEGIN "], True
        elif token == ";" and (not in_set or said[-2:] == [";", "END"]):
            if said:
                yield "".join(words).strip()
            words, in_set = [], False
        else:
            in_set = in_set or (token.upper() == "BEGIN" and said[-2:] == ["STATEMENT", "SET"])
            words.append(token)


def reason(error: BaseException) -> str:
    """Return the first line of an error, and of the causes that a JVM names for it."""
    return causes(str(error)) or type(error).__name__


def run(request: Json) -> Json:
    """Plan the file; return the answer."""
    answer: Json = {"flink": None, "error": None, "jobs": [], "rehearsed": None}
    try:
        options = [f"-Djava.io.tmpdir={request['scratch']}"]
        output = {"redirect_stdout": sys.stdout, "redirect_stderr": sys.stderr}
        flink = Flink(launch(request["jars"], options, output), request)
        answer["flink"] = flink.version()
        if request["file"].endswith(".sql"):
            flink.plan_sql()
        else:
            flink.plan_jar()
        answer.update(jobs=flink.jobs, rehearsed=flink.rehearsed)
    except Exception as error:
        traceback.print_exc()
        answer["error"] = reason(error)
    return answer

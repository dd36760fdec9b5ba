"""The options of each kind of cluster besides the common keys: of a cluster, of a submission and of
a stop. Each is declared once, with its test and its sentence. The clusters check by this table; the
JSON Schema and the page of clusters are made from it.

The spec carries options as they are given, and the cluster checks them when it is opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

# The kinds that come with stateshift, and the module that has the KIND of each.
CLUSTER_MODULES: Mapping[str, str] = {
    "manual": "stateshift.clusters.manual",
    "command": "stateshift.clusters.command",
    "spark_submit": "stateshift.clusters.spark_submit.driver_pods",
    "livy": "stateshift.clusters.livy",
    "spark_standalone": "stateshift.clusters.standalone.cluster",
    "yarn": "stateshift.clusters.yarn.cluster",
    "flink_rest": "stateshift.clusters.flink.cluster",
    "flink_yarn": "stateshift.clusters.yarn.flink",
    "flink_operator": "stateshift.clusters.kubernetes.flink_operator",
    "spark_operator": "stateshift.clusters.kubernetes.spark_operator",
}
CLUSTER_KINDS = tuple(CLUSTER_MODULES)
# The clusters in the spec that `move` writes, and the options by which their commands were typed.
NEW_COMMANDS, OLD_COMMANDS = "new-commands", "old-commands"
TYPED: Mapping[tuple[str, str], str] = {
    (NEW_COMMANDS, "submit"): "--start",
    (NEW_COMMANDS, "stop"): "--stop",
    (OLD_COMMANDS, "submit"): "--restart",
    (OLD_COMMANDS, "stop"): "--stop",
}
SPARK_KINDS = ("spark_submit", "livy", "spark_standalone", "yarn", "spark_operator")

_SUBMIT = ("spark_submit",)
_YARN = ("yarn",)
_FLINK_YARN = ("flink_yarn",)
_YARNS = ("yarn", "flink_yarn")
_LAUNCHED = ("spark_submit", "yarn")
_LIVY = ("livy",)
_STANDALONE = ("spark_standalone",)
_FLINK = ("flink_rest",)
_OPERATOR = ("flink_operator",)
_SPARK_OPERATOR = ("spark_operator",)
_OPERATORS = ("flink_operator", "spark_operator")
_JARS = ("flink_rest", "flink_yarn")
_FLINKS = ("flink_rest", "flink_yarn", "flink_operator")
_SIZED = ("livy", "spark_standalone", "spark_operator")
_COMMANDS = ("command",)
_HTTP = ("livy", "spark_standalone", "yarn", *_JARS)
_FILES = ("spark_submit", "command", "livy", "spark_standalone", "yarn", *_FLINKS, *_SPARK_OPERATOR)


# ------------------------------------------------------------------------------ values


@dataclass(frozen=True, slots=True)
class Expected:
    """The type of an option: in words, as a test, and as a type of JSON Schema."""

    words: str
    fits: Callable[[object], bool]
    needed: bool = False
    type: str | tuple[str, ...] = "string"


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _scalar(value: object) -> bool:
    return isinstance(value, str | int | float)


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _arguments(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_scalar, value))


def _command(value: object) -> bool:
    return _text(value) or (_texts(value) and value != [] and value != ())


def _settings(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(name, str) for name in value) and all(map(_scalar, value.values()))


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _one_of(words: str, *choices: str) -> Expected:
    return Expected(words, lambda value: value in choices)


TEXT = Expected("a text", _text)
NEEDED_TEXT = replace(TEXT, needed=True)
TEXTS = Expected("a list of texts", _texts, type="array")
ARGUMENTS = Expected("a list of texts and numbers", _arguments, type="array")
COMMAND = Expected("a shell command, or a list of its words", _command, type=("string", "array"))
NEEDED_COMMAND = replace(COMMAND, needed=True)
SETTINGS = Expected("an object of texts, numbers and booleans", _settings, type="object")
OBJECT = Expected("an object", lambda value: isinstance(value, Mapping), type="object")
COUNT = Expected("a whole number, not negative", _count, type="integer")
SECONDS = Expected("a number of seconds, not negative", _seconds, type="number")
FLAG = Expected("true or false", lambda value: isinstance(value, bool), type="boolean")
YARN_AUTHENTICATION = _one_of("simple, basic or kerberos", "simple", "basic", "kerberos")
FLINK_URL = Expected(
    "the JobManager's own address; YARN's proxy takes no POST (amRPCAddress of the application)",
    lambda value: _text(value) and "/proxy/application_" not in str(value),
    needed=True,
)
_YARN_URL = re.compile(r"\s*https?://[^\s/]", re.IGNORECASE)
YARN_URL = Expected(
    "http://host:port of each ResourceManager, by comma",
    lambda value: _text(value) and all(map(_YARN_URL.match, str(value).split(","))),
    needed=True,
)
AUTHENTICATION = _one_of("none, basic or kerberos", "none", "basic", "kerberos")
DEPLOY_MODE = _one_of("client or cluster", "client", "cluster")
SAVEPOINT_FORMAT = _one_of("canonical or native", "canonical", "native")


# ----------------------------------------------------------------------------- options


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its name, the kinds that take it, its value, and its sentence (empty where it is a
    key of the spec). `unlike`: the value of kinds that mean something else by it.
    """

    name: str
    kinds: tuple[str, ...]
    expected: Expected
    about: str
    unlike: Mapping[str, Expected] = field(default_factory=dict)

    @property
    def description(self) -> str:
        return f"{', '.join(self.kinds)}: {self.about}"


CLUSTER_OPTIONS = (
    Option(
        "master",
        _SUBMIT,
        TEXT,
        "The master's URL: local[2], spark://host:7077, k8s://https://host:6443.",
    ),
    Option(
        "deploy_mode",
        _LAUNCHED,
        DEPLOY_MODE,
        "client (the driver runs on this machine) or cluster (usual with yarn).",
    ),
    Option("spark_submit", _LAUNCHED, TEXT, "The executable, if it is not on the PATH."),
    Option("java_home", _LAUNCHED, TEXT, "The Java to run with."),
    Option("java_options", _LAUNCHED, TEXT, "Options of the launcher's and the driver's JVM."),
    Option("pid_file", _SUBMIT, TEXT, "Holds the process id of a job that was started by hand."),
    Option(
        "submit",
        _COMMANDS,
        NEEDED_COMMAND,
        "Starts a job; the last line it prints is the job's id.",
    ),
    Option("find", _COMMANDS, COMMAND, "Prints the state of a job, and its id."),
    Option("stop", _COMMANDS, COMMAND, "Stops a job."),
    Option("reach", _COMMANDS, COMMAND, "Exits 0 if jobs reach $STATESHIFT_LOCATION, else 1."),
    Option("log", _COMMANDS, COMMAND, "Prints the end of a job's log."),
    Option("cwd", _COMMANDS, TEXT, "The directory in which the commands run."),
    Option(
        "version",
        ("command", "manual"),
        COMMAND,
        "command: prints the engine's version. manual: is the engine's version.",
        {"manual": TEXT},
    ),
    Option("marker_dir", ("manual",), TEXT, "A folder of marker files, for runs without a person."),
    Option(
        "url",
        _HTTP,
        NEEDED_TEXT,
        "The address of the REST API; of YARN, of both ResourceManagers of a pair.",
        {"flink_rest": FLINK_URL, **dict.fromkeys(_YARNS, YARN_URL)},
    ),
    Option("ui_url", _STANDALONE, TEXT, "The master's web page, if it is not at the usual port."),
    Option(
        "auth",
        ("livy", *_YARNS, "flink_rest"),
        AUTHENTICATION,
        "How requests are authenticated.",
        dict.fromkeys(_YARNS, YARN_AUTHENTICATION),
    ),
    Option(
        "user",
        ("livy", *_YARNS, "flink_rest"),
        TEXT,
        "The user of basic or simple authentication.",
    ),
    Option(
        "password_file", ("livy", *_YARNS, "flink_rest"), TEXT, "A file that holds the password."
    ),
    Option(
        "token_file", ("spark_standalone", "flink_rest"), TEXT, "A file that holds a bearer token."
    ),
    Option(
        "header_files",
        _FLINK,
        SETTINGS,
        "Header -> a file that holds its value, for a gateway in front of Flink.",
    ),
    Option("ca_file", _HTTP, TEXT, "The certificate authority that signed the server's key."),
    Option("cert_file", _FLINK, TEXT, "Our certificate, if Flink asks for one."),
    Option("key_file", _FLINK, TEXT, "The key of our certificate."),
    Option("kubeconfig", _OPERATORS, TEXT, "The kubeconfig; else kubectl's, or the pod's account."),
    Option("context", _OPERATORS, TEXT, "A context of it, if not the current one."),
    Option("namespace", _OPERATORS, TEXT, "The namespace of the jobs, if not the context's."),
    Option("rest_url", _OPERATOR, TEXT, "Of JobManagers ({name}, {namespace}), without a proxy."),
    Option("reconcile_seconds", _OPERATORS, SECONDS, "The operator's time to notice a stop (120)."),
    Option(
        "request_seconds",
        (*_HTTP, *_OPERATORS, *_SUBMIT),
        SECONDS,
        "How long one request may take.",
    ),
    Option(
        "settle_seconds",
        (*_HTTP, *_OPERATORS, *_SUBMIT),
        SECONDS,
        "How long a job whose submission got no answer may still appear (60).",
    ),
    Option(
        "outage_seconds",
        ("yarn", *_FLINKS, *_SPARK_OPERATOR, *_SUBMIT),
        SECONDS,
        "How long it may be silent while we wait for it: it may restart or fail over.",
    ),
    Option("flink_configuration", _FLINKS, SETTINGS, "Flink's configuration for every job."),
    Option("flink", _FLINK_YARN, TEXT, "The executable that starts jobs, if not on the PATH."),
    Option("session", _FLINK_YARN, TEXT, "The session that takes the jobs: its id, or its name."),
    Option("sql_gateway", _FLINK, TEXT, "The address of the SQL gateway that takes SQL jobs."),
    Option(
        "application",
        _FLINK,
        FLAG,
        "Whether the cluster belongs to one application and ends with it.",
    ),
    Option("conf", SPARK_KINDS, SETTINGS, "Spark's configuration for every job."),
    Option("proxy_user", _LIVY, TEXT, "The user as whom Livy runs the jobs."),
    Option(
        "environment",
        ("spark_submit", "spark_standalone", *_YARNS, "spark_operator", "command"),
        SETTINGS,
        "Variables of every job or command.",
    ),
    Option(
        "graceful_seconds",
        SPARK_KINDS,
        SECONDS,
        "How long a job has to answer the stop marker (15).",
    ),
    Option("kill_seconds", _LAUNCHED, SECONDS, "How long a job has to end after SIGTERM."),
    Option(
        "seconds_max",
        ("spark_submit", *_YARNS, "command", "manual"),
        SECONDS,
        "How long to wait for an answer.",
    ),
    Option("state_dir", _FILES, TEXT, "Where notes, process ids and logs are kept."),
)

SUBMIT_OPTIONS = (
    Option(
        "application",
        SPARK_KINDS,
        NEEDED_TEXT,
        "The Python file or jar.",
        {"spark_operator": TEXT},
    ),
    Option("class", SPARK_KINDS, TEXT, "The class in the jar to run."),
    Option("arguments", (*SPARK_KINDS, *_FLINKS), ARGUMENTS, "The job's arguments."),
    Option("conf", SPARK_KINDS, SETTINGS, "Spark's configuration for this job."),
    Option(
        "environment",
        ("spark_submit", "spark_standalone", "yarn", "spark_operator"),
        SETTINGS,
        "",
    ),
    Option("deploy_mode", _LAUNCHED, DEPLOY_MODE, "client or cluster; overrides the cluster's."),
    Option("py_files", SPARK_KINDS, TEXTS, "Python files that the application imports."),
    Option("cwd", _LAUNCHED, TEXT, "The directory in which spark-submit runs."),
    Option("jars", _LIVY, TEXTS, "Jars for the class path."),
    Option("files", _LIVY, TEXTS, "Files for the working directories of the job."),
    Option("queue", ("livy", *_YARNS), TEXT, "The YARN queue."),
    Option("driver_memory", _SIZED, TEXT, "Memory of the driver."),
    Option("driver_cores", _SIZED, COUNT, "Cores of the driver."),
    Option("executor_memory", ("livy", "spark_operator"), TEXT, "Memory of an executor."),
    Option("executor_cores", ("livy", "spark_operator"), COUNT, "Cores of an executor."),
    Option("num_executors", ("livy", "spark_operator"), COUNT, "How many executors."),
    Option("jar", _JARS, TEXT, "The jar, on this machine."),
    Option("jar_id", _JARS, TEXT, "The id of a jar that the cluster has."),
    Option(
        "sql", _FLINK, TEXT, "A file of SQL on this machine. Its last statement starts the job."
    ),
    Option("resource", _OPERATORS, TEXT, "The job's resource: orders or flinkdeployment/orders."),
    Option("manifest", _OPERATORS, TEXT, "A file of the resource, if it is not there yet."),
    Option("like", _OPERATORS, SETTINGS, "Its model: resource, kubeconfig, context, namespace."),
    Option("spec", _OPERATORS, OBJECT, "The spec itself, of a resource that is named in full."),
    Option("image", _OPERATORS, TEXT, "The container's image."),
    Option("jar_uri", _OPERATOR, TEXT, "The jar, as the operator reaches it."),
    Option("session", _OPERATOR, TEXT, "The session cluster of a FlinkSessionJob."),
    Option("entry_class", _FLINKS, TEXT, "The class in the jar to run."),
    Option("parallelism", _FLINKS, COUNT, "The job's parallelism."),
    Option(
        "allow_non_restored_state",
        _FLINKS,
        FLAG,
        "Whether state that no operator of the job claims may stay behind.",
    ),
    Option("claim_mode", _JARS, TEXT, "no_claim, or legacy."),
    Option("flink_configuration", _FLINKS, SETTINGS, "Flink's configuration for this job."),
)

STOP_OPTIONS = (
    Option("pid_file", _SUBMIT, TEXT, "Holds the process id of a job that was started by hand."),
    Option(
        "graceful_seconds", SPARK_KINDS, SECONDS, "How long the job has to answer the stop marker."
    ),
    Option("batch", _LIVY, COUNT, "The id of the Livy batch that runs the job."),
    Option("batch_name", _LIVY, TEXT, "The name of that batch."),
    Option("driver", _STANDALONE, TEXT, "The id of the driver that runs the job."),
    Option(
        "app_name",
        ("spark_standalone", "yarn", "spark_operator", "spark_submit"),
        TEXT,
        "The name of the job's application.",
    ),
    Option("pod", _SUBMIT, TEXT, "The pod of the driver, with a Kubernetes master."),
    Option("application_id", _YARN, TEXT, "The id of the application that runs the job."),
    Option(
        "format",
        _FLINKS,
        SAVEPOINT_FORMAT,
        "canonical or native, of the savepoint that ends the job.",
    ),
    Option(
        "drain", _FLINKS, FLAG, "Whether windows and timers fire first, as at the end of all input."
    ),
    Option("job_id", _FLINKS, TEXT, "The job's id, if its name is not enough."),
    Option("job_ids", _FLINKS, TEXTS, "The ids of several jobs."),
    Option("job_name", _FLINKS, TEXT, "The name under which the job runs."),
)


@dataclass(frozen=True, slots=True)
class KindOptions:
    """The options of one kind: of a cluster, of a submission there, and of a stop."""

    kind: str
    cluster: Mapping[str, Expected]
    submit: Mapping[str, Expected]
    stop: Mapping[str, Expected]


def options_of(kind: str) -> KindOptions:
    """Return the options of one of our kinds, in the order of the tables."""

    def taken(table: Iterable[Option]) -> dict[str, Expected]:
        options = [option for option in table if kind in option.kinds]
        return {option.name: option.unlike.get(kind, option.expected) for option in options}

    return KindOptions(kind, taken(CLUSTER_OPTIONS), taken(SUBMIT_OPTIONS), taken(STOP_OPTIONS))

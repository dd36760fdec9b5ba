"""The options of each kind of cluster besides the common keys: of a cluster, of a submission and of
a stop, described once for the JSON Schema and the page of clusters.

The spec carries options as they are given, and the cluster checks them when it is opened. This
table repeats no rule; a test holds its names against those that the clusters check.
"""

from __future__ import annotations

from dataclasses import dataclass

_TEXT = "string"
_COMMAND = ("string", "array")

_SUBMIT = ("spark_submit",)
_LIVY = ("livy",)
_STANDALONE = ("spark_standalone",)
_FLINK = ("flink_rest",)
_COMMANDS = ("command",)
_SPARK = ("spark_submit", "livy", "spark_standalone")
_HTTP = ("livy", "spark_standalone", "flink_rest")
_FILES = ("spark_submit", "command", "livy", "spark_standalone", "flink_rest")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, the kinds of cluster that take it, its JSON type, and what it says."""

    name: str
    kinds: tuple[str, ...]
    type: str | tuple[str, ...]
    about: str

    @property
    def description(self) -> str:
        return f"{', '.join(self.kinds)}: {self.about}"


CLUSTER_OPTIONS = (
    Option("master", _SUBMIT, _TEXT, "The master's URL, such as local[2] or spark://host:7077."),
    Option("deploy_mode", _SUBMIT, _TEXT, "client (the driver runs on this machine) or cluster."),
    Option("spark_submit", _SUBMIT, _TEXT, "The executable, if it is not on the PATH."),
    Option("java_home", _SUBMIT, _TEXT, "The Java to run with."),
    Option("java_options", _SUBMIT, _TEXT, "Options of the launcher's and the driver's JVM."),
    Option("pid_file", _SUBMIT, _TEXT, "Holds the process id of a job that was started by hand."),
    Option("submit", _COMMANDS, _COMMAND, "Starts a job; the last line it prints is the job's id."),
    Option("find", _COMMANDS, _COMMAND, "Prints the state of a job, and its id."),
    Option("stop", _COMMANDS, _COMMAND, "Stops a job."),
    Option("reach", _COMMANDS, _COMMAND, "Exits 0 if jobs reach $STATESHIFT_LOCATION, else 1."),
    Option("log", _COMMANDS, _COMMAND, "Prints the end of a job's log."),
    Option("cwd", _COMMANDS, _TEXT, "The directory in which the commands run."),
    Option(
        "version",
        ("command", "manual"),
        _COMMAND,
        "command: prints the engine's version. manual: is the engine's version.",
    ),
    Option(
        "marker_dir", ("manual",), _TEXT, "A folder of marker files, for runs without a person."
    ),
    Option("url", _HTTP, _TEXT, "The address of the REST API."),
    Option("ui_url", _STANDALONE, _TEXT, "The master's web page, if it is not at the usual port."),
    Option(
        "auth",
        ("livy", "flink_rest"),
        _TEXT,
        "How requests are authenticated: none, basic or kerberos.",
    ),
    Option("user", ("livy", "flink_rest"), _TEXT, "The user of basic authentication."),
    Option("password_file", ("livy", "flink_rest"), _TEXT, "A file that holds the password."),
    Option(
        "token_file", ("spark_standalone", "flink_rest"), _TEXT, "A file that holds a bearer token."
    ),
    Option(
        "header_files",
        _FLINK,
        "object",
        "Header -> a file that holds its value, for a gateway in front of Flink.",
    ),
    Option("ca_file", _HTTP, _TEXT, "The certificate authority that signed the server's key."),
    Option("cert_file", _FLINK, _TEXT, "Our certificate, if Flink asks for one."),
    Option("key_file", _FLINK, _TEXT, "The key of our certificate."),
    Option("request_seconds", _HTTP, "number", "How long one request may take."),
    Option(
        "settle_seconds",
        _HTTP,
        "number",
        "How long a job whose submission got no answer may still appear (60).",
    ),
    Option(
        "outage_seconds",
        _FLINK,
        "number",
        "How long Flink may be silent while we wait for it: its JobManager may restart.",
    ),
    Option("flink_configuration", _FLINK, "object", "Flink's configuration for every job."),
    Option("sql_gateway", _FLINK, _TEXT, "The address of the SQL gateway that takes SQL jobs."),
    Option(
        "application",
        _FLINK,
        "boolean",
        "Whether the cluster belongs to one application and ends with it.",
    ),
    Option("conf", _SPARK, "object", "Spark's configuration for every job."),
    Option("proxy_user", _LIVY, _TEXT, "The user as whom Livy runs the jobs."),
    Option(
        "environment",
        ("spark_submit", "spark_standalone", "command"),
        "object",
        "Variables of every job or command.",
    ),
    Option(
        "graceful_seconds", _SPARK, "number", "How long a job has to answer the stop marker (15)."
    ),
    Option("kill_seconds", _SUBMIT, "number", "How long a job has to end after SIGTERM."),
    Option(
        "seconds_max",
        ("spark_submit", "command", "manual"),
        "number",
        "How long to wait for an answer.",
    ),
    Option("state_dir", _FILES, _TEXT, "Where notes, process ids and logs are kept."),
)

SUBMIT_OPTIONS = (
    Option("application", _SPARK, _TEXT, "The Python file or jar."),
    Option("class", ("livy", "spark_standalone"), _TEXT, "The class in the jar to run."),
    Option("arguments", (*_SPARK, "flink_rest"), "array", "The job's arguments."),
    Option("conf", _SPARK, "object", "Spark's configuration for this job."),
    Option("deploy_mode", _SUBMIT, _TEXT, "client or cluster; overrides the cluster's."),
    Option("py_files", _SPARK, "array", "Python files that the application imports."),
    Option("cwd", _SUBMIT, _TEXT, "The directory in which spark-submit runs."),
    Option("jars", _LIVY, "array", "Jars for the class path."),
    Option("files", _LIVY, "array", "Files for the working directories of the job."),
    Option("queue", _LIVY, _TEXT, "The YARN queue."),
    Option("driver_memory", ("livy", "spark_standalone"), _TEXT, "Memory of the driver."),
    Option("driver_cores", ("livy", "spark_standalone"), "integer", "Cores of the driver."),
    Option("executor_memory", _LIVY, _TEXT, "Memory of an executor."),
    Option("executor_cores", _LIVY, "integer", "Cores of an executor."),
    Option("num_executors", _LIVY, "integer", "How many executors."),
    Option("jar", _FLINK, _TEXT, "The jar, on this machine."),
    Option("jar_id", _FLINK, _TEXT, "The id of a jar that the cluster has."),
    Option(
        "sql", _FLINK, _TEXT, "A file of SQL on this machine. Its last statement starts the job."
    ),
    Option("entry_class", _FLINK, _TEXT, "The class in the jar to run."),
    Option("parallelism", _FLINK, "integer", "The job's parallelism."),
    Option(
        "allow_non_restored_state",
        _FLINK,
        "boolean",
        "Whether state that no operator of the job claims may stay behind.",
    ),
    Option("claim_mode", _FLINK, _TEXT, "no_claim, or legacy."),
    Option("flink_configuration", _FLINK, "object", "Flink's configuration for this job."),
)

STOP_OPTIONS = (
    Option("pid_file", _SUBMIT, _TEXT, "Holds the process id of a job that was started by hand."),
    Option("graceful_seconds", _SPARK, "number", "How long the job has to answer the stop marker."),
    Option("batch", _LIVY, "integer", "The id of the Livy batch that runs the job."),
    Option("batch_name", _LIVY, _TEXT, "The name of that batch."),
    Option("driver", _STANDALONE, _TEXT, "The id of the driver that runs the job."),
    Option("app_name", _STANDALONE, _TEXT, "The name of the job's application."),
    Option("format", _FLINK, _TEXT, "canonical or native, of the savepoint that ends the job."),
    Option(
        "drain",
        _FLINK,
        "boolean",
        "Whether windows and timers fire first, as at the end of all input.",
    ),
    Option("job_id", _FLINK, _TEXT, "The job's id, if its name is not enough."),
    Option("job_ids", _FLINK, "array", "The ids of several jobs."),
    Option("job_name", _FLINK, _TEXT, "The name under which the job runs."),
)

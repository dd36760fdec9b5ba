"""The options of each kind of cluster besides the common keys: of a cluster, of a submission and of
a stop, described once for the JSON Schema and the page of clusters.

The spec carries options as they are given, and the cluster checks them when it is opened. This
table repeats no rule; a test holds its names against those that the clusters check.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """One option: its name, the kinds of cluster that take it, its sentence, and its JSON type."""

    name: str
    kinds: tuple[str, ...]
    about: str
    type: str | tuple[str, ...] = "string"

    @property
    def description(self) -> str:
        return f"{', '.join(self.kinds)}: {self.about}"


CLUSTER_OPTIONS = (
    Option("master", _SUBMIT, "The master's URL, such as local[2] or spark://host:7077."),
    Option("deploy_mode", _SUBMIT, "client (the driver runs on this machine) or cluster."),
    Option("spark_submit", _SUBMIT, "The executable, if it is not on the PATH."),
    Option("java_home", _SUBMIT, "The Java to run with."),
    Option("java_options", _SUBMIT, "Options of the launcher's and the driver's JVM."),
    Option("pid_file", _SUBMIT, "Holds the process id of a job that was started by hand."),
    Option("submit", _COMMANDS, "Starts a job; the last line it prints is the job's id.", _COMMAND),
    Option("find", _COMMANDS, "Prints the state of a job, and its id.", _COMMAND),
    Option("stop", _COMMANDS, "Stops a job.", _COMMAND),
    Option("reach", _COMMANDS, "Exits 0 if jobs reach $STATESHIFT_LOCATION, else 1.", _COMMAND),
    Option("log", _COMMANDS, "Prints the end of a job's log.", _COMMAND),
    Option("cwd", _COMMANDS, "The directory in which the commands run."),
    Option(
        "version",
        ("command", "manual"),
        "command: prints the engine's version. manual: is the engine's version.",
        _COMMAND,
    ),
    Option("marker_dir", ("manual",), "A folder of marker files, for runs without a person."),
    Option("url", _HTTP, "The address of the REST API."),
    Option("ui_url", _STANDALONE, "The master's web page, if it is not at the usual port."),
    Option(
        "auth", ("livy", "flink_rest"), "How requests are authenticated: none, basic or kerberos."
    ),
    Option("user", ("livy", "flink_rest"), "The user of basic authentication."),
    Option("password_file", ("livy", "flink_rest"), "A file that holds the password."),
    Option("token_file", ("spark_standalone", "flink_rest"), "A file that holds a bearer token."),
    Option(
        "header_files",
        _FLINK,
        "Header -> a file that holds its value, for a gateway in front of Flink.",
        "object",
    ),
    Option("ca_file", _HTTP, "The certificate authority that signed the server's key."),
    Option("cert_file", _FLINK, "Our certificate, if Flink asks for one."),
    Option("key_file", _FLINK, "The key of our certificate."),
    Option("request_seconds", _HTTP, "How long one request may take.", "number"),
    Option(
        "settle_seconds",
        _HTTP,
        "How long a job whose submission got no answer may still appear (60).",
        "number",
    ),
    Option(
        "outage_seconds",
        _FLINK,
        "How long Flink may be silent while we wait for it: its JobManager may restart.",
        "number",
    ),
    Option("flink_configuration", _FLINK, "Flink's configuration for every job.", "object"),
    Option("sql_gateway", _FLINK, "The address of the SQL gateway that takes SQL jobs."),
    Option(
        "application",
        _FLINK,
        "Whether the cluster belongs to one application and ends with it.",
        "boolean",
    ),
    Option("conf", _SPARK, "Spark's configuration for every job.", "object"),
    Option("proxy_user", _LIVY, "The user as whom Livy runs the jobs."),
    Option(
        "environment",
        ("spark_submit", "spark_standalone", "command"),
        "Variables of every job or command.",
        "object",
    ),
    Option(
        "graceful_seconds", _SPARK, "How long a job has to answer the stop marker (15).", "number"
    ),
    Option("kill_seconds", _SUBMIT, "How long a job has to end after SIGTERM.", "number"),
    Option(
        "seconds_max",
        ("spark_submit", "command", "manual"),
        "How long to wait for an answer.",
        "number",
    ),
    Option("state_dir", _FILES, "Where notes, process ids and logs are kept."),
)

SUBMIT_OPTIONS = (
    Option("application", _SPARK, "The Python file or jar."),
    Option("class", ("livy", "spark_standalone"), "The class in the jar to run."),
    Option("arguments", (*_SPARK, "flink_rest"), "The job's arguments.", "array"),
    Option("conf", _SPARK, "Spark's configuration for this job.", "object"),
    Option("deploy_mode", _SUBMIT, "client or cluster; overrides the cluster's."),
    Option("py_files", _SPARK, "Python files that the application imports.", "array"),
    Option("cwd", _SUBMIT, "The directory in which spark-submit runs."),
    Option("jars", _LIVY, "Jars for the class path.", "array"),
    Option("files", _LIVY, "Files for the working directories of the job.", "array"),
    Option("queue", _LIVY, "The YARN queue."),
    Option("driver_memory", ("livy", "spark_standalone"), "Memory of the driver."),
    Option("driver_cores", ("livy", "spark_standalone"), "Cores of the driver.", "integer"),
    Option("executor_memory", _LIVY, "Memory of an executor."),
    Option("executor_cores", _LIVY, "Cores of an executor.", "integer"),
    Option("num_executors", _LIVY, "How many executors.", "integer"),
    Option("jar", _FLINK, "The jar, on this machine."),
    Option("jar_id", _FLINK, "The id of a jar that the cluster has."),
    Option("sql", _FLINK, "A file of SQL on this machine. Its last statement starts the job."),
    Option("entry_class", _FLINK, "The class in the jar to run."),
    Option("parallelism", _FLINK, "The job's parallelism.", "integer"),
    Option(
        "allow_non_restored_state",
        _FLINK,
        "Whether state that no operator of the job claims may stay behind.",
        "boolean",
    ),
    Option("claim_mode", _FLINK, "no_claim, or legacy."),
    Option("flink_configuration", _FLINK, "Flink's configuration for this job.", "object"),
)

STOP_OPTIONS = (
    Option("pid_file", _SUBMIT, "Holds the process id of a job that was started by hand."),
    Option("graceful_seconds", _SPARK, "How long the job has to answer the stop marker.", "number"),
    Option("batch", _LIVY, "The id of the Livy batch that runs the job.", "integer"),
    Option("batch_name", _LIVY, "The name of that batch."),
    Option("driver", _STANDALONE, "The id of the driver that runs the job."),
    Option("app_name", _STANDALONE, "The name of the job's application."),
    Option("format", _FLINK, "canonical or native, of the savepoint that ends the job."),
    Option(
        "drain",
        _FLINK,
        "Whether windows and timers fire first, as at the end of all input.",
        "boolean",
    ),
    Option("job_id", _FLINK, "The job's id, if its name is not enough."),
    Option("job_ids", _FLINK, "The ids of several jobs.", "array"),
    Option("job_name", _FLINK, "The name under which the job runs."),
)

"""Every key a spec may hold, once: what reads specs, what writes them and the JSON Schema are all
made from this table.

    Key   one key: its canonical name, what kind of value it takes, and the field of the model it
          fills
    Keys  the keys of one kind of object, found by any spelling

A spelling is *folded* before it is looked up: lower case, without blanks, underscores and hyphens.
`merge_jobs`, `mergeJobs`, `Merge Jobs` and `MERGE-JOBS` are one key. The rows IS-1, IS-2 and IF-1
give INFORE's keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from stateshift.specification.model import (
    WAIVERS,
    FlinkJob,
    JobSpec,
    KafkaSpec,
    Keep,
    Mode,
    OnFailure,
    RebalancedCluster,
    Rebalancing,
    Receiver,
    Receivers,
    SinkKind,
    SinkSpec,
    Spec,
    SubmitSpec,
    Verify,
    VerifySource,
)
from stateshift.suggestion import closest, suggest

Engine = Literal["spark", "flink"]

CLUSTER_KINDS = ("manual", "command", "spark_submit", "livy", "spark_standalone", "flink_rest")
PROFILES = ("default", "java-signed")


@dataclass(frozen=True, slots=True)
class Key:
    """`also` are other names of it; `engine` the one that alone knows it, `hints_at` one it
    suggests where the spec does not name its engine; `blank_is_off` is INFORE's way to leave a key
    out; `for_all` may stand beside `jobs`; `added_by` is the group of entry points by which
    installed packages add choices. `implied`: where the key is left out, other keys decide, so that
    it has no default.
    """

    name: str
    kind: str
    about: str
    of: type | None = None
    field: str | None = None
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    engine: Engine | None = None
    hints_at: Engine | None = None
    blank_is_off: bool = False
    for_all: bool = False
    added_by: str | None = None
    implied: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    @property
    def default(self) -> Any:
        """What the model holds where the key is left out; MISSING where it must be given."""
        if self.of is None or self.field is None:
            return dataclasses.MISSING
        model = {f.name: f for f in dataclasses.fields(self.of)}[self.field]
        made = model.default_factory
        return model.default if made is dataclasses.MISSING else made()


class Keys:
    """The keys of one kind of object."""

    def __init__(self, *keys: Key) -> None:
        self.all = keys
        self._folded: dict[str, Key] = {}
        for key in keys:
            self._folded |= dict.fromkeys(map(fold, key.names), key)

    def __getitem__(self, name: str) -> Key:
        return self._folded[fold(name)]

    def find(self, spelling: str) -> Key | None:
        return self._folded.get(fold(spelling))

    def did_you_mean(self, spelling: str) -> str:
        """Return the suggestion of a key, whatever is between its words."""
        match = closest(fold(spelling), self._folded)
        return suggest(None if match is None else self._folded[match].name)


def fold(spelling: str) -> str:
    """Return a spelling without case, blanks, `_` and `-`, in which keys may differ."""
    return spelling.lower().replace(" ", "").replace("_", "").replace("-", "")


def _job(name: str, kind: str, field: str | None, about: str, **more: Any) -> Key:
    return Key(name, kind, about, JobSpec, field, **more)


def _flink(name: str, kind: str, field: str, about: str, **more: Any) -> Key:
    return Key(name, kind, about, FlinkJob, field, engine="flink", blank_is_off=True, **more)


JOB = Keys(
    _job("name", "text", "name", "The job's name, unique in this spec.", also=("job_name",)),
    _job(
        "checkpoint_location",
        "location",
        "source",
        (
            "Where the job's image is now: a URL, or a local path (a relative one starts where "
            "the spec lies)."
        ),
        hints_at="spark",
    ),
    _job(
        "remote_location",
        "location",
        "target",
        "Where the image goes. Left out or blank, the job stays where it is.",
        hints_at="spark",
        blank_is_off=True,
    ),
    _job(
        "merge",
        "boolean",
        None,
        "Whether the content of `merge_jobs` is moved into the checkpoint location first. "
        "With `version`, the default is true if there are `merge_jobs`. In INFORE's dialect "
        "(without `version`), `merge_jobs` are ignored until it is true.",
        engine="spark",
    ),
    _job(
        "merge_jobs",
        "locations",
        "merge_locations",
        "Directories on the same file system whose content is moved into the checkpoint "
        "location first: a list, or "
        "one text with commas.",
        engine="spark",
        blank_is_off=True,
    ),
    _job(
        "remote",
        "boolean",
        None,
        "Whether the job is started at `remote_connection`. With `version`, the default is true "
        "if there is a connection. In INFORE's dialect (without `version`), the connection is "
        "ignored until it is true.",
        engine="spark",
    ),
    _job(
        "remote_connection",
        "connection",
        "connection",
        (
            "host:port (or scheme://host:port) at which the job is started. Overrides the "
            "cluster's address."
        ),
        engine="spark",
        blank_is_off=True,
    ),
    _job(
        "operators",
        "operators",
        "operators",
        "The stateful operators by name: a list of names, a list of {name, directory}, or "
        "a map from name to "
        "directory. Give a directory only if its name is not the hash of the operator's name.",
    ),
    _job(
        "source_cluster",
        "text",
        "source_cluster",
        "The cluster that runs the job now.",
        for_all=True,
    ),
    _job(
        "target_cluster",
        "text",
        "target_cluster",
        "The cluster that runs it afterwards.",
        for_all=True,
    ),
    _job(
        "submit", "submit", "submit", "How the job is started on the target cluster.", for_all=True
    ),
    _job(
        "source_submit",
        "submit",
        "source_submit",
        "How a rollback starts it on the source again.",
        for_all=True,
    ),
    _job("stop", "stop", "stop", "How the job is stopped on the source cluster.", for_all=True),
    _job("transform", "transform", "transform", "Changes to the state on its way, each kind once."),
    _job(
        "data", "data", "data", "Directories the job reads or writes that are elsewhere afterwards."
    ),
    _job(
        "kafka",
        "kafka",
        "kafka",
        (
            "The brokers from which the job reads afterwards: they are asked whether they "
            "still have its offsets."
        ),
        engine="spark",
        for_all=True,
    ),
    _job(
        "sink",
        "sink",
        "sink",
        "What the job writes to. Its own log tells which batch it has last: whether the "
        "planned batch was delivered, "
        "whether a rewind is dropped, and which version of the table to restore.",
        engine="spark",
    ),
    _job(
        "also",
        "folders",
        "also",
        "Files in the checkpoint that are not Spark's and are copied, too: paths below the "
        "checkpoint, such as mine/.",
        engine="spark",
    ),
    _job(
        "verify",
        "verify",
        "verify",
        "How the target is compared with the source: by entries, by entries with a source that is "
        "read twice (once to be rewritten, once to be compared), by the digests of files, or not "
        "at all. As an object, also how the source is checked before the job is stopped: "
        "every byte that a restart needs, or names and sizes only.",
        choices=get_args(Verify),
        for_all=True,
    ),
    _job(
        "keep",
        "texts",
        "keep",
        "What the target's files and directories take over from the source: "
        f"{', '.join(get_args(Keep))}. To set the owner and group, stateshift must run as root "
        "or as HDFS's superuser.",
        for_all=True,
    ),
    _job(
        "mode",
        "choice",
        "mode",
        "move: stop the job, copy its image, start it there. warm: copy most of it while the job "
        "runs, in rounds, and stop the job for the rest. A Flink job then ends with its last "
        "checkpoint; its checkpoints must be incremental and retained. fork: the source runs on, "
        "and the copy gets a query id of its own.",
        choices=get_args(Mode),
        for_all=True,
    ),
    _job(
        "rounds",
        "count",
        "rounds",
        "Warm: at most this many rounds. Without `until`, the job is stopped after them. With "
        "`until`, it is not stopped if that was not reached.",
        for_all=True,
    ),
    _job(
        "until",
        "until",
        "until",
        (
            "Warm: the job may be stopped once the rest would take less than this to copy "
            "(remaining < 5s)."
        ),
        for_all=True,
    ),
    _job(
        "cutover",
        "cutover",
        "cutover",
        "Warm: when the job is stopped, once `until` is reached. ready: at once. manual: when "
        "you run `stateshift cutover`. 22:00-04:30: within these hours of this machine's clock, or "
        "of UTC with UTC behind them. never: not at all; each round leaves an image to start from "
        "if the source is lost.",
        for_all=True,
    ),
    _job(
        "planned_batch",
        "choice",
        "planned_batch",
        "A batch that was planned and not committed: keep its offsets, so that it runs "
        "with the same input, or drop "
        "them.",
        choices=("keep", "drop"),
        for_all=True,
    ),
    _job(
        "waive",
        "texts",
        "waive",
        f"Findings that need not stop the plan: {', '.join(WAIVERS)}.",
        for_all=True,
    ),
    _flink(
        "job_ids", "texts", "job_ids", "The ids of the running jobs of which savepoints are taken."
    ),
    _flink(
        "new_savepoint_path",
        "location",
        "new_savepoint",
        "The savepoint to write. It must not exist.",
        also=("new_savepoint",),
    ),
    _flink(
        "existing_savepoint_paths",
        "locations",
        "existing_savepoints",
        "Savepoints to start from.",
        also=("existing_savepoint_path", "existing_savepoints"),
    ),
    _flink("host", "text", "host", "The host of Flink's REST API."),
    _flink("port", "port", "port", "The port of Flink's REST API."),
    _flink(
        "target_directory",
        "location",
        "target_directory",
        "Where Flink puts the savepoints it is asked for.",
    ),
    _flink(
        "from_existing_savepoint",
        "boolean",
        "from_existing_savepoint",
        "Whether to start from existing savepoints. Left out: true if the job names savepoints. "
        "false: ignore them and take savepoints of `job_ids`.",
        for_all=True,
        implied=True,
    ),
    _flink(
        "allow_non_restored_state",
        "boolean",
        "allow_non_restored_state",
        "Whether the new job may leave out state that the savepoint holds.",
        also=("allow_non_restore_states", "allow_non_restore_state", "allow_non_restored_states"),
        for_all=True,
    ),
    _flink(
        "cancel_job", "boolean", "cancel_job", "Whether the old jobs are cancelled.", for_all=True
    ),
    _flink(
        "checkpoint_dir",
        "location",
        "checkpoint_dir",
        "Where the new job keeps its checkpoints.",
        also=("checkpoint_directory",),
        for_all=True,
    ),
)

SPEC = Keys(
    Key("$schema", "text", "Where this schema is, for editors."),
    Key("version", "version", "The version of this dialect. INFORE's dialects have none."),
    Key(
        "engine",
        "choice",
        "The engine that keeps the state. Default: flink if a key of Flink's is used, else spark.",
        Spec,
        "engine",
        choices=get_args(Engine),
        added_by="stateshift.engines",
    ),
    Key(
        "restart",
        "boolean",
        (
            "True: the jobs exist, move and start again. False: a first deployment; they are "
            "prepared and started."
        ),
        Spec,
        "restart",
    ),
    Key(
        "jobs",
        "jobs",
        "The jobs in the order in which they move: a list, or a map by name.",
        Spec,
        "jobs",
    ),
    Key(
        "waves",
        "waves",
        "Which jobs move together, phase by phase: a list of waves in their order, each a "
        "list of jobs' names; every "
        "job is in one. Left out, `strategy` says so; jobs that share a source move together.",
        Spec,
        "waves",
    ),
    Key(
        "strategy",
        "strategy",
        "Which jobs move together, if `waves` is left out. fluid (default): one after the other. "
        "all-at-once: all of them. batched(k): k at a time. optimised: as few waves as possible "
        "in which no cluster loses two jobs or receives two.",
        Spec,
        "strategy",
    ),
    Key(
        "dataflow",
        "dataflow",
        "How the operators of the jobs send to each other: a dataflow "
        "(configs/dataflow.schema.json) whose operators "
        "say which job they are of, or a file of one beside the spec. Jobs that must "
        "change at one cut move in one "
        "wave.",
        Spec,
        "dataflow",
    ),
    Key(
        "on_failure",
        "choice",
        "What happens to the other jobs when one fails. stop: nothing more starts; you decide. "
        "finish: the failed wave is rolled back, the other waves continue. rollback: the whole run "
        "is rolled back, except waves with a job that has committed at its target. discard: those "
        "waves, too.",
        Spec,
        "on_failure",
        choices=get_args(OnFailure),
    ),
    Key(
        "on",
        "on",
        "Who is notified: by event, a command or a webhook. Never keeps the run waiting.",
        Spec,
        "on",
    ),
    Key(
        "rebalance",
        "rebalance",
        "Between which clusters `stateshift rebalance` may move the jobs, and when. The jobs have "
        "no target then.",
        Spec,
        "rebalance",
    ),
    Key("clusters", "clusters", "Where jobs run: a map by name, or a list.", Spec, "clusters"),
    Key(
        "uid_hash",
        "uid_hash",
        "How an operator's name becomes its directory: a profile's name, or constants.",
        Spec,
        "uid_hash",
    ),
    Key(
        "production",
        "boolean",
        "Whether operators keep their results in <hash>_RES directories.",
        Spec,
        "production",
    ),
    Key(
        "parallel",
        "count",
        (
            "At most this many steps at once (4), and processes (one a core); small network steps "
            "may be more. 1 keeps everything in one process."
        ),
        Spec,
        "parallel",
    ),
    Key("throttle", "throttle", "Limits on what the storages are asked for."),
    *(key for key in JOB.all if key.for_all),
)

THROTTLE = Keys(
    Key(
        "bytes_per_second",
        "number",
        "Bytes read and written in a second.",
        Spec,
        "bytes_per_second",
    ),
    Key("operations_per_second", "number", "Requests in a second.", Spec, "operations_per_second"),
)

ON = Keys(
    Key(
        "ready",
        "receiver",
        "A warm job could be stopped now and waits for `stateshift cutover` or its hours; or a "
        "standby has its first image to start from.",
        Receivers,
        "ready",
    ),
    Key(
        "failed",
        "receiver",
        "The run has ended with an error, or was interrupted.",
        Receivers,
        "failed",
    ),
    Key("finished", "receiver", "The run is finished.", Receivers, "finished"),
)

RECEIVER = Keys(
    Key(
        "command",
        "words",
        "A command, word by word. It gets the event as JSON on its standard input.",
        Receiver,
        "command",
    ),
    Key(
        "url_variable",
        "text",
        "The environment variable that holds the URL of a webhook, such as Slack's.",
        Receiver,
        "url_variable",
    ),
    Key(
        "url_file",
        "location",
        "A file on this machine that holds the URL of a webhook.",
        Receiver,
        "url_file",
    ),
    Key(
        "seconds_max",
        "number",
        "How long it may take, 60 at most. Whoever runs stateshift waits that long at the end.",
        Receiver,
        "seconds_max",
    ),
)


def _rebalance(name: str, kind: str, about: str) -> Key:
    return Key(name, kind, about, Rebalancing, name)


REBALANCE = Keys(
    _rebalance(
        "clusters",
        "rebalanced_clusters",
        "The clusters that jobs may move between: a map by name. Left out, all of the spec's.",
    ),
    _rebalance("pinned", "texts", "Jobs that stay where they are: names, or patterns (audit-*)."),
    _rebalance("paused", "texts", "Jobs that are left alone for now: names, or patterns."),
    _rebalance(
        "together",
        "together",
        "Jobs that move together: a list of groups, each a list of names or patterns. Jobs of one "
        "dataflow component do so anyway.",
    ),
    _rebalance(
        "excluded",
        "excluded",
        "When nothing is moved: hours of the day (07:00-09:30), or a cron expression of five "
        "fields, whose minutes are excluded.",
    ),
    _rebalance("timezone", "text", "Whose hours these are, such as Europe/Athens."),
    _rebalance(
        "warm", "boolean", "Whether most of a job's image is copied while the job still runs."
    ),
    _rebalance(
        "load_max",
        "share",
        "A cluster's load after a move into it, as a part of its capacity: at most 1.",
    ),
    _rebalance("trigger", "number", "A cluster is too full above so many times the mean."),
    _rebalance("aim", "number", "And even enough below so many times the mean."),
    _rebalance("idle_below", "amount", "No cluster below this part of its capacity is too full."),
    _rebalance("runs", "count", "In how many runs in a row a cluster must have been too full."),
    _rebalance("gain_min", "amount", "A move must bring so many times what it costs."),
    _rebalance("horizon", "duration", "For how long a move's gain is counted (1h)."),
    _rebalance("cool_down", "duration", "A job that was moved stays for so long (1h)."),
    _rebalance(
        "remembered",
        "duration",
        "A move that did not bring what it promised is not repeated for so long (24h).",
    ),
    _rebalance("moves_max", "count", "Moves in one run from one cluster to another, at most."),
    _rebalance("age_max", "duration", "Samples that are older count for nothing (2h)."),
)

REBALANCED_CLUSTER = Keys(
    Key(
        "capacity",
        "capacity",
        "How much it has: slots of Flink, cores of Spark; or an object. Left out, it is asked.",
        RebalancedCluster,
        None,
    ),
    Key(
        "other_load",
        "amount",
        "What other jobs have of it. Left out, it is asked.",
        RebalancedCluster,
        "other_load",
    ),
    Key(
        "images",
        "location",
        "Where a job's image lies there, with {job} and {move}. Left out on all clusters, images "
        "stay where they are: all clusters must reach them.",
        RebalancedCluster,
        "images",
    ),
)

CAPACITY = Keys(
    Key("slots", "number", "How many slots it has, with Flink."),
    Key("cores", "number", "How many cores it has, with Spark."),
    Key("memory", "size", "How much memory its executors may have: bytes, or 64g."),
)

SUBMIT = Keys(
    Key(
        "environment",
        "environment",
        "Variables of the job's own environment.",
        SubmitSpec,
        "environment",
    ),
    Key(
        "seconds_max",
        "number",
        "How long to wait for the first committed batch.",
        SubmitSpec,
        "seconds_max",
    ),
    Key(
        "prepare",
        "boolean",
        "Start the job before the old one is stopped: it calls stateshift.job.wait() "
        "before its first query, and goes "
        "on when its image is there.",
        SubmitSpec,
        "prepare",
    ),
)

# One wave of `waves`.
WAVE = Key("wave", "texts", "The jobs that move together.")

STOP = Keys(
    Key("seconds_max", "number", "How long to wait for a graceful stop."),
    Key("tag", "text", "The name under which the source cluster knows the job."),
)

DATA = Keys(
    Key("source", "location", "Where the directory is now."),
    Key("target", "location", "Where it is afterwards."),
    Key("copy", "boolean", "Whether to copy its content; false if it is there already."),
)

KAFKA = Keys(
    Key(
        "bootstrap_servers",
        "text",
        "host:port of brokers, with commas.",
        KafkaSpec,
        "bootstrap_servers",
    ),
    Key(
        "properties",
        "location",
        "A file of client properties on this machine (security.protocol, sasl.mechanism): "
        "credentials are in there, and not in the spec.",
        KafkaSpec,
        "properties",
    ),
    Key(
        "source_bootstrap_servers",
        "text",
        "The brokers that the job has read so far, if they differ: `plan` compares the records "
        "around its offsets.",
        KafkaSpec,
        "source_bootstrap_servers",
    ),
    Key("source_properties", "location", "The same for these.", KafkaSpec, "source_properties"),
)

VERIFY = Keys(
    Key(
        "source",
        "choice",
        "Before the job is stopped: deep reads all that a restart needs, as `verify "
        "--deep` does; names goes by names "
        "and sizes, as `plan` does.",
        JobSpec,
        "verify_source",
        choices=get_args(VerifySource),
    ),
    Key(
        "target",
        "choice",
        "How the target is compared with the source. State that is rewritten is compared with what "
        "was read to be rewritten; `twice` reads it once more.",
        JobSpec,
        "verify",
        choices=get_args(Verify),
    ),
)

SINK = Keys(
    Key("kind", "choice", "What it is.", SinkSpec, "kind", choices=get_args(SinkKind)),
    Key(
        "location",
        "location",
        "The table's folder (delta, iceberg), or the folder of the files. Left out for a "
        "foreach-batch function that "
        "writes to no table, and for kafka.",
        SinkSpec,
        "location",
    ),
    Key(
        "idempotent_by_batch",
        "boolean",
        "foreach-batch: whether the function drops a batch whose number it has seen before.",
        SinkSpec,
        "idempotent_by_batch",
    ),
    Key(
        "transaction_id",
        "text",
        "foreach-batch: the txnAppId with which the function writes to the Delta table at "
        "the location, beside "
        "txnVersion, the batch.",
        SinkSpec,
        "transaction_id",
    ),
)

OPERATOR = Keys(
    Key("name", "text", "The operator's name, which is its UID."),
    Key("directory", "directory", "The directory somebody else made for it, beside the others."),
)

CLUSTER = Keys(
    Key("name", "text", "The name jobs call it by."),
    Key(
        "kind",
        "choice",
        "How jobs are found, stopped and started there.",
        choices=CLUSTER_KINDS,
        added_by="stateshift.clusters",
    ),
)

HASH = Keys(
    Key("name", "text", "A name for these constants."),
    Key("p", "count", "The base."),
    Key("m", "count", "The modulus."),
    Key("offset", "integer", "Added to every character's code."),
    Key("signed", "boolean", "Whether the remainder keeps its sign, as Java's % does."),
)

PROVIDERS = ("hdfs-backed", "rocksdb")
CODECS = ("lz4", "zstd", "snappy", "lzf")


_OF = (
    "Which of several Flink images is changed: its location, or the id of the job whose "
    "savepoint it is."
)


def _kind(name: str, about: str, *keys: Key) -> tuple[str, Keys]:
    return name, Keys(Key("kind", "choice", about, choices=_KINDS), *keys)


_KINDS = (
    *("rewind", "compact", "repartition", "convert", "rename", "drop", "split", "merge", "evolve"),
    *("rescale", "repair", "union"),
)

# The kinds of `transform`, each with its own keys; the first of them is always `kind`.
TRANSFORMS: Mapping[str, Keys] = dict(
    (
        _kind(
            "rewind",
            "Go back to an earlier batch.",
            Key(
                "batch",
                "batch",
                "The last batch that counts: a committed one that can still be restored.",
            ),
            Key(
                "renumber",
                "boolean",
                (
                    "Whether the batch gets the number of the newest batch, so that a sink that "
                    "skips known batch numbers accepts the next one."
                ),
            ),
        ),
        _kind(
            "compact",
            "One snapshot for each shard in place of a chain of changes.",
            Key(
                "in_place",
                "boolean",
                "Change the checkpoint itself. The job has no remote_location.",
            ),
        ),
        _kind(
            "repartition",
            "Another number of state partitions.",
            Key("partitions", "count", "How many."),
        ),
        _kind(
            "convert",
            (
                "Another state store provider, codec or checkpoint format; or another version "
                "of Flink."
            ),
            Key("provider", "choice", "What keeps the state.", choices=PROVIDERS),
            Key("codec", "choice", "What compresses it.", choices=CODECS),
            Key(
                "checkpoint_format",
                "choice",
                "v1, for a Spark that knows no other.",
                choices=("v1",),
            ),
            Key(
                "flink",
                "text",
                "Write the metadata for this version of Flink, such as 1.20.",
            ),
        ),
        _kind(
            "rename",
            (
                "Other ids for stateful operators and sources, where a changed job numbers "
                "them differently."
            ),
            Key("operators", "names", "Old id -> new id."),
            Key("of", "text", _OF),
            Key("sources", "names", "Old index or name -> new one."),
        ),
        _kind(
            "drop",
            "Leave the state of operators, or sources, behind.",
            Key("operators", "texts", "Their ids."),
            Key("of", "text", _OF),
            Key("sources", "texts", "Their indexes or names."),
        ),
        _kind(
            "split",
            "Only a part of the keys.",
            Key("by", "count", "Into how many parts the shards are divided."),
            Key("part", "batch", "Which of them this is, from 0."),
            Key("column", "text", "The key column that decides."),
            Key("values", "values", "Its values that belong to this part."),
        ),
        _kind(
            "merge",
            "The state of other checkpoints of the same query, over input of their own, is added.",
            Key("locations", "locations", "Where these are."),
            Key(
                "sum",
                "texts",
                (
                    "Columns whose values are added if a key is in several checkpoints. Without "
                    "it, such a key is refused."
                ),
            ),
        ),
        _kind(
            "rescale",
            "Another parallelism, or max parallelism, of a Flink job's keyed state.",
            Key(
                "parallelism",
                "count",
                "Of the operators with keyed state; Flink redistributes the other state itself.",
            ),
            Key(
                "max_parallelism",
                "count",
                "The number of key groups, for all operators.",
            ),
        ),
        _kind(
            "union",
            (
                "Operators that several Flink images have become one: their keys must be "
                "different ones."
            ),
            Key("operators", "texts", "Their ids, or uids, in the new image."),
        ),
        _kind(
            "repair",
            "Collect files that a Flink image expects in its own folder and that are elsewhere.",
            Key(
                "files",
                "locations",
                "Folders in which they are looked for, such as the savepoint of a CLAIM restore.",
            ),
        ),
        _kind(
            "evolve",
            "Other columns in the rows of a store, for a job whose query has changed.",
            Key("operator", "text", "The stateful operator's id."),
            Key("store", "text", "Its store, as `inspect --entries` calls it; left out, default."),
            Key(
                "add",
                "columns",
                "New columns, each with a name, a type, a default and the column it comes after.",
            ),
            Key("widen", "types", "Column -> wider type."),
            Key("rename", "types", "Column -> new name."),
            Key("drop", "texts", "Columns to remove."),
            Key(
                "nullable",
                "texts",
                "Columns that may be null from now on; * for all. Another Spark may see them so.",
            ),
            Key(
                "widen_key",
                "types",
                "The same for columns of the key: entries move to where they then belong.",
            ),
            Key("rename_key", "types", "The same for columns of the key."),
            Key("nullable_key", "texts", "The same for columns of the key."),
        ),
    )
)

COLUMN = Keys(
    Key("name", "text", "What it is called; inside of a struct, with dots."),
    Key("type", "type", "Its type, as Spark's JSON or SQL names it."),
    Key(
        "default",
        "json",
        "What it holds for keys that are there already; null where nothing is said.",
    ),
    Key("after", "name", "The column it comes after; left out, the last; blank, none."),
)

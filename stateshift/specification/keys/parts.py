"""The keys of the objects inside a spec or a job: how a job is started and stopped, what it reads
and writes, where it runs, who is notified.
"""

from __future__ import annotations

from typing import get_args

from stateshift.specification.keys.key import Key, Keys
from stateshift.specification.model import (
    JobSpec,
    KafkaSpec,
    Receiver,
    Receivers,
    SinkKind,
    SinkSpec,
    SourceKind,
    SourceSpec,
    Spec,
    SubmitSpec,
    Verify,
    VerifySource,
)

CLUSTER_KINDS = ("manual", "command", "spark_submit", "livy", "spark_standalone", "flink_rest")

PROFILES = ("default", "java-signed")

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
    Key(
        "submit_check",
        "text",
        "A shell command that is run on this machine before the old job is stopped. If it exits "
        "with anything but 0, the move is refused (exit code 4) with its last lines. It gets "
        "STATESHIFT_JOB, STATESHIFT_CHECKPOINT and STATESHIFT_OPTIONS.",
        SubmitSpec,
        "check",
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

SOURCE = Keys(
    Key("kind", "choice", "What it is.", SourceSpec, "kind", choices=get_args(SourceKind)),
    Key("location", "location", "The table's folder.", SourceSpec, "location"),
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

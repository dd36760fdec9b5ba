"""The keys of a job, Flink's among them, and of the objects inside a job: for each of these its
keys, and how it is read. Keys that are `for_all` may stand beside `jobs`, too.

    operators   ["A", "B"]  or  [{"name": "A", "directory": "d"}]  or  {"A": "d", "B": null}
    submit      {"environment": {...}, "seconds_max": 300, anything the cluster takes}
    data        [{"source": ..., "target": ..., "copy": true}]
    kafka       {"bootstrap_servers": "host:9092,other:9092", "properties": "client.properties",
                 "source_bootstrap_servers": "old:9092", "source_properties": "old.properties"}
    sink        {"kind": "delta", "location": "s3://lake/orders"}
    standby     {"rpo": "5min"}
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

from stateshift.specification.changes import CHANGE_LIST
from stateshift.specification.key import (
    Key,
    Keys,
    Kind,
    Reader,
    Values,
    array,
    either,
    map_to,
    present,
    reference,
)
from stateshift.specification.model import (
    WAIVERS,
    DataSpec,
    DrillSpec,
    FlinkJob,
    JobSpec,
    KafkaSpec,
    Keep,
    Mode,
    OperatorSpec,
    SinkKind,
    SinkSpec,
    SourceKind,
    SourceSpec,
    StandbySpec,
    SubmitSpec,
    TakeBack,
    TakeOver,
    Verify,
    VerifySource,
)
from stateshift.specification.place import Place
from stateshift.specification.text import refuse_secrets
from stateshift.specification.values import (
    BATCH,
    BOOLEAN,
    CHOICE,
    CLUSTER,
    CONNECTION,
    COUNT,
    CUTOVER,
    DIRECTORY,
    DURATION,
    ENVIRONMENT,
    FOLDERS,
    LOCATION,
    LOCATIONS,
    NUMBER,
    PAGE,
    PORT,
    SOME_TEXT,
    TEXT,
    TEXTS,
    UNTIL,
    is_host_port,
    object_of,
    words_in_any_case,
)

NEED_LOCATION = ("delta", "iceberg", "file")
# catalog.schema.table, or schema.table, with backquotes or without.
_CATALOG_NAME = re.compile(r"(?:`[^`/]+`|\w+)(?:\.(?:`[^`/]+`|\w+)){1,3}")


# -------------------------------------------------------------------------- operators

OPERATOR = Keys(
    None,
    name=TEXT("The operator's name, which is its UID."),
    directory=DIRECTORY("The directory somebody else made for it, beside the others."),
)


def _operators(reader: Reader, key: Key, place: Place) -> tuple[OperatorSpec, ...]:
    operators = []
    if isinstance(place.value, dict):
        for name, directory in place.value.items():
            below = place / name
            if not name.strip():
                reader.complaints.add(below, "a blank name", "the operator's name")
            if directory is not None:
                directory = reader.value(OPERATOR["directory"], below)
            operators.append(OperatorSpec(name, directory))
        return tuple(operators)
    for item in reader.items(place, "a list of names, or a map from name to directory"):
        if isinstance(item.value, dict):
            fields = reader.object(OPERATOR, item, "name")
        else:
            name = reader.value(OPERATOR["name"], item)
            fields = None if name is None else {"name": name}
        if fields is not None:
            operators.append(OperatorSpec(**fields))
    return tuple(operators)


OPERATOR_LIST = Kind(
    "operators",
    _operators,
    either(array(either(SOME_TEXT, reference("operator"))), map_to(DIRECTORY.schema)),
    shared=True,
)


# -------------------------------------------------------------------------- start and stop

SUBMIT = Keys(
    SubmitSpec,
    environment=ENVIRONMENT("Variables of the job's own environment."),
    seconds_max=NUMBER("How long to wait for the first committed batch."),
    prepare=BOOLEAN(
        "Start the job before the old one is stopped: it calls stateshift.job.wait() before its "
        "first query, and goes on when its image is there."
    ),
    submit_check=TEXT(
        "A shell command that is run on this machine before the old job is stopped. If it exits "
        "with anything but 0, the move is refused (exit code 4) with its last lines. It gets "
        "STATESHIFT_JOB, STATESHIFT_CHECKPOINT and STATESHIFT_OPTIONS.",
        field="check",
    ),
)

STOP = Keys(
    None,
    seconds_max=NUMBER("How long to wait for a graceful stop."),
    tag=TEXT("The name under which the source cluster knows the job."),
)


def _submit(reader: Reader, key: Key, place: Place) -> SubmitSpec:
    refuse_secrets(reader.complaints, place)
    known, options = reader.split(place, SUBMIT)
    return SubmitSpec(place.picked(options), **reader.fields(SUBMIT, known))


def _stop(reader: Reader, key: Key, place: Place) -> Values:
    refuse_secrets(reader.complaints, place)
    known, options = reader.split(place, STOP)
    return {**reader.fields(STOP, known), **place.picked(options)}


SUBMIT_OBJECT = Kind("submit", _submit, reference("submit"))
STOP_OBJECT = Kind("stop", _stop, reference("stop"))


# -------------------------------------------------------------------------- data and sources

DATA = Keys(
    None,
    source=LOCATION("Where the directory is now."),
    target=LOCATION("Where it is afterwards."),
    copy=BOOLEAN("Whether to copy its content; false if it is there already."),
)

SOURCE = Keys(
    SourceSpec,
    kind=CHOICE("What it is.", choices=get_args(SourceKind)),
    location=LOCATION("The table's folder."),
)


def _data(reader: Reader, key: Key, place: Place) -> tuple[DataSpec, ...]:
    items = reader.items(place, "a list of {source, target, copy}")
    read = present(reader.object(DATA, item, "source", "target") for item in items)
    return tuple(DataSpec(**fields) for fields in read)


def _sources(reader: Reader, key: Key, place: Place) -> tuple[SourceSpec, ...]:
    sources = []
    for item in reader.items(place, "a list of {kind, location}"):
        known = reader.known_with(item, SOURCE, "kind", "location")
        if known is not None:
            _refuse_catalog_name(reader, known["location"])
            fields = reader.fields(SOURCE, known)
            if {"kind", "location"} <= fields.keys():
                sources.append(SourceSpec(**fields))
    return tuple(sources)


def _refuse_catalog_name(reader: Reader, place: Place) -> None:
    """Complain of a table that is named as a catalog names it, and not by its place."""
    if isinstance(place.value, str) and _CATALOG_NAME.fullmatch(place.value.strip()):
        message = f"{place.value!r} is the name of a table in a catalog, or a relative path"
        expected = (
            "where the table lies, such as s3://lake/orders (DESCRIBE DETAIL says it), or "
            f"./{place.value} for a path"
        )
        reader.complaints.add(place, message, expected)


DATA_LIST = Kind("data", _data, array(reference("datum")))
SOURCE_LIST = Kind("sources", _sources, array(reference("source")))


# -------------------------------------------------------------------------- sink

SINK = Keys(
    SinkSpec,
    kind=CHOICE("What it is.", choices=get_args(SinkKind)),
    location=LOCATION(
        "The table's folder (delta, iceberg), or the folder of the files. Left out for a "
        "foreach-batch function that writes to no table, and for kafka."
    ),
    idempotent_by_batch=BOOLEAN(
        "foreach-batch: whether the function drops a batch whose number it has seen before."
    ),
    transaction_id=TEXT(
        "foreach-batch: the txnAppId with which the function writes to the Delta table at the "
        "location, beside txnVersion, the batch."
    ),
)


def _sink(reader: Reader, key: Key, place: Place) -> SinkSpec | None:
    known = reader.known_with(place, SINK, "kind")
    if known is None:
        return None
    fields = reader.fields(SINK, known)
    kind = fields.get("kind")
    if kind in NEED_LOCATION:
        reader.need(place, known, "location")
    if "location" in known:
        _refuse_catalog_name(reader, known["location"])
    for name in ("idempotent_by_batch", "transaction_id"):
        if name in known and kind not in (None, "foreach-batch"):
            message = f"{name!r} is for a foreach-batch function, and this is {kind}"
            reader.complaints.add(known[name], message, '"kind": "foreach-batch", or without it')
    if "transaction_id" in known and "location" not in known:
        message = "'transaction_id' without 'location': no table's log can be read"
        reader.complaints.add(known["transaction_id"], message, "'location': the Delta table")
    return SinkSpec(**fields) if kind is not None else None


SINK_OBJECT = Kind("sink", _sink, reference("sink"))


# -------------------------------------------------------------------------- kafka

KAFKA = Keys(
    KafkaSpec,
    bootstrap_servers=TEXT("host:port of brokers, with commas."),
    properties=LOCATION(
        "A file of client properties on this machine (security.protocol, sasl.mechanism): "
        "credentials are in there, and not in the spec."
    ),
    source_bootstrap_servers=TEXT(
        "The brokers that the job has read so far, if they differ: `plan` compares the records "
        "around its offsets."
    ),
    source_properties=LOCATION("The same for these."),
)


def _kafka(reader: Reader, key: Key, place: Place) -> KafkaSpec | None:
    """Read servers in one spelling, and files on this machine; the source's need its servers."""
    known = reader.known_with(place, KAFKA, "bootstrap_servers")
    if known is None:
        return None
    fields = reader.fields(KAFKA, known)
    for name in ("bootstrap_servers", "source_bootstrap_servers"):
        if name in fields:
            servers = [server.strip() for server in fields[name].split(",")]
            fields[name] = ",".join(servers)
            if not all(map(is_host_port, servers)):
                reader.refuse(known[name], "host:port, or several with commas")
                return None
    for name in ("properties", "source_properties"):
        if not fields.get(name, "file://").startswith("file://"):
            reader.refuse(known[name], "a file on this machine")
            return None
    needed = ["source_bootstrap_servers"] if "source_properties" in known else []
    is_whole = reader.need(place, known, *needed) and "bootstrap_servers" in fields
    return KafkaSpec(**fields) if is_whole else None


KAFKA_OBJECT = Kind("kafka", _kafka, reference("kafka"))


# -------------------------------------------------------------------------- drill

DRILL = Keys(
    DrillSpec,
    location=LOCATION(
        "The scratch place, which is empty before and after. Left out: beside the standby, with "
        "`-drill` behind its name."
    ),
    cluster=CLUSTER("Where the job is started. Left out: `target_cluster`."),
    submit=SUBMIT_OBJECT(
        "How the job is started for a drill, so that its output goes elsewhere. Left out, of a "
        "PySpark file: by spark-submit on this machine, with each sink replaced by `noop`."
    ),
)
DRILL_OBJECT = Kind("drill", object_of(DRILL, DrillSpec), reference("drill"))


# -------------------------------------------------------------------------- take-over

TAKE_OVER = Keys(
    TakeOver,
    generation=COUNT("The number under which the location is claimed: one more than the last."),
    fed_by=TEXT("The run that has fed the standby, and holds its lock."),
    primary=LOCATION("Where the job's image was. It is fenced, if its storage answers."),
    cluster=CLUSTER("Where the job ran. It is stopped there, if that answers."),
    epoch=BATCH("The batch or checkpoint to start from, instead of the newest one."),
)


def _take_over(reader: Reader, key: Key, place: Place) -> TakeOver | None:
    known = reader.known_with(place, TAKE_OVER, "generation", "fed_by")
    if known is None:
        return None
    fields = reader.fields(TAKE_OVER, known)
    return TakeOver(**fields) if {"generation", "fed_by"} <= fields.keys() else None


TAKE_OVER_OBJECT = Kind("take_over", _take_over, reference("take_over"))

TAKE_BACK = Keys(
    TakeBack,
    generation=COUNT("The number under which the standby is claimed: one more than the last."),
    epoch=BATCH("The batch from which the failover has started the job."),
)


def _take_back(reader: Reader, key: Key, place: Place) -> TakeBack | None:
    known = reader.known_with(place, TAKE_BACK, "generation")
    if known is None:
        return None
    fields = reader.fields(TAKE_BACK, known)
    return TakeBack(**fields) if "generation" in fields else None


TAKE_BACK_OBJECT = Kind("take_back", _take_back, reference("take_back"))


# -------------------------------------------------------------------------- standby

STANDBY = Keys(
    StandbySpec,
    rpo=DURATION(
        "How much of the source's work may be lost at most, such as 5min: `on.rpo` is notified "
        "once it would be more, and once it is less again. The next round begins after a quarter "
        "of it, or after 10 s if that is sooner."
    ),
)


STANDBY_OBJECT = Kind("standby", object_of(STANDBY, StandbySpec), reference("standby"))


# -------------------------------------------------------------------------- verify

VERIFY = Keys(
    JobSpec,
    source=CHOICE(
        "Before the job is stopped: deep reads all that a restart needs, as `verify --deep` does; "
        "names goes by names and sizes, as `plan` does.",
        field="verify_source",
        choices=get_args(VerifySource),
    ),
    target=CHOICE(
        "How the target is compared with the source. State that is rewritten is compared with what "
        "was read to be rewritten; `twice` reads it once more.",
        field="verify",
        choices=get_args(Verify),
    ),
)


def _verify(reader: Reader, key: Key, place: Place) -> object:
    """Read a word for how the target is compared; or an object for both ends."""
    if isinstance(place.value, dict):
        return reader.fields(VERIFY, reader.known(place, VERIFY))
    return reader.value(VERIFY["target"], place)


VERIFY_VALUE = Kind(
    "verify",
    _verify,
    either(
        {"enum": list(get_args(Verify))},
        words_in_any_case(get_args(Verify)),
        reference("verify_ends"),
    ),
)
# -------------------------------------------------------------------------- a job

_FLINKS = Keys(
    FlinkJob,
    job_ids=TEXTS("The ids of the running jobs of which savepoints are taken."),
    new_savepoint_path=LOCATION(
        "The savepoint to write. It must not exist.", field="new_savepoint", also=("new_savepoint",)
    ),
    existing_savepoint_paths=LOCATIONS(
        "Savepoints to start from.",
        field="existing_savepoints",
        also=("existing_savepoint_path", "existing_savepoints"),
    ),
    host=TEXT("The host of Flink's REST API."),
    port=PORT("The port of Flink's REST API."),
    target_directory=LOCATION("Where Flink puts the savepoints it is asked for."),
    from_existing_savepoint=BOOLEAN(
        "Whether to start from existing savepoints. Left out: true if the job names savepoints. "
        "false: ignore them and take savepoints of `job_ids`.",
        for_all=True,
        implied=True,
    ),
    allow_non_restored_state=BOOLEAN(
        "Whether the new job may leave out state that the savepoint holds.",
        also=("allow_non_restore_states", "allow_non_restore_state", "allow_non_restored_states"),
        for_all=True,
    ),
    cancel_job=BOOLEAN("Whether the old jobs are cancelled.", for_all=True),
    checkpoint_dir=LOCATION(
        "Where the new job keeps its checkpoints.", also=("checkpoint_directory",), for_all=True
    ),
)

JOB = Keys(
    JobSpec,
    *(replace(key, engine="flink", blank_is_off=True) for key in _FLINKS.all),
    name=TEXT("The job's name, unique in this spec.", also=("job_name",)),
    checkpoint_location=LOCATION(
        "Where the job's image is now: a URL, or a local path (a relative one starts where the "
        "spec lies).",
        field="source",
        hints_at="spark",
    ),
    remote_location=LOCATION(
        "Where the image goes. Left out or blank, the job stays where it is.",
        field="target",
        hints_at="spark",
        blank_is_off=True,
    ),
    merge=BOOLEAN(
        "Whether the content of `merge_jobs` is moved into the checkpoint location first. With "
        "`version`, the default is true if there are `merge_jobs`. In INFORE's dialect (without "
        "`version`), `merge_jobs` are ignored until it is true.",
        engine="spark",
    ),
    merge_jobs=LOCATIONS(
        "Directories on the same file system whose content is moved into the checkpoint location "
        "first: a list, or one text with commas.",
        field="merge_locations",
        engine="spark",
        blank_is_off=True,
    ),
    remote=BOOLEAN(
        "Whether the job is started at `remote_connection`. With `version`, the default is true if "
        "there is a connection. In INFORE's dialect (without `version`), the connection is ignored "
        "until it is true.",
        engine="spark",
    ),
    remote_connection=CONNECTION(
        "host:port (or scheme://host:port) at which the job is started. Overrides the cluster's "
        "address.",
        field="connection",
        engine="spark",
        blank_is_off=True,
    ),
    operators=OPERATOR_LIST(
        "The stateful operators by name: a list of names, a list of {name, directory}, or a map "
        "from name to directory. Give a directory only if its name is not the hash of the "
        "operator's name."
    ),
    source_cluster=CLUSTER("The cluster that runs the job now.", for_all=True),
    target_cluster=CLUSTER("The cluster that runs it afterwards.", for_all=True),
    submit=SUBMIT_OBJECT("How the job is started on the target cluster.", for_all=True),
    source_submit=SUBMIT_OBJECT("How a rollback starts it on the source again.", for_all=True),
    stop=STOP_OBJECT("How the job is stopped on the source cluster.", for_all=True),
    transform=CHANGE_LIST("Changes to the state on its way, each kind once."),
    data=DATA_LIST("Directories the job reads or writes that are elsewhere afterwards."),
    kafka=KAFKA_OBJECT(
        "The brokers from which the job reads afterwards: they are asked whether they still have "
        "its offsets. Of a Flink job: with a `reposition`.",
        for_all=True,
    ),
    driver_ui=PAGE(
        "The page of the job's driver, such as http://driver:4040, which `advise` and `rebalance` "
        "ask.",
        engine="spark",
    ),
    driver_ca_file=TEXT(
        "The certificate authority that signed the driver's key, where its page is https.",
        engine="spark",
        for_all=True,
    ),
    sources=SOURCE_LIST(
        "The Delta tables that the job reads afterwards: whether each still has what the job reads "
        "next, and is the same table.",
        engine="spark",
    ),
    sink=SINK_OBJECT(
        "What the job writes to. Its own log tells which batch it has last: whether the planned "
        "batch was delivered, whether a rewind is dropped, and which version of the table to "
        "restore.",
        engine="spark",
    ),
    also=FOLDERS(
        "Files in the checkpoint that are not Spark's and are copied, too: paths below the "
        "checkpoint, such as mine/.",
        engine="spark",
    ),
    was_at=LOCATION(
        "Where the checkpoint was when it was made, if it was copied by other means since (distcp, "
        "a renamed bucket): its files name that place, and are rewritten.",
        engine="spark",
        blank_is_off=True,
    ),
    takes_over=TAKE_OVER_OBJECT(
        "The standby that the job is started from, as `stateshift failover` writes it: its claim, "
        "and the primary.",
    ),
    drill=DRILL_OBJECT(
        "Standby: how `stateshift drill` rehearses its start. An empty object rehearses a PySpark "
        "file.",
    ),
    rehearses=BOOLEAN(
        "Whether this is a drill, as `stateshift drill` writes it: what is copied and started is "
        "thrown away in the end.",
    ),
    takes_back=TAKE_BACK_OBJECT(
        "The standby from which the job goes home, as `stateshift failback` writes it: its claim.",
    ),
    set_aside=BOOLEAN(
        "Warm: whether files that are at the target already are set aside, and those that are the "
        "same there left where they are, instead of a refusal. They go to "
        "_stateshift/aside-RUN below the target; a rollback puts them back.",
        engine="spark",
    ),
    verify=VERIFY_VALUE(
        "How the target is compared with the source: by entries, by entries with a source that is "
        "read twice (once to be rewritten, once to be compared), by the digests of files, or not "
        "at all. As an object, also how the source is checked before the job is stopped: every "
        "byte that a restart needs, or names and sizes only.",
        choices=get_args(Verify),
        for_all=True,
    ),
    keep=TEXTS(
        "What the target's files and directories take over from the source: "
        f"{', '.join(get_args(Keep))}. To set the owner and group, stateshift must run as root or "
        "as HDFS's superuser.",
        for_all=True,
    ),
    sync=BOOLEAN(
        "Fork: whether to wait until the copy is on disk. false, for a scratch copy on a local "
        "disk, is quicker; a power cut can then lose the copy.",
        for_all=True,
    ),
    mode=CHOICE(
        "move: stop the job, copy its image, start it there. warm: copy most of it while the job "
        "runs, in rounds, and stop the job for the rest; the engine's page says what its "
        "checkpoints need for that. fork: the source runs on, and the copy is a job of its own.",
        choices=get_args(Mode),
        for_all=True,
    ),
    rounds=COUNT(
        "Warm: at most this many rounds. Without `until`, the job is stopped after them. With "
        "`until`, it is not stopped if that was not reached.",
        for_all=True,
    ),
    until=UNTIL(
        "Warm: the job may be stopped once the rest would take less than this to copy (remaining < "
        "5s).",
        for_all=True,
    ),
    cutover=CUTOVER(
        "Warm: when the job is stopped, once `until` is reached. ready: at once. manual: when you "
        "run `stateshift cutover`. 22:00-04:30: within these hours of this machine's clock, or of "
        "UTC with UTC behind them. never: not at all; each round leaves an image to start from if "
        "the source is lost.",
        for_all=True,
    ),
    standby=STANDBY_OBJECT(
        "What a standby is to keep to: a warm job that is never cut over.", for_all=True
    ),
    planned_batch=CHOICE(
        "A batch that was planned and not committed: keep its offsets, so that it runs with the "
        "same input, or drop them.",
        choices=("keep", "drop"),
        for_all=True,
    ),
    waive=TEXTS(f"Findings that need not stop the plan: {', '.join(WAIVERS)}.", for_all=True),
)

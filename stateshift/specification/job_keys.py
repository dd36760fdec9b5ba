"""The keys of a job, Flink's among them. Those that are `for_all` may stand beside `jobs`, too."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from stateshift.specification.changes import CHANGE_LIST
from stateshift.specification.key import Keys
from stateshift.specification.model import WAIVERS, FlinkJob, JobSpec, Keep, Mode, Verify
from stateshift.specification.parts import (
    DATA_LIST,
    KAFKA_OBJECT,
    OPERATOR_LIST,
    SINK_OBJECT,
    SOURCE_LIST,
    STOP_OBJECT,
    SUBMIT_OBJECT,
    VERIFY_VALUE,
)
from stateshift.specification.values import (
    BOOLEAN,
    CHOICE,
    CONNECTION,
    COUNT,
    CUTOVER,
    FOLDERS,
    LOCATION,
    LOCATIONS,
    PAGE,
    PORT,
    TEXT,
    TEXTS,
    UNTIL,
)

_OURS = Keys(
    JobSpec,
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
    source_cluster=TEXT("The cluster that runs the job now.", for_all=True),
    target_cluster=TEXT("The cluster that runs it afterwards.", for_all=True),
    submit=SUBMIT_OBJECT("How the job is started on the target cluster.", for_all=True),
    source_submit=SUBMIT_OBJECT("How a rollback starts it on the source again.", for_all=True),
    stop=STOP_OBJECT("How the job is stopped on the source cluster.", for_all=True),
    transform=CHANGE_LIST("Changes to the state on its way, each kind once."),
    data=DATA_LIST("Directories the job reads or writes that are elsewhere afterwards."),
    kafka=KAFKA_OBJECT(
        "The brokers from which the job reads afterwards: they are asked whether they still have "
        "its offsets.",
        engine="spark",
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
        "runs, in rounds, and stop the job for the rest. A Flink job then ends with its last "
        "checkpoint; its checkpoints must be incremental and retained. fork: the source runs on, "
        "and the copy gets a query id of its own.",
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
    planned_batch=CHOICE(
        "A batch that was planned and not committed: keep its offsets, so that it runs with the "
        "same input, or drop them.",
        choices=("keep", "drop"),
        for_all=True,
    ),
    waive=TEXTS(f"Findings that need not stop the plan: {', '.join(WAIVERS)}.", for_all=True),
)

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

JOB = _OURS.with_keys(replace(key, engine="flink", blank_is_off=True) for key in _FLINKS.all)

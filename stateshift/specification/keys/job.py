"""The keys of a job, Flink's among them. Those that are `for_all` may stand beside `jobs`, too."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict, Unpack, get_args

from stateshift.specification.keys.key import Engine, Key, Keys
from stateshift.specification.model import WAIVERS, FlinkJob, JobSpec, Keep, Mode, Verify


class _More(TypedDict, total=False):
    """What is said of some keys only; `Key` says what it means."""

    also: tuple[str, ...]
    choices: tuple[str, ...]
    engine: Engine
    hints_at: Engine
    blank_is_off: bool
    for_all: bool
    implied: bool


def _job(name: str, kind: str, field: str | None, about: str, **more: Unpack[_More]) -> Key:
    return Key(name, kind, about, JobSpec, field, **more)


def _flink(name: str, kind: str, field: str, about: str, **more: Unpack[_More]) -> Key:
    key = Key(name, kind, about, FlinkJob, field, **more)
    return replace(key, engine="flink", blank_is_off=True)


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
        "driver_ui",
        "page",
        "driver_ui",
        "The page of the job's driver, such as http://driver:4040, which `advise` and `rebalance` "
        "ask.",
        engine="spark",
    ),
    _job(
        "driver_ca_file",
        "text",
        "driver_ca_file",
        "The certificate authority that signed the driver's key, where its page is https.",
        engine="spark",
        for_all=True,
    ),
    _job(
        "sources",
        "sources",
        "sources",
        "The Delta tables that the job reads afterwards: whether each still has what the job reads "
        "next, and is the same table.",
        engine="spark",
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
        "was_at",
        "location",
        "was_at",
        "Where the checkpoint was when it was made, if it was copied by other means since (distcp, "
        "a renamed bucket): its files name that place, and are rewritten.",
        engine="spark",
        blank_is_off=True,
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
        "sync",
        "boolean",
        "sync",
        "Fork: whether to wait until the copy is on disk. false, for a scratch copy on a local "
        "disk, is quicker; a power cut can then lose the copy.",
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

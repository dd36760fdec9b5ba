"""A request of the user as frozen values. No text, no keys of any dialect: `parse` reads those, and
the tables of keys say what each field means (`spec_keys`, `job_keys`, `rebalancing`).

    Spec                 one migration
      jobs                 in the order in which they move
        source, target       locations; without a target the job stays where it is
        merge_locations      directories whose content joins the source first (Algorithm 5)
        operators            names (= UIDs), with the directory where somebody else chose one
        flink                only in Flink's dialect; the source is then the first of its existing
                             savepoints, or the folder in which Flink puts the one it is asked for
      waves                which of them move together, by name; empty where `strategy` says it
                           (`dataflow.wave_strategy`)

Locations are in the normal form of `location`: file:///a/b for every spelling of a local path,
other URLs as typed but for the scheme's case and the slashes at their ends (`s3a` stays `s3a`: the
job has to be told it that way).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from stateshift.plain import JsonObject
from stateshift.specification.dataflow.operators import Dataflow
from stateshift.specification.grammars import NEVER, READY
from stateshift.specification.transform import Change, Repair, find_change

JOB_STOPPED = "job-stopped"  # the waiver: somebody has seen that the job does not run
# The findings that may be waived, by the names that the findings give, and what the person who
# waives one takes responsibility for.
WAIVERS: Mapping[str, str] = {
    "paths-stay": "The log names input files by absolute path. They stay there, and the job reads "
    "them there.",
    "older-target": "The target's Spark is older than the source's, or than the one that wrote "
    "the checkpoint.",
    "zip-format": "The snapshots (checkpoint format 2) have the version number of another Spark, "
    "which the target's Spark refuses.",
    "list-state": "State of `transformWithState` goes from Spark 4.2 or later to 4.0 or 4.1. "
    "Its processors use no list state.",
    "old-state": "A Spark before 3.0 wrote the state. Its join is an inner join, and no decimals "
    "are summed.",
    "operators-stay": "Some operators of a workflow stay behind.",
    "operator-numbers": "There is a hole among the numbers of a query's operators. It will be "
    "filled before a job starts from the copy.",
    "permission": "A directory says that we may not write to it.",
    "space": "There is less free space, or a smaller quota of files, than the move needs.",
    "target-reach": "The cluster shares this local disk, or its Spark has a file system that "
    "Apache's has not.",
    JOB_STOPPED: "The job is stopped. Its cluster cannot tell (`spark_submit` with a master "
    "such as YARN), or does not know a warm job whose files are new; or the Flink job that runs "
    "there is another one than the image's.",
    "job-settings": "The Flink program sets by itself what its job's settings are now.",
    "submit-trial": "The target refuses to try the start of the job, and its real start works.",
    "free-slots": "The Flink cluster will have enough free slots for the job's `parallelism`.",
    "kryo": "Kryo of another Flink version wrote this state. The restore was tried, and works.",
    "key-hash": "Too few keys of a Flink job show how it hashes Rows, RowData or its own objects. "
    "Those that there are do agree.",
    "operator-state": "The Flink job has no operator state, which a Flink before 1.18 would not "
    "read.",
    "repeated-batches": "The sink accepts a batch again under a number that it already has. It "
    "is no Delta table, Iceberg table or file sink.",
    "lost-offsets": "Kafka, or a Delta table, has lost what the job has not read, or could not be "
    "asked.",
    "other-records": "The records around the job's offsets are not those that the job has read, "
    "or could not be compared.",
    "several-cuts": "Jobs are started from standbys that have no common cut: what one of them "
    "writes and another one reads is read twice, or not put out again.",
    "open-transactions": "What a Flink job's sinks have begun and not committed is left out: of a "
    "fork, and a Kafka sink's transactions of a repositioned image.",
    "sink-ahead": "The sink has batches that the checkpoint has not planned yet. It drops the "
    "job's output of these batches.",
}

Mode = Literal["move", "fork", "warm"]
Verify = Literal["entries", "twice", "digests", "none"]
VerifySource = Literal["deep", "names"]
Keep = Literal["owner", "permissions"]
SourceKind = Literal["delta"]
SinkKind = Literal["delta", "iceberg", "file", "foreach-batch", "kafka"]

# Stop there and let a person decide; take the wave that failed back and finish the others; take the
# whole run back, as far as no job has committed on its target since; take back those, too.
OnFailure = Literal["restart", "stop", "finish", "rollback", "discard"]


@dataclass(frozen=True, slots=True)
class HashProfile:
    """The constants of a polynomial rolling hash: sum of (code + offset) * p^i, mod m each time."""

    name: str = "default"
    p: int = 31
    m: int = 1_000_000_009
    offset: int = -96
    signed: bool = False


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """An operator by its name, its UID. `directory`: somebody else's (IS-7, IS-9)."""

    name: str
    directory: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A named cluster. `options` are the kind's own: the adapter checks them."""

    name: str
    kind: str
    options: JsonObject = field(default_factory=dict)


SUBMIT_SECONDS_MAX = 300.0  # for the first committed batch, where the spec does not say


@dataclass(frozen=True, slots=True)
class SubmitSpec:
    """The start of a job. `options` are the cluster kind's own (application, arguments, conf,
    command, ...). With `prepare` it waits for its image (`stateshift.job.wait`).
    """

    options: JsonObject = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds_max: float = SUBMIT_SECONDS_MAX
    prepare: bool = False
    check: str | None = None


@dataclass(frozen=True, slots=True)
class DataSpec:
    """A directory that the job reads or writes, and that is elsewhere afterwards. Without `copy` it
    is there already. The image's references to it are rewritten either way.
    """

    source: str
    target: str
    copy: bool = True


@dataclass(frozen=True, slots=True)
class KafkaSpec:
    """The brokers that the job reads afterwards, and has read so far: no checkpoint names them."""

    bootstrap_servers: str
    properties: str | None = None
    source_bootstrap_servers: str | None = None
    source_properties: str | None = None

    @property
    def turned(self) -> KafkaSpec:
        """The brokers of a job that goes the other way; without others, those are the same."""
        if self.source_bootstrap_servers is None:
            return self
        return KafkaSpec(
            bootstrap_servers=self.source_bootstrap_servers,
            properties=self.source_properties,
            source_bootstrap_servers=self.bootstrap_servers,
            source_properties=self.properties,
        )


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A table that the job reads afterwards: offsets of its checkpoint do not name its place."""

    kind: SourceKind
    location: str


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """The sink of the job. A foreach-batch function and Kafka may have no location."""

    kind: SinkKind
    location: str | None = None
    idempotent_by_batch: bool | None = None
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True)
class DrillSpec:
    """A rehearsal of a standby's start: its scratch place, and how the job is started there. Left
    out, they are beside the standby; on the target cluster; in a local Spark, without its sink.
    """

    location: str | None = None
    cluster: str | None = None
    submit: SubmitSpec | None = None


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A job that is started from its standby: the claim it makes there, the run that fed it, and
    the primary, which may not go on; from the newest epoch, or from the one that somebody names.
    """

    generation: int
    fed_by: str
    primary: str | None = None
    cluster: str | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class StandbySpec:
    """The bound that a standby keeps to: so many seconds of its source's work may be lost."""

    rpo: float | None = None


@dataclass(frozen=True, slots=True)
class TakeBack:
    """A job that goes back from its standby to where its primary was: the claim that it makes at
    the standby, and the epoch from which it had been started there.
    """

    generation: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver of notifications: a command, or a webhook, whose URL is a credential."""

    command: tuple[str, ...] = ()
    url_variable: str | None = None
    url_file: str | None = None
    seconds_max: float = 10.0


@dataclass(frozen=True, slots=True)
class Receivers:
    """The receivers by event."""

    ready: Receiver | None = None
    failed: Receiver | None = None
    finished: Receiver | None = None
    rpo: Receiver | None = None


@dataclass(frozen=True, slots=True)
class RebalancedCluster:
    """A cluster that jobs move to and from. `capacity` is in slots of Flink or cores of Spark,
    `memory` in bytes; None is asked. `images` has `{job}` and `{move}`, a move's number.
    """

    name: str
    capacity: float | None = None
    memory: int | None = None
    other_load: float | None = None
    images: str | None = None


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """The clusters between which jobs may be moved, and when. Jobs are named by their names or by
    patterns of them; times are seconds.
    """

    clusters: tuple[RebalancedCluster, ...] = ()
    pinned: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    excluded: tuple[str, ...] = ()
    timezone: str = "UTC"
    warm: bool = False
    load_max: float = 0.8
    trigger: float = 1.1
    aim: float = 1.05
    idle_below: float = 0.2
    runs: int = 2
    runs_within: float = 7200.0
    gain_min: float = 2.0
    relief_min: float = 0.1
    horizon: float = 3600.0
    cool_down: float = 3600.0
    remembered: float = 86400.0
    moves_max: int = 1
    age_max: float = 7200.0
    scale: bool = False
    parallelism_min: int = 1
    parallelism_max: int | None = None


@dataclass(frozen=True, slots=True)
class FlinkJob:
    """The keys of INFORE's dialect for Flink (IF-1). `cancel_job`: true takes savepoints and
    cancels, false lets the jobs go on; left out, they end with their savepoints.
    """

    job_ids: tuple[str, ...] = ()
    new_savepoint: str | None = None
    existing_savepoints: tuple[str, ...] = ()
    host: str | None = None
    port: int | None = None
    target_directory: str | None = None
    from_existing_savepoint: bool = False
    allow_non_restored_state: bool = False
    cancel_job: bool | None = None
    checkpoint_dir: str | None = None

    @property
    def followed(self) -> FlinkJob:
        """The keys of a job that runs, and is followed by its checkpoints."""
        settings = self.allow_non_restored_state
        return FlinkJob(job_ids=self.job_ids, allow_non_restored_state=settings)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job and what becomes of it."""

    name: str
    source: str
    target: str | None = None
    merge_locations: tuple[str, ...] = ()
    connection: str | None = None
    operators: tuple[OperatorSpec, ...] = ()
    source_cluster: str | None = None
    target_cluster: str | None = None
    submit: SubmitSpec | None = None
    source_submit: SubmitSpec | None = None
    stop: JsonObject = field(default_factory=dict)
    transform: tuple[Change, ...] = ()
    data: tuple[DataSpec, ...] = ()
    kafka: KafkaSpec | None = None
    driver_ui: str | None = None
    driver_ca_file: str | None = None
    sources: tuple[SourceSpec, ...] = ()
    sink: SinkSpec | None = None
    also: tuple[str, ...] = ()
    was_at: str | None = None
    takes_over: TakeOver | None = None
    drill: DrillSpec | None = None
    rehearses: bool = False
    takes_back: TakeBack | None = None
    set_aside: bool = False
    mode: Mode = "move"
    rounds: int | None = None
    until: str | None = None
    cutover: str = READY
    standby: StandbySpec = StandbySpec()
    verify: Verify = "entries"
    verify_source: VerifySource = "deep"
    keep: tuple[Keep, ...] = ()
    sync: bool = True
    planned_batch: Literal["keep", "drop"] = "keep"
    waive: tuple[str, ...] = ()
    flink: FlinkJob | None = None

    @property
    def moves(self) -> bool:
        """Whether the old job is over afterwards."""
        return self.mode != "fork"

    @property
    def fences_source(self) -> bool:
        """Whether the old job is kept from going on. A repair leaves what it reads as it is."""
        return self.moves and find_change(self.transform, Repair) is None

    @property
    def is_standby(self) -> bool:
        """Whether the job is never stopped, and its copy kept for the day its source is lost."""
        return self.mode == "warm" and self.cutover == NEVER

    @property
    def drill_cluster(self) -> str | None:
        """The cluster on which a drill starts the job as its `submit` says."""
        return None if self.drill is None else self.drill.cluster or self.target_cluster

    @property
    def may_run(self) -> bool:
        """Whether the job may write on while its source is read."""
        return self.source_cluster is not None or not self.moves or self.is_standby

    @property
    def ids_on_cluster(self) -> tuple[str, ...]:
        """Ids by which its cluster knows the jobs that run, as far as the spec names some."""
        return () if self.flink is None else self.flink.job_ids

    @property
    def image_writers(self) -> tuple[str, ...]:
        """Ids of the running jobs that write its images when asked; none if there are images."""
        if self.flink is None or self.flink.existing_savepoints:
            return ()
        return self.flink.job_ids

    @property
    def is_known_by_files(self) -> bool:
        """Whether the old job, which is to be over, is known by the files of its image alone."""
        is_of_standby = self.takes_over is not None or self.rehearses
        return self.flink is not None and self.moves and not (self.image_writers or is_of_standby)

    @property
    def further_images(self) -> tuple[str, ...]:
        """Images beside the source whose state the job starts from, too."""
        return () if self.flink is None else self.flink.existing_savepoints[1:]

    @property
    def writes_at_source(self) -> bool:
        """Whether the running job itself writes at its source: no two jobs start from there."""
        return self.flink is None

    def written_by(self, ids: tuple[str, ...]) -> JobSpec:
        """The same job, whose images these running jobs write."""
        assert self.flink is not None, "only images that are written when asked for"
        return replace(self, flink=replace(self.flink, job_ids=ids))

    def started_from(self, images: tuple[str, ...]) -> JobSpec:
        """The same job, once its images have been written."""
        assert self.flink is not None, "only images that are written when asked for"
        flink = replace(self.flink, existing_savepoints=images, from_existing_savepoint=True)
        return replace(self, source=images[0], flink=flink)

    @property
    def destination(self) -> str:
        """The location of the image afterwards: the target, or the source of a job that stays."""
        return self.target or self.source

    @property
    def copy_targets(self) -> list[str]:
        """The targets of the job's copies: its image, and the data that goes along."""
        return [self.destination, *(data.target for data in self.data if data.copy)]


@dataclass(frozen=True, slots=True)
class GivenByProfile:
    """The parts of a request that a profile of stateshift.toml gave, by name: what was typed, or
    stands in the spec, comes first.
    """

    name: str
    file: str
    gave: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole request. Without `restart` nothing moves: jobs are prepared and submitted."""

    engine: str
    jobs: tuple[JobSpec, ...]
    restart: bool = True
    waves: tuple[tuple[str, ...], ...] = ()
    strategy: str | None = None
    dataflow: Dataflow | None = None
    on_failure: OnFailure = "restart"
    on: Receivers | None = None
    rebalance: Rebalancing | None = None
    clusters: tuple[ClusterSpec, ...] = ()
    uid_hash: HashProfile = HashProfile()
    production: bool = False
    parallel: int | None = None
    bytes_per_second: float | None = None
    operations_per_second: float | None = None
    # Said to who reads the plan. The spec holds what was given, and is the same without it.
    profile: GivenByProfile | None = field(default=None, compare=False)

    def without_given(self, name: str) -> Spec:
        """Return the spec, without saying that its profile gave this."""
        if self.profile is None:
            return self
        gave = tuple(each for each in self.profile.gave if each.partition(" ")[0] != name)
        return replace(self, profile=replace(self.profile, gave=gave))

    def cluster(self, name: str) -> ClusterSpec:
        return next(cluster for cluster in self.clusters if cluster.name == name)

    def job(self, name: str) -> JobSpec | None:
        return next((job for job in self.jobs if job.name == name), None)

"""The interface of clusters, which find, stop and submit jobs, and its promises.

Every member keeps these, and the contract suite checks them:

* `find(tag)` sees the job that was submitted under `tag`, queued, running, finished or failed, also
  from another process and after our own was killed in the middle of `submit`. It never says
  `absent` while a submission under the tag may still take effect.
* `submit` twice with one tag starts one job.
* `stop` is idempotent: stopping a job that is not running succeeds.
* Nothing here returns or logs a secret.

A `SavepointCluster` (Flink's) writes images itself, and starts jobs from the one it is given.
Further promises:

* `savepoint` twice with one tag takes one savepoint, also where the answer to the first was lost,
  or where the job has ended with it.
* `checkpoint` never ends a job whose checkpoints would be gone with it, and returns the one that
  the job completed last.
* `progress` never calls a job restored from an image that it was not restored from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from stateshift.errors import ClusterError


class Silent(ClusterError):
    """A cluster gives no answer: it may be restarting."""


# How long a cluster may give no answer before whoever waits for one gives up.
SILENT_SECONDS_MAX = 60.0


class Silence:
    """The time without an answer, from the first that did not come, and was waited for."""

    def __init__(self, now: Callable[[], float], seconds_max: float = SILENT_SECONDS_MAX) -> None:
        self._now, self._seconds_max = now, seconds_max
        self._since: float | None = None

    def end(self) -> None:
        self._since = None

    def is_too_long(self) -> bool:
        """Note that the cluster has not answered. Return whether it has not for too long."""
        if self._since is None:
            self._since = self._now()
        return self._now() - self._since > self._seconds_max


class JobState(StrEnum):
    """The state of a job in one word, as its cluster reports it."""

    ABSENT = "absent"  # the cluster knows of no such job
    QUEUED = "queued"  # accepted, not yet running
    RUNNING = "running"
    FINISHED = "finished"  # ended by itself, well
    FAILED = "failed"
    UNKNOWN = "unknown"  # the cluster cannot tell (a person has to)

    @property
    def alive(self) -> bool:
        return self in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's state, its id on the cluster, and what a person wants to know of it."""

    state: JobState
    id: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """How the job is started. `tag` is what a second attempt recognises the first by; `location` is
    where its image is (IS-6: handed over last); `connection` overrides where the cluster is reached
    (IS-4).
    """

    tag: str
    job: str
    location: str
    connection: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Which job to stop. `tag` where we submitted it ourselves, else the name it runs under;
    `location` is its image, beside which a job that imports `stateshift.job` watches for the
    marker.
    """

    job: str
    location: str
    tag: str | None = None
    seconds_max: float = 300.0
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """A savepoint of the job with this id, into a folder of its own below `directory`. `stop`: the
    job ends with it, and no record is processed after it. `cancel`: the older way, in which records
    between the savepoint and the job's end are lost where its source cannot replay. `drain`:
    windows and timers fire first, as at the end of all input.
    """

    tag: str
    job_id: str
    directory: str
    stop: bool = True
    cancel: bool = False
    drain: bool = False
    native: bool = False
    seconds_max: float = 600.0


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """One more checkpoint of the job with this id, which is cancelled then."""

    tag: str
    job_id: str
    seconds_max: float = 600.0


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job has come since it was restored. `epoch` is the last checkpoint that it has
    completed itself. `hopeless` is why it will not get any further, whatever it tries again.
    `writes_none`: it completes no checkpoints, since that is switched off.
    """

    restored: str | None
    restored_epoch: int | None
    epoch: int | None
    running: bool
    hopeless: str | None = None
    writes_none: bool = False


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs on a cluster, as that reports it. `settings` are those that decide how it may
    be stopped: state_backend, checkpoint_storage, unaligned_checkpoints, state_changelog_enabled,
    ... as Flink names them. `vertices` are the ids of the chains' heads, with (name, parallelism,
    max parallelism). `lasting` is whether its checkpoints are still there when it was cancelled;
    None where the cluster does not tell.
    """

    id: str
    name: str
    state: JobState
    settings: Mapping[str, object] = field(default_factory=dict)
    vertices: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    lasting: bool | None = None


@dataclass(frozen=True, slots=True)
class Slots:
    """Places of jobs. `adaptive`: a job begins with fewer; `on_demand`: more are made if needed."""

    all: int
    free: int
    adaptive: bool = False
    on_demand: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """The options that start a running job again, or `why` they are unknown; may hold secrets."""

    options: Mapping[str, object] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


class TellsOrigin(Protocol):
    """The question that a cluster may answer of a job before it is stopped."""

    def origin(self, request: StopRequest, like: Mapping[str, object] | None) -> Origin:
        """Return the origin of the job; `like`, the spec's own start, is checked where asked."""
        ...


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of trying a start without starting: a refusal and hint, the untried part."""

    refused: str = ""
    hint: str | None = None
    untried: str = ""


class TriesStart(Protocol):
    """The question that a cluster may answer before the old job is stopped."""

    def try_start(self, submission: Submission) -> Trial:
        """Try as much of a start as it can without one. Files for it may be left there."""
        ...


@dataclass(frozen=True, slots=True)
class Room:
    """The memory (MB) and cores of all nodes that take jobs, and the free part."""

    memory: int
    cores: float
    memory_free: int
    cores_free: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a job that is to start finds room, as an estimate. `lacks` is what is known not to
    fit: now, or (`is_ever`) on a cluster without any other job, too. `notes` are what nobody tells.
    """

    lacks: str = ""
    is_ever: bool = False
    notes: tuple[str, ...] = ()


class TellsRoom(Protocol):
    """The questions that a cluster of many machines may answer. One that cannot raises
    ClusterError: not to know is neither enough nor full.
    """

    def room(self) -> Room: ...

    def addresses(self) -> frozenset[str]:
        """Return its addresses: a cluster with one of them has the same nodes."""
        ...

    def fitting(self, until: float) -> Callable[[Submission], Fit]:
        """Return a question whether a job fits there, beside those it was asked of before: by the
        nodes now, which are asked for until then (monotonic).
        """
        ...


class TellsStopping(Protocol):
    """The question that a cluster may answer of a job whose stop was cut short."""

    def is_stopping(self, request: StopRequest) -> bool:
        """Whether an earlier attempt had this job killed, which has not ended yet."""
        ...


class KeepsJobs(Protocol):
    """A cluster that starts a job again which was ended, if somebody else writes that it is to."""

    def runs_again(self, job_id: str) -> str | None:
        """Return the state of such a job if it is to run."""
        ...


class Remedy(StrEnum):
    """The way out of a failure, as far as its exception tells."""

    ROLLBACK = "rollback"  # the image cannot be loaded: the next start meets the same
    OTHER_JOB = "other job"  # the application does not fit the state that it is given
    OTHER_SUBMIT = "other submit"  # the application was not found, or lacks something
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why a job, or a query of it, has failed: its newest exception, as one line that is safe to
    show. `query` is the id of the query that ended. `final`: whoever tries the same again meets the
    same.
    """

    fact: str
    remedy: Remedy = Remedy.UNKNOWN
    query: str | None = None
    final: bool = False


class Gone(ClusterError):
    """A cluster of one application went with its job before it could say where the job's last image
    is. `since` is when we began, in seconds since 1970; `image` is one that it has completed for
    sure, and there may be a later one.
    """

    def __init__(
        self, fact: str, since: float, image: str | None = None, **where: str | None
    ) -> None:
        super().__init__(fact, **where)
        self.since, self.image = since, image


class UnknownAnswers:
    """The answers of a cluster that cannot tell: each kind gives those that it has."""

    def version(self) -> str | None:
        return None

    def host(self, connection: str | None = None) -> str | None:
        return None

    def reaches(self, location: str) -> bool | None:
        return None

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        return None


class Cluster(Protocol):
    """A cluster: it starts, finds and stops jobs. Those that we started are known by their tag."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    def version(self) -> str | None:
        """The engine's version there, None where the cluster cannot tell."""
        ...

    def host(self, connection: str | None = None) -> str | None:
        """Return jobs' host; empty: this machine, None: unknown. `connection` is a submission's."""
        ...

    def reaches(self, location: str) -> bool | None:
        """Return its own word on whether jobs there reach a location; None where it has none."""
        ...

    def find(self, tag: str) -> JobStatus: ...

    def find_source(self, request: StopRequest) -> JobStatus:
        """The state of a running job that we may not have submitted ourselves, or in another run:
        of the one whose image is at the request's location, as far as the cluster can tell. After a
        move within one cluster, the job of the same name that runs over the target is not it.
        """
        ...

    def submit(self, submission: Submission) -> str:
        """Start the job under its tag, unless one has the tag; return the job's id."""
        ...

    def stop(self, request: StopRequest) -> JobStatus:
        """Stop gracefully if the job allows it, else kill; return when it does not run any more."""
        ...

    def log(self, tag: str, lines_max: int = 50) -> str:
        """The end of what the job said, for a person; empty where there is none."""
        ...

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        """Why it failed, or, `alive`, cannot go on, by what was said under this tag alone."""
        ...


class SavepointCluster(Cluster, Protocol):
    """A cluster whose jobs write their state when they are asked to."""

    def running(self, job: str) -> tuple[RunningJob, ...]:
        """Jobs with this id, else with this name, also those ended that the cluster remembers."""
        ...

    def savepoint(self, request: SavepointRequest) -> str:
        """Take it, and return where it is (`stop`, `cancel`: once the job has ended), or `Gone`."""
        ...

    def failed_behind(self, request: SavepointRequest) -> str | None:
        """Return the failure of a job instead of its stop, where the savepoint is whole."""
        ...

    def latest_checkpoint(self, job_id: str) -> str | None:
        """Return the place of the last completed one that outlives the job, or `Gone`."""
        ...

    def checkpoint(self, request: CheckpointRequest) -> str:
        """Have one completed, cancel the job, return where its last one is then, or `Gone`."""
        ...

    def is_ending(self, request: SavepointRequest | CheckpointRequest) -> bool:
        """Whether this earlier request ends the job, which nobody can take back."""
        ...

    def progress(self, tag: str) -> JobProgress: ...

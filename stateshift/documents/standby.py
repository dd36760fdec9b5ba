"""A standby at its location: the facts and the documents. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from stateshift.documents.shape import At
from stateshift.formats.standby import Drill, DrillHistory, Verb
from stateshift.storage.locations import Redacted

if TYPE_CHECKING:
    from stateshift.standby.location import Standby
    from stateshift.step.evidence import PrimaryFenced

CLOCKS_DIFFER_SECONDS = 30.0  # less may be a look that took its time

Role = Literal["standby", "failed-over", "going-home", "went-home"]
_ROLES: Mapping[Verb, Role] = {
    "standby": "standby",
    "failover": "failed-over",
    "failback": "going-home",
    "returned": "went-home",
}


@dataclass(frozen=True, slots=True)
class StandbyLag:
    """How far a standby is behind its source. `batches` is None where the source could not be
    asked. `as_of` is when it was known to have nothing newer; `bound` is how long that may be ago.
    """

    job: str
    epoch: int | None
    committed_at: float | None
    as_of: float | None
    batches: int | None
    bound: float | None
    now: float

    @property
    def rpo_seconds(self) -> float | None:
        """How old the newest commit of the source is that is kept. It is no younger than the look
        that has found it, whatever the clock of the source's storage says.
        """
        if self.committed_at is None:
            return None
        seen_at = self.committed_at if self.as_of is None else self.as_of
        return round(max(0.0, self.now - min(self.committed_at, seen_at)), 3)

    @property
    def clock_ahead_seconds(self) -> float | None:
        """How far the clock of the source's storage, or of who feeds it, is ahead of another one;
        None where none is.
        """
        ahead = 0.0
        if self.as_of is not None:
            ahead = max(self.as_of - self.now, (self.committed_at or 0.0) - self.as_of)
        elif self.committed_at is not None:
            ahead = self.committed_at - self.now
        return round(ahead, 3) if ahead > CLOCKS_DIFFER_SECONDS else None

    @property
    def is_kept(self) -> bool | None:
        """Whether nothing would be lost, or nothing that is older than the bound; None without
        one. Nobody knows how much that is of a source that gives no answer: then the time counts.
        """
        if self.bound is None:
            return None
        return self.batches == 0 or (self.as_of is not None and self.now - self.as_of <= self.bound)


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """A standby, and when somebody looked at it. `batches` is how many its source is ahead, and
    `records` how many the brokers have that it has not read, each where that was asked and gave an
    answer.
    """

    standby: Standby
    now: float
    batches: int | None = None
    records: int | None = None
    history: DrillHistory | None = None  # None: nobody has asked
    damage: str | None = None  # of the history

    @property
    def last_drill(self) -> DrillFacts | None:
        """The newest drill of it."""
        last = None if self.history is None else self.history.last
        return DrillFacts.of(last, self.now)

    @property
    def last_good_drill(self) -> DrillFacts | None:
        """The newest drill in which the job has gone on."""
        good = None if self.history is None else self.history.last_good
        return DrillFacts.of(good, self.now)

    @property
    def role(self) -> Role:
        """Whether the job has been started from it, and whether it has gone home since."""
        claim = self.standby.claim
        return "standby" if claim is None else _ROLES[claim.verb]

    @property
    def lag(self) -> StandbyLag | None:
        """How far it is behind its source; None of one that runs, or has run."""
        if self.role != "standby":
            return None
        state = self.standby.state
        return StandbyLag(
            job=state.job,
            epoch=state.epoch,
            committed_at=state.committed_at,
            as_of=state.as_of,
            batches=self.batches,
            bound=state.rpo_seconds_max,
            now=self.now,
        )


@dataclass(frozen=True, slots=True)
class DrillFacts:
    """A drill in a standby's history, and its age."""

    drill: Drill
    age_seconds: float

    @classmethod
    def of(cls, drill: Drill | None, now: float) -> DrillFacts | None:
        return None if drill is None else cls(drill, round(max(0.0, now - drill.at), 3))

    @property
    def seconds(self) -> float:
        """The time from its plan to the job's first batch, or to its failure."""
        return round(sum(self.drill.seconds.values()), 3)


@dataclass(frozen=True, slots=True)
class FencedFacts:
    """The primary of a failover that is finished, fenced now or before."""

    standby: Standby
    evidence: PrimaryFenced

    @property
    def batches_ahead(self) -> int | None:
        """How many epochs of the primary the job at the standby has not."""
        newest, started = self.evidence.epoch, self.standby.epoch
        return None if newest is None or started is None else max(0, newest - started)


class DrillDocument(TypedDict):
    """A drill in the history of a standby."""

    run: Annotated[str, "the run that it was", At("drill.run")]
    at: Annotated[float, "when it ended", At("drill.at")]
    age_seconds: Annotated[float, "how long ago that is"]
    epoch: Annotated[int | None, "the batch or checkpoint it started from", At("drill.epoch")]
    good: Annotated[bool, "whether the job has gone on", At("drill.is_good")]
    failure: Annotated[Redacted, "why it has not; empty of a good one", At("drill.failure")]
    seconds: Annotated[float, "from the plan to the job's first batch or checkpoint"]
    host: Annotated[str, "where the run was at work", At("drill.host")]
    workdir: Annotated[str, "its workdir there", At("drill.workdir")]


class KeptEpochDocument(TypedDict):
    """An epoch that a standby can be started from."""

    epoch: Annotated[int, "its number, for `failover --epoch`"]
    committed_at: Annotated[float | None, "when the source had written it"]
    at: Annotated[float, "when its round was published"]
    checked: Annotated[bool, "whether its copy was read to its end before"]


class OtherStandbyDocument(TypedDict):
    """The standby of another job, which the same spec feeds."""

    job: Annotated[str, "the job's name"]
    location: Annotated[Redacted, "where it is"]


class StandbyDocument(TypedDict):
    """What `status LOCATION` tells of a standby."""

    location: Annotated[Redacted, "where it is", At("standby.location")]
    role: Annotated[Role, "whether the job has been started from it, or has gone home since"]
    job: Annotated[str, "the job's name", At("standby.state.job")]
    engine: Annotated[str, "spark or flink", At("standby.state.engine")]
    source: Annotated[Redacted, "where the job's image is", At("standby.state.source")]
    epoch: Annotated[
        int | None, "the batch or checkpoint it can be started from, or was", At("standby.epoch")
    ]
    committed_at: Annotated[
        float | None, "when the source had written that", At("standby.state.committed_at")
    ]
    at: Annotated[float, "when the last round was published", At("standby.state.at")]
    kept: Annotated[
        list[KeptEpochDocument],
        "what it can be started from, the newest first",
        At("standby.state.kept"),
    ]
    reads_from: Annotated[
        list[OtherStandbyDocument],
        "the standbys of the jobs whose output it reads, by the dataflow of the spec",
        At("standby.state.reads_from"),
    ]
    rpo_seconds: Annotated[
        float | None, "how much of the source's time would be lost now", At("lag.rpo_seconds")
    ]
    rpo_batches: Annotated[
        int | None,
        "how many batches or checkpoints of the source; null: it gave no answer",
        At("lag.batches"),
    ]
    clock_ahead_seconds: Annotated[
        float | None,
        "how far the clock of the source's storage, or of who feeds the standby, is ahead: "
        "rpo_seconds is too small by so much at most; null where that is not seen",
        At("lag.clock_ahead_seconds"),
    ]
    rpo_records: Annotated[
        int | None,
        "how many records the brokers have that it has not read: a job started now reads them; "
        "null: they were not asked, or gave no answer",
        At("records"),
    ]
    rpo_bound_seconds: Annotated[
        float | None, "how much may be lost at most, by the spec", At("lag.bound")
    ]
    rpo_bound_kept: Annotated[
        bool | None, "whether that is so now; null without a bound", At("lag.is_kept")
    ]
    generation: Annotated[int | None, "the claim that counts", At("standby.claim.generation")]
    run: Annotated[str | None, "the run that has claimed it", At("standby.claim.run")]
    host: Annotated[str | None, "where that run is at work", At("standby.claim.host")]
    workdir: Annotated[str | None, "its workdir there", At("standby.claim.workdir")]
    last_drill: Annotated[DrillDocument | None, "the newest rehearsal of its start"]
    last_good_drill: Annotated[DrillDocument | None, "the newest in which the job has gone on"]
    drills_damage: Annotated[str | None, "why the history cannot be read", At("damage")]


class StandbyLagDocument(TypedDict):
    """How far a standby of a run is behind its source."""

    job: Annotated[str, "the job's name"]
    epoch: Annotated[int | None, "the batch or checkpoint it can be started from"]
    committed_at: Annotated[float | None, "when the source had written that"]
    rpo_seconds: Annotated[float | None, "how much of the source's time would be lost now"]
    rpo_batches: Annotated[
        int | None,
        "how many batches or checkpoints of the source; null: nobody asks it now",
        At("batches"),
    ]
    rpo_bound_seconds: Annotated[
        float | None, "how much may be lost at most, by the spec", At("bound")
    ]
    rpo_bound_kept: Annotated[
        bool | None, "whether that is so now; null without a bound", At("is_kept")
    ]


class SupersededDocument(TypedDict):
    """What `status LOCATION` and `inspect` tell of a primary whose job runs at its standby."""

    job: Annotated[str, "the job's name"]
    engine: Annotated[str, "spark or flink"]
    successor: Annotated[Redacted, "where the job runs now"]
    epoch: Annotated[int | None, "the batch that it was started from there"]
    newest: Annotated[int | None, "the primary's own last one"]
    batches_ahead: Annotated[int | None, "how many of the primary are not part of it there"]
    at: Annotated[float, "since when the primary is fenced"]
    run: Annotated[str, "the failover"]
    host: Annotated[str, "where that run was"]
    workdir: Annotated[str, "its workdir there"]


class FencedDocument(TypedDict):
    """What `failover` tells of a job that runs at its standby already."""

    location: Annotated[Redacted, "where it runs", At("standby.location")]
    job: Annotated[str, "the job's name", At("standby.state.job")]
    primary: Annotated[Redacted, "where it was", At("standby.state.source")]
    fenced: Annotated[bool, "whether it cannot go on there", At("evidence.cannot_go_on")]
    state: Annotated[str, "of the primary's job, as its cluster tells it", At("evidence.stopped")]
    batches_ahead: Annotated[int | None, "how many batches of the primary are not part of it here"]

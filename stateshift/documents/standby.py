"""A standby at its location: the facts and the documents. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from stateshift.documents.shape import At
from stateshift.storage.locations import Redacted

if TYPE_CHECKING:
    from stateshift.standby.location import Standby
    from stateshift.step.evidence import PrimaryFenced

Role = Literal["standby", "failed-over"]


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """A standby, and when somebody looked at it."""

    standby: Standby
    now: float

    @property
    def role(self) -> Role:
        """Whether the job has been started from it."""
        return "failed-over" if self.standby.is_taken_over else "standby"

    @property
    def rpo_seconds(self) -> float | None:
        """How old the newest commit of the source is that is kept; None of one that runs."""
        committed_at = self.standby.state.committed_at
        if committed_at is None or self.standby.is_taken_over:
            return None
        return round(max(0.0, self.now - committed_at), 3)


@dataclass(frozen=True, slots=True)
class FencedFacts:
    """The primary of a failover that is finished, fenced now or before."""

    standby: Standby
    evidence: PrimaryFenced


class StandbyDocument(TypedDict):
    """What `status LOCATION` tells of a standby."""

    location: Annotated[Redacted, "where it is", At("standby.location")]
    role: Annotated[Role, "whether the job has been started from it"]
    job: Annotated[str, "the job's name", At("standby.state.job")]
    engine: Annotated[str, "spark or flink", At("standby.state.engine")]
    source: Annotated[Redacted, "where the job's image is", At("standby.state.source")]
    epoch: Annotated[
        int | None, "the batch or checkpoint it can be started from", At("standby.state.epoch")
    ]
    committed_at: Annotated[
        float | None, "when the source had written that", At("standby.state.committed_at")
    ]
    at: Annotated[float, "when the last round was published", At("standby.state.at")]
    rpo_seconds: Annotated[float | None, "how much of the source's time would be lost now"]
    generation: Annotated[int | None, "the claim that counts", At("standby.claim.generation")]
    run: Annotated[str | None, "the run that has claimed it", At("standby.claim.run")]
    host: Annotated[str | None, "where that run is at work", At("standby.claim.host")]
    workdir: Annotated[str | None, "its workdir there", At("standby.claim.workdir")]


class FencedDocument(TypedDict):
    """What `failover` tells of a job that runs at its standby already."""

    location: Annotated[Redacted, "where it runs", At("standby.location")]
    job: Annotated[str, "the job's name", At("standby.state.job")]
    primary: Annotated[Redacted, "where it was", At("standby.state.source")]
    fenced: Annotated[bool, "whether it cannot go on there", At("evidence.cannot_go_on")]
    state: Annotated[str, "of the primary's job, as its cluster tells it", At("evidence.stopped")]

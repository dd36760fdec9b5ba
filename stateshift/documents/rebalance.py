"""A run of `rebalance`: its moves, and its document. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from stateshift.documents.shape import At, OrNone, documents_of

if TYPE_CHECKING:
    from stateshift.advise.rebalance.decision import JobMove, Loaded
    from stateshift.advise.rebalance.outcome import Carried, CarriedState, Drained, Rebalance


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """A move of the decision; `carried` is None where the run did not come to it."""

    move: JobMove
    carried: Carried | None

    @property
    def state(self) -> CarriedState:
        """Its state; planned before anything was done."""
        return "planned" if self.carried is None else self.carried.state

    @property
    def source(self) -> str:
        """The cluster that it leaves."""
        return self.move.source

    @property
    def jobs(self) -> str:
        """The names of its jobs."""
        return ", ".join(self.move.jobs)

    @property
    def was_down_seconds(self) -> float | None:
        """The downtime of the jobs, if it was measured."""
        return None if self.carried is None else self.carried.downtime_seconds


def moves_of(rebalance: Rebalance) -> list[MoveFacts]:
    """Return the moves of the decision, in their order."""
    if rebalance.decision is None:
        return []
    carried: list[Carried | None] = list(rebalance.carried)
    missing = len(rebalance.decision.moves) - len(carried)
    carried += [None] * missing
    return [MoveFacts(*pair) for pair in zip(rebalance.decision.moves, carried, strict=True)]


def share(load: float, cluster: Loaded) -> float | None:
    """Return a load as a part of a cluster's capacity; None where that is not known."""
    return load / cluster.capacity if cluster.capacity else None


State = Literal["planned", "finished", "failed", "unfinished"]

# `from` is a word of Python's, and no name of a key in a class.
_Ends = TypedDict("_Ends", {"from": Annotated[str, "the cluster that it leaves", At("source")]})


class RebalanceClusterDocument(TypedDict):
    """A cluster's load: workers that are busy all the time, slots of Flink or cores of Spark."""

    name: Annotated[str, "its name in the spec"]
    capacity: Annotated[float | None, "how many workers it has; null if that cannot be told"]
    before: Annotated[float, "its load now"]
    after: Annotated[float, "its load after the moves"]
    before_share: Annotated[
        float | None,
        "before, as a part of the capacity",
        At(lambda cluster: share(cluster.before, cluster)),
    ]
    after_share: Annotated[
        float | None,
        "after, as a part of the capacity",
        At(lambda cluster: share(cluster.after, cluster)),
    ]


class RebalanceTriggerDocument(TypedDict):
    """A cluster that is too full."""

    cluster: Annotated[str, "its name in the spec"]
    reason: Annotated[str, "why it is too full"]
    runs: Annotated[int, "in how many runs in a row it was, with this one"]
    due: Annotated[bool, "whether that is often enough to act", At("is_due")]


class RebalanceMoveDocument(_Ends):
    """A move that was decided, and how far it has come."""

    job: Annotated[str, "the job; of several that move together, with commas between", At("jobs")]
    jobs: Annotated[list[str], "the jobs that move together", At("move.jobs")]
    to: Annotated[str, "the cluster that gets it", At("move.target")]
    state: Annotated[State, "planned: nobody has said --yes, or the run did not come to it"]
    reason: Annotated[str, "why it is made", At("move.reason")]
    bytes: Annotated[int, "the size of its state", At("move.bytes")]
    downtime_seconds: Annotated[
        float, "how long it will be down, as estimated", At("move.downtime_seconds")
    ]
    was_down_seconds: Annotated[float | None, "how long it was down; null before it is finished"]
    gain: Annotated[float, "records that need not wait, over the horizon", At("move.worth.gain")]
    cost: Annotated[float, "records that wait for the move", At("move.worth.cost")]
    parallelism: Annotated[
        dict[str, int],
        "the jobs that get another parallelism on the way",
        At("move.parallelism"),
    ]
    number: Annotated[
        int | None, "counts the moves of all runs; null if it has none yet", At("carried.number")
    ]
    workdir: Annotated[
        str | None, "of its run, for status, resume and rollback", At("carried.workdir")
    ]
    fact: Annotated[str, "what went wrong; empty if nothing has", At("carried.fact", none="")]


class RebalanceStayDocument(TypedDict):
    """A job that stays."""

    job: Annotated[str, "its name in the spec"]
    cluster: Annotated[str, "where it is"]
    reason: Annotated[str, "why it stays"]


class RebalanceEarlierDocument(_Ends):
    """A move of an earlier run, which comes before all others."""

    jobs: Annotated[list[str], "the jobs that move together"]
    to: Annotated[str, "the cluster that gets them", At("target")]
    state: Annotated[State, "finished: this run has finished it"]
    was_down_seconds: Annotated[
        float | None,
        "how long they were down; null if it is not finished",
        At("downtime_seconds"),
    ]
    number: Annotated[int, "counts the moves of all runs"]
    workdir: Annotated[str | None, "of its run, for status, resume and rollback"]
    fact: Annotated[str, "what went wrong, or what is to be done; empty if nothing is"]


class RebalanceCordonDocument(TypedDict):
    """A cluster that nothing moves to."""

    cluster: Annotated[str, "its name in the spec"]
    since: Annotated[float | None, "when it was drained, in seconds since 1970; null: by the spec"]


class RebalanceStayingDocument(TypedDict):
    """A job that is still on a cluster that was to be emptied."""

    job: Annotated[str, "its name in the spec"]
    reason: Annotated[str, "why it stays"]


class RebalanceDrainedDocument(TypedDict):
    """A cluster that was to be emptied, asked at the end of the run."""

    cluster: Annotated[str, "its name in the spec"]
    empty: Annotated[bool, "whether it says that nothing runs there any more", At("is_empty")]
    jobs: Annotated[
        list[RebalanceStayingDocument], "the spec's jobs that it still holds", At(staying_jobs)
    ]
    others: Annotated[list[str], "what runs there that the spec does not know"]
    unknown: Annotated[str | None, "why it cannot be asked; null if it answers", OrNone("unknown")]
    note: Annotated[str | None, "what it does not tell, although it answers", OrNone("note")]


class RebalanceDocument(TypedDict):
    """What a run of rebalance decided, and what became of it."""

    reason: Annotated[
        str | None,
        "why something is moved, or why nothing is; null if undecided",
        At("decision.reason"),
    ]
    at: Annotated[
        float | None,
        "when it was decided, in seconds since 1970; null if undecided",
        At("decision.at"),
    ]
    clusters: Annotated[
        list[RebalanceClusterDocument],
        "each cluster, before and after",
        At("decision.clusters", none=()),
    ]
    triggers: Annotated[
        list[RebalanceTriggerDocument],
        "the clusters that are too full",
        At("decision.triggers", none=()),
    ]
    moves: Annotated[list[RebalanceMoveDocument], "what moves, in this order", At(move_documents)]
    stay: Annotated[
        list[RebalanceStayDocument],
        "each other job, and why it stays",
        At("decision.stays", none=()),
    ]
    unfinished: Annotated[
        list[RebalanceEarlierDocument],
        "moves of earlier runs, not whole yet",
        At(earlier_documents),
    ]
    bound: Annotated[
        float | None,
        "no spread has less on its fullest cluster; null if undecided",
        At("decision.bound"),
    ]
    is_best: Annotated[
        bool | None,
        "whether no spread is better than what was looked for",
        At("decision.is_best"),
    ]
    busy: Annotated[str | None, "another run that is at work: this one has done nothing"]
    folder: Annotated[str | None, "where rebalance keeps what it knows"]
    file: Annotated[str | None, "the decision with its inputs, for --replay"]
    notes: Annotated[list[str], "what else should be known"]
    cordoned: Annotated[list[RebalanceCordonDocument], "the clusters that nothing moves to"]
    drained: Annotated[list[RebalanceDrainedDocument], "the clusters of --drain, and what is there"]
    inputs: Annotated[dict[str, object] | None, "what the decision was made from"]


def move_documents(rebalance: Rebalance) -> list[RebalanceMoveDocument]:
    """Return the moves of the decision; their jobs come first."""
    documents = documents_of(RebalanceMoveDocument, moves_of(rebalance))
    return [{"job": each["job"], "jobs": each["jobs"], **each} for each in documents]


def earlier_documents(rebalance: Rebalance) -> list[RebalanceEarlierDocument]:
    """Return the moves of earlier runs; their jobs come first."""
    documents = documents_of(RebalanceEarlierDocument, rebalance.unfinished)
    return [{"jobs": each["jobs"], **each} for each in documents]


def staying_jobs(drained: Drained) -> list[RebalanceStayingDocument]:
    """Return the spec's jobs that a cluster still holds."""
    return [{"job": job, "reason": reason} for job, reason in drained.jobs]

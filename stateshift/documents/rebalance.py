"""The JSON document of `stateshift rebalance`: values in, typed dictionaries out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

if TYPE_CHECKING:
    from stateshift.advise.rebalance.decision import Decision, Loaded, Move, Stay
    from stateshift.advise.rebalance.outcome import Carried, CarriedState, Drained, Rebalance
    from stateshift.advise.rebalance.triggers import Trigger


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """A move of the decision; `carried` is None where the run did not come to it."""

    move: Move
    carried: Carried | None

    @property
    def state(self) -> CarriedState:
        """Return how far it has come."""
        return "planned" if self.carried is None else self.carried.state

    @property
    def jobs(self) -> str:
        """Return the names of its jobs."""
        return ", ".join(self.move.jobs)

    @property
    def was_down_seconds(self) -> float | None:
        """Return how long the jobs were down, where that was measured."""
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
_Ends = TypedDict("_Ends", {"from": Annotated[str, "the cluster that it leaves"]})


class RebalanceClusterDocument(TypedDict):
    """A cluster's load: workers that are busy all the time, slots of Flink or cores of Spark."""

    name: Annotated[str, "its name in the spec"]
    capacity: Annotated[float | None, "how many workers it has; null if that cannot be told"]
    before: Annotated[float, "its load now"]
    after: Annotated[float, "its load after the moves"]
    before_share: Annotated[float | None, "before, as a part of the capacity"]
    after_share: Annotated[float | None, "after, as a part of the capacity"]


class RebalanceTriggerDocument(TypedDict):
    """A cluster that is too full."""

    cluster: Annotated[str, "its name in the spec"]
    reason: Annotated[str, "why it is too full"]
    runs: Annotated[int, "in how many runs in a row it was, with this one"]
    due: Annotated[bool, "whether that is often enough to act"]


class RebalanceMoveDocument(_Ends):
    """A move that was decided, and how far it has come."""

    job: Annotated[str, "the job; of several that move together, with commas between"]
    jobs: Annotated[list[str], "the jobs that move together"]
    to: Annotated[str, "the cluster that gets it"]
    state: Annotated[State, "planned: nobody has said --yes, or the run did not come to it"]
    reason: Annotated[str, "why it is made"]
    bytes: Annotated[int, "the size of its state"]
    downtime_seconds: Annotated[float, "how long it will be down, as estimated"]
    was_down_seconds: Annotated[float | None, "how long it was down; null before it is finished"]
    gain: Annotated[float, "records that need not wait, over the horizon"]
    cost: Annotated[float, "records that wait for the move"]
    parallelism: Annotated[dict[str, int], "the jobs that get another parallelism on the way"]
    number: Annotated[int | None, "counts the moves of all runs; null if it has none yet"]
    workdir: Annotated[str | None, "of its run, for status, resume and rollback"]
    fact: Annotated[str, "what went wrong; empty if nothing has"]


class RebalanceStayDocument(TypedDict):
    """A job that stays."""

    job: Annotated[str, "its name in the spec"]
    cluster: Annotated[str, "where it is"]
    reason: Annotated[str, "why it stays"]


class RebalanceEarlierDocument(_Ends):
    """A move of an earlier run, which comes before all others."""

    jobs: Annotated[list[str], "the jobs that move together"]
    to: Annotated[str, "the cluster that gets them"]
    state: Annotated[State, "finished: this run has finished it"]
    was_down_seconds: Annotated[float | None, "how long they were down; null if it is not finished"]
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
    empty: Annotated[bool, "whether it says that nothing runs there any more"]
    jobs: Annotated[list[RebalanceStayingDocument], "the spec's jobs that it still holds"]
    others: Annotated[list[str], "what runs there that the spec does not know"]
    unknown: Annotated[str | None, "why it cannot be asked; null if it answers"]
    note: Annotated[str | None, "what it does not tell, although it answers"]


class RebalanceDocument(TypedDict):
    """What a run of rebalance decided, and what became of it."""

    reason: Annotated[str | None, "why something is moved, or why nothing is; null if undecided"]
    at: Annotated[float | None, "when it was decided, in seconds since 1970; null if undecided"]
    clusters: Annotated[list[RebalanceClusterDocument], "each cluster, before and after"]
    triggers: Annotated[list[RebalanceTriggerDocument], "the clusters that are too full"]
    moves: Annotated[list[RebalanceMoveDocument], "what moves, in this order"]
    stay: Annotated[list[RebalanceStayDocument], "each other job, and why it stays"]
    unfinished: Annotated[list[RebalanceEarlierDocument], "moves of earlier runs, not whole yet"]
    bound: Annotated[float | None, "no spread has less on its fullest cluster; null if undecided"]
    is_best: Annotated[bool | None, "whether no spread is better than what was looked for"]
    busy: Annotated[str | None, "another run that is at work: this one has done nothing"]
    folder: Annotated[str | None, "where rebalance keeps what it knows"]
    file: Annotated[str | None, "the decision with its inputs, for --replay"]
    notes: Annotated[list[str], "what else should be known"]
    cordoned: Annotated[list[RebalanceCordonDocument], "the clusters that nothing moves to"]
    drained: Annotated[list[RebalanceDrainedDocument], "the clusters of --drain, and what is there"]
    inputs: Annotated[dict[str, object] | None, "what the decision was made from"]


def document(rebalance: Rebalance) -> RebalanceDocument:
    """Return the document of a run."""
    decision = rebalance.decision
    inputs = rebalance.inputs
    return {
        "reason": None if decision is None else decision.reason,
        "at": None if decision is None else decision.at,
        "clusters": _clusters(decision),
        "triggers": _triggers(decision),
        "moves": [_move(each) for each in moves_of(rebalance)],
        "stay": _stays(decision),
        "unfinished": [_earlier(each) for each in rebalance.unfinished],
        "bound": None if decision is None else decision.bound,
        "is_best": None if decision is None else decision.is_best,
        "busy": rebalance.busy,
        "folder": rebalance.folder,
        "file": rebalance.file,
        "notes": list(rebalance.notes),
        "cordoned": [{"cluster": each.cluster, "since": each.since} for each in rebalance.cordoned],
        "drained": [_drained(each) for each in rebalance.drained],
        "inputs": None if inputs is None else dict(inputs),
    }


def _drained(drained: Drained) -> RebalanceDrainedDocument:
    return {
        "cluster": drained.cluster,
        "empty": drained.is_empty,
        "jobs": [{"job": job, "reason": reason} for job, reason in drained.jobs],
        "others": list(drained.others),
        "unknown": drained.unknown or None,
        "note": drained.note or None,
    }


def _clusters(decision: Decision | None) -> list[RebalanceClusterDocument]:
    if decision is None:
        return []
    return [_cluster(each) for each in decision.clusters]


def _cluster(cluster: Loaded) -> RebalanceClusterDocument:
    return {
        "name": cluster.name,
        "capacity": cluster.capacity,
        "before": cluster.before,
        "after": cluster.after,
        "before_share": share(cluster.before, cluster),
        "after_share": share(cluster.after, cluster),
    }


def _triggers(decision: Decision | None) -> list[RebalanceTriggerDocument]:
    if decision is None:
        return []
    return [_trigger(each) for each in decision.triggers]


def _trigger(trigger: Trigger) -> RebalanceTriggerDocument:
    return {
        "cluster": trigger.cluster,
        "reason": trigger.reason,
        "runs": trigger.runs,
        "due": trigger.is_due,
    }


def _move(facts: MoveFacts) -> RebalanceMoveDocument:
    move, carried = facts.move, facts.carried
    return {
        "job": facts.jobs,
        "jobs": list(move.jobs),
        "from": move.source,
        "to": move.target,
        "state": facts.state,
        "reason": move.reason,
        "bytes": move.bytes,
        "downtime_seconds": move.downtime_seconds,
        "was_down_seconds": facts.was_down_seconds,
        "gain": move.worth.gain,
        "cost": move.worth.cost,
        "parallelism": dict(move.parallelism),
        "number": None if carried is None else carried.number,
        "workdir": None if carried is None else carried.workdir,
        "fact": "" if carried is None else carried.fact,
    }


def _stays(decision: Decision | None) -> list[RebalanceStayDocument]:
    if decision is None:
        return []
    return [_stay(each) for each in decision.stays]


def _stay(stay: Stay) -> RebalanceStayDocument:
    return {"job": stay.job, "cluster": stay.cluster, "reason": stay.reason}


def _earlier(carried: Carried) -> RebalanceEarlierDocument:
    return {
        "jobs": list(carried.jobs),
        "from": carried.source,
        "to": carried.target,
        "state": carried.state,
        "was_down_seconds": carried.downtime_seconds,
        "number": carried.number,
        "workdir": carried.workdir,
        "fact": carried.fact,
    }

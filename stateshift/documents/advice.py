"""The document of `stateshift advise`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from stateshift.documents.shape import At, document_of
from stateshift.plain import to_plain

if TYPE_CHECKING:
    from stateshift.advise.advising import Advice


class AdviseVertexDocument(TypedDict):
    """What the formulas say of a vertex; of Spark, of the query. Rates are records a second."""

    id: Annotated[str, "Flink's id"]
    name: Annotated[str, "its name"]
    parallelism: Annotated[int, "at present"]
    advised: Annotated[int, "what is advised"]
    wanted: Annotated[int, "what the formulas want, before scale-down.interval"]
    target_rate: Annotated[float, "what arrives: lambda"]
    catchup_rate: Annotated[float, "what catches up with the backlog"]
    true_rate: Annotated[float | None, "what it could take; null where nothing bounds it"]
    up: Annotated[float, "below this rate it has too little"]
    down: Annotated[float | None, "above this rate it has too much; null while it catches up"]
    capacity: Annotated[float, "what it is to be able to take"]
    factor: Annotated[float, "capacity over true rate, clamped"]
    utilization: Annotated[float, "target rate over true rate"]
    bounded_by: Annotated[str | None, "what forbids more subtasks"]
    queued: Annotated[float, "records that were written to it, and that it has not read"]
    queue_rate: Annotated[float, "by how much those grow a second"]
    is_saturated: Annotated[bool, "it is busy all the time, and falls behind or is held there"]
    limited_by: Annotated[
        Literal["key", "partition", "subtask", "operator"] | None,
        "what more subtasks would not divide, of a vertex that has too little",
        At("limit"),
    ]


class AdviseDocument(TypedDict):
    """The verdict on one job, and all that it was made from."""

    job: Annotated[str, "its name"]
    engine: Annotated[Literal["flink", "spark"], "flink or spark"]
    verdict: Annotated[
        Literal["fits", "scale", "move", "limited", "unknown"],
        "fits; scale: to `wanted`; move: there is no room here; limited: one key, partition or "
        "operator cannot keep up, and more subtasks do not help; unknown: the reasons say why",
        At("word"),
    ]
    reasons: Annotated[list[str], "why"]
    unit: Annotated[
        Literal["subtasks", "cores", "hundredths"],
        "what a parallelism counts: subtasks of Flink, cores of Spark, or hundredths of the cores "
        "that it has where nobody tells how many those are",
    ]
    parallelism: Annotated[int | None, "of its widest vertex, of Spark cores; null if not known"]
    wanted: Annotated[int | None, "what is advised"]
    factor: Annotated[float | None, "wanted over present"]
    headroom: Annotated[float | None, "share of the capacity that is left; negative: it lacks"]
    lag: Annotated[float | None, "records that wait; null if not known"]
    drain_seconds: Annotated[float | None, "until they are read, at today's capacity"]
    restart_seconds: Annotated[float, "how long a restart takes", At("restart.seconds")]
    restart_from: Annotated[
        Literal["runs", "flink", "default"],
        "who says so: runs of ours, Flink, nobody",
        At("restart.source"),
    ]
    cost_per_hour: Annotated[float | None, "at present, where cost-per-hour is given"]
    cost_per_hour_wanted: Annotated[float | None, "as advised"]
    vertices: Annotated[list[AdviseVertexDocument], "one for each vertex"]
    inputs: Annotated[dict[str, object], "what --replay makes the verdict from again"]


def advice_documents(advice: Iterable[Advice]) -> list[AdviseDocument]:
    """Return the documents of verdicts, in the order of the jobs."""
    return [advice_document(each) for each in advice]


def advice_document(advice: Advice) -> AdviseDocument:
    """Return the verdict on a job, and the inputs that it was made from."""
    verdict = advice.verdict
    vertices = []
    for decision, load in zip(verdict.decisions, verdict.loads, strict=True):
        ceiling = decision.ceiling
        document = document_of(
            AdviseVertexDocument,
            decision,
            advised=verdict.changes.get(decision.id, decision.parallelism),
            bounded_by=None if ceiling is None else f"{ceiling.count} {ceiling.what}",
            queued=load.queued,
            queue_rate=load.queue_rate,
        )
        vertices.append(document)
    inputs = to_plain(advice.inputs)
    return document_of(AdviseDocument, verdict, vertices=vertices, inputs=inputs)

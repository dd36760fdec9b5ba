"""The JSON document of a dataflow's change: values in, typed dictionaries out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stateshift.dataflow.delays import Expected
    from stateshift.dataflow.pruning import Pruned
    from stateshift.dataflow.schedulers import Scheduler
    from stateshift.documents.dataflow import ChangeFacts, ComponentFacts


class ComponentJobDocument(TypedDict):
    """A job that halts with a component."""

    name: Annotated[str, "the job"]
    cluster: Annotated[str | None, "where it runs, if the dataflow says so"]


class ComponentDocument(TypedDict):
    """Operators that change at one cut."""

    operators: Annotated[list[str], "all of them"]
    edges: Annotated[list[list[str]], "the edges between them"]
    heads: Annotated[list[str], "where the change begins"]
    order: Annotated[list[list[str]], "the order in which they start again"]
    jobs: Annotated[list[ComponentJobDocument], "the jobs that halt at this cut"]


class PrunedDocument(TypedDict):
    """A one-to-many operator that need not wait."""

    operator: Annotated[str, "the operator"]
    rule: Annotated[str, "the rule that spares it"]
    by: Annotated[str | None, "the unique operator that the rule goes by"]


class BusiestDocument(TypedDict):
    """The operator that has most to do."""

    operator: Annotated[str, "the operator"]
    busy: Annotated[float, "the share of the time in which it is at work"]


class ReasonDocument(TypedDict):
    """Why an operator changes or waits, or why it does not."""

    operator: Annotated[str, "the operator"]
    reason: Annotated[str, "why"]


class SchedulersConsistentDocument(TypedDict):
    """Whether no tuple meets old and new functions, by scheduler."""

    fries: bool
    epoch: bool
    multi_version: bool
    naive: bool


class SchedulersDelayDocument(TypedDict):
    """The expected delay in seconds, by scheduler; null where there is no figure."""

    fries: float | None
    epoch: float | None
    multi_version: float | None
    naive: float | None


class DataflowDocument(TypedDict):
    """Which operators of a dataflow have to change together, and how long that takes."""

    dataflow: Annotated[str | None, "its name"]
    scheduler: Annotated[str, "fries, epoch, multi-version or naive"]
    rule: Annotated[str, "sound, published or none"]
    consistent: Annotated[SchedulersConsistentDocument, "whether no tuple meets old and new"]
    targets: Annotated[list[str], "the operators that change"]
    components: Annotated[list[ComponentDocument], "what changes at one cut"]
    pruned: Annotated[list[PrunedDocument], "what need not wait"]
    paused: Annotated[list[str], "what waits for a moment"]
    tagging: Annotated[list[str], "the sources that say which function is meant"]
    untouched: Annotated[list[str], "what goes on undisturbed"]
    delay: Annotated[SchedulersDelayDocument, "the expected delay in seconds"]
    rates_per_second: Annotated[dict[str, float], "what each source reads"]
    busiest: Annotated[BusiestDocument, "the operator that has most to do"]
    no_figure: Annotated[str | None, "why there is no delay"]
    assumed: Annotated[list[str], "what the dataflow does not say, and was assumed"]
    why: NotRequired[Annotated[list[ReasonDocument], "a reason for each operator (--explain)"]]


def document(facts: ChangeFacts) -> DataflowDocument:
    """Return the change of a dataflow, with a reason for each operator if somebody asked why."""
    schedule, delays = facts.schedule, facts.delays
    change: DataflowDocument = {
        "dataflow": schedule.dataflow.name,
        "scheduler": schedule.scheduler,
        "rule": delays.rule,
        "consistent": _consistent(delays),
        "targets": list(schedule.targets),
        "components": [_component(each) for each in facts.components],
        "pruned": [_pruned(each) for each in schedule.pruned],
        "paused": list(schedule.paused),
        "tagging": list(schedule.tagging),
        "untouched": list(schedule.untouched),
        "delay": _delay(delays.seconds),
        "rates_per_second": dict(delays.rates),
        "busiest": {"operator": delays.busiest.name, "busy": delays.busiest.busy},
        "no_figure": delays.no_figure,
        "assumed": list(delays.assumed),
    }
    if facts.reasons is not None:
        change["why"] = [{"operator": name, "reason": why} for name, why in facts.reasons]
    return change


def _component(facts: ComponentFacts) -> ComponentDocument:
    component = facts.component
    return {
        "operators": list(component.operators),
        "edges": [list(edge) for edge in component.edges],
        "heads": list(component.heads),
        "order": [list(step) for step in facts.order],
        "jobs": [{"name": name, "cluster": cluster} for name, cluster in facts.jobs],
    }


def _pruned(pruned: Pruned) -> PrunedDocument:
    return {"operator": pruned.operator, "rule": pruned.rule, "by": pruned.by}


def _consistent(delays: Expected) -> SchedulersConsistentDocument:
    by_scheduler = delays.consistent
    return {
        "fries": by_scheduler["fries"],
        "epoch": by_scheduler["epoch"],
        "multi_version": by_scheduler["multi-version"],
        "naive": by_scheduler["naive"],
    }


def _delay(by_scheduler: Mapping[Scheduler, float | None]) -> SchedulersDelayDocument:
    return {
        "fries": by_scheduler["fries"],
        "epoch": by_scheduler["epoch"],
        "multi_version": by_scheduler["multi-version"],
        "naive": by_scheduler["naive"],
    }

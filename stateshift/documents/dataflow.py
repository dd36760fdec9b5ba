"""The change of a dataflow: the facts that all views share, and its document. Pure.

ChangeFacts    a schedule and its delays, with
  components     each with its edges, the order of its restarts, and the jobs that halt with it
  harmful        one-to-many operators that make a tuple meet old and new
  reasons        why each operator changes or waits, or does not
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NotRequired, TypedDict

from stateshift.dataflow.schedulers import order, reasons, unguarded_operators
from stateshift.documents.shape import At

if TYPE_CHECKING:
    from stateshift.dataflow.components import Component
    from stateshift.dataflow.delays import Forecast
    from stateshift.dataflow.schedulers import Schedule, Scheduler
    from stateshift.specification.dataflow.operators import Dataflow


@dataclass(frozen=True, slots=True)
class JobAndCluster:
    """A job that halts with a component."""

    schema_name: ClassVar = "ComponentJob"
    name: Annotated[str, "the job"]
    cluster: Annotated[str | None, "where it runs, if the dataflow says so"]


@dataclass(frozen=True, slots=True)
class ComponentFacts:
    """Operators that change at one cut, the order in which they start again, and their jobs."""

    component: Component
    order: tuple[tuple[str, ...], ...]
    jobs: tuple[JobAndCluster, ...]


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """The change of a dataflow, and what is computed of it for all views.

    `reasons` are there if somebody asked why.
    """

    schedule: Schedule
    delays: Forecast
    components: tuple[ComponentFacts, ...]
    harmful: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...] | None

    @property
    def consistent(self) -> bool:
        """Whether no tuple meets old and new."""
        return self.delays.consistent[self.schedule.scheduler]


def change_facts(schedule: Schedule, delays: Forecast, explain: bool = False) -> ChangeFacts:
    """Return the facts of a change; `explain` adds a reason for each operator."""
    dataflow = schedule.dataflow
    consistent = delays.consistent[schedule.scheduler]
    return ChangeFacts(
        schedule=schedule,
        delays=delays,
        components=tuple(
            ComponentFacts(each, order(each), jobs_of(dataflow, each))
            for each in schedule.components
        ),
        harmful=() if consistent else unguarded_operators(schedule),
        reasons=reasons(schedule) if explain else None,
    )


def jobs_of(dataflow: Dataflow, component: Component) -> tuple[JobAndCluster, ...]:
    """Return the jobs that halt at one cut, and where they run."""
    jobs: dict[JobAndCluster, None] = {}  # in order, each once
    for name in component.operators:
        operator = dataflow[name]
        if operator.job is not None:
            jobs[JobAndCluster(operator.job, operator.cluster)] = None
    return tuple(jobs)


# ---- documents -----------------------------------------------------------------------------------


class ComponentDocument(TypedDict):
    """Operators that change at one cut."""

    operators: Annotated[list[str], "all of them", At("component.operators")]
    edges: Annotated[list[list[str]], "the edges between them", At("component.edges")]
    heads: Annotated[list[str], "where the change begins", At("component.heads")]
    order: Annotated[list[list[str]], "the order in which they start again"]
    jobs: Annotated[list[JobAndCluster], "the jobs that halt at this cut"]


class PrunedDocument(TypedDict):
    """A one-to-many operator that need not wait."""

    operator: Annotated[str, "the operator"]
    rule: Annotated[str, "the rule that spares it"]
    by: Annotated[str | None, "the unique operator that the rule goes by"]


class BusiestDocument(TypedDict):
    """The operator that has most to do."""

    operator: Annotated[str, "the operator", At("name")]
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

    dataflow: Annotated[str | None, "its name", At("schedule.dataflow.name")]
    scheduler: Annotated[str, "fries, epoch, multi-version or naive", At("schedule.scheduler")]
    rule: Annotated[str, "sound, published or none", At("delays.rule")]
    consistent: Annotated[
        SchedulersConsistentDocument,
        "whether no tuple meets old and new",
        At(lambda facts: _by_scheduler(facts.delays.consistent)),
    ]
    targets: Annotated[list[str], "the operators that change", At("schedule.targets")]
    components: Annotated[list[ComponentDocument], "what changes at one cut"]
    pruned: Annotated[list[PrunedDocument], "what need not wait", At("schedule.pruned")]
    paused: Annotated[list[str], "what waits for a moment", At("schedule.paused")]
    tagging: Annotated[
        list[str], "the sources that say which function is meant", At("schedule.tagging")
    ]
    untouched: Annotated[list[str], "what goes on undisturbed", At("schedule.untouched")]
    delay: Annotated[
        SchedulersDelayDocument,
        "the expected delay in seconds",
        At(lambda facts: _by_scheduler(facts.delays.seconds)),
    ]
    rates_per_second: Annotated[dict[str, float], "what each source reads", At("delays.rates")]
    busiest: Annotated[BusiestDocument, "the operator that has most to do", At("delays.busiest")]
    no_figure: Annotated[str | None, "why there is no delay", At("delays.no_figure")]
    assumed: Annotated[
        list[str], "what the dataflow does not say, and was assumed", At("delays.assumed")
    ]
    why: NotRequired[
        Annotated[list[ReasonDocument], "a reason for each operator (--explain)", At(why)]
    ]


def _by_scheduler(values: Mapping[Scheduler, object]) -> dict[str, object]:
    return {
        "fries": values["fries"],
        "epoch": values["epoch"],
        "multi_version": values["multi-version"],
        "naive": values["naive"],
    }


def why(facts: ChangeFacts) -> list[ReasonDocument] | None:
    """Return a reason for each operator, if somebody asked for it."""
    if facts.reasons is None:
        return None
    return [{"operator": name, "reason": reason} for name, reason in facts.reasons]

"""What all views of a dataflow's change say, computed once from its schedule. Pure.

ChangeFacts    a schedule and its delays, with
  components     each with its edges, the order of its restarts, and the jobs that halt with it
  harmful        one-to-many operators that make a tuple meet old and new
  reasons        why each operator changes or waits, or does not
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateshift.dataflow.consistency import unguarded
from stateshift.dataflow.reasons import order, reasons

if TYPE_CHECKING:
    from stateshift.dataflow.components import Component
    from stateshift.dataflow.delays import Expected
    from stateshift.dataflow.schedulers import Schedule
    from stateshift.specification.dataflow.operators import Dataflow

JobAndCluster = tuple[str, str | None]


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
    delays: Expected
    components: tuple[ComponentFacts, ...]
    harmful: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...] | None

    @property
    def consistent(self) -> bool:
        """Whether no tuple meets old and new."""
        return self.delays.consistent[self.schedule.scheduler]


def change_facts(schedule: Schedule, delays: Expected, explain: bool = False) -> ChangeFacts:
    """Return what the views say of a change; `explain` adds a reason for each operator."""
    dataflow = schedule.dataflow
    consistent = delays.consistent[schedule.scheduler]
    return ChangeFacts(
        schedule=schedule,
        delays=delays,
        components=tuple(component_facts(dataflow, each) for each in schedule.components),
        harmful=() if consistent else unguarded(schedule),
        reasons=reasons(schedule) if explain else None,
    )


def component_facts(dataflow: Dataflow, component: Component) -> ComponentFacts:
    """Return the operators that change at one cut, with their order and their jobs."""
    return ComponentFacts(component, order(component), jobs_of(dataflow, component))


def jobs_of(dataflow: Dataflow, component: Component) -> tuple[JobAndCluster, ...]:
    """Return the jobs that halt at one cut, and where they run."""
    jobs: dict[JobAndCluster, None] = {}  # in order, each once
    for name in component.operators:
        operator = dataflow[name]
        if operator.job is not None:
            jobs[operator.job, operator.cluster] = None
    return tuple(jobs)

"""One plan carried out alone. The product carries out the plans of a wave together."""

from __future__ import annotations

from stateshift.executor import execute_together
from stateshift.journal import Journal
from stateshift.plan import Plan
from stateshift.step import Fleet
from stateshift.world import World


def execute(
    number: int, plan: Plan, world: World, journal: Journal, fleet: Fleet | None = None
) -> None:
    """Carry out plan `number` of the run, from wherever the journal says it stands."""
    execute_together([(number, plan)], world, journal, fleet)

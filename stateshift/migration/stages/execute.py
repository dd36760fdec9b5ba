"""The stage that carries out the move plans of a wave, phase by phase."""

from __future__ import annotations

from stateshift.migration.context import RunContext
from stateshift.migration.stages.wave_state import WaveState


def execute_plans(context: RunContext, wave: WaveState) -> None:
    """Carry out what is left of the wave's plans, together."""
    context.execute(wave.moves)

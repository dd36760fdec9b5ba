"""The stage that finishes what an earlier process has begun to take back."""

from __future__ import annotations

from stateshift.migration.context import RunContext
from stateshift.migration.rollback import take_wave_back
from stateshift.migration.stages.wave_state import WaveState


def finish_interrupted_rollback(context: RunContext, wave: WaveState) -> None:
    """Take the wave back whole, if it was taken back in part."""
    names = tuple(job.name for job in wave.jobs)
    if context.progress.half_back(names):
        take_wave_back(context, wave.jobs)

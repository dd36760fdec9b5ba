"""The stage that follows warm jobs while they run, until they may be stopped."""

from __future__ import annotations

from stateshift.migration.context import RunContext
from stateshift.migration.observation import has_stopped
from stateshift.migration.stages.wave_state import WaveState
from stateshift.migration.warm_rounds import WarmRounds
from stateshift.specification import JobSpec


def follow_until_cutover(context: RunContext, wave: WaveState) -> None:
    """Bring the images of warm jobs over, round by round; return when the wave is to be
    stopped.
    """
    warm = [job for job in wave.pending if _is_followed(context, job)]
    if not warm or has_stopped(context, wave.pending):
        return
    rounds = WarmRounds(context, warm)
    rounds.until_cutover()
    wave.beside_stop = rounds.while_they_stop()


def _is_followed(context: RunContext, job: JobSpec) -> bool:
    """Return whether a job is still to be followed: it was not stopped yet, or has been started
    again.
    """
    return context.plans.proposed(job, "warm") is not None and not has_stopped(context, (job,))

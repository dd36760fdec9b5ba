"""The stages of a wave, in their order, each logged by its name.

A stage is a function of the run's context and the wave's state. It skips by itself what a resume
finds done: a wave always goes through all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from stateshift.migration.context import RunContext, WaveState
from stateshift.migration.stages.earlier_attempt import finish_interrupted_rollback, restart_failed
from stateshift.migration.stages.move_plan import copy_standby, execute_plans, plan_move
from stateshift.migration.stages.stop import follow_until_cutover, stop_jobs
from stateshift.migration.stages.targets import lock_targets, release_targets
from stateshift.specification import JobSpec

Stage = Callable[[RunContext, WaveState], None]

STAGES: tuple[Stage, ...] = (
    finish_interrupted_rollback,  # one of this wave that was cut short
    lock_targets,  # look at the sources, and lock the targets
    copy_standby,  # rounds of a drill, while its standby is fed
    follow_until_cutover,  # rounds of warm jobs, until they may be stopped
    stop_jobs,  # carry out the plans that stop jobs
    plan_move,  # by the facts now
    restart_failed,  # start jobs again that an earlier attempt left
    execute_plans,  # phase by phase
    release_targets,  # let go of the locks
)

_log = logging.getLogger(__name__)


def run_wave(context: RunContext, jobs: Sequence[JobSpec]) -> None:
    """Bring the jobs of a wave to their targets, from wherever the journal says they stand."""
    wave = WaveState(tuple(jobs))
    names = ", ".join(job.name for job in jobs)
    _log.info("wave %s begins", names)
    for stage in STAGES:
        _log.info("%s: %s", getattr(stage, "__name__", stage), names)
        stage(context, wave)

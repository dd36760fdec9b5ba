"""The stages of a wave, in this order, each logged by its name.

    stage                        module
    finish_interrupted_rollback  earlier_attempt  a rollback of this wave that was cut short
    lock_targets                 targets          look at the sources, lock where the jobs go to
    follow_until_cutover         stop             rounds of warm jobs, until they may be stopped
    stop_jobs                    stop             carry out the plans that stop jobs
    plan_move                    move_plan        the move plans of what is there now
    restart_failed               earlier_attempt  start jobs again that an earlier attempt left
    execute_plans                move_plan        carry the move plans out, phase by phase
    release_targets              targets          let go of the locks

A stage is a function of the run's context and the wave's state. It skips by itself what a resume
finds done: a wave always goes through all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from stateshift.migration.context import RunContext, WaveState
from stateshift.migration.stages.earlier_attempt import finish_interrupted_rollback, restart_failed
from stateshift.migration.stages.move_plan import execute_plans, plan_move
from stateshift.migration.stages.stop import follow_until_cutover, stop_jobs
from stateshift.migration.stages.targets import lock_targets, release_targets
from stateshift.specification import JobSpec

Stage = Callable[[RunContext, WaveState], None]

STAGES: tuple[Stage, ...] = (
    finish_interrupted_rollback,
    lock_targets,
    follow_until_cutover,
    stop_jobs,
    plan_move,
    restart_failed,
    execute_plans,
    release_targets,
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

"""The stages that mend what an earlier attempt of the run has left: a rollback that was cut short,
and jobs that are down. In a first run they do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateshift.clusters.protocol import JobState
from stateshift.journal import PlanProgress, StepFinished, StepProgress, StepStarted, StepUndone
from stateshift.migration.context import RunContext, WaveState
from stateshift.migration.plan_book import NumberedPlan
from stateshift.migration.rollback_checks import refuse_foreign_job
from stateshift.migration.way_back import take_wave_back
from stateshift.plan import Plan
from stateshift.step import AwaitProgress, SubmitJob


def finish_interrupted_rollback(context: RunContext, wave: WaveState) -> None:
    """Take the wave back whole, if it was taken back in part."""
    names = tuple(job.name for job in wave.jobs)
    if context.progress.half_back(names):
        take_wave_back(context, wave.jobs)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The fate of a job that an earlier attempt of the run has started.

    stopped   it was stopped to be taken back, and was not
    hopeless  it is alive, and gets no further
    ended     it has ended well, and has committed nothing
    """

    stopped: bool
    hopeless: bool
    ended: bool

    def is_over(self, state: JobState) -> bool:
        """Whether a job in this state runs no more, and is started again."""
        if state in (JobState.FAILED, JobState.ABSENT):
            return True
        return state is JobState.FINISHED and (self.stopped or self.ended)

    @property
    def why(self) -> str:
        if self.stopped:
            return "was stopped"
        if self.hopeless:
            return "gets no further"
        return "has ended" if self.ended else "has failed"


def restart_failed(context: RunContext, wave: WaveState) -> None:
    """Start each job again that an earlier attempt waited for in vain, and that has failed; and
    each that was stopped to be taken back, and was not. A resume asks for that.
    """
    for number, plan in wave.moves:
        for step in plan:
            if isinstance(step, SubmitJob):
                _restart_if_over(context, (number, plan), step)


def _restart_if_over(context: RunContext, numbered: NumberedPlan, step: SubmitJob) -> None:
    number, plan = numbered
    done = context.progress.plans[number]
    attempt = _attempt(context, plan, done, done.steps.get(step.name))
    if attempt is None:
        return
    if not attempt.hopeless and not attempt.is_over(step.status(context.world).state):
        return
    context.say(f"{plan.job} {attempt.why}: it is started again")
    if attempt.stopped:
        refuse_foreign_job(context, [done], "resume")
    else:
        context.record(StepUndone(context.now(), number, step.name, ()))
    # Killed between the stop and the start, a resume has to know that we stopped it.
    was_stopped = attempt.stopped or attempt.hopeless
    context.record(StepStarted(context.now(), number, "submit", step.name, was_stopped))
    evidence = step.again(context.world, attempt.stopped or attempt.ended, attempt.hopeless)
    context.record(StepFinished(context.now(), number, step.name, 0.0, 0, 0, evidence))


def _attempt(
    context: RunContext, plan: Plan, done: PlanProgress, submit: StepProgress | None
) -> Attempt | None:
    """Return the fate of a job that was started; None where nobody waited for it or stopped it."""
    # The waits that were begun, and that have seen no progress.
    begun = [step for step in plan if done.steps.get(step.name) is not None]
    awaits = [step for step in begun if isinstance(step, AwaitProgress)]
    waits = [step for step in awaits if not done.finished(step.name)]
    # It was stopped to be taken back, and is not yet started again.
    stopped = submit is not None and (
        submit.state == "undone" or (submit.state == "started" and submit.stopped)
    )
    if not waits and not stopped:
        return None
    world = context.world
    return Attempt(
        stopped=stopped,
        hopeless=any(wait.is_hopeless(world) for wait in waits),
        ended=any(wait.ended_in_vain(world) for wait in waits),
    )

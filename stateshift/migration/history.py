"""Questions about one job of a run to the journal's progress. Pure."""

from __future__ import annotations

from stateshift.journal import PlanProgress, Progress
from stateshift.purpose import WHILE_IT_RUNS

# The purposes of plans that do not move a job to its target.
NOT_MOVING = ("halt", *WHILE_IT_RUNS)


def has_moved(progress: Progress, job: str) -> bool:
    """Whether the job's newest plan has moved it to its target, and was not taken back."""
    plans = progress.plans_of((job,))
    if not plans:
        return False
    newest = plans[-1]
    if newest.purpose in NOT_MOVING:
        return False
    return newest.finished_at is not None and not newest.undone


def plans_while_running(progress: Progress, job: str) -> list[PlanProgress]:
    """Return the plans that were carried out while the job ran, and that were not taken back."""
    plans = [plan for plan in progress.plans_of((job,)) if not plan.undone]
    return [plan for plan in plans if plan.purpose in WHILE_IT_RUNS]


def rounds_of(progress: Progress, job: str) -> list[PlanProgress]:
    """Return the job's rounds that the journal still holds."""
    return [plan for plan in plans_while_running(progress, job) if plan.purpose == "warm"]


def round_count(progress: Progress, job: str) -> int:
    """Return the number of rounds so far, with those that the journal has forgotten since."""
    return len(rounds_of(progress, job)) + progress.forgotten.get(job, 0)


def attempt_number(progress: Progress, job: str) -> int:
    """Return the number of attempts to start the job at its target, this one included. Each has a
    tag of its own, since what was started under an earlier one has been stopped.
    """
    plans = progress.plans_of((job,))
    moves = [plan for plan in plans if plan.purpose not in NOT_MOVING]
    prepared = [plan for plan in plans if was_prepared_and_undone(plan)]
    return 1 + len(moves) + len(prepared)


def was_prepared_and_undone(plan: PlanProgress) -> bool:
    """Whether this halt started the target's application early, and was taken back."""
    if plan.purpose != "halt" or not plan.undone:
        return False
    return any(step.phase == "prepare" for step in plan.steps.values())


def is_stopping(plan: PlanProgress) -> bool:
    """Whether the plan has begun to stop the job, or with steps that need it stopped."""
    if plan.purpose in WHILE_IT_RUNS or plan.undone:
        return False
    return any(step.phase != "prepare" for step in plan.steps.values())

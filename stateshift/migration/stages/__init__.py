"""The stages of a wave, in their order, each logged by its name.

A stage is a function of the run's context and the wave's state. It skips by itself what a resume
finds done: a wave always goes through all of them; `STAGES` is their order.

Two stages mend what an earlier attempt of the run has left: a rollback that was cut short, and jobs
that are down. In a first run they do nothing. The stages that stop jobs are in `stop`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stateshift.clusters.protocol import JobState
from stateshift.errors import PlanError, StalePlan
from stateshift.journal import (
    PlanProgress,
    StepFinished,
    StepProgress,
    StepStarted,
    StepUndone,
    Warned,
)
from stateshift.migration.context import RunContext, WaveState
from stateshift.migration.halts import undo_halts
from stateshift.migration.history import attempt_number, has_moved
from stateshift.migration.observation import facts_of, has_stopped, joint_start, stale
from stateshift.migration.one_cut import JointStart
from stateshift.migration.plan_book import NumberedPlan
from stateshift.migration.proposal import refuse
from stateshift.migration.rollback_checks import refuse_foreign_job
from stateshift.migration.source_check import files_read_lately, refuse_damaged
from stateshift.migration.stages.stop import follow_until_cutover, stop_jobs
from stateshift.migration.standby_state import offer_standby
from stateshift.migration.take_over import plan_job
from stateshift.migration.target_locks import (
    claim_standbys,
    is_kept_fresh,
    lock_target,
    release_target,
    still_fed,
    tell_returned,
)
from stateshift.migration.trials import try_starts
from stateshift.migration.way_back import take_wave_back
from stateshift.plan import PHASES, Plan
from stateshift.specification import JobSpec
from stateshift.step import AwaitProgress, CompareImages, SubmitJob, TransformShard
from stateshift.step.evidence import ImageTaken, require_known

Stage = Callable[[RunContext, WaveState], None]

_log = logging.getLogger(__name__)


def lock_targets(context: RunContext, wave: WaveState) -> None:
    """Lock the targets of jobs that have not moved and could restart; release the others."""
    wave.pending = [job for job in wave.jobs if not has_moved(context.progress, job.name)]
    for job in wave.jobs:
        if job not in wave.pending:
            tell_returned(context, job)
            release_target(context, job)
    wave.pending = still_fed(context, wave.pending)
    if not has_stopped(context, wave.pending):
        # A standby that has copied something waits for its source, whatever has become of that.
        joint = joint_start(context)
        asked = [joint.job(job) for job in wave.pending if not is_kept_fresh(context, job)]
        inquiry, checked = context.inquiry_at_pace, {}
        for job in asked:
            by_steps = _files_checked_by_steps(context, job)
            checked[job.name] = by_steps | files_read_lately(inquiry, job)
        refuse_damaged(inquiry, asked, checked)
        try_starts(context, wave.pending)
    claim_standbys(context, wave.pending)
    for job in wave.pending:
        lock_target(context, job)
    # While the jobs still run: Arrow alone takes a third of a second.
    for job in wave.pending:
        for plan in context.plans.proposed_for(job):
            _load_engine_parts(context, plan)


def release_targets(context: RunContext, wave: WaveState) -> None:
    """Let go of the targets of a wave that has moved."""
    for job in wave.pending:
        tell_returned(context, job)
        if not job.rehearses:  # its copy is removed first
            release_target(context, job)
        offer_standby(context, job)
    context.status.down(None)


def _files_checked_by_steps(context: RunContext, job: JobSpec) -> frozenset[str]:
    """Return the source files that the steps of the adopted plan, or the proposed one, check."""
    if job.moves:
        return frozenset()
    adopted = context.plans.adopted(job, "move")
    plans = context.plans.proposed_for(job) if adopted is None else [adopted[1]]
    checked: set[str] = set()
    for plan in plans:
        for step in plan:
            if isinstance(step, TransformShard):
                checked.update(step.checked)
    return frozenset(checked)


def _load_engine_parts(context: RunContext, plan: Plan) -> None:
    for step in plan:
        if isinstance(step, TransformShard):
            context.world.transforms.get(step.transform)
        elif isinstance(step, CompareImages) and step.source_shards:
            context.world.entries.get(step.engine)


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


ROUNDS_MAX = 4  # of one attempt; a standby that is fed all the time always has something new


def copy_standby(context: RunContext, wave: WaveState) -> None:
    """Copy what a rehearsed job needs of a standby that is fed meanwhile.

    A round of the feeder removes files that are being read. A round of this copy leaves out what is
    gone by then, and keeps the rest: the plan that starts the job has little left to copy, and is
    made again for little where the standby has changed once more.
    """
    for job in wave.pending:
        if not job.rehearses or context.plans.adopted(job, "move") is not None:
            continue
        for _ in range(ROUNDS_MAX):
            facts = facts_of(context, job)
            if facts.target.kind != "empty":  # the way back would remove it
                raise PlanError(
                    f"the scratch place {job.destination} holds something since it was planned",
                    hint="another `location` under `drill` in the standby's spec",
                )
            plan = context.engine.plan_round(context.spec, job, facts)
            if plan.files == 0:
                break
            context.execute([context.plans.adopt(plan)])


def plan_move(context: RunContext, wave: WaveState) -> None:
    """Adopt a plan for each job that has none yet. All of them are made before any is adopted."""
    adopted = {job.name: context.plans.adopted(job, "move", "start") for job in wave.pending}
    joint = joint_start(context)
    made: dict[str, Plan] = {}
    for job in wave.pending:
        if adopted[job.name] is None:
            made[job.name] = _plan_of(context, wave, job, joint)
    for job in wave.pending:
        wave.moves.append(adopted[job.name] or context.plans.adopt(made[job.name]))


def _plan_of(context: RunContext, wave: WaveState, job: JobSpec, joint: JointStart) -> Plan:
    """Return the move plan by the facts now, if the proposal's still hold. Else undo the halts."""
    is_halted = job.name in wave.halted
    moved = with_halt_images(context, joint.job(job))
    facts = facts_of(context, moved)
    cluster = facts.source_cluster
    if is_halted and cluster is not None and cluster.state == "unknown":
        # A cluster that cannot see the job was asked to stop it, and said that it did.
        facts = replace(facts, source_cluster=replace(cluster, state="absent"))
    attempt = attempt_number(context.progress, job.name)
    facts = replace(facts, attempt=attempt, stopped=is_halted)
    *others, last = plan_job(context.inquiry, moved, facts)
    made = (*others, joint.with_findings(last))
    is_running = any(plan.purpose == "halt" for plan in made)
    if is_running and is_halted:
        raise StalePlan(
            f"{job.name} runs again after it was stopped",
            hint="something restarts it: switch that off, then `stateshift resume WORKDIR`",
        )
    proposed = context.plans.proposed_for(job)[-1]
    identity = context.engine.identity(facts) if proposed.provisional else made[-1].facts
    if is_running or identity != proposed.facts:
        undo_halts(context, wave.pending)
        source = facts.source if context.spec.restart else None
        raise stale(moved, source, taken_back=bool(wave.halted))
    _refuse_other_brokers(context, wave, proposed, made[-1])
    if made[-1].refusals:
        undo_halts(context, wave.pending)
    refuse(made)
    return replace(made[-1], provisional=False)


def _refuse_other_brokers(context: RunContext, wave: WaveState, proposed: Plan, made: Plan) -> None:
    """Refuse brokers that are another cluster of Kafka than they were when the move was planned."""
    before, now = dict(proposed.brokers), dict(made.brokers)
    others = [address for address in now if before.get(address, now[address]) != now[address]]
    if not others:
        return
    undo_halts(context, wave.pending)
    address = others[0]
    raise StalePlan(
        f"{address} is the cluster {now[address]} of Kafka now, and the plan was made with "
        f"{before[address]}",
        hint="name the brokers of one cluster, then plan again: stateshift plan WORKDIR/spec.json",
    )


def with_halt_images(context: RunContext, job: JobSpec) -> JobSpec:
    """Return the job from where its halt has left its images, if it was asked for some."""
    plans = context.progress.plans_of((job.name,))
    halts = [plan for plan in plans if plan.purpose == "halt"]
    if not halts or halts[-1].undone or not job.image_writers:
        return job
    evidence = [require_known(step.evidence) for step in halts[-1].steps.values()]
    images = [shown.image for shown in evidence if isinstance(shown, ImageTaken)]
    return job.started_from(tuple(images)) if images else job


def execute_plans(context: RunContext, wave: WaveState) -> None:
    """Carry out what is left of the wave's plans, together, phase by phase. A job of which only the
    files are known may have been begun since it was looked for: that is looked at again right
    before a new one starts.
    """
    by_files = [job for job in wave.pending if job.is_known_by_files]
    if by_files:
        context.execute(wave.moves, PHASES[: PHASES.index("submit")])
    for job in by_files:
        _look_beside_start(context, job)
    context.execute(wave.moves)


def _look_beside_start(context: RunContext, job: JobSpec) -> None:
    """Refuse to start a job beside the one whose image it has. The report gets what the plan that
    was shown did not warn of. A new job that is there already would be taken for the old one.
    """
    adopted = context.plans.adopted(job, "move")
    if adopted is None or not hasattr(context.engine, "findings_at_start"):
        return
    number, plan = adopted
    begun = context.progress.plans[number].steps
    for step in plan:
        if not isinstance(step, SubmitJob) or step.name not in begun:
            continue
        if step.status(context.world).state is not JobState.ABSENT:
            return
    facts = facts_of(context, job, "round")
    clusters = filter(None, (facts.source_cluster, facts.target_cluster))
    findings = [*context.engine.findings_at_start(context.spec, job, facts)]
    for cluster in clusters:
        findings += [finding for finding in cluster.findings if finding.level == "warn"]
    shown = {finding.message for finding in context.plans.proposed_for(job)[-1].findings}
    shown.update(warned.message for warned in context.progress.warned)
    for finding in findings:
        if finding.level == "refuse":
            raise StalePlan(
                finding.message,
                hint="where it has ended since, `stateshift resume WORKDIR`; else `stateshift "
                f"rollback WORKDIR`, and plan again: {finding.hint}",
            )
        if finding.level == "warn" and finding.message not in shown:
            context.say(f"{job.name}: {finding.message}")
            context.record(Warned(context.now(), job.name, finding.message))


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


def run_wave(context: RunContext, jobs: Sequence[JobSpec]) -> None:
    """Bring the jobs of a wave to their targets, from wherever the journal says they stand."""
    wave = WaveState(tuple(jobs))
    names = ", ".join(job.name for job in jobs)
    _log.info("wave %s begins", names)
    for stage in STAGES:
        _log.info("%s: %s", getattr(stage, "__name__", stage), names)
        stage(context, wave)

"""The stages that make the move plans of a wave, once its jobs are stopped, and carry them out."""

from __future__ import annotations

from dataclasses import replace

from stateshift.errors import PlanError, StalePlan
from stateshift.migration.context import RunContext, WaveState
from stateshift.migration.halts import undo_halts
from stateshift.migration.history import attempt_number
from stateshift.migration.observation import facts_of, joint_start, stale
from stateshift.migration.one_cut import JointStart
from stateshift.migration.proposal import refuse
from stateshift.migration.take_over import plan_job
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.step.evidence import ImageTaken, require_known

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
    """Carry out what is left of the wave's plans, together, phase by phase."""
    context.execute(wave.moves)

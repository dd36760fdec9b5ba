"""What many rounds have brought, remembered as one: so that a job that is followed for months takes
no more memory, journal and time than one that is followed for an hour.

    rounds 1 2 3 ... 100  ->  round 1, "what is there" as a round that brought nothing, and the last
                              few

The journal is then written anew without the others. They can be forgotten once everything that lies
at the target is some remaining plan's to answer for: what counts as brought stands in the new one,
what makes a standby an image in the plan that published it last. Where something else is there, all
is kept until it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from stateshift.engines.bundles import bundled
from stateshift.journal import PlanFinished, PlanProgress, StepFinished, StepStarted
from stateshift.migration.arrivals import Arrivals, arrivals
from stateshift.migration.context import RunContext
from stateshift.migration.history import plans_while_running
from stateshift.migration.observation import arrivals_of, facts_behind_round, remove_leftovers
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec
from stateshift.specification.warm import NEVER
from stateshift.step import BringFiles, Evidence, FileEvidence, KeepBrought
from stateshift.step.evidence import FilesBrought
from stateshift.survey import Brought, Facts, ShardFiles

ROUNDS_MAX = 100
ROUNDS_KEPT = 8  # of the last: they tell how fast it goes

FILES_MAX = 1024


@dataclass(frozen=True)
class Remembered:
    """`plan` stands for the plans that are `forgotten`, by their numbers; `evidence` is what its
    steps have shown.
    """

    plan: Plan
    evidence: Mapping[str, Evidence]
    forgotten: frozenset[int]


def remember(context: RunContext, job: JobSpec, facts: Facts) -> None:
    """Tell so many rounds of a job as one. What lies at the target and is nobody's goes first,
    unless it may be a part of an image that can be seen.
    """
    rounds = plans_while_running(context.progress, job.name)
    facts = facts_behind_round(context, job, facts)
    if facts.left and job.cutover != NEVER:
        phases = phases_of(Phase("retire", tuple(dropped(facts.left))))
        newest = context.plans.read(rounds[-1])
        tidying = replace(newest, purpose="standby", phases=phases, findings=())
        context.execute([context.plans.adopt(tidying)])
        facts = replace(facts, left=())
    found = remembered(rounds, arrivals_of(context, job), facts, context.plans.read)
    if found is None:
        return
    remove_leftovers(context, [plan for plan in rounds if plan.plan in found.forgotten])
    number, _ = context.plans.adopt(found.plan)
    for name, evidence in found.evidence.items():
        context.record(StepStarted(context.now(), number, "copy", name))
        context.record(StepFinished(context.now(), number, name, 0.0, 0, 0, evidence))
    context.record(PlanFinished(context.now(), number))
    context.plans.forget(found.forgotten, job.name)


def remembered(
    rounds: list[PlanProgress], found: Arrivals, facts: Facts, read: Callable[[PlanProgress], Plan]
) -> Remembered | None:
    """Of all plans of a job while it ran, and what they have brought. None where there is nothing
    to gain by it, or too much lies at the target.
    """
    warm = [plan for plan in rounds if plan.purpose == "warm"]
    if len(warm) <= ROUNDS_MAX:
        return None
    standby = [plan for plan in rounds if plan.purpose != "warm" and plan.finished_at is not None]
    staying = {plan.plan for plan in (*warm[:1], *warm[-ROUNDS_KEPT:], *standby[-1:])}
    kept = arrivals([plan for plan in rounds if plan.plan in staying], read).written
    if any(path not in kept.get(place, ()) for place, path in facts.left):
        return None
    steps = tuple(_steps(facts.brought, found))
    if not steps:
        return None
    template = read(warm[-1])
    plan = replace(
        template, phases=phases_of(Phase("copy", tuple(step for step, _ in steps))), findings=()
    )
    evidence = {step.name: shown for step, shown in steps}
    return Remembered(plan, evidence, frozenset(plan.plan for plan in rounds) - staying)


def dropped(left: Iterable[tuple[str, str]]) -> Iterator[KeepBrought]:
    """What rounds have left at a target, and no image needs."""
    paths = list(left)
    for number, target in enumerate(sorted({place for place, _ in paths})):
        there = tuple(sorted(path for place, path in paths if place == target))
        yield KeepBrought(f"retire/left-{number}", target, (), there)


def due(rounds: int) -> bool:
    """Whether it is time to try: not behind each round, should there be a reason why it cannot
    be.
    """
    return rounds > ROUNDS_MAX and (rounds - ROUNDS_MAX) % ROUNDS_KEPT == 1


def _steps(
    brought: Mapping[tuple[str, str], Brought], found: Arrivals
) -> Iterator[tuple[BringFiles, Evidence]]:
    """What is there and counts. The anchors of what came last vouch for what came before it, too:
    who has not gone back behind that has not gone back behind an earlier one.
    """
    came = [
        (one.step.source, one.step.target, one)
        for key, one in found.files.items()
        if key in brought
    ]
    chains, number = _last_of_each(found.chains), 0
    for source, target in dict.fromkeys((source, target) for source, target, _ in came):
        ours = [one for *place, one in came if place == [source, target]]
        last = ours[-1].step
        for files in bundled(ours, FILES_MAX):
            names, items = tuple(one.name for one in files), tuple(one.file for one in files)
            same = all(name == item.path for name, item in zip(names, items, strict=True))
            step = BringFiles(
                f"copy/there-{number}",
                source,
                target,
                items,
                () if number else chains,
                last.anchors,
                last.keep_times,
                last.read_back,
                () if same else names,
            )
            yield (
                step,
                FilesBrought(
                    tuple(FileEvidence(one.name, one.file.size, one.digest) for one in files),
                    {one.name: one.stamp for one in files},
                    missed=0,
                ),
            )
            number += 1


def _last_of_each(chains: Iterable[ShardFiles]) -> tuple[ShardFiles, ...]:
    """By shard, and by where it lies: a workflow's queries number their operators alike."""
    return tuple({(c.operator, c.store, c.shard, _folder(c)): c for c in chains}.values())


def _folder(chain: ShardFiles) -> str:
    return chain.files[0].rpartition("/")[0] if chain.files else ""

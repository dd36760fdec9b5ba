"""Many rounds remembered as one: so that a job that is followed for months takes no more memory,
journal and time than one that is followed for an hour.

    rounds 1 2 3 ... 100  ->  round 1, "what is there" as a round that copied nothing, and the last
                              few

The journal is then rewritten without the others. They can be forgotten once everything that lies at
the target is some remaining plan's to answer for: what counts as copied stands in the new one, what
makes a standby an image in the plan that published it last. Where something else is there, all is
kept until it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stateshift.engines.bundles import bundled
from stateshift.journal import PlanFinished, PlanProgress, StepFinished, StepStarted
from stateshift.migration.arrivals import Arrivals, Arrived, arrivals
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
ROUNDS_KEPT = 8  # of the last: they show how fast it goes

FILES_MAX = 1024

Key = tuple[str, str]


@dataclass(frozen=True)
class Remembered:
    """`plan` stands for the plans that are `forgotten`, by their numbers; `evidence` is what its
    steps have shown.
    """

    plan: Plan
    evidence: Mapping[str, Evidence]
    forgotten: frozenset[int]


def remember(context: RunContext, job: JobSpec, facts: Facts) -> None:
    """Make one round of so many of a job. What lies at the target and is nobody's goes first,
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
    memory = remembered(rounds, arrivals_of(context, job), facts, context.plans.read)
    if memory is None:
        return
    remove_leftovers(context, [plan for plan in rounds if plan.plan in memory.forgotten])
    number, _ = context.plans.adopt(memory.plan)
    for name, evidence in memory.evidence.items():
        context.record(StepStarted(context.now(), number, "copy", name))
        context.record(StepFinished(context.now(), number, name, 0.0, 0, 0, evidence))
    context.record(PlanFinished(context.now(), number))
    context.plans.forget(memory.forgotten, job.name)


def remembered(
    rounds: list[PlanProgress],
    arrived: Arrivals,
    facts: Facts,
    read: Callable[[PlanProgress], Plan],
) -> Remembered | None:
    """Return one plan for all plans of a job while it ran, and what they have copied. None where
    there is nothing to gain by it, or too much lies at the target.
    """
    warm = [plan for plan in rounds if plan.purpose == "warm"]
    if len(warm) <= ROUNDS_MAX:
        return None
    staying = {plan.plan for plan in (*warm[:1], *warm[-ROUNDS_KEPT:], *_last_standby(rounds))}
    written = arrivals([plan for plan in rounds if plan.plan in staying], read).written
    if any(path not in written.get(place, ()) for place, path in facts.left):
        return None
    steps: list[BringFiles] = []
    evidence: dict[str, Evidence] = {}
    for step, shown in _steps(facts.brought, arrived):
        steps.append(step)
        evidence[step.name] = shown
    if not steps:
        return None
    plan = replace(read(warm[-1]), phases=phases_of(Phase("copy", tuple(steps))), findings=())
    return Remembered(plan, evidence, frozenset(plan.plan for plan in rounds) - staying)


def _last_standby(plans: Iterable[PlanProgress]) -> list[PlanProgress]:
    """Return the plan that published an image last, if there is one."""
    standby = [plan for plan in plans if plan.purpose != "warm"]
    return [plan for plan in standby if plan.finished_at is not None][-1:]


def dropped(left: Iterable[tuple[str, str]]) -> Iterator[KeepBrought]:
    """Yield the steps that remove what rounds have left at targets, and no image needs."""
    paths_at: dict[str, list[str]] = {}
    for target, path in sorted(left):
        paths_at.setdefault(target, []).append(path)
    for number, (target, paths) in enumerate(paths_at.items()):
        yield KeepBrought(f"retire/left-{number}", target, (), tuple(paths))


def due(rounds: int) -> bool:
    """Whether it is time to try: not behind each round, should something speak against it."""
    return rounds > ROUNDS_MAX and (rounds - ROUNDS_MAX) % ROUNDS_KEPT == 1


def _steps(
    brought: Mapping[Key, Brought], arrived: Arrivals
) -> Iterator[tuple[BringFiles, Evidence]]:
    """Yield steps for what is there and counts, and what they have shown. The anchors of what came
    last vouch for what came before it, too: who has not gone back behind that has not gone back
    behind an earlier one.
    """
    chains = _last_of_each(arrived.chains)  # they stand in the first step
    number = 0
    for files in _files_that_count(brought, arrived):
        for bundle in bundled(files, FILES_MAX):
            yield _step(f"copy/there-{number}", bundle, files[-1].step, chains), _evidence(bundle)
            chains = ()
            number += 1


def _files_that_count(brought: Mapping[Key, Brought], arrived: Arrivals) -> Iterable[list[Arrived]]:
    """Return the files that count, those together that have the same source and target."""
    files_between: dict[Key, list[Arrived]] = {}
    for key, file in arrived.files.items():
        if key in brought:
            files_between.setdefault((file.step.source, file.step.target), []).append(file)
    return files_between.values()


def _step(
    name: str, files: Sequence[Arrived], last: BringFiles, chains: tuple[ShardFiles, ...]
) -> BringFiles:
    names = tuple(file.name for file in files)
    items = tuple(file.file for file in files)
    paths = tuple(item.path for item in items)
    new_names: tuple[str, ...] = ()
    if names != paths:
        new_names = names
    return BringFiles(
        name,
        last.source,
        last.target,
        items,
        chains,
        last.anchors,
        last.keep_times,
        last.read_back,
        new_names,
    )


def _evidence(files: Sequence[Arrived]) -> FilesBrought:
    shown = tuple(FileEvidence(file.name, file.file.size, file.digest) for file in files)
    return FilesBrought(shown, {file.name: file.stamp for file in files}, missed=0)


def _last_of_each(chains: Iterable[ShardFiles]) -> tuple[ShardFiles, ...]:
    """Return the last chain of each shard, and of each place where it lies: a workflow's queries
    number their operators alike.
    """
    return tuple({(c.operator, c.store, c.shard, _folder(c)): c for c in chains}.values())


def _folder(chain: ShardFiles) -> str:
    return chain.files[0].rpartition("/")[0] if chain.files else ""

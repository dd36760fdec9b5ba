"""Many rounds remembered as one: so that a job that is followed for months takes no more memory,
journal and time than one that is followed for an hour.

    rounds 1 2 3 ... 100  ->  round 1, "what is there" as a round that copied nothing, and the last
                              few

The journal is then rewritten without the others. They can be forgotten once some remaining plan
answers for everything at the target: the new one for what rounds have copied, whether it counts or
is of a time that the job has gone back behind; the plans that published for what makes a standby an
image, or an earlier epoch one. While anything else is there, all is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stateshift.engines.bundles import bundle_items
from stateshift.journal import PlanFinished, PlanProgress, StepFinished, StepStarted
from stateshift.migration.arrivals import Arrivals, Arrived, arrivals
from stateshift.migration.context import RunContext
from stateshift.migration.history import plans_while_running
from stateshift.migration.observation import arrivals_of, facts_behind_round, remove_leftovers
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec
from stateshift.specification.grammars import NEVER
from stateshift.step import BringFiles, Evidence, FileEvidence, KeepBrought
from stateshift.step.evidence import FilesBrought
from stateshift.survey import Brought, Facts, ShardFiles

ROUNDS_MAX = 100
ROUNDS_KEPT = 8  # of the last: they show how fast it goes

FILES_MAX = 1024

Key = tuple[str, str]


@dataclass(frozen=True)
class Compaction:
    """`plan` replaces the `forgotten` ones, by number; `evidence` is that of its steps."""

    plan: Plan
    evidence: Mapping[str, Evidence]
    forgotten: frozenset[int]


def is_due(rounds: int) -> bool:
    """Whether it is time to try: not behind each round, should something speak against it."""
    return rounds > ROUNDS_MAX and (rounds - ROUNDS_MAX) % ROUNDS_KEPT == 1


def compact(context: RunContext, job: JobSpec, facts: Facts) -> None:
    """Make one round of so many. Leftovers go first, unless they may belong to a visible image."""
    rounds = plans_while_running(context.progress, job.name)
    facts = facts_behind_round(context, job, facts)
    if facts.left and job.cutover != NEVER:
        phases = phases_of(Phase("retire", tuple(_removals(facts.left))))
        newest = context.plans.read(rounds[-1])
        tidying = replace(newest, purpose="standby", phases=phases, findings=())
        context.execute([context.plans.adopt(tidying)])
        facts = replace(facts, left=())
    compaction = _compaction(rounds, arrivals_of(context, job), facts, context.plans.read)
    if compaction is None:
        return
    remove_leftovers(context, [plan for plan in rounds if plan.plan in compaction.forgotten])
    number, _ = context.plans.adopt(compaction.plan)
    for name, evidence in compaction.evidence.items():
        context.record(StepStarted(context.now(), number, "copy", name))
        context.record(StepFinished(context.now(), number, name, 0.0, 0, 0, evidence))
    context.record(PlanFinished(context.now(), number))
    context.plans.forget(compaction.forgotten, job.name)


def _removals(left: Iterable[Key]) -> Iterator[KeepBrought]:
    """Yield the steps that remove what rounds have left at targets, and no image needs."""
    paths_at: dict[str, list[str]] = {}
    for target, path in sorted(left):
        paths_at.setdefault(target, []).append(path)
    for number, (target, paths) in enumerate(paths_at.items()):
        yield KeepBrought(f"retire/left-{number}", target, (), tuple(paths))


def _compaction(
    rounds: list[PlanProgress],
    arrived: Arrivals,
    facts: Facts,
    read: Callable[[PlanProgress], Plan],
) -> Compaction | None:
    """Return one plan for all of a job while it ran. None without a gain, or with leftovers."""
    warm = [plan for plan in rounds if plan.purpose == "warm"]
    if len(warm) <= ROUNDS_MAX:
        return None
    others = [plan for plan in rounds if plan.purpose != "warm"]
    published = [plan for plan in others if plan.finished_at is not None]
    asides = [plan for plan in others if plan.purpose == "aside"]
    kept = {plan.plan for plan in (*asides, *warm[:1], *warm[-ROUNDS_KEPT:], *published[-1:])}
    written = arrivals([plan for plan in rounds if plan.plan in kept], read).written
    past = set(facts.past)
    unknown = set(facts.left) - past - _keys(written)
    for other in reversed(others):
        if not unknown:
            break
        own = _keys(arrivals([other], read).written)
        if not unknown.isdisjoint(own):
            kept.add(other.plan)
            unknown -= own
    if unknown:
        return None
    evidence: dict[str, Evidence] = {}
    steps = list(_steps(facts.brought, past, arrived, evidence))
    if not steps:
        return None
    plan = replace(read(warm[-1]), phases=phases_of(Phase("copy", tuple(steps))), findings=())
    return Compaction(plan, evidence, frozenset(plan.plan for plan in rounds) - kept)


def _keys(written: Mapping[str, Collection[str]]) -> set[Key]:
    """Return the location and the path of each file."""
    keys: set[Key] = set()
    for place, paths in written.items():
        keys.update((place, path) for path in paths)
    return keys


def _steps(
    brought: Mapping[Key, Brought],
    past: Collection[Key],
    arrived: Arrivals,
    evidence: dict[str, Evidence],
) -> Iterator[BringFiles]:
    """Yield steps for what is there; add what they have shown to `evidence`. The anchors of what
    came last vouch for what came before it, too: who has not gone back behind that has not gone
    back behind an earlier one. Nothing vouches for what is `past`.
    """
    # The last chain of each shard and place: a workflow's queries number their operators alike.
    last_chains: dict[tuple[object, ...], ShardFiles] = {}
    for chain in arrived.chains:
        folder = chain.files[0].rpartition("/")[0] if chain.files else ""
        last_chains[chain.operator, chain.store, chain.shard, folder] = chain
    chains = tuple(last_chains.values())  # they are in the first step
    files_between: dict[tuple[str, str, bool], list[Arrived]] = {}
    for key, file in arrived.files.items():
        counts = key in brought
        if counts or (file.step.target, file.name) in past:
            place = (file.step.source, file.step.target, counts)
            files_between.setdefault(place, []).append(file)
    for (_, _, counts), files in files_between.items():
        for bundle in bundle_items(files, FILES_MAX):
            last = files[-1].step if counts else replace(files[-1].step, anchors=())
            step = _step(f"copy/there-{len(evidence)}", bundle, last, chains)
            shown = [FileEvidence(file.name, file.file.size, file.digest) for file in bundle]
            stamps = {file.name: file.stamp for file in bundle}
            evidence[step.name] = FilesBrought(tuple(shown), stamps, missed=0)
            yield step
            chains = ()


def _step(
    name: str, files: Sequence[Arrived], last: BringFiles, chains: tuple[ShardFiles, ...]
) -> BringFiles:
    names = tuple(file.name for file in files)
    items = tuple(file.file for file in files)
    are_renamed = names != tuple(item.path for item in items)
    return BringFiles(
        name,
        last.source,
        last.target,
        items,
        chains,
        last.anchors,
        last.keep_times,
        last.read_back,
        names if are_renamed else (),
    )

"""The plan of one Spark job, from spec and facts and nothing else.

    halt        fence the source (and the merge directories), then move the merges in by rename:
                Algorithm 5's order
    copy        what the chosen batches need and nothing newer, and the data that moves along, in
                bundles
    transform   files that name absolute places, rewritten; and state, where more is asked for than
                a copy
    compare     entries of every shard; everything else byte for byte
    publish     in order: the name index, ids and offsets of all queries, and last of all the
                commits
    submit, confirm

A job that still runs gets a halt plan and, provisionally, the move plan of what is there now.

Its halt is the stop itself, the fences that keep it from going on, and the merges that are moved in
by rename then.

In a repair, each file comes from the place that has it whole:

    a copy of several files  one for each place that they come from
    a commit, published      is written, if it was rebuilt
    a comparison of a shard  goes by entries; byte for byte, if some of its files came from a copy,
                             for no one place holds all of it
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from stateshift.engines.bundles import (
    Copies,
    bare,
    bundle_by,
    bundle_items,
    copies,
    keep_copied,
    still_to_copy,
    without_shown,
)
from stateshift.engines.findings import findings_of
from stateshift.engines.spark import layout
from stateshift.engines.spark.findings.moves import FINDINGS, FINDINGS_OF_START
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.places import Rewriting, with_changes
from stateshift.engines.spark.plan import publication
from stateshift.engines.spark.plan.fingerprint import epoch_after, identity_of, plan_of, provisional
from stateshift.engines.spark.plan.rounds import round_plan, with_shortest_chains
from stateshift.engines.spark.real_time import SECONDS_DEFAULT, longest_batch
from stateshift.engines.spark.rewrite import in_place
from stateshift.engines.spark.rewrite.files import Reshaping, reshaping_of
from stateshift.engines.spark.rewrite.logs import keep_files
from stateshift.engines.spark.rewrite.move import Move, planned_copies
from stateshift.engines.start import Awaited, Handed, group_steps, prepare_phase, start
from stateshift.formats.marks import IDLE
from stateshift.plan import Phase, Plan, phases_of
from stateshift.purpose import Purpose
from stateshift.specification import JobSpec, Spec
from stateshift.specification.grammars import NEVER
from stateshift.specification.job_relations import job_to_stop
from stateshift.specification.model import SUBMIT_SECONDS_MAX
from stateshift.specification.transform import Repair
from stateshift.step import (
    AnyStep,
    CompareImages,
    CopyFiles,
    FenceSource,
    LiftFence,
    MoveFiles,
    ReadyFence,
    Rename,
    StageFiles,
    StopJob,
    TransformShard,
    WriteFile,
)
from stateshift.survey import Facts, Image, ShardFiles, Survey

# Files of a query's fence: what it would plan next with, and what it would commit that with; or the
# last two it plans.
FENCES_MAX = 2


def halt_plan(move: Move) -> Plan:
    """Return the plan that stops the job. The next survey says at which epoch."""
    job, facts = move.job, move.facts
    steps: list[AnyStep] = [_stop(move)]
    files_max = _readied(move)
    if files_max:
        steps.append(ReadyFence("halt/ready-fence", move.source, files_max))
    options = job.submit.options if job.submit is not None else {}
    early = prepare_phase(job, facts, Handed(job.destination, options))
    plan = plan_of(move, phases_of(*early, Phase("halt", tuple(steps))))
    return replace(plan, purpose="halt", epoch=None, facts=identity_of(facts))


def _stop(move: Move) -> StopJob:
    job = move.job
    options = dict(job.stop)
    tag = options.pop("tag", None)
    options.pop("seconds_max", None)
    again = job.source_submit
    return StopJob(
        name="halt/stop",
        cluster=job.source_cluster or "",
        job=job.name,
        location=job.source,
        tag=tag,
        seconds_max=move.stop_seconds_max,
        options=options,
        restart=None if again is None else again.options,
        restart_environment={} if again is None else again.environment,
    )


def halt_steps(move: Move) -> Iterator[AnyStep]:
    """Yield the fences and the merges. A fork's source, and a job that stays, must go on."""
    facts = move.facts
    if move.job.fences_source and move.job.target is not None:
        yield from fence("halt/fence", facts.source, _readied(move))
        for number, other in enumerate(facts.others):
            yield from fence(f"halt/fence-other-{number}", other)
    for number, merge in enumerate(facts.merges):
        yield from fence(f"halt/fence-merge-{number}", merge)
        yield from _moves(f"halt/merge-{number}", merge, facts.source)


def _readied(move: Move) -> int:
    """Return the number of fence files to write before the stop, where that saves time."""
    source = move.facts.source
    saves_time = move.job.mode == "warm" and source.traits.get("renames_sooner", False)
    if not saves_time or move.job.target is None:
        return 0
    return FENCES_MAX * len(source.images)


def fence(name: str, survey: Survey, ready: int = 0) -> Iterator[FenceSource]:
    """Yield the fence of a location, where there is anything to keep from going on."""
    paths: list[str] = []
    for image in survey.images:
        if image.epoch is None:
            continue
        # Also behind a rewind.
        committed, planned = spark_image(image).newest or (image.epoch, image.planned)
        own = layout.fence_paths(committed, planned)
        if planned is not None and not layout.has_commits(image):
            # Spark 2.1 plans its next batch, a later one commits the last batch planned.
            own = (layout.offset_path(planned + 1), layout.commit_path(planned))
        paths += [layout.under(image.path, path) for path in own]
    if paths:
        yield FenceSource(name, survey.location, tuple(paths), ready)


def _moves(name: str, merge: Survey, source: Survey) -> Iterator[AnyStep]:
    """Yield the renames of the merge's content into the checkpoint, below one common root."""
    root = layout.deepest_above((merge.location, source.location))
    here, there = (place[len(root) :].lstrip("/") for place in (merge.location, source.location))
    files = [file for file in merge.files if not file.path.startswith("_stateshift/")]
    items = [
        Rename(layout.under(here, file.path), layout.under(there, file.path), file.size)
        for file in sorted(files)
    ]
    for number, bundle in enumerate(bundle_items(items)):
        yield MoveFiles(f"{name}/{number}", root, tuple(bundle))


def plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    """Return the job's plans: a first round if warm, a halt if it still runs, and the move."""
    move = Move(spec, job, bare(with_shortest_chains(facts)))
    purposes: tuple[Purpose, ...] = ("move",)
    if not spec.restart:
        purposes = ("start",)
    elif job.mode != "fork" and move.may_run and job is job_to_stop(spec, job):
        purposes = ("halt", "move")
    plans = tuple(PLANS[purpose](move) for purpose in purposes)
    is_followed = job.mode == "warm" and (move.may_run or job.cutover == NEVER)
    if not is_followed:
        return plans
    return (round_plan(spec, job, facts), *(provisional(later, facts) for later in plans))


def start_plan(move: Move) -> Plan:
    """Return the plan of a first deployment: write the name index, start the job."""
    staying = replace(move, job=replace(move.job, target=None))
    published = Phase("publish", tuple(publication.index_step(staying)), ordered=True)
    phases = phases_of(published, *_start(staying, move.facts.source.images))
    return replace(plan_of(move, phases, findings_of(move, FINDINGS_OF_START)), purpose="start")


def move_plan(move: Move) -> Plan:
    """Return the plan that moves the image, from the facts of a job that has stopped."""
    findings = findings_of(move, FINDINGS)
    phases: tuple[Phase, ...] = ()
    if not any(finding.level == "refuse" for finding in findings):
        # The offsets of a standby are rewritten before this plan's first phase (`take_over`).
        reshaping = Reshaping() if move.job.takes_over is not None else reshaping_of(move)
        if move.job.target is not None:
            phases = _phases_to_target(move, reshaping)
        elif reshaping.shards:
            phases = _phases_in_place(move, reshaping)
        else:
            phases = phases_of(
                Phase("halt", tuple(halt_steps(move)), ordered=True),
                Phase("publish", tuple(publication.index_step(move)), ordered=True),
                *_start(move, move.images),
            )
    plan = plan_of(move, phases, findings)
    # A fork's source may run on and commit: what is copied is the newest commit at that time.
    is_final = move.job.mode != "fork" and not move.may_run
    return plan if is_final else provisional(plan, move.facts)


def _phases_to_target(move: Move, reshaping: Reshaping) -> tuple[Phase, ...]:
    job, facts, images = move.job, move.facts, move.images
    rewriting = with_changes(move.rewriting, facts, reshaping.operators, reshaping.paths)
    replaced = frozenset((move.source, path) for path in reshaping.replaced)
    all_copies = copies(job, facts, images, rewriting.paths | replaced)
    copied = still_to_copy(facts, all_copies)
    wanted = frozenset(all_copies.files)
    planned_names = dict(move.planned_paths(images))
    for file in all_copies.groups[0].files:
        planned_names.pop(file.path, None)
    planned = tuple(planned_copies(move, planned_names))
    beforehand = bool(facts.brought) or facts.target.traits.get("renames_sooner", False)
    visible = (
        *publication.index_step(move),
        *publication.publish(move, images, reshaping, beforehand),
    )
    first = tuple(publication.staging_steps(visible))
    own = tuple(publication.identities(move)) if beforehand else ()
    written = {path for _, path in wanted} | set(planned_names.values())
    for step in first:
        written.update(step.staged_names)
    fences = tuple(halt_steps(move))
    fences_in_copy: tuple[AnyStep, ...] = ()
    if facts.brought:
        # With so little left the fence would take as long as the rest. It is up before anything can
        # be seen, and what it finds taken is a commit since the survey, either way.
        fences_in_copy = tuple(
            replace(step, name=f"copy/{step.name.rpartition('/')[2]}") for step in fences
        )
        fences = ()
    left_there, gone_last = without_shown(facts, keep_copied(facts, wanted, written))
    visible = (*gone_last, *visible, *publication.keep_owners(move), *group_steps(facts))
    renamed = _renamed(facts, reshaping, rewriting)
    compares = tuple(_compares(move, copied, reshaping, planned))
    phases = phases_of(
        Phase("halt", fences, ordered=True),
        Phase("copy", (*fences_in_copy, *left_there, *first, *own, *copied.steps, *planned)),
        Phase("transform", (*rewriting.steps(), *reshaping.steps, *renamed)),
        Phase("compare", compares),
        Phase("publish", visible, ordered=True),
        *_start(move, move.images),
    )
    return phases if move.repair is None else from_their_places(move.repair, phases)


def _phases_in_place(move: Move, reshaping: Reshaping) -> tuple[Phase, ...]:
    """Return the phases that leave the same location with fewer files: see `in_place`."""
    aside = tuple(in_place.set_aside(move.facts, reshaping))
    if not reshaping.steps and not aside:
        return ()
    fences = list(fence("halt/fence", move.facts.source))
    lifts = []
    for number, each in enumerate(fences):
        lifts.append(LiftFence(f"publish/lift-{number}", each.location, each.paths))
    compares = reshaping.compares if move.job.verify != "none" else ()
    return phases_of(
        Phase("halt", tuple(fences), ordered=True),
        Phase("transform", reshaping.steps),
        Phase("compare", compares),
        Phase("publish", (*lifts, *publication.index_step(move)), ordered=True),
        *_start(move, move.images),
        Phase("retire", aside),
    )


def _renamed(facts: Facts, reshaping: Reshaping, rewriting: Rewriting) -> Iterator[AnyStep]:
    source, target = facts.source.location, facts.target.location
    rewritten = {file.info.path for file in rewriting.files if file.source == source}
    new_paths = {path: new for path, new in reshaping.paths.items() if new is not None}
    for path in rewritten:
        new_paths.pop(path, None)
    infos = {file.path: file for file in facts.source.files}
    files = [infos[path] for path in sorted(new_paths)]
    return keep_files("renamed", files, new_paths, (source, target))


def _compares(
    move: Move, copied: Copies, reshaping: Reshaping, planned: Iterable[CopyFiles]
) -> Iterator[AnyStep]:
    """Yield the comparisons. By entries: the shards' entries, and the files that hold none byte for
    byte. By digests: every file. State that was rewritten has other bytes, and is compared by
    entries either way. Rounds have compared what they copied byte for byte: the rest then is, too.
    """
    verify = move.job.verify
    if verify == "none":
        return
    by_entries = verify in ("entries", "twice") and not move.facts.brought
    numbers = itertools.count()
    compared: set[str] = set()  # the files whose entries are compared

    def amount(shard: ShardFiles) -> tuple[int, int]:
        return len(shard.files), sum(copied.sizes.get(path, 0) for path in shard.files)

    if by_entries:
        for image in move.images:
            as_they_were = [
                shard for shard in image.shards if reshaping.replaced.isdisjoint(shard.files)
            ]
            compared.update(itertools.chain.from_iterable(shard.files for shard in as_they_were))
            for shards in bundle_by(as_they_were, amount):
                yield CompareImages(
                    name=f"compare/{next(numbers)}",
                    engine=layout.ENGINE,
                    source=move.source,
                    target=move.target,
                    source_shards=tuple(shards),
                    target_shards=None,
                    paths=(),
                    settings=image.settings,
                    size=sum(amount(shard)[1] for shard in shards),
                )
    yield from reshaping.compares
    for group in copied.groups:
        files = [file for file in group.files if file.path not in compared]
        for bundle in bundle_items(files):
            yield CompareImages(
                name=f"compare/{next(numbers)}",
                engine=layout.ENGINE,
                source=group.source,
                target=group.target,
                source_shards=(),
                target_shards=None,
                paths=tuple(file.path for file in bundle),
                settings={},
                size=sum(file.size for file in bundle),
            )
    # Byte for byte: these files are no part of the image's entries.
    for number, step in enumerate(planned):
        yield CompareImages.of_copy(f"compare/planned-{number}", layout.ENGINE, step)


def _start(move: Move, images: Iterable[Image]) -> Iterator[Phase]:
    """Yield the phases that start the job and wait for each query's first commit or idle note."""
    job = move.job
    options = job.submit.options if job.submit is not None else {}
    fences = tuple(step for step in halt_steps(move) if isinstance(step, FenceSource))
    # As the spec spells it: the job's Hadoop may know s3a, and not s3.
    handed = Handed(job.destination, options)
    awaited = None
    begun = [image for image in images if image.epoch is not None]
    if begun:
        commits, idle_notes = [], []
        for image in begun:
            first_commit = layout.commit_path(move.number_after(image) + 1)
            commits.append(layout.under(image.path, first_commit))
            idle_notes.append(layout.under(image.path, IDLE))
        location = move.target if job.target else move.source
        epoch = epoch_after(move)
        seconds = _first_batch_seconds(move, begun)
        awaited = Awaited(location, epoch, tuple(commits), tuple(idle_notes), seconds)
    return start(job, move.facts, handed, awaited, fences)


def _first_batch_seconds(move: Move, images: Iterable[Image]) -> float:
    """Return the seconds of the job's first batch: in real-time mode, it commits as that ends."""
    seconds = longest_batch(images)
    submit = move.job.submit
    # Format 2 is what real-time mode needs. The checkpoint does not show the job's next trigger.
    may_begin_it = move.change.checkpoint_format == "v2"
    is_default = submit is not None and submit.seconds_max == SUBMIT_SECONDS_MAX
    return max(seconds, SECONDS_DEFAULT) if may_begin_it and is_default else seconds


PLANS: Mapping[Purpose, Callable[[Move], Plan]] = {
    "start": start_plan,
    "halt": halt_plan,
    "move": move_plan,
}


def from_their_places(repair: Repair, phases: Iterable[Phase]) -> tuple[Phase, ...]:
    """Return the phases with every step that reads a file reading it where it is whole."""
    placed = []
    for phase in phases:
        steps: list[AnyStep] = []
        for step in phase.steps:
            match step:
                case CopyFiles() | StageFiles() if not step.names:
                    steps += _of_copy(repair, step)
                case CompareImages():
                    steps += _of_comparison(repair, step)
                case TransformShard() if step.inputs and step.inputs[0].path in repair.take:
                    steps.append(replace(step, source=repair.take[step.inputs[0].path]))
                case _:
                    steps.append(step)
        placed.append(replace(phase, steps=tuple(steps)))
    return tuple(placed)


def _of_copy(repair: Repair, step: CopyFiles | StageFiles) -> Iterator[AnyStep]:
    by_path = {item.path: item for item in step.items}
    rebuilt = [path for path in by_path if path in repair.rebuild]
    for number, (place, paths) in enumerate(_by_place(repair, by_path, step.source)):
        name = step.name if number == 0 else f"{step.name}-from-{number}"
        items = tuple(by_path[path] for path in paths)
        yield replace(step, name=name, source=place, items=items)
    for path in rebuilt:
        if isinstance(step, CopyFiles):  # else it is staged, and written later
            content = repair.rebuild[path].encode()
            yield WriteFile.of(f"{step.name}-{path}", step.target, path, content)


def _of_comparison(repair: Repair, step: CompareImages) -> Iterator[AnyStep]:
    whole, paths = [], list(step.paths)
    for shard in step.source_shards:
        if repair.take.keys().isdisjoint(shard.files):
            whole.append(shard)
        else:
            paths += shard.files
    if whole:
        yield replace(step, source_shards=tuple(whole), paths=())
    for number, (place, own) in enumerate(_by_place(repair, paths, step.source)):
        name = f"{step.name}-from-{number}" if whole or number else step.name
        yield replace(
            step, name=name, source=place, source_shards=(), paths=own, settings={}, size=0
        )


def _by_place(
    repair: Repair, paths: Iterable[str], source: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the places of these files, the source first, without those that are rebuilt."""
    by_place: dict[str, list[str]] = {source: []}
    for path in paths:
        if path not in repair.rebuild:
            by_place.setdefault(repair.take.get(path, source), []).append(path)
    yield from ((place, tuple(own)) for place, own in by_place.items() if own)

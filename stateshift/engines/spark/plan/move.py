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
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from stateshift.engines.bundles import PIECES_MAX, Copies, bundled, copies, shard_bundles
from stateshift.engines.rounds import bare, kept, still_to_copy, without_shown
from stateshift.engines.spark import layout
from stateshift.engines.spark.findings import moves
from stateshift.engines.spark.places import Rewriting, rewriting_of, with_changes
from stateshift.engines.spark.plan.bridge import bridge_of
from stateshift.engines.spark.plan.fingerprint import fingerprint_of, identity_of
from stateshift.engines.spark.plan.halt import fence, halt_steps, readied, stop
from stateshift.engines.spark.plan.hiding import hiding, paths_at, without_stale_bases
from stateshift.engines.spark.plan.publication import (
    identities,
    index_step,
    owners_kept,
    publish,
    staged,
)
from stateshift.engines.spark.plan.rounds import round_of, warmed
from stateshift.engines.spark.rewrite import in_place
from stateshift.engines.spark.rewrite.batch_numbers import number_after
from stateshift.engines.spark.rewrite.files import Reshaping, reshaping_of
from stateshift.engines.spark.rewrite.logs import KEEP
from stateshift.engines.spark.rewrite.planned_state import planned_copies, planned_paths
from stateshift.engines.spark.rewrite.wishes import wishes_of
from stateshift.engines.spark.survey.endpoints import plain_endpoints
from stateshift.engines.start import Awaited, Handed, prepared, start
from stateshift.errors import StalePlan
from stateshift.formats.marks import IDLE
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec, Spec
from stateshift.specification.warm import NEVER
from stateshift.specification.waves import stopped_for
from stateshift.step import (
    AnyStep,
    BringFiles,
    CompareImages,
    CopyFiles,
    FenceSource,
    ReadyFence,
    TransformShard,
)
from stateshift.survey import Facts, Finding, Image, ShardFiles, Survey


def plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    """Return the plans of one job in their order: a move plan, behind a halt plan where the job
    still runs, and before that a first round where it is moved warm.
    """
    plans = _plans(spec, job, bare(warmed(facts)))
    is_followed = job.mode == "warm" and (_runs(facts) or job.cutover == NEVER)
    if not is_followed:
        return plans
    return (round_plan(spec, job, facts), *(_provisional(later, facts) for later in plans))


def _runs(facts: Facts) -> bool:
    """Whether the job may run; a cluster that does not know may run it."""
    cluster = facts.source_cluster
    return cluster is not None and cluster.state in ("running", "queued", "unknown")


def _provisional(plan: Plan, facts: Facts) -> Plan:
    """Return the plan as one that holds only as long as the job is this one: it may write on."""
    return replace(plan, provisional=True, facts=identity_of(facts))


def round_plan(spec: Spec, job: JobSpec, facts: Facts, stopping: bool = False) -> Plan:
    """Return the plan that copies what can be copied while the job runs. What speaks against the
    move is said with the move. Of a job that is `stopping` this may be the last epoch: what will
    make that visible is copied with it.
    """
    facts = warmed(facts)
    steps: list[AnyStep] = [*round_of(job, facts, rewriting_of(job, facts))]
    if stopping:
        bare_facts = bare(facts)
        images, reshaping = bare_facts.source.images, reshaping_of(job, bare_facts)
        steps += staged(publish(job, bare_facts, images, reshaping, beforehand=True))
    plan = _plan(job, facts, phases_of(Phase("copy", tuple(steps))), ())
    return replace(_provisional(plan, facts), purpose="warm")


def standby_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Return the plan that publishes what a round has copied, batch by batch (see `bridge`), so
    that the job can be started from it, and only then removes what it does not need any more. An
    image that is there stays whole until the next one is: also where the source has lost something
    since, whose job may not even have noticed.
    """
    _refuse_what_is_not_whole(job, facts.source)
    facts = bare(warmed(facts))
    images = facts.source.images
    reshaping, rewriting = reshaping_of(job, facts), rewriting_of(job, facts)
    copied = copies(job, facts, images, rewriting.paths)
    wanted = _files_of(copied)
    for image in images:
        wanted.update((facts.source.location, path) for path in image.first_read)
    wanted.update((file.source, file.target_path) for file in rewriting.files)
    bridge = bridge_of(facts, _paths(rewriting.paths) | set(reshaping.logs))
    others = (
        *index_step(spec, job, facts),
        *bridge.without_published(tuple(publish(job, facts, images, reshaping))),
    )
    retired: list[AnyStep] = []
    for number, step in enumerate(kept(facts, wanted, _paths(wanted))):
        retired.append(replace(step, name=f"retire/{number}", items=()))
    retired += bridge.retired(facts.target.location, _paths(wanted))
    phases = phases_of(
        Phase("copy", bridge.copies),
        Phase("transform", tuple(_transforms(rewriting))),
        Phase("publish", (*without_stale_bases(facts), *bridge.published, *others), ordered=True),
        Phase("retire", tuple(retired)),
    )
    plan = _plan(job, facts, phases, ())
    return replace(_provisional(plan, facts), purpose="standby")


def _refuse_what_is_not_whole(job: JobSpec, source: Survey) -> None:
    faults = [finding.message for finding in source.damages]
    for image in source.images:
        has_commit = image.epoch is not None and layout.has_commits(image)
        if not has_commit:
            faults.append(f"{image.path or job.name} has no commit")
    if faults:
        raise StalePlan(
            f"{source.location} cannot be restarted from: {faults[0]}",
            hint=f"stateshift verify {source.location}",
        )


def hidden_plan(job: JobSpec, facts: Facts, coming: Plan) -> Plan | None:
    """Return the plan that hides the image at the target, where the coming round would write over
    files of it. Its job has gone back behind it and has done its batches again: nobody may start
    from a mixture of both times.
    """
    target = facts.target.location
    steps = hiding(facts, "retire")
    needed = paths_at(target, facts.past)
    for image in facts.shown:
        needed.update(image.needed)
    overwritten = needed & paths_at(target, _written(coming))
    if not steps or not overwritten:
        return None
    plan = _plan(job, facts, phases_of(Phase("retire", steps, ordered=True)), ())
    return replace(_provisional(plan, facts), purpose="standby")


def _written(coming: Plan) -> set[tuple[str, str]]:
    """Return what the coming round writes, as (location, path)."""
    written: set[tuple[str, str]] = set()
    for step in coming:
        if isinstance(step, BringFiles):
            written.update((step.target, name) for _, name in step.named)
    return written


def _plans(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    """Return the plans of a job that is not followed while it runs."""
    if not spec.restart:
        findings = moves.of_first_start(spec, job, facts)
        started = _plan(job, facts, _start_phases(spec, job, facts), findings)
        return (replace(started, purpose="start"),)
    move = move_plan(spec, job, facts)
    if job.mode == "fork":
        # Its source may run on and commit: what is copied is the newest commit at that time.
        return (_provisional(move, facts),)
    if not _runs(facts):
        return (move,)
    if job is not stopped_for(spec, job):
        return (_provisional(move, facts),)
    return (halt_plan(spec, job, facts), _provisional(move, facts))


def halt_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Return the plan that stops the job at a consistent epoch. What that epoch is, the next survey
    says.
    """
    steps: list[AnyStep] = [stop(spec, job)]
    files_max = readied(job, facts)
    if files_max:
        steps.append(ReadyFence("halt/ready-fence", facts.source.location, files_max))
    options = job.submit.options if job.submit is not None else {}
    early = prepared(job, facts, Handed(job.destination, options))
    plan = _plan(job, facts, phases_of(*early, Phase("halt", tuple(steps))), ())
    return replace(plan, purpose="halt", epoch=None, facts=identity_of(facts))


def move_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Return the plan that moves the image, from the facts of a job that has stopped."""
    findings = moves.of_move(spec, job, facts)
    if any(finding.level == "refuse" for finding in findings):
        return _plan(job, facts, (), findings)
    images = tuple(facts.source_images)
    reshaping = reshaping_of(job, facts)
    if job.target is not None:
        phases = _phases_of_move(spec, job, facts, images, reshaping)
    elif reshaping.shards:
        phases = _in_place(spec, job, facts, images, reshaping)
    else:
        phases = phases_of(
            Phase("halt", tuple(halt_steps(job, facts)), ordered=True),
            Phase("publish", tuple(index_step(spec, job, facts)), ordered=True),
            *_start(job, facts, images),
        )
    return _plan(job, facts, phases, findings)


def _phases_of_move(
    spec: Spec, job: JobSpec, facts: Facts, images: tuple[Image, ...], reshaping: Reshaping
) -> tuple[Phase, ...]:
    rewriting = with_changes(rewriting_of(job, facts), facts, reshaping.operators, reshaping.paths)
    replaced = frozenset((facts.source.location, path) for path in reshaping.replaced)
    all_copies = copies(job, facts, images, rewriting.paths | replaced)
    copied = still_to_copy(facts, all_copies)
    wanted = frozenset(_files_of(all_copies))
    planned_names = dict(planned_paths(job, facts, images))
    for file in all_copies.groups[0].files:
        planned_names.pop(file.path, None)
    planned = tuple(planned_copies(facts, planned_names))
    beforehand = bool(facts.brought) or facts.target.traits.get("renames_sooner", False)
    visible = (
        *index_step(spec, job, facts),
        *publish(job, facts, images, reshaping, beforehand),
    )
    first = tuple(staged(visible))
    own = tuple(identities(job, facts, images)) if beforehand else ()
    written = _paths(wanted) | set(planned_names.values())
    for step in first:
        written.update(step.staged_names)
    fences = tuple(halt_steps(job, facts))
    fences_in_copy: tuple[AnyStep, ...] = ()
    if facts.brought:
        # With so little left the fence would take as long as the rest. It is up before anything can
        # be seen, and what it finds taken is a commit since the survey, either way.
        fences_in_copy = tuple(replace(step, name=f"copy/{_last(step.name)}") for step in fences)
        fences = ()
    left_there, gone_last = without_shown(facts, kept(facts, wanted, written))
    renamed = _renamed(facts, reshaping, rewriting)
    compares = _compares(job, facts, images, copied, reshaping)
    return phases_of(
        Phase("halt", fences, ordered=True),
        Phase("copy", (*fences_in_copy, *left_there, *first, *own, *copied.steps, *planned)),
        Phase("transform", (*_transforms(rewriting), *reshaping.steps, *renamed)),
        Phase("compare", (*compares, *_compares_of_planned(job, planned))),
        Phase("publish", (*gone_last, *visible, *owners_kept(job, facts)), ordered=True),
        *_start(job, facts, images),
    )


def _files_of(copied: Copies) -> set[tuple[str, str]]:
    """Return what is copied, by location and path."""
    files: set[tuple[str, str]] = set()
    for group in copied.groups:
        files.update((group.source, file.path) for file in group.files)
    return files


def _paths(wanted: Iterable[tuple[str, str]]) -> set[str]:
    return {path for _, path in wanted}


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _in_place(
    spec: Spec, job: JobSpec, facts: Facts, images: tuple[Image, ...], reshaping: Reshaping
) -> tuple[Phase, ...]:
    """Return the phases that leave the same location with fewer files: see `in_place`."""
    aside = tuple(in_place.set_aside(facts, reshaping))
    if not reshaping.steps and not aside:
        return ()
    fences = list(fence("halt/fence", facts.source))
    compares = reshaping.compares if job.verify != "none" else ()
    return phases_of(
        Phase("halt", tuple(fences), ordered=True),
        Phase("transform", reshaping.steps),
        Phase("compare", compares),
        Phase("publish", (*in_place.lifted(fences), *index_step(spec, job, facts)), ordered=True),
        *_start(job, facts, images),
        Phase("retire", aside),
    )


def _plan(
    job: JobSpec, facts: Facts, phases: tuple[Phase, ...], findings: tuple[Finding, ...]
) -> Plan:
    return Plan(
        job=job.name,
        engine=layout.ENGINE,
        purpose="move",
        source=facts.source.location,
        target=facts.target.location if job.target else facts.source.location,
        epoch=_epoch_after(job, facts),
        phases=phases,
        findings=findings,
        facts=fingerprint_of(facts),
        endpoints=plain_endpoints(facts),
    )


def _epoch_after(job: JobSpec, facts: Facts) -> int | None:
    """Return the number that the last batch has at the target; None for a workflow, whose
    queries have one each.
    """
    if facts.source.epoch is None:
        return None
    return number_after(wishes_of(job.transform), facts.source.images[0], facts.sink)


def _transforms(rewriting: Rewriting) -> Iterator[AnyStep]:
    for number, file in enumerate(rewriting.files):
        yield TransformShard(
            name=f"transform/{number}",
            transform=file.transform,
            options=file.options,
            source=file.source,
            inputs=(file.info,),
            target=file.target,
            outputs=(file.target_path,),
        )


def _renamed(facts: Facts, reshaping: Reshaping, rewriting: Rewriting) -> Iterator[AnyStep]:
    """Yield the steps that write files as they were, under another path."""
    source, target = facts.source.location, facts.target.location
    rewritten = {file.info.path for file in rewriting.files if file.source == source}
    new_paths = {path: new for path, new in reshaping.paths.items() if new is not None}
    for path in rewritten:
        new_paths.pop(path, None)
    infos = {file.path: file for file in facts.source.files}
    files = [infos[path] for path in sorted(new_paths)]
    for number, bundle in enumerate(bundled(files, PIECES_MAX)):
        yield TransformShard(
            name=f"transform/renamed-{number}",
            transform=KEEP,
            options={},
            source=source,
            inputs=tuple(bundle),
            target=target,
            outputs=tuple(new_paths[file.path] for file in bundle),
        )


def _compares(
    job: JobSpec, facts: Facts, images: tuple[Image, ...], copied: Copies, reshaping: Reshaping
) -> Iterator[AnyStep]:
    """Yield the comparisons. By entries: the shards' entries, and the files that hold none byte for
    byte. By digests: every file. State that was rewritten has other bytes, and is compared by
    entries either way. Rounds have compared what they copied byte for byte: the rest then is, too.
    """
    if job.verify == "none":
        return
    by_entries = job.verify in ("entries", "twice") and not facts.brought
    numbers = itertools.count()
    compared: set[str] = set()  # the files whose entries are compared
    if by_entries:
        for image in images:
            as_they_were = _as_they_were(image, reshaping)
            compared.update(itertools.chain.from_iterable(shard.files for shard in as_they_were))
            for shards, size in shard_bundles(as_they_were, copied.sizes):
                yield CompareImages(
                    name=f"compare/{next(numbers)}",
                    engine=layout.ENGINE,
                    source=facts.source.location,
                    target=facts.target.location,
                    source_shards=shards,
                    target_shards=None,
                    paths=(),
                    settings=image.settings,
                    size=size,
                )
    yield from reshaping.compares
    for group in copied.groups:
        files = [file for file in group.files if file.path not in compared]
        for bundle in bundled(files):
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


def _as_they_were(image: Image, reshaping: Reshaping) -> list[ShardFiles]:
    """Return the shards whose files are copied as they are."""
    return [shard for shard in image.shards if reshaping.replaced.isdisjoint(shard.files)]


def _compares_of_planned(job: JobSpec, planned: Iterable[CopyFiles]) -> Iterator[CompareImages]:
    """Yield comparisons byte for byte: these files are no part of the image's entries."""
    if job.verify == "none":
        return
    for number, step in enumerate(planned):
        yield CompareImages.of_copy(f"compare/planned-{number}", layout.ENGINE, step)


def _start_phases(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Phase, ...]:
    """Return the phases of a first deployment (`restart: false`): the name index is written, and
    the job is started.
    """
    job = replace(job, target=None)
    published = Phase("publish", tuple(index_step(spec, job, facts)), ordered=True)
    return phases_of(published, *_start(job, facts, facts.source.images))


def _start(job: JobSpec, facts: Facts, images: tuple[Image, ...]) -> Iterator[Phase]:
    options = job.submit.options if job.submit is not None else {}
    fences = tuple(step for step in halt_steps(job, facts) if isinstance(step, FenceSource))
    # As the spec spells it: the job's Hadoop may know s3a, and not s3.
    handed = Handed(job.destination, options)
    return start(job, facts, handed, _awaited(job, facts, images), fences)


def _awaited(job: JobSpec, facts: Facts, images: tuple[Image, ...]) -> Awaited | None:
    """Return, for each query, the commit it writes first, and the note it leaves when it has
    nothing to read.
    """
    moved = [image for image in images if image.epoch is not None]
    if not moved:
        return None
    location = facts.target.location if job.target else facts.source.location
    commits = tuple(_first_commit(job, facts, image) for image in moved)
    idle_notes = tuple(layout.under(image.path, IDLE) for image in moved)
    return Awaited(location, _epoch_after(job, facts), commits, idle_notes)


def _first_commit(job: JobSpec, facts: Facts, image: Image) -> str:
    """Return the commit that a query writes first at its new place."""
    last = number_after(wishes_of(job.transform), image, facts.sink)
    return layout.under(image.path, layout.commit_path(last + 1))

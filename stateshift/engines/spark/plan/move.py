"""The plan of one Spark job, from spec and facts and nothing else.

    halt   fence the source (and the merge directories), then move the merges in by rename:
           Algorithm 5's order
    copy   what the chosen batches need and nothing newer, and the data that moves along, in bundles
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

from stateshift import plain
from stateshift.engines.bundles import PIECES_MAX, Copies, bundled, copies, shard_bundles
from stateshift.engines.rounds import bare, kept, still_to_copy
from stateshift.engines.spark import layout
from stateshift.engines.spark.findings import moves
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.places import Rewriting, rewriting_of, with_changes
from stateshift.engines.spark.plan.bridge import bridge_of
from stateshift.engines.spark.plan.hiding import hiding, without_stale_bases
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
from stateshift.engines.start import Awaited, prepared, start
from stateshift.errors import StalePlan
from stateshift.formats.marks import FOLDER, IDLE
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
    MoveFiles,
    ReadyFence,
    Rename,
    StopJob,
    TransformShard,
)
from stateshift.survey import Facts, Finding, Image, Survey

# Files of a query's fence: what it would plan next with, and what it would commit that with; or the
# last two it plans.
FENCES_MAX = 2


def plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    """The plans of one job in their order: a move plan, behind a halt plan where the job still
    runs, and before that a first round where it is moved warm.
    """
    if job.mode == "warm" and (_runs(facts) or job.cutover == NEVER):
        behind = _plans(spec, job, bare(warmed(facts)))
        return (
            round_plan(spec, job, facts),
            *(replace(p, provisional=True, facts=identity_of(facts)) for p in behind),
        )
    return _plans(spec, job, bare(warmed(facts)))


def _runs(facts: Facts) -> bool:
    return facts.source_cluster is not None and facts.source_cluster.state in (
        "running",
        "queued",
        "unknown",
    )


def round_plan(spec: Spec, job: JobSpec, facts: Facts, stopping: bool = False) -> Plan:
    """Bring what can be brought while the job runs. What speaks against the move is told with the
    move. Of a job that is `stopping` this may be the last epoch: what will make that visible is
    brought with it.
    """
    facts = warmed(facts)
    steps: tuple[AnyStep, ...] = tuple(round_of(job, facts, rewriting_of(job, facts)))
    if stopping:
        plain = bare(facts)
        steps += tuple(
            staged(publish(spec, job, plain, plain.source.images, reshaping_of(job, plain), True))
        )
    made = _plan(job, facts, phases_of(Phase("copy", steps)), ())
    return replace(made, purpose="warm", provisional=True, facts=identity_of(facts))


def standby_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Behind a round that has brought everything these facts need: publish it batch by batch (see
    `bridge`), so that the job can be started from it, and only then remove what it does not need
    any more. An image that is there stays whole until the next one is: also where the source has
    lost something since, whose job may not even have noticed.
    """
    _refuse_what_is_not_whole(job, facts.source)
    facts = bare(warmed(facts))
    images, reshaping, rewriting = (
        facts.source.images,
        reshaping_of(job, facts),
        rewriting_of(job, facts),
    )
    whole = copies(job, facts, images, rewriting.paths)
    wanted = set()
    for group in whole.groups:
        for file in group.files:
            wanted.add((group.source, file.path))
    for image in images:
        for path in image.first_read:
            wanted.add((facts.source.location, path))
    wanted |= {(file.source, file.target_path) for file in rewriting.files}
    bridge = bridge_of(facts, {path for _, path in rewriting.paths} | set(reshaping.logs))
    others = bridge.without_published(tuple(publish(spec, job, facts, images, reshaping)))
    retired = kept(facts, wanted, _paths(wanted))
    phases = phases_of(
        Phase("copy", bridge.copies),
        Phase("transform", tuple(_transforms(rewriting))),
        Phase("publish", (*without_stale_bases(facts), *bridge.published, *others), ordered=True),
        Phase(
            "retire",
            (
                *(replace(step, name=f"retire/{n}", items=()) for n, step in enumerate(retired)),
                *bridge.retired(facts.target.location, _paths(wanted)),
            ),
        ),
    )
    made = _plan(job, facts, phases, ())
    return replace(made, purpose="standby", provisional=True, facts=identity_of(facts))


def _refuse_what_is_not_whole(job: JobSpec, source: Survey) -> None:
    faults = [finding.message for finding in source.damages]
    for image in source.images:
        if image.epoch is None or not layout.has_commits(image):
            faults.append(f"{image.path or job.name} has no commit")
    if faults:
        raise StalePlan(
            f"{source.location} cannot be restarted from: {faults[0]}",
            hint=f"stateshift verify {source.location}",
        )


def hidden_plan(job: JobSpec, facts: Facts, coming: Plan) -> Plan | None:
    """Return the plan that hides the image at the target, where the coming round would write over
    files of it. Its job has gone back behind it and does its batches again: nobody may start from
    a mixture of both times.
    """
    target = facts.target.location
    written = set[str]()
    for step in coming:
        if isinstance(step, BringFiles) and step.target == target:
            written.update(name for _, name in step.named)
    steps = hiding(facts)
    if not steps or not any(place == target and path in written for place, path in facts.past):
        return None
    made = _plan(job, facts, phases_of(Phase("retire", steps, ordered=True)), ())
    return replace(made, purpose="standby", provisional=True, facts=identity_of(facts))


def _plans(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    if not spec.restart:
        started = _plan(
            job, facts, _start_phases(spec, job, facts), moves.of_first_start(spec, job, facts)
        )
        return (replace(started, purpose="start"),)
    if (
        job.mode == "fork"
    ):  # its source may run on and commit: what is copied is the newest commit at that time
        return (replace(move_plan(spec, job, facts), provisional=True, facts=identity_of(facts)),)
    if _runs(facts):
        move = replace(move_plan(spec, job, facts), provisional=True, facts=identity_of(facts))
        return (halt_plan(spec, job, facts), move) if job is stopped_for(spec, job) else (move,)
    return (move_plan(spec, job, facts),)


def halt_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Stop the job at a consistent epoch. What that epoch is, the next survey tells."""
    again = job.source_submit
    patience = (
        spec.cluster(job.source_cluster).options.get("seconds_max", 300)
        if job.source_cluster
        else 300
    )
    step = StopJob(
        name="halt/stop",
        cluster=job.source_cluster or "",
        job=job.name,
        location=job.source,
        tag=job.stop.get("tag"),
        seconds_max=float(job.stop.get("seconds_max", patience)),
        options={
            key: value for key, value in job.stop.items() if key not in ("tag", "seconds_max")
        },
        restart=again.options if again else None,
        restart_environment=again.environment if again else {},
    )
    files_max = _readied(job, facts)
    ready = (ReadyFence("halt/ready-fence", facts.source.location, files_max),) if files_max else ()
    early = prepared(
        job, facts, job.destination, job.submit.options if job.submit is not None else {}
    )
    halted = _plan(job, facts, phases_of(*early, Phase("halt", (step, *ready))), ())
    return replace(halted, purpose="halt", epoch=None, facts=identity_of(facts))


def move_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Bring the image over, from the facts of a job that has stopped."""
    found = moves.of_move(spec, job, facts)
    if any(finding.level == "refuse" for finding in found):
        return _plan(job, facts, (), found)
    images = tuple(facts.source_images)
    reshaping = reshaping_of(job, facts)
    rewriting = with_changes(rewriting_of(job, facts), facts, reshaping.operators, reshaping.paths)
    halt = Phase("halt", tuple(_halt_steps(job, facts)), ordered=True)
    if job.target is None and reshaping.shards:
        return _plan(job, facts, _in_place(spec, job, facts, images, reshaping), found)
    if job.target is None:
        published = Phase("publish", tuple(index_step(spec, job, facts)), ordered=True)
        return _plan(job, facts, phases_of(halt, published, *_start(job, facts, images)), found)
    replaced = frozenset((facts.source.location, path) for path in reshaping.replaced)
    whole = copies(job, facts, images, rewriting.paths | replaced)
    copied = still_to_copy(facts, whole)
    ordinary = {file.path for file in whole.groups[0].files}
    paths_of_planned = {
        path: new for path, new in planned_paths(job, facts, images).items() if path not in ordinary
    }
    planned = tuple(planned_copies(facts, paths_of_planned))
    all_wanted = []
    for group in whole.groups:
        for file in group.files:
            all_wanted.append((group.source, file.path))
    wanted = frozenset(all_wanted)
    beforehand = bool(facts.brought) or facts.target.traits.get("renames_sooner", False)
    visible = tuple(publish(spec, job, facts, images, reshaping, beforehand))
    first, fenced = tuple(staged(visible)), tuple[AnyStep, ...]()
    own = tuple(identities(job, facts, images)) if beforehand else ()
    hidden_names: set[str] = set()
    for step in first:
        hidden_names.update(step.staged_names)
    again = _paths(wanted) | hidden_names | set(paths_of_planned.values())
    if facts.brought:
        # With so little left the fence would take as long as the rest. It is up before anything can
        # be seen, and what it finds taken is a commit since the survey, either way.
        halt, fenced = (
            Phase("halt", ()),
            tuple(replace(f, name=f"copy/{_last(f.name)}") for f in halt.steps),
        )
    phases = phases_of(
        halt,
        Phase(
            "copy", (*fenced, *kept(facts, wanted, again), *first, *own, *copied.steps, *planned)
        ),
        Phase(
            "transform",
            (*_transforms(rewriting), *reshaping.steps, *_renamed(facts, reshaping, rewriting)),
        ),
        Phase(
            "compare",
            (
                *_compares(job, facts, images, copied, reshaping),
                *_compares_of_planned(job, planned),
            ),
        ),
        Phase("publish", (*visible, *owners_kept(job, facts)), ordered=True),
        *_start(job, facts, images),
    )
    return _plan(job, facts, phases, found)


def _paths(wanted: Iterable[tuple[str, str]]) -> set[str]:
    return {path for _, path in wanted}


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _in_place(
    spec: Spec, job: JobSpec, facts: Facts, images: tuple[Image, ...], reshaping: Reshaping
) -> tuple[Phase, ...]:
    """The same location, with fewer files: see `in_place`."""
    aside = tuple(in_place.set_aside(facts, reshaping))
    if not reshaping.steps and not aside:
        return ()
    fences = [step for step in _fence("halt/fence", facts.source) if isinstance(step, FenceSource)]
    return phases_of(
        Phase("halt", tuple(fences), ordered=True),
        Phase("transform", reshaping.steps),
        Phase("compare", reshaping.compares if job.verify != "none" else ()),
        Phase("publish", (*in_place.lifted(fences), *index_step(spec, job, facts)), ordered=True),
        *_start(job, facts, images),
        Phase("retire", aside),
    )


def identity_of(facts: Facts) -> str:
    """The fingerprint of what does not change while a job runs: who it is and how its state is
    laid out.
    """
    return plain.fingerprint(
        [
            [_identity(survey) for survey in (facts.source, *facts.merges, *facts.others)],
            [
                facts.target.kind,
                sum(not file.path.startswith(f"{FOLDER}/") for file in facts.target.files),
            ],
            [c and c.version for c in (facts.source_cluster, facts.target_cluster)],
        ]
    )


def fingerprint_of(facts: Facts) -> str:
    """The fingerprint of a stopped job: every file of it, and its epochs. Places that move along
    are named only: new input may arrive in them at any time.
    """
    return plain.fingerprint(
        [
            identity_of(facts),
            [
                [
                    sorted(survey.files),
                    [[image.path, image.epoch, image.planned] for image in survey.images],
                ]
                for survey in (facts.source, *facts.merges, *facts.others)
            ],
            [[a.location, b.location] for a, b in facts.data],
        ]
    )


def _identity(survey: Survey) -> list[object]:
    return [
        survey.location,
        survey.kind,
        [
            [
                i.path,
                i.identity,
                i.written_by,
                [[o.id, o.name, o.provider, o.shards] for o in i.operators],
            ]
            for i in survey.images
        ],
    ]


def _plan(
    job: JobSpec, facts: Facts, phases: tuple[Phase, ...], found: tuple[Finding, ...]
) -> Plan:
    return Plan(
        job=job.name,
        engine=layout.ENGINE,
        purpose="move",
        source=facts.source.location,
        target=facts.target.location if job.target else facts.source.location,
        epoch=_epoch_after(job, facts),
        phases=phases,
        findings=found,
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


def _halt_steps(job: JobSpec, facts: Facts) -> Iterator[AnyStep]:
    """A fork leaves its source alone, and a job that stays where it is must be able to go on
    there.
    """
    if job.moves and job.target is not None:
        yield from _fence("halt/fence", facts.source, _readied(job, facts))
        for number, other in enumerate(facts.others):
            yield from _fence(f"halt/fence-other-{number}", other)
    for number, merge in enumerate(facts.merges):
        yield from _fence(f"halt/fence-merge-{number}", merge)
        yield from _moves(f"halt/merge-{number}", merge, facts.source)


def _readied(job: JobSpec, facts: Facts) -> int:
    """How many files of a fence, at most, are written before the job has stopped: where that saves
    time, and nobody else has the job's source.
    """
    sooner = job.mode == "warm" and facts.source.traits.get("renames_sooner", False)
    return FENCES_MAX * len(facts.source.images) if sooner and job.target is not None else 0


def _fence(name: str, survey: Survey, ready: int = 0) -> Iterator[AnyStep]:
    all_paths = []
    for image in survey.images:
        if image.epoch is not None:
            for path in _fence_paths(image, image.epoch):
                all_paths.append(layout.under(image.path, path))
    paths = tuple(all_paths)
    if paths:
        yield FenceSource(name, survey.location, paths, ready)


def _fence_paths(image: Image, epoch: int) -> tuple[str, ...]:
    committed, planned = _newest(image, epoch)
    if planned is not None and not layout.has_commits(image):
        return layout.fence_paths_without_commits(planned)
    return layout.fence_paths(committed, planned)


def _newest(image: Image, epoch: int) -> tuple[int, int | None]:
    """The last batch committed, and the last one planned, also where the job is to go back
    behind them.
    """
    newest = spark_image(image).newest
    if newest is None:
        return epoch, image.planned
    return newest.committed, newest.planned


def _moves(name: str, merge: Survey, source: Survey) -> Iterator[AnyStep]:
    """The merge directory's content, renamed into the checkpoint location; both lie below one
    common root.
    """
    root = layout.deepest_above((merge.location, source.location))
    here, there = (place[len(root) :].lstrip("/") for place in (merge.location, source.location))
    items = tuple(
        Rename(layout.under(here, file.path), layout.under(there, file.path), file.size)
        for file in sorted(merge.files)
        if not file.path.startswith("_stateshift/")
    )
    for number, bundle in enumerate(bundled(items)):
        yield MoveFiles(f"{name}/{number}", root, tuple(bundle))


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
    """Files that are as they were, under another path."""
    infos = {file.path: file for file in facts.source.files}
    rewritten = {file.info.path for file in rewriting.files if file.source == facts.source.location}
    moved = {}
    for path, new in reshaping.paths.items():
        if new is not None and path not in rewritten:
            moved[path] = new
    for number, bundle in enumerate(bundled((infos[path] for path in sorted(moved)), PIECES_MAX)):
        yield TransformShard(
            f"transform/renamed-{number}",
            KEEP,
            {},
            facts.source.location,
            tuple(bundle),
            facts.target.location,
            tuple(moved[file.path] for file in bundle),
        )


def _compares(
    job: JobSpec, facts: Facts, images: tuple[Image, ...], copied: Copies, reshaping: Reshaping
) -> Iterator[AnyStep]:
    """By entries: the shards' entries, and the files that hold none byte for byte. By digests:
    every file. State that was written anew has other bytes, and is compared by entries either way.
    Rounds have compared what they brought byte for byte: the rest then is, too.
    """
    if job.verify == "entries" and facts.brought:
        job = replace(job, verify="digests")
    numbers = (f"compare/{number}" for number in itertools.count())
    if job.verify == "entries":
        for image in images:
            kept = [
                shard for shard in image.shards if not reshaping.replaced.intersection(shard.files)
            ]
            for shards, size in shard_bundles(kept, copied.sizes):
                yield CompareImages(
                    next(numbers),
                    layout.ENGINE,
                    facts.source.location,
                    facts.target.location,
                    shards,
                    None,
                    (),
                    image.settings,
                    size,
                )
    if job.verify != "none":
        yield from reshaping.compares
        folded = set(itertools.chain.from_iterable(image.state_files for image in images))
        for group in copied.groups:
            all_left = []
            for f in group.files:
                if job.verify == "digests" or f.path not in folded:
                    all_left.append(f)
            left = tuple(all_left)
            for bundle in bundled(left):
                paths, size = tuple(file.path for file in bundle), sum(file.size for file in bundle)
                yield CompareImages(
                    next(numbers),
                    layout.ENGINE,
                    group.source,
                    group.target,
                    (),
                    None,
                    paths,
                    {},
                    size,
                )


def _compares_of_planned(job: JobSpec, planned: Iterable[CopyFiles]) -> Iterator[CompareImages]:
    """Byte for byte: these files are no part of the image's entries."""
    for number, step in enumerate(planned if job.verify != "none" else ()):
        paths = tuple(file.path for file in step.items)
        yield CompareImages(
            f"compare/planned-{number}",
            layout.ENGINE,
            step.source,
            step.target,
            (),
            None,
            paths,
            {},
            step.bytes,
            names=step.names,
        )


def _start_phases(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Phase, ...]:
    """`restart: false`: the first deployment. The name index, and the job is started."""
    published = Phase(
        "publish", tuple(index_step(spec, replace(job, target=None), facts)), ordered=True
    )
    return phases_of(published, *_start(replace(job, target=None), facts, facts.source.images))


def _start(job: JobSpec, facts: Facts, images: tuple[Image, ...]) -> Iterator[Phase]:
    options = job.submit.options if job.submit is not None else {}
    fences = tuple(step for step in _halt_steps(job, facts) if isinstance(step, FenceSource))
    # As the spec spells it: the job's Hadoop may know s3a, and not s3.
    return start(job, facts, job.destination, options, _awaited(job, facts, images), fences)


def _awaited(job: JobSpec, facts: Facts, images: tuple[Image, ...]) -> Awaited | None:
    """Per query: the commit it writes first, and the note it leaves when it has nothing to read."""
    moved = [image for image in images if image.epoch is not None]
    if not moved:
        return None
    location = facts.target.location if job.target else facts.source.location
    wishes = wishes_of(job.transform)
    numbers = [number_after(wishes, image, facts.sink) + 1 for image in moved]
    commits = tuple(
        layout.under(image.path, layout.commit_path(number))
        for image, number in zip(moved, numbers, strict=True)
    )
    return Awaited(
        location,
        _epoch_after(job, facts),
        commits,
        tuple(layout.under(i.path, IDLE) for i in moved),
    )

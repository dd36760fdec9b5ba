"""The halt of a job: the stop itself, the fences that keep it from going on, and the merges that
are moved in by rename then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stateshift.engines.bundles import bundled
from stateshift.engines.spark import layout
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.plan.fingerprint import identity_of, plan_of
from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.start import Handed, prepared
from stateshift.plan import Phase, Plan, phases_of
from stateshift.step import AnyStep, FenceSource, MoveFiles, ReadyFence, Rename, StopJob
from stateshift.survey import Image, Survey

# Files of a query's fence: what it would plan next with, and what it would commit that with; or the
# last two it plans.
FENCES_MAX = 2

# How long a job may take to stop, where the spec does not say.
STOP_SECONDS_MAX = 300


def halt_plan(move: Move) -> Plan:
    """Return the plan that stops the job at a consistent epoch. The next survey says which one it
    is.
    """
    job, facts = move.job, move.facts
    steps: list[AnyStep] = [_stop(move)]
    files_max = _readied(move)
    if files_max:
        steps.append(ReadyFence("halt/ready-fence", move.source, files_max))
    options = job.submit.options if job.submit is not None else {}
    early = prepared(job, facts, Handed(job.destination, options))
    plan = plan_of(move, phases_of(*early, Phase("halt", tuple(steps))))
    return replace(plan, purpose="halt", epoch=None, facts=identity_of(facts))


def _stop(move: Move) -> StopJob:
    """Return the step that stops the job where it runs now."""
    job = move.job
    options = dict(job.stop)
    tag = options.pop("tag", None)
    seconds_max = options.pop("seconds_max", None)
    if seconds_max is None:
        cluster = move.spec.cluster(job.source_cluster).options if job.source_cluster else {}
        seconds_max = cluster.get("seconds_max", STOP_SECONDS_MAX)
    again = job.source_submit
    return StopJob(
        name="halt/stop",
        cluster=job.source_cluster or "",
        job=job.name,
        location=job.source,
        tag=tag,
        seconds_max=float(seconds_max),
        options=options,
        restart=None if again is None else again.options,
        restart_environment={} if again is None else again.environment,
    )


def halt_steps(move: Move) -> Iterator[AnyStep]:
    """Yield the fences and the merges. A fork leaves its source alone, and a job that stays where
    it is must be able to go on there.
    """
    facts = move.facts
    if move.job.moves and move.job.target is not None:
        yield from fence("halt/fence", facts.source, _readied(move))
        for number, other in enumerate(facts.others):
            yield from fence(f"halt/fence-other-{number}", other)
    for number, merge in enumerate(facts.merges):
        yield from fence(f"halt/fence-merge-{number}", merge)
        yield from _moves(f"halt/merge-{number}", merge, facts.source)


def _readied(move: Move) -> int:
    """Return the number of files of a fence, at most, that are written before the job has stopped:
    where that saves time, and nobody else has the job's source.
    """
    source = move.facts.source
    saves_time = move.job.mode == "warm" and source.traits.get("renames_sooner", False)
    if not saves_time or move.job.target is None:
        return 0
    return FENCES_MAX * len(source.images)


def fence(name: str, survey: Survey, ready: int = 0) -> Iterator[FenceSource]:
    """Yield the fence of a location, where there is anything to keep from going on."""
    paths: list[str] = []
    for image in survey.images:
        paths += [layout.under(image.path, path) for path in _fence_paths(image)]
    if paths:
        yield FenceSource(name, survey.location, tuple(paths), ready)


def _fence_paths(image: Image) -> tuple[str, ...]:
    """Return the files that keep a query from planning and committing, also where the job is to go
    back behind its newest batches.
    """
    if image.epoch is None:
        return ()
    committed, planned = spark_image(image).newest or (image.epoch, image.planned)
    if planned is not None and not layout.has_commits(image):
        return layout.fence_paths_without_commits(planned)
    return layout.fence_paths(committed, planned)


def _moves(name: str, merge: Survey, source: Survey) -> Iterator[AnyStep]:
    """Yield the renames of the merge directory's content into the checkpoint location; both lie
    below one common root.
    """
    root = layout.deepest_above((merge.location, source.location))
    here, there = (place[len(root) :].lstrip("/") for place in (merge.location, source.location))
    files = [file for file in merge.files if not file.path.startswith("_stateshift/")]
    items = [
        Rename(layout.under(here, file.path), layout.under(there, file.path), file.size)
        for file in sorted(files)
    ]
    for number, bundle in enumerate(bundled(items)):
        yield MoveFiles(f"{name}/{number}", root, tuple(bundle))

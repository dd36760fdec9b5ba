"""How an image becomes visible: its name index, ids and offsets of all queries, and last of all
the commits. Pure.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterable, Iterator

from stateshift.engines.bundles import bundled
from stateshift.engines.spark import layout
from stateshift.engines.spark.findings import moves
from stateshift.engines.spark.rewrite.files import Reshaping
from stateshift.engines.spark.rewrite.planned_state import kept_batch
from stateshift.errors import StalePlan
from stateshift.formats.marks import INDEX, encode_index
from stateshift.specification import JobSpec, Spec
from stateshift.step import AnyStep, CopyFiles, KeepOwners, StageFiles, TransformShard, WriteFile
from stateshift.survey import Facts, Image


def publish(
    spec: Spec,
    job: JobSpec,
    facts: Facts,
    images: tuple[Image, ...],
    reshaping: Reshaping,
    beforehand: bool = False,
) -> Iterator[AnyStep]:
    """The name index, then ids and offsets of every query, and only then the commits. What is
    copied as it is goes together: on HDFS a small file is mostly waited for; and it is `staged`,
    where it is brought `beforehand`.
    """
    yield from index_step(spec, job, facts)
    firsts = []
    for image in images:
        if image.epoch is not None:
            for path in layout.first_read(image.epoch, kept_batch(job, image)):
                if layout.has_commits(image) or not layout.is_commit(path):
                    firsts.append((image, layout.under(image.path, path)))
    commits = [
        (i, path)
        for i, path in firsts
        if path == layout.under(i.path, layout.commit_path(i.epoch or 0))
    ]
    others = [pair for pair in firsts if pair not in commits]
    names = (f"publish/{number}" for number in itertools.count())
    yield from _published(names, job, facts, others, reshaping, staged=beforehand)
    yield from _published(names, job, facts, commits, reshaping, whole=True, staged=beforehand)


def _published(
    names: Iterator[str],
    job: JobSpec,
    facts: Facts,
    firsts: list[tuple[Image, str]],
    reshaping: Reshaping,
    whole: bool = False,
    staged: bool = False,
) -> Iterator[AnyStep]:
    """Files of which none has to be there before another."""
    infos = {}
    for survey in (facts.source, *facts.merges):
        for file in survey.files:
            infos[file.path] = file
    source, target = facts.source.location, facts.target.location
    copied = []
    for image, path in firsts:
        if job.mode == "fork" and path == layout.under(image.path, layout.METADATA):
            if not staged:
                yield _identity(next(names), facts, image, path)
        elif path in reshaping.logs:
            change = reshaping.logs[path]
            inputs = change.inputs or (infos[path],)
            yield TransformShard(
                next(names),
                change.transform,
                change.options,
                change.source or source,
                inputs,
                target,
                (change.path,),
                whole,
            )
        elif path in infos:
            copied.append(infos[path])
        # a listing is not of one moment: the job has planned this batch while the rest was listed
        else:
            raise StalePlan(
                f"{path} is not listed yet: the job has just planned it",
                hint="try again in a moment",
            )
    for bundle in bundled(copied):
        yield CopyFiles(next(names), source, target, tuple(bundle), whole=whole, staged=staged)


def staged(publishing: Iterable[AnyStep]) -> Iterator[StageFiles]:
    """Where a rename is done sooner than a file is written; and behind rounds, when so little is
    left to copy that the publish would take as long. What is published is brought with the rest
    then, and only gets its names at the end.
    """
    for step in publishing:
        if isinstance(step, CopyFiles) and step.staged:
            yield StageFiles(
                step.name.replace("publish/", "copy/staged-"), step.source, step.target, step.items
            )


def identities(job: JobSpec, facts: Facts, images: Iterable[Image]) -> Iterator[WriteFile]:
    """A fork's own ids, where what is published is brought beforehand: alone they make nothing
    visible.
    """
    paths = []
    for i in images:
        if job.mode == "fork" and i.epoch is not None:
            paths.append((i, layout.under(i.path, layout.METADATA)))
    for number, (image, path) in enumerate(paths):
        yield _identity(f"copy/identity-{number}", facts, image, path)


def _identity(name: str, facts: Facts, image: Image, path: str) -> WriteFile:
    """A fork is another query: idempotent sinks must not take it for the first. The same fork
    gets the same id.
    """
    id = str(
        uuid.uuid5(uuid.NAMESPACE_URL, f"{image.identity} {facts.target.location} {image.path}")
    )
    return WriteFile.of(
        name, facts.target.location, path, json.dumps({"id": id}, separators=(",", ":")).encode()
    )


def owners_kept(job: JobSpec, facts: Facts) -> Iterator[AnyStep]:
    """Last of all, when every file is there, and before a job may want to write beside them."""
    owner, permissions = "owner" in job.keep, "permissions" in job.keep
    moved = [(facts.source.location, facts.target.location)]
    moved += [
        (a.location, b.location)
        for data, (a, b) in zip(job.data, facts.data, strict=True)
        if data.copy
    ]
    for number, (source, target) in enumerate(moved if job.keep else ()):
        yield KeepOwners(f"publish/owners-{number}", source, target, owner, permissions)


def index_step(spec: Spec, job: JobSpec, facts: Facts) -> Iterator[AnyStep]:
    names = moves.directories(spec, job, facts)
    if not names:
        return
    location = facts.target.location if job.target else facts.source.location
    content = encode_index(names)
    held = facts.source.names if job.target is None else None
    if held != names:
        replaces = encode_index(held).decode() if held else None
        yield WriteFile.of("publish/index", location, INDEX, content, replaces)

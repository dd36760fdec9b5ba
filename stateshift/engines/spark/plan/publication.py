"""The files by which an image becomes visible: its name index, ids and offsets of all queries, and
last of all the commits. Pure.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stateshift.engines.bundles import bundle_items, infos_of
from stateshift.engines.spark import layout
from stateshift.engines.spark.findings.moves import directories
from stateshift.engines.spark.image import fork_id
from stateshift.engines.spark.rewrite.files import Reshaping
from stateshift.engines.spark.rewrite.move import Move
from stateshift.errors import StalePlan
from stateshift.formats.marks import INDEX, encode_index
from stateshift.step import AnyStep, CopyFiles, KeepOwners, StageFiles, TransformShard, WriteFile
from stateshift.survey import FileInfo, Image


def publish(
    move: Move, images: tuple[Image, ...], reshaping: Reshaping, beforehand: bool = False
) -> Iterator[AnyStep]:
    """Yield ids and offsets of every query, and only then the commits; the name index is published
    before them (`index_step`). Files that are copied as they are go together: on HDFS a small file
    is mostly waited for; and it is `staging_steps`, where it is copied `beforehand`.
    """
    commits: list[_First] = []
    others: list[_First] = []
    for image in images:
        if image.epoch is None:
            continue
        for path in layout.first_read(image.epoch, move.kept_batch(image)):
            if layout.is_commit(path) and not layout.has_commits(image):
                continue
            first = _First(image, layout.under(image.path, path))
            is_last_commit = path == layout.commit_path(image.epoch)
            (commits if is_last_commit else others).append(first)
    publishing = _Publishing(move, reshaping, staged=beforehand)
    yield from publishing.steps(others)
    yield from publishing.steps(commits, whole=True)


class _First(NamedTuple):
    """A file that Spark looks for first, below the location, and its image."""

    image: Image
    path: str


class _Publishing:
    """The steps that publish the files which Spark looks for first; each has a number."""

    def __init__(self, move: Move, reshaping: Reshaping, staged: bool) -> None:
        self._move, self._reshaping = move, reshaping
        self._staged = staged
        self._names = (f"publish/{number}" for number in itertools.count())
        self._infos = infos_of((move.facts.source, *move.facts.merges))

    def steps(self, firsts: Iterable[_First], whole: bool = False) -> Iterator[AnyStep]:
        """Yield the steps for files of which none has to be there before another."""
        copied: list[FileInfo] = []
        for image, path in firsts:
            if self._move.job.mode == "fork" and path == layout.under(image.path, layout.METADATA):
                if not self._staged:
                    yield _identity(next(self._names), self._move, image, path)
            elif path in self._reshaping.logs:
                change = self._reshaping.logs[path]
                yield TransformShard(
                    next(self._names),
                    change.transform,
                    change.options,
                    change.source or self._move.source,
                    change.inputs or (self._infos[path],),
                    self._move.target,
                    (change.path,),
                    whole,
                )
            elif path in self._infos:
                copied.append(self._infos[path])
            else:
                # A listing is not of one moment.
                fact = f"{path} is not listed yet: the job has just planned it"
                raise StalePlan(fact, hint="try again in a moment")
        for bundle in bundle_items(copied):
            yield CopyFiles(
                next(self._names),
                self._move.source,
                self._move.target,
                tuple(bundle),
                whole=whole,
                staged=self._staged,
            )


def staging_steps(publishing: Iterable[AnyStep]) -> Iterator[StageFiles]:
    """Yield the steps that copy beforehand what is published: a rename is quicker at the end."""
    for step in publishing:
        if isinstance(step, CopyFiles) and step.staged:
            yield StageFiles(
                step.name.replace("publish/", "copy/staged-"), step.source, step.target, step.items
            )


def identities(move: Move) -> Iterator[WriteFile]:
    """Yield a fork's ids, if copied beforehand: alone they make nothing visible."""
    if move.job.mode != "fork":
        return
    begun = [image for image in move.images if image.epoch is not None]
    for number, image in enumerate(begun):
        path = layout.under(image.path, layout.METADATA)
        yield _identity(f"copy/identity-{number}", move, image, path)


def _identity(name: str, move: Move, image: Image, path: str) -> WriteFile:
    """Return the step that gives a fork its own id, for idempotent sinks."""
    content = json.dumps({"id": fork_id(image, move.target)}, separators=(",", ":"))
    return WriteFile.of(name, move.target, path, content.encode())


def keep_owners(move: Move) -> Iterator[AnyStep]:
    """Yield the last steps of all: every file is there, and no job writes beside them yet."""
    job = move.job
    if not job.keep:
        return
    owner, permissions = "owner" in job.keep, "permissions" in job.keep
    places = [(move.source, move.target)]
    for data, (here, there) in zip(job.data, move.facts.data, strict=True):
        if data.copy:
            places.append((here.location, there.location))
    for number, (source, target) in enumerate(places):
        yield KeepOwners(f"publish/owners-{number}", source, target, owner, permissions)


def index_step(move: Move) -> Iterator[AnyStep]:
    """Yield the step that writes the name index, where it changes."""
    names, old = directories(move), move.facts.source.names
    if not names:
        return
    content = encode_index(names)
    if move.job.target:
        yield WriteFile.of("publish/index", move.target, INDEX, content, None)
    elif old != names:
        replaces = encode_index(old).decode() if old else None
        yield WriteFile.of("publish/index", move.source, INDEX, content, replaces)

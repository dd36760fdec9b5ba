"""What earlier rounds have copied, and may still be counted on: by the journal's evidence, and by
what both ends list now.

    at the target  the very file that a round has left there: nobody has touched it since
    at the source  the very file that was read; or it is gone, and a commit of that round still
                   stands, so that the job has tidied it away and not gone back behind it

What does not meet this counts as not copied: it is copied again where it is needed, and removed
where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from stateshift.formats.marks import FOLDER
from stateshift.journal import PlanProgress
from stateshift.plan import Plan
from stateshift.step import (
    AnyStep,
    BringFiles,
    CopyFiles,
    StageFiles,
    TransformShard,
    WriteFile,
)
from stateshift.step.evidence import FilesBrought, of_kind
from stateshift.survey import Brought, Facts, FileInfo, ShardFiles, Survey

Key = tuple[str, str]  # a location, and a path in it
Listings = Mapping[str, Mapping[str, FileInfo]]


@dataclass(frozen=True, slots=True)
class Arrived:
    """A file as a step has shown it, and what it looked like when it was there."""

    step: BringFiles
    file: FileInfo
    name: str
    digest: str
    stamp: str

    @property
    def size(self) -> int:
        return self.file.size


@dataclass
class Arrivals:
    """The files of all rounds of one job so far. A later round counts for more than an earlier
    one.
    """

    files: dict[Key, Arrived] = field(default_factory=dict)
    written: dict[str, set[str]] = field(default_factory=dict)
    chains: list[ShardFiles] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.written)


def arrivals(rounds: list[PlanProgress], read: Callable[[PlanProgress], Plan]) -> Arrivals:
    """Return what rounds have copied, by the journal alone. A step that was begun and not finished
    may have written anything of what it was to.
    """
    arrived = Arrivals()
    for progress in rounds:
        for step in read(progress):
            if step.name in progress.steps:
                _add_step(arrived, step, progress)
    return arrived


def _add_step(arrived: Arrivals, step: AnyStep, progress: PlanProgress) -> None:
    if isinstance(step, BringFiles):
        _add(arrived, step, progress)
    elif isinstance(step, CopyFiles | StageFiles | TransformShard | WriteFile):
        arrived.written.setdefault(step.target, set()).update(_outputs(step))


def _outputs(step: CopyFiles | StageFiles | TransformShard | WriteFile) -> tuple[str, ...]:
    """Return what makes an image of copied files: we write it, and again with the next one."""
    match step:
        case StageFiles():
            return step.staged_names
        case CopyFiles():
            return tuple(name for _, name in step.named)
        case TransformShard():
            return step.outputs
        case WriteFile():
            return (step.path,)


def _add(arrived: Arrivals, step: BringFiles, progress: PlanProgress) -> None:
    arrived.written.setdefault(step.target, set()).update(name for _, name in step.named)
    for item in step.items:
        arrived.files.pop((step.source, item.path), None)
    if progress.finished(step.name):
        _add_copied(arrived, step, progress)


def _add_copied(arrived: Arrivals, step: BringFiles, progress: PlanProgress) -> None:
    """Add the files that a finished step has shown at the target."""
    evidence = progress.steps[step.name].evidence
    assert evidence is not None, "a finished step has shown something"
    copied = of_kind(evidence, FilesBrought)
    items = {name: item for item, name in step.named}
    for file in copied.files:
        item = items[file.path]
        stamp = copied.stamps[file.path]
        arrived.files[step.source, item.path] = Arrived(step, item, file.path, file.digest, stamp)
    arrived.chains += step.shards


def with_arrivals(facts: Facts, arrived: Arrivals) -> Facts:
    """Return the facts, knowing what is at the target already; and the target without it, which is
    then as empty as it was.
    """
    if not arrived:
        return facts
    sources = _listings((facts.source, *(source for source, _ in facts.data)))
    targets = _listings((facts.target, *(target for _, target in facts.data)))
    brought: dict[Key, Brought] = {}
    past: list[Key] = []
    for key, file in arrived.files.items():
        if not _is_as_it_was(file, targets):
            continue
        if _is_still_the_sources(file, sources):
            step = file.step
            brought[key] = Brought(step.source, step.target, file.file, file.digest, file.name)
        else:
            past.append((file.step.target, file.name))
    counted = {(file.target, file.name) for file in brought.values()}
    return replace(
        facts,
        target=_without(facts.target, arrived),
        data=tuple((source, _without(target, arrived)) for source, target in facts.data),
        brought=brought,
        chains=tuple(arrived.chains),
        left=tuple(sorted(_leftovers(arrived, targets, counted))),
        past=tuple(sorted(past)),
        shown=facts.target.images,
    )


def _leftovers(arrived: Arrivals, targets: Listings, counted: Collection[Key]) -> Iterator[Key]:
    """Yield what rounds have written to targets, and does not count as copied."""
    for place, paths in arrived.written.items():
        listed = targets.get(place, {})
        for path in paths:
            if path in listed and (place, path) not in counted:
                yield place, path


def _listings(surveys: Iterable[Survey]) -> Listings:
    return {survey.location: _listed(survey) for survey in surveys}


def _listed(survey: Survey) -> Mapping[str, FileInfo]:
    return {file.path: file for file in survey.files}


def _is_as_it_was(arrived: Arrived, targets: Listings) -> bool:
    """Whether nobody has touched a file at the target since a round has left it there."""
    now = targets.get(arrived.step.target, {}).get(arrived.name)
    if now is None or now.stamp == "":
        return False
    return now.stamp == arrived.stamp and now.size == arrived.file.size


def _is_still_the_sources(arrived: Arrived, sources: Listings) -> bool:
    """Whether a file is the very file at the source, or the job has tidied it away."""
    listed = sources.get(arrived.step.source, {})
    now = listed.get(arrived.file.path)
    if now is not None:
        return now.stamp == arrived.file.stamp
    anchors = arrived.step.anchors
    return bool(anchors) and all(_stands(anchor, listed) for anchor in anchors)


def _stands(anchor: FileInfo, listed: Mapping[str, FileInfo]) -> bool:
    """Whether a commit of the round is still there."""
    now = listed.get(anchor.path)
    return now is not None and now.stamp == anchor.stamp


def _without(survey: Survey, arrived: Arrivals) -> Survey:
    """Return the survey of what others have put there, and nobody expects."""
    written = arrived.written.get(survey.location, set())
    files = tuple(file for file in survey.files if file.path not in written)
    if len(files) == len(survey.files):
        return survey
    return replace(
        survey,
        files=files,
        images=(),
        findings=(),
        engine=None,
        kind=_kind_without_images(files),
    )


def _kind_without_images(files: Iterable[FileInfo]) -> Literal["empty", "foreign"]:
    is_empty = all(file.path.startswith(f"{FOLDER}/") for file in files)
    return "empty" if is_empty else "foreign"

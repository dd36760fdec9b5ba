"""What earlier rounds have brought over, and may still be counted on: by the journal's evidence,
and by what both ends list now.

    at the target  the very file that a round has left there: nobody has touched it since
    at the source  the very file that was read; or it is gone, and a commit of that round still
                   stands, so that the
                   job has tidied it away and not gone back behind it

What does not meet this counts as not brought: it is copied again where it is needed, and removed
where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from stateshift.formats.marks import FOLDER
from stateshift.journal import PlanProgress
from stateshift.plan import Plan
from stateshift.step import BringFiles, CopyFiles, StageFiles, TransformShard, WriteFile
from stateshift.step.evidence import FilesBrought, of_kind
from stateshift.survey import Brought, Facts, FileInfo, ShardFiles, Survey

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
    """All rounds of one job so far, in their order. A later round counts for more than an
    earlier one.
    """

    files: dict[tuple[str, str], Arrived] = field(default_factory=dict)
    written: dict[str, set[str]] = field(default_factory=dict)
    chains: list[ShardFiles] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.written)


def arrivals(rounds: list[PlanProgress], read: Callable[[PlanProgress], Plan]) -> Arrivals:
    """By the journal alone. A step that was begun and not finished may have written anything of
    what it was to.
    """
    found = Arrivals()
    for progress in rounds:
        for step in read(progress):
            if step.name not in progress.steps:
                continue
            if isinstance(step, BringFiles):
                _add(found, step, progress)
            elif isinstance(step, CopyFiles | StageFiles | TransformShard | WriteFile):
                found.written.setdefault(step.target, set()).update(_outputs(step))
    return found


def _outputs(step: CopyFiles | StageFiles | TransformShard | WriteFile) -> tuple[str, ...]:
    """What makes what was brought an image: written by us, and written again with the next one."""
    match step:
        case StageFiles():
            return step.staged_names
        case CopyFiles():
            return tuple(name for _, name in step.named)
        case TransformShard():
            return step.outputs
        case WriteFile():
            return (step.path,)


def _add(found: Arrivals, step: BringFiles, progress: PlanProgress) -> None:
    found.written.setdefault(step.target, set()).update(name for _, name in step.named)
    for item in step.items:
        found.files.pop((step.source, item.path), None)
    if not progress.finished(step.name):
        return
    evidence = progress.steps[step.name].evidence
    assert evidence is not None, "a finished step has shown something"
    brought = of_kind(evidence, FilesBrought)
    items = {name: item for item, name in step.named}
    for file in brought.files:
        item = items[file.path]
        stamp = brought.stamps[file.path]
        found.files[step.source, item.path] = Arrived(step, item, file.path, file.digest, stamp)
    found.chains += step.shards


def with_arrivals(facts: Facts, found: Arrivals) -> Facts:
    """The facts, knowing what is there already; and the target without it, which is then as
    empty as it was.
    """
    if not found:
        return facts
    here = {
        survey.location: _listed(survey) for survey in (facts.source, *(a for a, _ in facts.data))
    }
    there = {
        survey.location: _listed(survey) for survey in (facts.target, *(b for _, b in facts.data))
    }
    as_they_were = {key: one for key, one in found.files.items() if _is_as_it_was(one, there)}
    brought = {
        key: Brought(one.step.source, one.step.target, one.file, one.digest, one.name)
        for key, one in as_they_were.items()
        if _is_ours(one, here)
    }
    past = tuple(
        sorted(
            (one.step.target, one.name) for key, one in as_they_were.items() if key not in brought
        )
    )
    ours = {(one.target, one.name) for one in brought.values()}
    left = tuple(
        sorted(
            (place, path)
            for place, paths in found.written.items()
            for path in paths
            if (place, path) not in ours and path in there.get(place, {})
        )
    )
    return replace(
        facts,
        target=_without(facts.target, found),
        data=tuple((one, _without(other, found)) for one, other in facts.data),
        brought=brought,
        chains=tuple(found.chains),
        left=left,
        past=past,
    )


def _listed(survey: Survey) -> Mapping[str, FileInfo]:
    return {file.path: file for file in survey.files}


def _is_as_it_was(one: Arrived, there: Listings) -> bool:
    now = there.get(one.step.target, {}).get(one.name)
    return (
        now is not None and now.stamp != "" and now.stamp == one.stamp and now.size == one.file.size
    )


def _is_ours(one: Arrived, here: Listings) -> bool:
    listed = here.get(one.step.source, {})
    now = listed.get(one.file.path)
    if now is not None:
        return now.stamp == one.file.stamp
    anchors = [listed.get(anchor.path) for anchor in one.step.anchors]
    stand = all(
        now is not None and now.stamp == was.stamp
        for now, was in zip(anchors, one.step.anchors, strict=True)
    )
    return bool(anchors) and stand


def _without(survey: Survey, found: Arrivals) -> Survey:
    """What others have put there, and nobody expects."""
    written = found.written.get(survey.location, set())
    files = tuple(_others(survey, written))
    if len(files) == len(survey.files):
        return survey
    empty = all(file.path.startswith(f"{FOLDER}/") for file in files)
    return replace(
        survey,
        files=files,
        images=(),
        findings=(),
        engine=None,
        kind="empty" if empty else "foreign",
    )


def _others(survey: Survey, written: set[str]) -> Iterator[FileInfo]:
    return (file for file in survey.files if file.path not in written)

"""The files that earlier rounds have copied, and that may still be counted on: by the journal's
evidence, and by what both ends list now.

    at the target  the very file that a round has left there: nobody has touched it since
    at the source  the very file that was read; or it is gone, and a commit of that round still
                   stands, so that the job has tidied it away and not gone back behind it

A file that does not meet this counts as not copied: it is copied again where it is needed, and
removed where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from stateshift.formats.marks import FOLDER
from stateshift.journal import PlanProgress
from stateshift.plan import Plan
from stateshift.step import (
    BringFiles,
    CopyFiles,
    CopyInOrder,
    StageFiles,
    TransformShard,
    WriteFile,
)
from stateshift.step.evidence import FilesBrought, of_kind
from stateshift.survey import Brought, Facts, FileInfo, ShardFiles, Survey

Key = tuple[str, str]  # a location, and a path in it
Listings = dict[str, dict[str, FileInfo]]


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
    """The files of all rounds of one job so far. A later round replaces an earlier one."""

    files: dict[Key, Arrived] = field(default_factory=dict)
    written: dict[str, set[str]] = field(default_factory=dict)
    chains: list[ShardFiles] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.written)


def arrivals(rounds: list[PlanProgress], read: Callable[[PlanProgress], Plan]) -> Arrivals:
    """Return the rounds' files, by the journal. An unfinished step may have written any."""
    arrived = Arrivals()
    for progress in rounds:
        for step in read(progress):
            if step.name not in progress.steps:
                continue
            # All but the rounds' own steps make an image: they write it again with the next one.
            match step:
                case StageFiles():
                    paths = list(step.staged_names)
                case BringFiles() | CopyFiles() | CopyInOrder():
                    paths = [name for _, name in step.named]
                case TransformShard():
                    paths = list(step.outputs)
                case WriteFile():
                    paths = [step.path]
                case _:
                    continue
            arrived.written.setdefault(step.target, set()).update(paths)
            if isinstance(step, BringFiles):
                _add_files(arrived, step, progress)
    return arrived


def _add_files(arrived: Arrivals, step: BringFiles, progress: PlanProgress) -> None:
    for item in step.items:
        arrived.files.pop((step.source, item.path), None)
    if not progress.finished(step.name):
        return
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
    """Return the facts with the files at the target, which counts as empty as before."""
    if not arrived:
        return facts
    sources = _listings((facts.source, *(source for source, _ in facts.data)))
    targets = _listings((facts.target, *(target for _, target in facts.data)))
    left: set[Key] = set()  # what rounds have written, and does not count as copied
    for place, paths in arrived.written.items():
        left.update((place, path) for path in paths & targets.get(place, {}).keys())
    brought: dict[Key, Brought] = {}
    past: list[Key] = []
    for key, file in arrived.files.items():
        now = targets.get(file.step.target, {}).get(file.name)
        if now is None or now.stamp == "":
            continue
        if (now.stamp, now.size) != (file.stamp, file.file.size):
            continue  # somebody has touched it since
        if _is_still_the_sources(file, sources):
            step = file.step
            brought[key] = Brought(step.source, step.target, file.file, file.digest, file.name)
        else:
            past.append((file.step.target, file.name))
    left -= {(file.target, file.name) for file in brought.values()}
    return replace(
        facts,
        target=_without(facts.target, arrived),
        data=tuple((source, _without(target, arrived)) for source, target in facts.data),
        brought=brought,
        chains=tuple(arrived.chains),
        left=tuple(sorted(left)),
        past=tuple(sorted(past)),
        shown=facts.target.images,
    )


def _listings(surveys: Iterable[Survey]) -> Listings:
    files_at: Listings = {}
    for survey in surveys:
        files_at[survey.location] = {file.path: file for file in survey.files}
    return files_at


def _is_still_the_sources(arrived: Arrived, sources: Listings) -> bool:
    """Whether a file is the very file at the source, or the job has tidied it away."""
    listed = sources.get(arrived.step.source, {})
    now = listed.get(arrived.file.path)
    if now is not None:
        return now.stamp == arrived.file.stamp
    # Whether the commits of the round are still there.
    stamps = {path: file.stamp for path, file in listed.items()}
    anchors = arrived.step.anchors
    return bool(anchors) and all(stamps.get(each.path) == each.stamp for each in anchors)


def _without(survey: Survey, arrived: Arrivals) -> Survey:
    """Return the survey of the files that others have put there, and nobody expects."""
    written = arrived.written.get(survey.location, set())
    files = tuple(file for file in survey.files if file.path not in written)
    if len(files) == len(survey.files):
        return survey
    is_empty = all(file.path.startswith(f"{FOLDER}/") for file in files)
    kind: Literal["empty", "foreign"] = "empty" if is_empty else "foreign"
    return replace(survey, files=files, images=(), findings=(), engine=None, kind=kind)

"""The files that earlier rounds have copied, and that may still be counted on: by the journal's
evidence, and by what both ends list now.

    at the target  the very file that a round has left there: nobody has touched it since
    at the source  the very file that was read; or it is gone, and a commit of that round still
                   stands, so that the job has tidied it away and not gone back behind it

A file that does not meet this counts as not copied: it is copied again where it is needed, and
removed where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from stateshift.formats.marks import ASIDE, FOLDER
from stateshift.journal import PlanProgress
from stateshift.plan import Plan
from stateshift.step import (
    AnyStep,
    BringFiles,
    CopyFiles,
    CopyInOrder,
    SetAside,
    StageFiles,
    TransformShard,
    WriteFile,
)
from stateshift.step.evidence import FilesBrought, of_kind
from stateshift.survey import Brought, Facts, FileInfo, OldFiles, ShardFiles, Survey

# Our files that are no part of an image, and stay where they are.
OURS_AT_A_TARGET = (ASIDE, f"{FOLDER}/generation-")

Key = tuple[str, str]  # a location, and a path in it
Listings = dict[str, dict[str, FileInfo]]


@dataclass(frozen=True, slots=True)
class Arrived:
    """A file as a step has shown it, and what it looked like when it was there. `anchors` are of
    the last round that has continued this one.
    """

    step: BringFiles
    file: FileInfo
    name: str
    digest: str
    stamp: str
    anchors: tuple[FileInfo, ...]

    @property
    def size(self) -> int:
        return self.file.size


@dataclass
class Arrivals:
    """The files of all rounds of one job so far. A later round replaces an earlier one."""

    files: dict[Key, Arrived] = field(default_factory=dict)
    written: dict[str, set[str]] = field(default_factory=dict)
    chains: list[ShardFiles] = field(default_factory=list)
    old: dict[Key, str] = field(default_factory=dict)  # not ours, and where it goes in the end
    fences: set[Key] = field(default_factory=set)  # of these: up until the image can be seen

    def __bool__(self) -> bool:
        return bool(self.written)

    def add_old_files(self, step: SetAside) -> None:
        """Add the files that were at the target before the first round, and could stay."""
        for path in step.spared.paths:
            self.old[step.location, path] = f"{step.folder}/{path}"
        self.fences.update((step.location, path) for path in step.fence)


def arrivals(rounds: list[PlanProgress], read: Callable[[PlanProgress], Plan]) -> Arrivals:
    """Return the rounds' files, by the journal. An unfinished step may have written any."""
    arrived = Arrivals()
    for progress in rounds:
        plan = read(progress)
        for step in plan:
            if step.name not in progress.steps:
                continue
            paths = paths_written(step, progress)
            if paths is None:
                continue
            if isinstance(step, SetAside):
                arrived.add_old_files(step)
            assert step.fills is not None, "a step that writes files"
            arrived.written.setdefault(step.fills, set()).update(paths)
            if isinstance(step, BringFiles):
                _add_files(arrived, step, progress)
        _continue_files(arrived, plan)
    return arrived


def paths_written(step: AnyStep, progress: PlanProgress) -> Collection[str] | None:
    """Return the paths that a step may have written to; None of one that does not count here."""
    # All but the rounds' own steps make an image: they write it again with the next one.
    match step:
        case StageFiles():
            return step.staged_names
        case BringFiles() | CopyFiles() | CopyInOrder():
            return [name for _, name in step.named]
        case TransformShard():
            return step.outputs
        case WriteFile():
            return [step.path]
        case SetAside() if progress.finished(step.name):
            return step.spared.paths
    return None


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
        arrived.files[step.source, item.path] = Arrived(
            step, item, file.path, file.digest, stamp, step.anchors
        )
    arrived.chains += step.shards


def _continue_files(arrived: Arrivals, plan: Plan) -> None:
    """Note a round's anchors for the files of earlier rounds that it continues."""
    anchors: tuple[FileInfo, ...] = ()
    continued: set[FileInfo] = set()
    copied: set[Key] = set()
    for step in plan:
        if isinstance(step, BringFiles):
            copied.update((step.source, item.path) for item in step.items)
            anchors = anchors or step.anchors
            continued.update(step.continued)
    for key, file in arrived.files.items():
        if anchors and file.anchors and key not in copied and continued.issuperset(file.anchors):
            arrived.files[key] = replace(file, anchors=anchors)


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
    standing: dict[FileInfo, None] = {}
    for key, file in arrived.files.items():
        now = targets.get(file.step.target, {}).get(file.name)
        if now is None or now.stamp == "":
            continue
        if (now.stamp, now.size) != (file.stamp, file.file.size):
            continue  # somebody has touched it since
        listed = sources.get(file.step.source, {})
        standing.update(_standing_anchors(file, listed))
        if _is_still_the_sources(file, listed):
            step = file.step
            brought[key] = Brought(step.source, step.target, file.file, file.digest, file.name)
        else:
            past.append((file.step.target, file.name))
    old_files: set[Key] = set()
    for (place, path), aside in arrived.old.items():
        listed = targets.get(place, {})
        if path in listed and aside not in listed:
            old_files.add((place, path))
    fences = old_files & arrived.fences
    left -= {(file.target, file.name) for file in brought.values()} | fences
    old = OldFiles(_paths(fences), _paths(old_files & left))
    return replace(
        facts,
        target=_without(facts.target, arrived),
        data=tuple((source, _without(target, arrived)) for source, target in facts.data),
        brought=brought,
        chains=tuple(arrived.chains),
        left=tuple(sorted(left)),
        past=tuple(sorted(past)),
        standing=tuple(standing),
        shown=facts.target.images,
        old=old,
    )


def _paths(keys: Iterable[Key]) -> tuple[str, ...]:
    return tuple(sorted(path for _, path in keys))


def with_target_in_the_way(facts: Facts) -> Facts:
    """Return the facts as if nothing were at the target: what is there is set aside before."""
    files = [file for file in facts.target.files if not file.path.startswith(OURS_AT_A_TARGET)]
    in_the_way = {facts.target.location: {file.path for file in files}}
    return replace(
        facts,
        target=_without(facts.target, Arrivals(written=in_the_way)),
        shown=facts.target.images,
        in_the_way=tuple(files),
    )


def _listings(surveys: Iterable[Survey]) -> Listings:
    files_at: Listings = {}
    for survey in surveys:
        files_at[survey.location] = {file.path: file for file in survey.files}
    return files_at


def _is_still_the_sources(arrived: Arrived, listed: Mapping[str, FileInfo]) -> bool:
    """Whether a file is the very file at the source, or the job has tidied it away."""
    now = listed.get(arrived.file.path)
    if now is not None:
        return now.stamp == arrived.file.stamp
    has_gone_back = not _standing_anchors(arrived, listed)
    return not has_gone_back


def _standing_anchors(arrived: Arrived, listed: Mapping[str, FileInfo]) -> Mapping[FileInfo, None]:
    """Return the anchors of a file if the commits are all there: the job has not gone back behind
    its round.
    """
    there = [listed.get(anchor.path) for anchor in arrived.anchors]
    stamps = [None if file is None else file.stamp for file in there]
    is_standing = stamps == [anchor.stamp for anchor in arrived.anchors]
    return dict.fromkeys(arrived.anchors) if is_standing else {}


def _without(survey: Survey, arrived: Arrivals) -> Survey:
    """Return the survey of the files that others have put there, and nobody expects."""
    written = arrived.written.get(survey.location, set())
    files = tuple(file for file in survey.files if file.path not in written)
    if len(files) == len(survey.files):
        return survey
    is_empty = all(file.path.startswith(f"{FOLDER}/") for file in files)
    kind: Literal["empty", "foreign"] = "empty" if is_empty else "foreign"
    return replace(survey, files=files, images=(), findings=(), engine=None, kind=kind)

"""A standby goes on from the batch that it can be started from to the newest one, without a moment
in between at which it cannot be started.

Spark starts from the newest offsets, L, reads those of L - 1 as well, and loads state version L or
L + 1 (`survey.restart.batches`). So the target's logs grow as a job's own do, batch by batch:

    state    what versions E + 2 to N need, and the target does not have, E being the batch it can
             be started from
    publish  offsets/E+1, commits/E+1, offsets/E+2, commits/E+2, … offsets/N, commits/N
    retire   what batch N does not need

After offsets/b the target starts from batch b - 1, with b planned; after commits/b from batch b.
What the source itself can no longer go back to cannot be published so: it has tidied away state or
logs of a batch in between. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from stateshift.engines.bundles import bundled
from stateshift.engines.spark import layout
from stateshift.engines.spark.check.sidecars import hidden_checksum
from stateshift.engines.spark.plan.hiding import paths_at
from stateshift.formats.spark.names import classify
from stateshift.step import AnyStep, CopyFiles, KeepBrought
from stateshift.survey import Facts, FileInfo, Image, ShardFiles


@dataclass(frozen=True, slots=True)
class Bridge:
    """The steps that copy state, the steps that publish batch by batch in their order, and the
    paths of the latter.
    """

    copies: tuple[CopyFiles, ...]
    published: tuple[CopyFiles, ...]
    paths: frozenset[str]

    def retired(self, target: str, wanted: Collection[str]) -> Iterator[KeepBrought]:
        """Yield the step that removes what only a batch in between needs, once the newest can be
        started from.
        """
        unneeded = (_paths(self.copies) | self.paths) - set(wanted)
        if unneeded:
            yield KeepBrought("retire/between", target, (), tuple(sorted(unneeded)))

    def without_published(self, steps: Collection[AnyStep]) -> Iterator[AnyStep]:
        """Yield what else is to be published: a file that is there already is not written again."""
        for step in steps:
            if not isinstance(step, CopyFiles):
                yield step
                continue
            items = tuple(item for item in step.items if item.path not in self.paths)
            if items:
                yield replace(step, items=items)


def _paths(steps: Iterable[CopyFiles]) -> frozenset[str]:
    """Return the files that steps copy."""
    paths: set[str] = set()
    for step in steps:
        paths.update(item.path for item in step.items)
    return frozenset(paths)


def bridge_of(facts: Facts, changed: Collection[str]) -> Bridge:
    """Return the bridge from what is at the target to what these facts hold; an empty one where the
    target has nothing, or no way leads over. `changed` are the paths that are not copied as they
    are.
    """
    state: dict[str, FileInfo] = {}
    steps: list[CopyFiles] = []
    for number, image in enumerate(facts.source.images):
        way = _way_of(facts, image)
        if way is None or way.publishes_any(changed):
            continue
        state.update((file.path, file) for file in way.state)
        steps += _published(facts, number, way)
    return Bridge(tuple(_copies(facts, state)), tuple(steps), _paths(steps))


def _copies(facts: Facts, state: Mapping[str, FileInfo]) -> Iterator[CopyFiles]:
    source, target = facts.source.location, facts.target.location
    files = [state[path] for path in sorted(state)]
    for number, bundle in enumerate(bundled(files)):
        yield CopyFiles(f"copy/between-{number}", source, target, tuple(bundle))


class _Logs(NamedTuple):
    """The logs of one batch."""

    offsets: FileInfo
    commit: FileInfo


@dataclass(frozen=True, slots=True)
class _Way:
    """State of the batches between, and the logs of each up to the newest, in their order."""

    state: tuple[FileInfo, ...]
    logs: tuple[_Logs, ...]

    def publishes_any(self, paths: Collection[str]) -> bool:
        return any(logs.offsets.path in paths or logs.commit.path in paths for logs in self.logs)


def _published(facts: Facts, number: int, way: _Way) -> Iterator[CopyFiles]:
    """Yield the steps that publish the batches of one image, in their order."""
    source, target = facts.source.location, facts.target.location
    for offsets, commit in way.logs:
        batch = commit.path.rpartition("/")[2]
        name = f"publish/between-{number}-{batch}"
        yield CopyFiles(f"{name}-offsets", source, target, (offsets,), whole=True)
        yield CopyFiles(f"{name}-commit", source, target, (commit,), whole=True)


def _way_of(facts: Facts, image: Image) -> _Way | None:
    """Return the way from the batch at the target to the image's, where there is one."""
    at_target = _at_target(facts)
    first = _published_batch(image, at_target)
    if image.epoch is None or first is None or first >= image.epoch:
        return None
    past = paths_at(facts.target.location, facts.past)
    if not all(_is_behind(image, path, first) for path in past):
        return None
    files = _Files({file.path: file for file in facts.source.files}, at_target - past)
    logs = _logs_between(image, range(first + 1, image.epoch + 1), files)
    if logs is None:
        return None
    state: list[FileInfo] = []
    for shard in image.shards:
        between = _state_between(shard, range(first + 2, image.epoch + 1), files)
        if between is None:
            return None
        state += between
    return _Way(tuple(state), logs)


@dataclass(frozen=True, slots=True)
class _Files:
    """What the source has, by path, and the paths of what is at the target and still stands."""

    at_source: Mapping[str, FileInfo]
    at_target: Collection[str]


def _logs_between(image: Image, batches: range, files: _Files) -> tuple[_Logs, ...] | None:
    """Return the logs of these batches; None where one of them is missing."""
    logs: list[_Logs] = []
    for batch in batches:
        offsets = files.at_source.get(layout.under(image.path, layout.offset_path(batch)))
        commit = files.at_source.get(layout.under(image.path, layout.commit_path(batch)))
        if offsets is None or commit is None:
            return None
        logs.append(_Logs(offsets, commit))
    return tuple(logs)


def _at_target(facts: Facts) -> frozenset[str]:
    """Return what is at the target, whichever round has copied it."""
    target = facts.target.location
    left = paths_at(target, facts.left)
    copied = {held.name for held in facts.brought.values() if held.target == target}
    return frozenset(left | copied)


def _is_behind(image: Image, path: str, batch: int) -> bool:
    """Whether a file of a time that the job has gone back behind is a change of a later batch than
    `batch`: what is published up to `batch` is then of a time that still stands, and the change is
    copied over. A snapshot would stay until the end, and Spark would start from it.
    """
    start = layout.under(image.path, "")
    if not path.startswith(start):
        return True  # of another query of the workflow
    place = classify(path.removeprefix(start))
    is_change = place.area == "state" and place.kind in ("delta", "changelog")
    return is_change and place.version is not None and place.version > batch + 1


def _published_batch(image: Image, at_target: Collection[str]) -> int | None:
    """Return the newest batch of this query that the target holds with its offsets."""
    batches = (_batch_of(image, path) for path in at_target)
    newest = max((batch for batch in batches if batch is not None), default=None)
    if newest is None:
        return None
    offsets = layout.under(image.path, layout.offset_path(newest))
    return newest if offsets in at_target else None


def _batch_of(image: Image, path: str) -> int | None:
    """Return the batch whose commit this file is; None for any other file."""
    name = path.rpartition("/")[2]
    is_commit = name.isdecimal() and path == layout.under(image.path, layout.commit_path(int(name)))
    return int(name) if is_commit else None


def _state_between(shard: ShardFiles, versions: range, files: _Files) -> list[FileInfo] | None:
    """Return what these versions need beside what is at the target. The change files of each: a
    snapshot is never needed, since the version before can be loaded there. None where one is
    missing, or where the files do not say which version they belong to.
    """
    if not shard.files or _uses_uuids(shard):
        return None
    folder, ending = _folder(shard), _ending(shard)
    state: list[FileInfo] = []
    for version in versions:
        path = f"{folder}/{version}.{ending}"
        if path not in files.at_source and path not in files.at_target:
            return None
        with_checksums = (path, f"{path}.crc", hidden_checksum(path))
        state += [files.at_source[name] for name in with_checksums if name in files.at_source]
    return state


def _uses_uuids(shard: ShardFiles) -> bool:
    """Whether the shard's files carry uuids in their names: checkpoint format 2."""
    return any(classify(_inside(path, shard)).uuid for path in shard.files)


def _inside(path: str, shard: ShardFiles) -> str:
    """Return the path below its own checkpoint: that of a workflow has a directory before it."""
    at = path.find(f"state/{shard.operator}/{shard.shard}/")
    return path[max(at, 0) :]


def _folder(shard: ShardFiles) -> str:
    """Return the folder that holds the shard's files; SST files lie one deeper."""
    return next((path.rpartition("/")[0] for path in shard.files if "/SSTs/" not in path), "")


def _ending(shard: ShardFiles) -> str:
    is_rocksdb = any(path.endswith((".zip", ".changelog", ".sst")) for path in shard.files)
    return "changelog" if is_rocksdb else "delta"

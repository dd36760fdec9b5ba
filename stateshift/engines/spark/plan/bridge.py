"""From the batch that a standby can be started from to the newest one, without a moment in between
at which it cannot.

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

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from stateshift.engines.bundles import bundled
from stateshift.engines.spark import layout
from stateshift.engines.spark.check.sidecars import hidden_checksum
from stateshift.formats.spark.names import classify
from stateshift.step import AnyStep, CopyFiles, KeepBrought
from stateshift.survey import Facts, FileInfo, Image, ShardFiles


@dataclass(frozen=True, slots=True)
class Bridge:
    """The steps that bring state, the steps that publish batch by batch in their order, and the
    paths of the latter.
    """

    copies: tuple[CopyFiles, ...]
    published: tuple[CopyFiles, ...]
    paths: frozenset[str]

    def retired(self, target: str, wanted: Collection[str]) -> Iterator[KeepBrought]:
        """What only a batch in between needs, once the newest can be started from."""
        state = set()
        for step in self.copies:
            for item in step.items:
                state.add(item.path)
        gone = sorted((state | self.paths) - set(wanted))
        if gone:
            yield KeepBrought("retire/between", target, (), tuple(gone))

    def without_published(self, steps: Collection[AnyStep]) -> Iterator[AnyStep]:
        """What else is to be published: a file that is there already is not written again."""
        for step in steps:
            if not isinstance(step, CopyFiles):
                yield step
                continue
            items = tuple(item for item in step.items if item.path not in self.paths)
            if items:
                yield replace(step, items=items)


NOTHING = Bridge((), (), frozenset())


def bridge_of(facts: Facts, changed: Collection[str]) -> Bridge:
    """The bridge from what is at the target to what these facts hold; none where it has nothing, or
    no way leads over. `changed` are the paths that are not copied as they are.
    """
    state: dict[str, FileInfo] = {}
    steps: list[CopyFiles] = []
    for number, image in enumerate(facts.source.images):
        way = _way_of(facts, image)
        if way is None or any(file.path in changed for pair in way.logs for file in pair):
            continue
        state.update({file.path: file for file in way.state})
        steps += _published(facts, number, way)
    source, target = facts.source.location, facts.target.location
    copies = tuple(
        CopyFiles(f"copy/between-{number}", source, target, tuple(bundle))
        for number, bundle in enumerate(bundled(state[path] for path in sorted(state)))
    )
    paths = []
    for step in steps:
        for item in step.items:
            paths.append(item.path)
    return Bridge(copies, tuple(steps), frozenset(paths))


@dataclass(frozen=True, slots=True)
class _Way:
    """State of the batches between, and (offsets, commit) of each up to the newest, in their
    order.
    """

    state: tuple[FileInfo, ...]
    logs: tuple[tuple[FileInfo, FileInfo], ...]


def _published(facts: Facts, number: int, way: _Way) -> Iterator[CopyFiles]:
    source, target = facts.source.location, facts.target.location
    for offsets, commit in way.logs:
        batch = commit.path.rpartition("/")[2]
        name = f"publish/between-{number}-{batch}"
        yield CopyFiles(f"{name}-offsets", source, target, (offsets,), whole=True)
        yield CopyFiles(f"{name}-commit", source, target, (commit,), whole=True)


def _way_of(facts: Facts, image: Image) -> _Way | None:
    """The way from the batch at the target to the image's, where there is one."""
    at_target = _at_target(facts)
    first = _published_batch(image, at_target)
    if image.epoch is None or first is None or first >= image.epoch:
        return None
    past = {path for place, path in facts.past if place == facts.target.location}
    if not all(_is_behind(image, path, first) for path in past):
        return None
    infos = {file.path: file for file in facts.source.files}
    logs = []
    for batch in range(first + 1, image.epoch + 1):
        offsets = infos.get(layout.under(image.path, layout.offset_path(batch)))
        commit = infos.get(layout.under(image.path, layout.commit_path(batch)))
        if offsets is None or commit is None:
            return None
        logs.append((offsets, commit))
    state: list[FileInfo] = []
    for shard in image.shards:
        between = _state_between(shard, first + 1, image.epoch + 1, infos, at_target - past)
        if between is None:
            return None
        state += between
    return _Way(tuple(state), tuple(logs))


def _at_target(facts: Facts) -> frozenset[str]:
    target = facts.target.location
    left = {path for place, path in facts.left if place == target}
    return frozenset(left | {one.name for one in facts.brought.values() if one.target == target})


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
    """The newest batch of this query that the target holds with its offsets."""
    batches = (_batch_of(image, path) for path in at_target)
    committed = [batch for batch in batches if batch is not None]
    newest = max(committed, default=None)
    if newest is None or layout.under(image.path, layout.offset_path(newest)) not in at_target:
        return None
    return newest


def _batch_of(image: Image, path: str) -> int | None:
    """The batch whose commit this file is; None of any other file."""
    name = path.rpartition("/")[2]
    is_commit = name.isdecimal() and path == layout.under(image.path, layout.commit_path(int(name)))
    return int(name) if is_commit else None


def _state_between(
    shard: ShardFiles,
    first: int,
    last: int,
    infos: Mapping[str, FileInfo],
    at_target: Collection[str],
) -> list[FileInfo] | None:
    """What versions after `first` up to `last` need beside what is at the target. The change files
    of each: a snapshot is never needed, since version `first` can be loaded there. None where one
    is missing, or where the files do not say which version they belong to.
    """
    if not shard.files:
        return None
    places = [classify(path) for path in (_inside(path, shard) for path in shard.files)]
    if any(place.uuid for place in places):
        return None
    folder, ending = _folder(shard), _ending(shard)
    wanted = []
    for version in range(first + 1, last):
        path = f"{folder}/{version}.{ending}"
        if path not in infos and path not in at_target:
            return None
        beside = (path, f"{path}.crc", hidden_checksum(path))
        wanted += [name for name in beside if name in infos]
    return [infos[name] for name in wanted]


def _inside(path: str, shard: ShardFiles) -> str:
    """The path below its own checkpoint: that of a workflow has a directory before it."""
    at = path.find(f"state/{shard.operator}/{shard.shard}/")
    return path[max(at, 0) :]


def _folder(shard: ShardFiles) -> str:
    """Return the folder that holds the shard's files; SST files lie one deeper."""
    return next((path.rpartition("/")[0] for path in shard.files if "/SSTs/" not in path), "")


def _ending(shard: ShardFiles) -> str:
    is_rocksdb = any(path.endswith((".zip", ".changelog", ".sst")) for path in shard.files)
    return "changelog" if is_rocksdb else "delta"

"""A standby goes on from the batch that it can be started from to the newest one, without a moment
in between at which it cannot be started. Pure.

Spark starts from the newest offsets, L, reads those of L - 1 as well, and loads state version L or
L + 1 (`survey.restart.batches`). The target's logs grow as a job's own do, batch by batch:

    state    what versions E + 2 to N need, and the target does not have, E being the batch it can
             be started from
    publish  offsets/E+1, commits/E+1, offsets/E+2, commits/E+2, … offsets/N, commits/N
    retire   what neither batch N needs nor a batch that is kept (`facts.kept`)

After offsets/b the target starts from batch b - 1, with b planned; after commits/b from batch b. An
image that the source itself can no longer go back to cannot be published so: it has tidied away
state or logs of a batch in between.

A job can go back to an earlier batch and do the later ones again. The copies that rounds made of
the first time are then stale, and the image is hidden before its files are changed. Spark reads a
stale file only through the image's logs, so they go first: all commits, then all offsets. Offsets
without a commit would not do: Spark takes them for a batch that it has to finish
(MicroBatchExecution.populateStartOffsets), on whatever state is there by then.

A snapshot needs a step of its own. Spark loads a version from the newest snapshot that is not newer
(HDFSBackedStateStoreProvider.loadMap, RocksDB.loadWithChangelog), so one that no round writes over
would still be read after the next image is published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from stateshift.engines.bundles import bare, bundle_items, copies, keep_copied, without_kept
from stateshift.engines.spark import layout
from stateshift.engines.spark.layout import hidden_checksum
from stateshift.engines.spark.plan.fingerprint import plan_of, provisional
from stateshift.engines.spark.plan.publication import index_step, publish
from stateshift.engines.spark.plan.rounds import folder_of, inside, with_shortest_chains
from stateshift.engines.spark.rewrite.files import reshaping_of
from stateshift.engines.spark.rewrite.move import Move
from stateshift.errors import StalePlan
from stateshift.formats.spark.names import classify
from stateshift.plan import Phase, PhaseName, Plan, phases_of
from stateshift.specification import JobSpec, Spec
from stateshift.step import AnyStep, BringFiles, CopyFiles, CopyInOrder, KeepBrought
from stateshift.survey import Facts, FileInfo, Image, ShardFiles

BASES = ("snapshot", "zip")


def standby_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Return the plan that publishes what a round has copied, batch by batch, so that the job can
    be started from it, and only then removes what it does not need any more. An image that is there
    stays whole until the next one is: also where the source has lost something since, whose job may
    not even have noticed.
    """
    faults = [finding.message for finding in facts.source.damages]
    for image in facts.source.images:
        if image.epoch is None or not layout.has_commits(image):
            faults.append(f"{image.path or job.name} has no commit")
    if faults:
        fact = f"{facts.source.location} cannot be restarted from: {faults[0]}"
        raise StalePlan(fact, hint=f"stateshift verify {facts.source.location}")
    move = Move(spec, job, bare(with_shortest_chains(facts)))
    facts, images, target = move.facts, move.facts.source.images, move.target
    reshaping, rewriting = reshaping_of(move), move.rewriting
    wanted = copies(job, facts, images, rewriting.paths).files
    for image in images:
        wanted.update((move.source, path) for path in image.first_read)
    wanted.update((file.source, file.target_path) for file in rewriting.files)
    wanted_paths = {path for _, path in wanted}
    rewritten = {path for _, path in rewriting.paths}
    bridge = bridge_of(facts, rewritten | set(reshaping.logs))
    others = (*index_step(move), *bridge.without_published(tuple(publish(move, images, reshaping))))
    retired: list[KeepBrought] = []
    for number, step in enumerate(keep_copied(facts, wanted, wanted_paths)):
        retired.append(replace(step, name=f"retire/{number}", items=()))
    retired += bridge.retired(target, wanted_paths)
    phases = phases_of(
        Phase("copy", bridge.copies),
        Phase("transform", tuple(rewriting.steps())),
        Phase("publish", (*without_stale_bases(facts), *bridge.published, *others), ordered=True),
        Phase("retire", tuple(without_kept(facts, retired))),
    )
    return replace(provisional(plan_of(move, phases), facts), purpose="standby")


def hidden_plan(job: JobSpec, facts: Facts, coming: Plan) -> Plan | None:
    """Return the plan that hides an image that the coming round, of a job gone back, overwrites."""
    target = facts.target.location
    steps = hiding(facts, "retire")
    needed = paths_at(target, facts.past)
    for image in facts.shown:
        needed.update(image.needed)
    written: set[str] = set()
    for step in coming:
        if isinstance(step, BringFiles) and step.target == target:
            written.update(name for _, name in step.named)
    if not steps or needed.isdisjoint(written):
        return None
    phases = phases_of(Phase("retire", steps, ordered=True))
    return replace(coming, purpose="standby", phases=phases)


# ---- the image is hidden


def hiding(facts: Facts, phase: PhaseName) -> tuple[KeepBrought, ...]:
    """Return the steps that hide the image at the target, in their order; none where none is."""
    target = facts.target.location
    at_target = sorted(paths_at(target, facts.left))
    commits = tuple(filter(layout.is_commit, at_target))
    offsets = tuple(filter(layout.is_offset, at_target))
    if not commits:
        return ()
    without_commits = KeepBrought(f"{phase}/no-commits", target, (), commits)
    if not offsets:
        return (without_commits,)
    return (without_commits, KeepBrought(f"{phase}/no-offsets", target, (), offsets))


def paths_at(location: str, files: Iterable[tuple[str, str]]) -> set[str]:
    """Return the paths of the files (location, path) that are at this location."""
    return {path for place, path in files if place == location}


def without_stale_bases(facts: Facts) -> tuple[KeepBrought, ...]:
    """Return the steps that hide the image and remove stale snapshots, if there are any."""
    target = facts.target.location
    stale = paths_at(target, facts.past)
    bases: set[str] = set()
    for image in facts.source.images:
        for shard in image.shards:
            bases.update(path for path in stale if is_read(path, shard, image.path))
    if not bases:
        return ()
    return (
        *hiding(facts, "publish"),
        KeepBrought("publish/stale", target, (), tuple(sorted(bases))),
    )


def is_read(path: str, shard: ShardFiles, image: str) -> bool:
    """Whether Spark would read this stale file: a snapshot newer than the shard's own."""
    version = _base_version(path, image)
    if version is None or path in shard.files:
        return False
    folders = {name.rpartition("/")[0] for name in shard.files}
    if path.rpartition("/")[0] not in folders:
        return False
    versions = [_base_version(name, image) or 0 for name in shard.files]
    return version > max(versions, default=0)


def _base_version(path: str, image: str) -> int | None:
    """Return a snapshot's version; None of other files, and where only a commit's name counts."""
    place = classify(path.removeprefix(layout.under(image, "")))
    is_base = place.area == "state" and place.kind in BASES and not place.uuid
    return place.version if is_base else None


# ---- the bridge from batch to batch


@dataclass(frozen=True, slots=True)
class Bridge:
    """The steps that copy state, and the steps and paths that publish batch by batch."""

    copies: tuple[CopyFiles, ...]
    published: tuple[CopyInOrder, ...]
    paths: frozenset[str]

    def retired(self, target: str, wanted: Collection[str]) -> Iterator[KeepBrought]:
        """Yield the step that removes what only batches in between needed."""
        unneeded = (_paths(self.copies) | self.paths) - set(wanted)
        if unneeded:
            yield KeepBrought("retire/between", target, (), tuple(sorted(unneeded)))

    def without_published(self, steps: Collection[AnyStep]) -> Iterator[AnyStep]:
        """Yield the other steps that publish, without the files that are there already."""
        for step in steps:
            if not isinstance(step, CopyFiles):
                yield step
                continue
            items = tuple(item for item in step.items if item.path not in self.paths)
            if items:
                yield replace(step, items=items)


def _paths(steps: Iterable[CopyFiles | CopyInOrder]) -> frozenset[str]:
    paths: set[str] = set()
    for step in steps:
        paths.update(item.path for item in step.items)
    return frozenset(paths)


def bridge_of(facts: Facts, changed: Collection[str]) -> Bridge:
    """Return the bridge from what is at the target to these facts; empty where none leads over."""
    source, target = facts.source.location, facts.target.location
    state: dict[str, FileInfo] = {}
    steps: list[CopyInOrder] = []
    for number, image in enumerate(facts.source.images):
        way = _way_of(facts, image)
        if way is None:
            continue
        published = [file.path for file in chain.from_iterable(way.logs)]
        if not set(changed).isdisjoint(published):
            continue
        state.update((file.path, file) for file in way.state)
        for part, bundle in enumerate(bundle_items(chain.from_iterable(way.logs))):
            name = f"publish/between-{number}-{part}"
            steps.append(CopyInOrder(name, source, target, tuple(bundle)))
    bundles = enumerate(bundle_items([state[path] for path in sorted(state)]))
    copied = [
        CopyFiles(f"copy/between-{number}", source, target, tuple(bundle))
        for number, bundle in bundles
    ]
    return Bridge(tuple(copied), tuple(steps), _paths(steps))


class _Logs(NamedTuple):
    """The logs of one batch."""

    offsets: FileInfo
    commit: FileInfo


@dataclass(frozen=True, slots=True)
class _Way:
    """State of the batches between, and the logs of each up to the newest, in their order."""

    state: tuple[FileInfo, ...]
    logs: tuple[_Logs, ...]


def _way_of(facts: Facts, image: Image) -> _Way | None:
    target = facts.target.location
    copied = {held.name for held in facts.brought.values() if held.target == target}
    at_target = paths_at(target, facts.left) | copied  # whichever round has copied them
    batches = []
    for path in at_target:
        name = path.rpartition("/")[2]
        if name.isdecimal() and path == layout.under(image.path, layout.commit_path(int(name))):
            batches.append(int(name))
    newest = max(batches, default=None)
    if newest is None:
        first = None
    else:
        offsets = layout.under(image.path, layout.offset_path(newest))
        first = newest if offsets in at_target else None
    if image.epoch is None or first is None or first >= image.epoch:
        return None
    past = paths_at(target, facts.past)
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
    """The source's files by path, and the paths at the target that still stand."""

    at_source: Mapping[str, FileInfo]
    at_target: Collection[str]


def _logs_between(image: Image, batches: range, files: _Files) -> tuple[_Logs, ...] | None:
    logs: list[_Logs] = []
    for batch in batches:
        offsets = files.at_source.get(layout.under(image.path, layout.offset_path(batch)))
        commit = files.at_source.get(layout.under(image.path, layout.commit_path(batch)))
        if offsets is None or commit is None:
            return None
        logs.append(_Logs(offsets, commit))
    return tuple(logs)


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


def _state_between(shard: ShardFiles, versions: range, files: _Files) -> list[FileInfo] | None:
    """Return the files that these versions need beside those at the target: the change files of
    each. A snapshot is never needed, since the version before can be loaded there. None where one
    is missing, or where the files do not say which version they belong to.
    """
    # Under checkpoint format 2 the names of files carry uuids.
    if not shard.files or any(classify(inside(path, shard)).uuid for path in shard.files):
        return None
    is_rocksdb = any(path.endswith((".zip", ".changelog", ".sst")) for path in shard.files)
    folder, ending = folder_of(shard), "changelog" if is_rocksdb else "delta"
    state: list[FileInfo] = []
    for version in versions:
        path = f"{folder}/{version}.{ending}"
        if path not in files.at_source and path not in files.at_target:
            return None
        with_checksums = (path, f"{path}.crc", hidden_checksum(path))
        state += [files.at_source[name] for name in with_checksums if name in files.at_source]
    return state

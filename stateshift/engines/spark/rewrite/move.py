"""A job that moves, and everything that is asked of it: read once, at the planner's door. Pure.

    StateChange  the job's `transform` as one value: its kinds are one rewriting of the state
    Move         spec, job and facts; every finding and every plan is made from it

A rewind under new numbers makes the state of batch K that of batch L, a number that no batch has
passed:

    source                   target
    offsets/K-1, offsets/K   offsets/L-1, offsets/L
    offsets/K+1, if kept     offsets/L+1
    commits/K                commits/L
    state version K+1        state version L+1, rewritten: Spark looks for the whole chain by number
    sources/<i>/             the same: a source counts its own entries (FileStreamSource,
                             metadataLogCurrentOffset)
    _metadata, _stateSchema  the same: of the versions up to a batch the newest applies

A sink that knows batches by number takes batch L+1 as one that it has never seen. Its output of
batches K+1 to L stays there until somebody takes it back: their input is read again. L is the
highest number that a batch of the job was ever given, as far as the logs of the checkpoint and of
the sink say: a planned batch may have reached the sink.

A batch that was planned and not committed is kept, so that it runs again at the target. A sink that
has it already skips it, and nobody writes its state again (see `survey.planned_image`): the state
is copied. Otherwise Spark overwrites it, as it would in place.

    carried      changes that leave the files of one version as they are: a copy, `compact`,
                 `rename`, `drop`
    rewritten    `repartition` and `convert`, where the sink is known to have the batch: what is
                 made of it are snapshots, which Spark would prefer to the changes of a batch that
                 runs again
    not carried  changes that make other rows or keys, and the same two where nobody knows the sink
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from stateshift.engines.bundles import bundle_items, infos_of
from stateshift.engines.spark import layout
from stateshift.engines.spark.image import name_of, spark_image
from stateshift.engines.spark.layout import HDFS, ROCKSDB
from stateshift.engines.spark.places import Rewriting, rewriting_of
from stateshift.engines.spark.real_time import longest_batch
from stateshift.engines.spark.survey.planned_image import after_planned, narrow_image, planned_files
from stateshift.engines.spark.survey.restart.operators import PROVIDER
from stateshift.formats.spark.offset_conf import CODEC
from stateshift.specification import JobSpec, Spec
from stateshift.specification.options import SPARK_KINDS
from stateshift.specification.transform import (
    Change,
    Compact,
    Convert,
    Drop,
    Evolve,
    Import,
    Merge,
    Prune,
    Rename,
    Repair,
    Repartition,
    Reposition,
    Rewind,
    Split,
    find_change,
)
from stateshift.step import CopyFiles
from stateshift.survey import Facts, Image

STOP_SECONDS_MAX = 300.0  # how long a job may take to stop, where the spec does not say
PARTITIONS = ("spark.sql.shuffle.partitions", "spark.sql.streaming.internal.stateStore.partitions")
CLASSES = {
    HDFS: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    ROCKSDB: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
# Sinks that know batches by their numbers, whichever query wrote them.
BY_NUMBER = {"file": "A file sink", "foreach-batch": "A foreachBatch that drops what it has"}


@dataclass(frozen=True, slots=True)
class StateChange:
    """None, or empty, where nothing is asked for."""

    rewind: int | None = None
    renumber: bool = False
    compact: bool = False
    in_place: bool = False
    keep_tables: bool = False
    partitions: int | None = None
    provider: str | None = None
    codec: str | None = None
    checkpoint_format: str | None = None
    operators: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    dropped_operators: tuple[str, ...] = ()
    dropped_sources: tuple[str, ...] = ()
    split: Split | None = None
    pruning: Prune | None = None
    merge: Merge | None = None
    evolve: tuple[Evolve, ...] = ()
    repositions: tuple[Reposition, ...] = ()
    imported: bool = False

    @classmethod
    def of(cls, changes: Sequence[Change]) -> StateChange:
        """Read a job's `transform`; a change of Flink's images is none here."""
        repair = find_change(changes, Repair)
        asked = cls(
            rewind=None if repair is None else repair.batch,
            imported=isinstance(repair, Import),
            evolve=tuple(change for change in changes if isinstance(change, Evolve)),
            repositions=tuple(change for change in changes if isinstance(change, Reposition)),
            pruning=find_change(changes, Prune),
            merge=find_change(changes, Merge),
        )
        for change in changes:
            match change:
                case Rewind(batch, renumber):
                    asked = replace(asked, rewind=batch, renumber=renumber)
                case Compact(in_place, keep_tables):
                    asked = replace(asked, compact=True, in_place=in_place, keep_tables=keep_tables)
                case Repartition(partitions):
                    asked = replace(asked, partitions=partitions)
                case Convert():
                    asked = replace(
                        asked,
                        provider=change.provider,
                        codec=change.codec,
                        checkpoint_format=change.checkpoint_format,
                    )
                case Rename():
                    asked = replace(asked, operators=change.operators, sources=change.sources)
                case Drop(operators, sources=sources):
                    asked = replace(asked, dropped_operators=operators, dropped_sources=sources)
                case Split():
                    asked = replace(asked, split=change)
        return asked

    @property
    def takes_a_part(self) -> bool:
        """Whether some entries stay behind."""
        return self.split is not None or self.pruning is not None

    @property
    def rewrites_state(self) -> bool:
        changes = (self.renumber, self.compact, self.partitions, self.provider, self.codec)
        return any((*changes, self.checkpoint_format, self.takes_a_part, self.merge, self.evolve))

    @property
    def makes_other_rows(self) -> bool:
        changes = (self.renumber, self.takes_a_part, self.merge, self.evolve, self.imported)
        return any(changes)

    @property
    def names_sources(self) -> bool:
        """Whether sources get names, rather than other numbers."""
        return not all(map(str.isdecimal, self.sources.values()))

    @property
    def is_more_than_a_copy(self) -> bool:
        return self != StateChange(rewind=self.rewind, imported=self.imported)

    def rewrites_versions(self, image: Image) -> bool:
        """Whether all versions of the state are rewritten: others do not fit beside."""
        is_converted = self.checkpoint_format or self.settings_after(image.settings)
        return self.makes_other_rows or bool(is_converted)

    def settings_after(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the changes to the offset log's configuration, which overrides the session's."""
        changes: dict[str, str] = {}
        if self.partitions:
            # Both, where there are both (SPARK-53942); the first pins the number of state
            # partitions.
            first, second = PARTITIONS
            changes[first] = str(self.partitions)
            if second in settings:
                changes[second] = str(self.partitions)
        if self.provider:
            changes[PROVIDER] = CLASSES[self.provider]
        if self.codec:
            changes[CODEC] = self.codec
        return {key: value for key, value in changes.items() if settings.get(key) != value}

    def path_after(self, path: str) -> str | None:
        """Return the new path of the image's file; None where it is left behind."""
        area, _, rest = path.partition("/")
        name, slash, rest = rest.partition("/")
        names: Mapping[str, str] = {}
        dropped: tuple[str, ...] = ()
        if area == "state":
            names, dropped = self.operators, self.dropped_operators
        if area == "sources":
            names, dropped = self.sources, self.dropped_sources
        if name in dropped:
            return None
        return f"{area}/{names.get(name, name)}/{rest}" if slash else path


def leave_dropped(job: JobSpec, image: Image) -> Image:
    """Return an image without dropped operators, whose files are not copied."""
    dropped = StateChange.of(job.transform).dropped_operators
    if not dropped:
        return image

    def goes(path: str) -> bool:
        area, _, rest = layout.inside(image, path).partition("/")
        return area != "state" or rest.partition("/")[0] not in dropped

    operators = tuple(operator for operator in image.operators if operator.id not in dropped)
    shards = (shard for shard in image.shards if shard.operator not in dropped)
    return replace(narrow_image(image, goes, shards), operators=operators)


def long_enough_stop(batch_seconds: float) -> float:
    """Return the seconds for a stop whose half is enough for the batch that runs: a job of Spark's
    own clusters gets the other half to answer the stop marker.
    """
    return STOP_SECONDS_MAX + 2 * batch_seconds


@dataclass(frozen=True)
class Move:
    """One job as it is to move."""

    spec: Spec
    job: JobSpec
    facts: Facts

    @cached_property
    def change(self) -> StateChange:
        return StateChange.of(self.job.transform)

    @cached_property
    def repair(self) -> Repair | None:
        return find_change(self.job.transform, Repair)

    @cached_property
    def rewriting(self) -> Rewriting:
        """Return the files that name absolute places, and what they name afterwards."""
        return rewriting_of(self.job, self.facts)

    def positions_in(self, batch: int) -> dict[str, str]:
        """Return the new offsets in a batch of the sources that read on from elsewhere."""
        positions = [each for each in self.facts.positions if batch in each.offsets]
        return {each.source: each.offsets[batch] for each in positions}

    @property
    def source(self) -> str:
        return self.facts.source.location

    @property
    def target(self) -> str:
        return self.facts.target.location

    @property
    def images(self) -> tuple[Image, ...]:
        """Return the images of the source, and of the directories that are merged into it."""
        return tuple(self.facts.source_images)

    @property
    def named_images(self) -> Iterator[tuple[Image, str]]:
        for image in self.facts.source.images:
            yield image, name_of(image, self.source)

    @property
    def runs(self) -> bool:
        cluster = self.facts.source_cluster
        return cluster is not None and cluster.state in ("running", "queued")

    @property
    def may_run(self) -> bool:
        """Whether the job may run: its cluster says so, or does not know."""
        cluster = self.facts.source_cluster
        return cluster is not None and cluster.state in ("running", "queued", "unknown")

    @property
    def stop_seconds_max(self) -> float:
        """The seconds that the job may take to stop: the stop's, the cluster's, or a default."""
        given = self.job.stop.get("seconds_max")
        if given is None and self.job.source_cluster:
            given = self.spec.cluster(self.job.source_cluster).options.get("seconds_max")
        if given is None:
            given = long_enough_stop(longest_batch(self.images))
        return float(given)

    @property
    def batch_end_seconds_max(self) -> float:
        """The seconds that a stop waits for the end of the batch that runs."""
        cluster = self.job.source_cluster
        if cluster and self.spec.cluster(cluster).kind in SPARK_KINDS:
            return self.stop_seconds_max / 2  # the other half is for the answer, and for a kill
        return self.stop_seconds_max

    def number_after(self, image: Image) -> int:
        """Return the number that the image's last batch has at the target."""
        epoch, sink = image.epoch or 0, self.facts.sink
        if not self.change.renumber:
            return epoch
        given: list[int | None] = [epoch, image.planned, *(spark_image(image).newest or ())]
        if sink is not None:
            given.append(sink.last_batch(image.identity))
        return max(number for number in given if number is not None)

    def kept_batch(self, image: Image) -> int | None:
        """Return the batch that was planned and not committed, where the spec keeps it.

        It may have reached the sink already. Kept, it runs again over the same input, as after a
        restart in place: a sink that knows batches by number is given neither less nor more.
        """
        following = (image.epoch or 0) + 1
        is_kept = self.job.planned_batch == "keep" and image.planned == following
        return following if is_kept else None

    def skips_kept_batch(self, image: Image) -> bool:
        """Whether the sink has the kept batch and skips it: the job goes on from its state."""
        batch, sink = self.kept_batch(image), self.facts.sink
        if batch is None or sink is None or not (self.job.moves or sink.kind in BY_NUMBER):
            return False
        return sink.skips(image.identity, batch)

    def planned_image(self, image: Image) -> Image | None:
        """Return the image after the planned batch, where that is rewritten, with its files."""
        change = self.change
        if not change.rewrites_versions(image) or not self.skips_kept_batch(image):
            return None
        after = after_planned(image)
        if change.makes_other_rows or change.in_place or after is None:
            return None
        if change.checkpoint_format == "v2":  # only commits/N+1 could name its files
            return None
        return replace(after, needed=tuple(planned_files(image)))

    def planned_paths(self, images: Iterable[Image]) -> Mapping[str, str]:
        """Return the files of kept batches to copy, by their path at the source: their path at the
        target.

        A job that runs writes them at this moment. Its copies are planned once more when it has
        stopped.
        """
        paths: dict[str, str] = {}
        if self.runs:
            return paths
        for image in images:
            is_copied = not self.change.rewrites_versions(image)
            if image.planned_state is None or self.kept_batch(image) is None or not is_copied:
                continue
            for path in image.planned_state.files:
                new = self.change.path_after(layout.inside(image, path))
                if new is not None:
                    paths[path] = layout.under(image.path, new)
        return paths


def planned_copies(move: Move, paths: Mapping[str, str]) -> Iterator[CopyFiles]:
    """Yield the steps that copy files of a planned batch, to the paths given."""
    infos = infos_of((move.facts.source, *move.facts.merges))
    files = [infos[path] for path in sorted(paths)]
    for number, bundle in enumerate(bundle_items(files)):
        yield CopyFiles(
            f"copy/planned-{number}",
            move.source,
            move.target,
            tuple(bundle),
            names=tuple(paths[file.path] for file in bundle),
            replaceable=True,
        )

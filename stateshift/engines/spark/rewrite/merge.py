"""Other checkpoints of the same query, whose state is added to a job's on its way (`merge` of
`transform`). Pure.

    state     shard by shard: the entries of all; a key that is in several is refused, or its values
              are added
    offsets   the sources of the job, then those of each other, in the order in which they are named
    sources/  the others' logs under their new numbers
    commits   the job's, with the smallest watermark

The job that goes on reads all those inputs: its plan has its own sources first, then each other's.
Everything lies on one file system, and is read from the deepest place above all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from shlex import quote

from stateshift.engines.spark import layout
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.rewrite.move import Move
from stateshift.formats.spark.names import classify
from stateshift.specification import JobSpec
from stateshift.survey import FileInfo, Finding, Image, ShardFiles, Survey

MERGE_OFFSETS = "spark.merge-offsets"
MERGE_COMMITS = "spark.merge-commits"

# The settings that have to be the same for rows of one to be rows of the other.
ALIKE = (
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.encodingFormat",
    "spark.sql.streaming.stateStore.rowChecksum.enabled",
    "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion",
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
)


@dataclass(frozen=True)
class Joining:
    """The job's checkpoint and the others, seen from the place above them."""

    source: Survey
    others: tuple[Survey, ...]

    @property
    def surveys(self) -> tuple[Survey, ...]:
        return (self.source, *self.others)

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(survey.images[0] for survey in self.surveys)

    @cached_property
    def root(self) -> str:
        return layout.deepest_above(survey.location for survey in self.surveys)

    def below_root(self, number: int, path: str) -> str:
        """Return a path of the job (0) or of another (1, 2, …), from the root."""
        location = self.surveys[number].location
        return layout.under(location[len(self.root) :].lstrip("/"), path)

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(self.below_root(number, "") for number in range(len(self.surveys)))

    @cached_property
    def infos(self) -> Mapping[str, FileInfo]:
        infos = {}
        for number, survey in enumerate(self.surveys):
            for file in survey.files:
                path = self.below_root(number, file.path)
                infos[path] = file._replace(path=path)
        return infos

    def shards(self, store: tuple[str, str], number: int) -> Iterator[ShardFiles]:
        """Yield one shard of a store, in each of them, from the root."""
        for of_image, image in enumerate(self.images):
            for shard in image.shards:
                if (shard.operator, shard.store) == store and shard.shard == number:
                    files = tuple(self.below_root(of_image, path) for path in shard.files)
                    yield replace(shard, files=files)

    def last_logs(self, path_of: Callable[[int], str], back: int = 0) -> tuple[str, ...]:
        """Return the logs of the last committed batch (0), or of one before it (1), if any."""
        paths = []
        for number, image in enumerate(self.images):
            path = path_of(max((image.epoch or 0) - back, 0))
            paths.append(self.below_root(number, path))
        return tuple(paths)

    def logs(self) -> Iterator[tuple[str, str]]:
        """Yield the others' source logs: from the root, and where they go."""
        taken = len(sources_of(self.images[0]))
        for number, image in enumerate(self.images[1:], start=1):
            own = sources_of(image)
            for path in image.needed:
                area, *rest = path.split("/")
                if area == "sources" and len(rest) > 1 and not path.endswith(".crc"):
                    source = rest[0]
                    if source.isdecimal():
                        rest[0] = str(taken + own.index(source))
                    yield self.below_root(number, path), "/".join(("sources", *rest))
            taken += len(own)


def sources_of(image: Image) -> list[str]:
    """Return the indices of the image's sources, in their order."""
    return [end.index for end in image.endpoints if end.role == "source"]


def of_joining(move: Move) -> Iterator[Finding]:
    """Refuse states that cannot be put together."""
    job, facts = move.job, move.facts
    if not facts.others:
        return
    source = facts.source
    if not _is_committed_checkpoint(source):
        fact = f"{source.location} is not a single checkpoint: there is nothing to merge into"
        yield Finding("refuse", fact, hint="name the query's own directory")
        return
    if job.data:
        yield Finding(
            "refuse", "a merge while `data` moves along", hint="one after the other: two jobs"
        )
    for other in facts.others:
        yield from other.findings
        if _is_committed_checkpoint(other):
            yield from _of_other(job, source, other)
            continue
        fact = f"{other.location} is no checkpoint with a committed batch ({other.kind})"
        yield Finding("refuse", fact, hint=f"stateshift inspect {quote(other.location)}")
    yield Finding(
        "warn",
        f"the job goes on with the sources of {source.location} first, then those of "
        f"{', '.join(other.location for other in facts.others)}: its plan must read them "
        "in this order",
    )


def _is_committed_checkpoint(survey: Survey) -> bool:
    return survey.kind == "checkpoint" and survey.epoch is not None


def _of_other(job: JobSpec, source: Survey, other: Survey) -> Iterator[Finding]:
    yield from other.images[0].findings
    fence = other.images[0].fence
    if fence is not None:
        fact = f"{other.location} was moved away by run {fence}: it is fenced"
        yield Finding("refuse", fact, hint="merge it from where it is now")
    if other.location.split("/")[:3] != source.location.split("/")[:3]:
        fact = f"{other.location} is not on the file system of {source.location}"
        yield Finding("refuse", fact, hint="move it there first, as a job of its own")
    if job.planned_batch == "keep":
        yield from _of_planned_batch(source)
        yield from _of_planned_batch(other)
    if _operators(source.images[0]) != _operators(other.images[0]):
        fact = f"{other.location} has other operators than {source.location}"
        hint = "only checkpoints of the same query are merged; `rename` makes ids alike"
        yield Finding("refuse", fact, hint=hint)
    ours, theirs = source.images[0].settings, other.images[0].settings
    for key in ALIKE:
        if ours.get(key) != theirs.get(key):
            yield Finding(
                "refuse",
                f"{other.location} has {key} = {theirs.get(key)}, {source.location} has "
                f"{ours.get(key)}",
                hint="`repartition` or `convert` one of them first",
            )
    schemas, other_schemas = (spark_image(survey.images[0]).schemas for survey in (source, other))
    for store in sorted(schemas.keys() | other_schemas.keys()):
        if schemas.get(store) != other_schemas.get(store):
            yield Finding(
                "refuse",
                f"{other.location}: the rows of {store} have other columns than in "
                f"{source.location}",
                hint="only checkpoints of the same query are merged",
            )
    yield from _of_schema_logs(other)
    yield from _of_source_names(source, other)


def _of_planned_batch(survey: Survey) -> Iterator[Finding]:
    image = survey.images[0]
    epoch = image.epoch or 0
    if image.planned is not None and image.planned > epoch:
        fact = f"{survey.location}: batch {image.planned} was planned and not committed"
        yield Finding(
            "refuse",
            f"{fact}, and has no like in the other",
            hint='let its job finish it, or say "planned_batch": "drop"',
        )


def _operators(image: Image) -> list[tuple[str, str | None, tuple[str, ...]]]:
    operators = []
    for operator in image.operators:
        stores = tuple(store.name for store in operator.stores)
        operators.append((operator.id, operator.name, stores))
    return operators


def _of_schema_logs(other: Survey) -> Iterator[Finding]:
    needed = other.images[0].needed
    tracked = [path for path in needed if classify(path).area == "delta-schema-log"]
    if tracked:
        yield Finding(
            "refuse",
            f"{other.location} has a schema log of Delta's ({tracked[0]}), which names its source "
            "by a number that it does not keep in a merge",
            hint="let the sources of one of them be other than Delta's, or start its job from an "
            "empty checkpoint",
        )


def _of_source_names(source: Survey, other: Survey) -> Iterator[Finding]:
    ours = sources_of(source.images[0])
    theirs = [name for name in sources_of(other.images[0]) if not name.isdecimal()]
    shared = [name for name in theirs if name in ours]
    if shared:
        fact = f"both have a source called {shared[0]}"
        yield Finding("refuse", fact, hint="`rename` it in one of them first")

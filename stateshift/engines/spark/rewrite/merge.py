"""Other checkpoints of the same query, whose state is added to a job's on its way (`merge` of
`transform`). Pure.

    state     shard by shard: the entries of all; a key that is in several is refused, or its values
              are added
    offsets   the sources of the job, then those of each other, in the order in which they are named
    sources/  the others' logs under their new numbers
    commits   the job's, with the smallest watermark

So the job that goes on reads all those inputs: its plan has its own sources first, then each
other's. Everything lies on one file system, and is read from the deepest place above all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from shlex import quote

from stateshift.engines.spark import layout
from stateshift.engines.spark.image import spark_image
from stateshift.formats.spark.names import classify
from stateshift.specification import JobSpec
from stateshift.survey import Facts, FileInfo, Finding, Image, ShardFiles, Survey

MERGE_OFFSETS = "spark.merge-offsets"
MERGE_COMMITS = "spark.merge-commits"

# What has to be the same for rows of one to be rows of the other.
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
    def images(self) -> tuple[Image, ...]:
        return tuple(survey.images[0] for survey in (self.source, *self.others))

    @cached_property
    def root(self) -> str:
        return layout.deepest_above(survey.location for survey in (self.source, *self.others))

    def below_root(self, number: int, path: str) -> str:
        """A path of the job (0) or of another (1, 2, …), from the root."""
        survey = (self.source, *self.others)[number]
        return layout.under(survey.location[len(self.root) :].lstrip("/"), path)

    @property
    def places(self) -> tuple[str, ...]:
        """What paths of each of them begin with, from the root."""
        return tuple(self.below_root(number, "") for number in range(1 + len(self.others)))

    @cached_property
    def infos(self) -> Mapping[str, FileInfo]:
        surveys = (self.source, *self.others)
        found = (
            (self.below_root(n, file.path), file)
            for n, survey in enumerate(surveys)
            for file in survey.files
        )
        return {path: file._replace(path=path) for path, file in found}

    def shards(self, store: tuple[str, str], shard: int) -> Iterator[ShardFiles]:
        """One shard of a store, in each of them, from the root."""
        for number, image in enumerate(self.images):
            for one in image.shards:
                if (one.operator, one.store) == store and one.shard == shard:
                    yield replace(
                        one, files=tuple(self.below_root(number, path) for path in one.files)
                    )

    def offsets(self, back: int) -> tuple[str, ...]:
        """The logs of the last committed batch (0), or of the one before it (1) where there is
        one.
        """
        paths = []
        for number, image in enumerate(self.images):
            epoch = image.epoch or 0
            paths.append(self.below_root(number, layout.offset_path(max(epoch - back, 0))))
        return tuple(paths)

    def commits(self) -> tuple[str, ...]:
        return tuple(
            self.below_root(n, layout.commit_path(image.epoch or 0))
            for n, image in enumerate(self.images)
        )

    def logs(self) -> Iterator[tuple[str, str]]:
        """The others' source logs: from the root, and where they go."""
        taken = len(sources_of(self.images[0]))
        for number, image in list(enumerate(self.images))[1:]:
            own = sources_of(image)
            for path in image.needed:
                parts = path.split("/")
                if parts[0] == "sources" and len(parts) > 2 and not path.endswith(".crc"):
                    name = str(taken + own.index(parts[1])) if parts[1].isdecimal() else parts[1]
                    yield self.below_root(number, path), "/".join(("sources", name, *parts[2:]))
            taken += len(own)


def joining_of(facts: Facts) -> Joining | None:
    return Joining(facts.source, facts.others) if facts.others else None


def sources_of(image: Image) -> list[str]:
    return [end.index for end in image.endpoints if end.role == "source"]


def of_joining(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """What has to hold before states are put together."""
    if not facts.others:
        return
    source = facts.source
    if source.kind != "checkpoint" or source.epoch is None:
        yield Finding(
            "refuse",
            f"{source.location} is not a single checkpoint: there is nothing to merge into",
            hint="name the query's own directory",
        )
        return
    if job.data:
        yield Finding(
            "refuse", "a merge while `data` moves along", hint="one after the other: two jobs"
        )
    for other in facts.others:
        yield from other.findings
        if other.kind != "checkpoint" or other.epoch is None:
            yield Finding(
                "refuse",
                f"{other.location} is no checkpoint with a committed batch ({other.kind})",
                hint=f"stateshift inspect {quote(other.location)}",
            )
            continue
        yield from _of_other(job, source, other)
    yield Finding(
        "warn",
        f"the job goes on with the sources of {source.location} first, then those of "
        f"{', '.join(other.location for other in facts.others)}: its plan must read them "
        "in this order",
    )


def _of_other(job: JobSpec, source: Survey, other: Survey) -> Iterator[Finding]:
    ours, theirs = source.images[0], other.images[0]
    yield from theirs.findings
    if theirs.fence is not None:
        yield Finding(
            "refuse",
            f"{other.location} was moved away by run {theirs.fence}: it is fenced",
            hint="merge it from where it is now",
        )
    if other.location.split("/")[:3] != source.location.split("/")[:3]:
        yield Finding(
            "refuse",
            f"{other.location} is not on the file system of {source.location}",
            hint="move it there first, as a job of its own",
        )
    for survey, image in ((source, ours), (other, theirs)):
        if (
            image.planned is not None
            and image.planned > (image.epoch or 0)
            and job.planned_batch == "keep"
        ):
            yield Finding(
                "refuse",
                (
                    f"{survey.location}: batch {image.planned} was planned and not committed, "
                    "and has no like in the other"
                ),
                hint='let its job finish it, or say "planned_batch": "drop"',
            )
    shapes = [
        [(o.id, o.name, [s.name for s in o.stores]) for o in image.operators]
        for image in (ours, theirs)
    ]
    if shapes[0] != shapes[1]:
        yield Finding(
            "refuse",
            f"{other.location} has other operators than {source.location}",
            hint="only checkpoints of the same query are merged; `rename` makes ids alike",
        )
    for key in ALIKE:
        here, there = ours.settings.get(key), theirs.settings.get(key)
        if here != there:
            yield Finding(
                "refuse",
                f"{other.location} has {key} = {there}, {source.location} has {here}",
                hint="`repartition` or `convert` one of them first",
            )
    ours_schemas, their_schemas = spark_image(ours).schemas, spark_image(theirs).schemas
    for store in sorted(ours_schemas.keys() | their_schemas.keys()):
        if ours_schemas.get(store) != their_schemas.get(store):
            yield Finding(
                "refuse",
                f"{other.location}: the rows of {store} have other columns than in "
                f"{source.location}",
                hint="only checkpoints of the same query are merged",
            )
    tracked = [path for path in theirs.needed if classify(path).area == "delta-schema-log"]
    if tracked:
        yield Finding(
            "refuse",
            f"{other.location} has a schema log of Delta's ({tracked[0]}), which names its source "
            "by a number that it does not keep in a merge",
            hint="let the sources of one of them be other than Delta's, or start anew",
        )
    named = []
    for name in sources_of(theirs):
        if not name.isdecimal() and name in sources_of(ours):
            named.append(name)
    if named:
        yield Finding(
            "refuse",
            f"both have a source called {named[0]}",
            hint="`rename` it in one of them first",
        )

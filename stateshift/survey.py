"""A survey of one location, and the facts a plan is computed from. Types only.

    Survey            one location
      files             everything there, as the storage lists it
      images            one for a query's checkpoint or a savepoint; one per operator for a workflow
                        directory
        needed            every path a restart at `epoch` reads, shards and logs alike
        first_read        of those, the files the engine looks for first, in the order they must be
                          published
        embedded          absolute locations inside files: to be rewritten when those places move
      names             the name index: operator name -> directory
      traits            what the storage can do: renames, keeps_times, exclusive

    Facts = the surveys of source, merge directories, target, and of others whose state is added
            + what the clusters say of themselves + what the brokers of its input still have
            + what the sink has of the job's output, and what is there of its input files.

Paths are relative to the survey's location. Nothing here opens anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from stateshift.plain import JsonObject

Level = Literal["refuse", "warn", "note"]

# The find at a place by which an image names itself: the image; elsewhere, the same files; files
# that are looked for one by one; maybe the image, by another name; nothing, other files, or a place
# that cannot be read. Empty where nobody has looked.
Found = Literal["", "here", "equal", "elsewhere", "maybe", "missing", "different", "unreadable"]


class FileInfo(NamedTuple):
    """One file as a listing tells it. `modified` is seconds since 1970, 0.0 where the storage does
    not say. `stamp` is the storage's word that this is this very file: another one under the same
    name, also one of the same size, has another. Empty where there is no such word.
    """

    path: str
    size: int
    modified: float = 0.0
    stamp: str = ""


class Owned(NamedTuple):
    """The owner of a file or a directory, and its permissions (the twelve bits of POSIX)."""

    path: str
    owner: str | None
    group: str | None
    mode: int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a person should know. A `refuse` stops a plan unless the spec waives it by name."""

    level: Level
    message: str
    waive: str | None = None
    hint: str | None = None
    path: str | None = None
    offset: int | None = None

    @property
    def is_damage(self) -> bool:
        """Whether a file is missing, or not what it should be."""
        return self.level == "refuse" and self.path is not None


refuse, warn, note = partial(Finding, "refuse"), partial(Finding, "warn"), partial(Finding, "note")


@dataclass(frozen=True, slots=True)
class Store:
    """One state store of an operator, over all its shards."""

    name: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful node of the job. `id` is the engine's; `name` only where the image has it."""

    id: str
    name: str | None
    uid: str | None
    provider: str | None
    shards: int
    stores: tuple[Store, ...]
    details: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """One shard's state at the image's epoch: its files in the order they are folded."""

    operator: str
    store: str
    shard: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EmbeddedPath:
    """A directory that a file of the image names absolutely, and how often. `role` says what the
    place is to the job: where it reads its input, where it writes its output, or the image itself;
    `found` is what is there.
    """

    file: str
    path: str
    count: int
    role: Literal["source", "sink", "self"]
    found: Found = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A source or a sink of the job, as far as the image tells. `kind` is the engine's word: file,
    kafka, rate, ... `details` is what else is known, in plain values: how far a source was read,
    which batch a sink has.
    """

    role: Literal["source", "sink"]
    index: str
    kind: str
    replayable: bool | None = None
    detail: str | None = None
    # topic -> partition -> the next to read
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    details: JsonObject = field(default_factory=dict)

    @property
    def plain(self) -> Endpoint:
        """The endpoint in plain JSON, whose keys are texts: numbers of partitions, too."""
        details = {name: _with_text_keys(value) for name, value in self.details.items()}
        return replace(self, offsets={}, details=details)


def _with_text_keys(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {str(key): _with_text_keys(inner) for key, inner in value.items()}


@dataclass(frozen=True, slots=True)
class PlannedState:
    """The state that a batch has written which was planned and not committed: of every shard, or
    there is none.

    A sink that has the batch does not run it again, so nobody writes this state a second time and
    the next batch reads it. `files` are those that a restart then reads beside the files of the
    epoch; the engine may overwrite them. If only a commit could say which files they are, the
    state is `unnamed` and no restart finds it. `wrong` is why it cannot be read: it has no files
    then.
    """

    files: tuple[str, ...]
    unnamed: bool = False
    wrong: str | None = None


@runtime_checkable
class ImageDetails(Protocol):
    """The details of an image that only its engine knows, in a class of its own."""

    def described(self) -> JsonObject:
        """Return the details that are shown, as plain values."""
        ...


@dataclass(frozen=True, slots=True)
class Image:
    """The whole state of one job, or of one query, at one epoch, as files. A look for damage may
    leave out those in `read_before`.
    """

    path: str
    name: str | None
    identity: str | None
    epoch: int | None
    epochs: tuple[int, ...]
    planned: int | None
    operators: tuple[Operator, ...]
    shards: tuple[ShardFiles, ...]
    needed: tuple[str, ...]
    first_read: tuple[str, ...]
    embedded: tuple[EmbeddedPath, ...]
    endpoints: tuple[Endpoint, ...]
    settings: Mapping[str, str]
    written_by: str | None
    fence: str | None = None
    findings: tuple[Finding, ...] = ()
    details: ImageDetails | None = None
    planned_state: PlannedState | None = None
    read_before: tuple[str, ...] = ()

    @property
    def state_files(self) -> Iterator[str]:
        """Yield the files of all shards; one that several shards share, for each of them."""
        for shard in self.shards:
            yield from shard.files

    @property
    def described(self) -> JsonObject:
        """The shown details that only this engine's images have, as plain values."""
        return {} if self.details is None else self.details.described()

    @property
    def needed_files(self) -> tuple[str, ...]:
        """The files that a restart reads, also those of a planned batch that the sink has."""
        further = self.planned_state.files if self.planned_state is not None else ()
        return tuple(sorted({*self.needed, *further}))

    @property
    def begins(self) -> bool:
        """Its first batch was planned, and not committed: Spark does that batch."""
        return self.epoch is None and self.planned == 0


@dataclass(frozen=True, slots=True)
class Room:
    """The free space at a place, as its storage tells: None where it cannot be asked.
    Places whose `shared` is the same take from one space; `limit` and `files_limit` name what sets
    the limits. Each byte is kept `copies` times.
    """

    bytes_free: int | None = None
    files_free: int | None = None
    copies: int = 1
    shared: str = ""
    limit: str = ""
    files_limit: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """The content of one location. `engine` is None and `kind` "empty" where there is nothing."""

    location: str
    engine: str | None
    kind: Literal["checkpoint", "savepoint", "workflow", "data", "empty", "foreign"]
    files: tuple[FileInfo, ...]
    images: tuple[Image, ...] = ()
    findings: tuple[Finding, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    traits: Mapping[str, bool] = field(default_factory=dict)
    faster_by: str = ""  # how its storage would be faster; empty where nothing is known
    real: str = ""  # where the links in its location lead; empty where that is no other place
    room: Room | None = None  # None: nothing is to be written there
    # Directories that may not be written to; None where that cannot be asked.
    denied: tuple[str, ...] | None = None
    superseded: bool = False  # its job runs at its standby; a finding says where
    absence: str = ""  # where nothing is there: the fact, with the name that was probably meant

    @property
    def epoch(self) -> int | None:
        """The epoch of the one image; None for a workflow, whose queries have one each."""
        if len(self.images) != 1:
            return None
        image = self.images[0]
        is_query_of_workflow = self.kind == "workflow" and bool(image.path)
        return None if is_query_of_workflow else image.epoch

    @property
    def place(self) -> str:
        """The place of the one image; the location of several, or none. The location is around all
        files of an image, which may name some that lie far apart.
        """
        path = self.images[0].path if len(self.images) == 1 else ""
        return f"{self.location.rstrip('/')}/{path}" if path else self.location

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def damages(self) -> tuple[Finding, ...]:
        """Files that a restart needs, and that are missing or not what they should be."""
        return tuple(finding for finding in self.all_findings if finding.is_damage)

    @property
    def all_findings(self) -> Iterator[Finding]:
        """Yield the findings of the location, and those of its images."""
        yield from self.findings
        for image in self.images:
            yield from image.findings


def image_around(path: str, images: Iterable[str]) -> str | None:
    """Return the innermost of these images that a file is in; None where it is in none."""
    innermost = None
    for image in sorted(images, key=len):
        if not image or path.startswith(f"{image}/"):
            innermost = image
    return innermost


def sizes_of(survey: Survey, paths: Iterable[str]) -> list[int]:
    """Return the sizes of these files, as far as the survey lists them."""
    wanted = set(paths)
    return [file.size for file in survey.files if file.path in wanted]


@dataclass(frozen=True, slots=True)
class Savable:
    """A job that a savepoint is to be taken of. `no_canonical` is why that cannot be a canonical
    one; `widths` are its vertices' (parallelism, max parallelism) by their names. If it does not
    run, `listed` are those that do.
    """

    id: str
    name: str | None = None
    backend: str | None = None
    no_canonical: str | None = None
    widths: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    listed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job that runs beside an image whose own job nobody has named. `id` is its engine's, which
    the names of images have; `label` is its cluster's own. `images` are those that it has
    completed, as far as the cluster remembers them, and `restored` is the one that it began from.
    `operators` are the heads of its chains; None: it did not tell.
    """

    id: str
    name: str
    label: str
    images: tuple[str, ...] = ()
    restored: str | None = None
    operators: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The answers of a cluster about itself and the job. `state` is a JobState's value. `host` is
    where it runs jobs: empty for this machine, None where it does not tell. `reaches` is its word
    on whether it reaches the target. `savable` are the jobs that savepoints are to be taken of.
    `settings` are those that the job runs under, in its engine's words; of a target, those that it
    gives to its jobs. `live` are the jobs that run there, where the image's may be one of them.
    """

    name: str
    kind: str
    version: str | None
    state: str
    job: str | None = None
    findings: tuple[Finding, ...] = ()
    host: str | None = None
    reaches: bool | None = None
    savable: tuple[Savable, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    live: tuple[LiveJob, ...] = ()


class TopicRecord(NamedTuple):
    """A record of a topic, by which it is told from another. `key` and `value` are digests, None
    where there is none. `timestamp` is in milliseconds since 1970; `appended`: the broker has set
    it, and not the producer.
    """

    offset: int
    timestamp: int | None
    appended: bool
    key: str | None
    value: str | None


# How far a job has read what another one puts out: nothing of it; nothing that the other one would
# put out again when it starts from its image; or more than that.
OutputRead = Literal["nothing", "within", "beyond", "unknown"]


class PositionChange(NamedTuple):
    """The next record of a partition, or version of a table, that a source reads, before and after.
    `again` and `skipped` are how many records, or versions, that comes to; None: nobody knows.
    `before` is None for a partition that the job has not read.
    """

    source: str
    partition: str
    before: int | None
    after: int
    again: int | None
    skipped: int | None


class Committed(NamedTuple):
    """An offset that a consumer group has committed, and what its consumer wrote beside it."""

    offset: int
    metadata: str = ""


class GroupOffset(NamedTuple):
    """The next record of a partition for a consumer group: before, if it has committed one, and
    as it is set.
    """

    topic: str
    partition: int
    before: Committed | None
    after: int


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """The offsets that a consumer group gets at brokers, which a file of properties tells how to
    reach.
    """

    group: str
    brokers: str
    properties: str | None
    offsets: tuple[GroupOffset, ...]


@dataclass(frozen=True, slots=True)
class NewPosition:
    """A source that reads on from elsewhere: the endpoint as it will be, and its offset in each
    batch of the image, in the engine's words. It may have none if a finding refuses. `brokers` are
    the ids of their clusters, by address.
    """

    source: str
    kind: str
    after: Endpoint | None = None
    offsets: Mapping[int, str] = field(default_factory=dict)
    changes: tuple[PositionChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    brokers: Mapping[str, str] = field(default_factory=dict)
    commit: GroupCommit | None = None


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics as brokers still have them: per partition the first offset, and the one after the
    last; nothing for a topic that is not there. `wrong` is why they could not be asked. `records`
    are those around the job's offsets, None where nobody has read them; `unread` is why not.
    `source`: the same, of the brokers that the job has read so far.
    """

    brokers: str
    spans: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    wrong: str | None = None
    hint: str | None = None
    records: Mapping[str, Mapping[int, tuple[TopicRecord, ...]]] | None = None
    unread: str | None = None
    source: Topics | None = None

    def records_after(self, offsets: Mapping[str, Mapping[int, int]]) -> int | None:
        """Return the number of records from these offsets on, and of all partitions that have no
        offset yet; None where brokers do not have a partition, or gave no answer.
        """
        if self.wrong is not None:
            return None
        count = 0
        for topic, first_unread in offsets.items():
            spans = self.spans.get(topic, {})
            if first_unread.keys() - spans.keys():
                return None
            for partition, (first, end) in spans.items():
                count += max(0, end - first_unread.get(partition, first))
        return count


@dataclass(frozen=True, slots=True)
class SinkLog:
    """A sink's own log of one query. `last` is the newest batch in it, None where there is
    none. `versions` are those of the sink that batches made (a Delta table's versions, an Iceberg
    table's snapshot ids), as far back as the log was read.
    """

    last: int | None = None
    versions: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """The facts about the job's sink. Only the spec names it: a checkpoint does not.

    knows_batches  whether it drops a batch whose number it has already; None where only the job's
                   author knows
    skips_plan     whether the plan of such a batch is not executed, so that nobody writes its
                   state; None as before
    read           whether its log was read; `wrong` is why it could not be
    logs           what the log has, by query id; under "" where the log does not say whose batch it
                   is
    """

    kind: str
    location: str | None
    knows_batches: bool | None
    skips_plan: bool | None
    read: bool = False
    logs: Mapping[str, SinkLog] = field(default_factory=dict)
    wrong: str | None = None
    hint: str | None = None

    def log_of(self, query: str | None) -> SinkLog | None:
        """Return the log of this query; None where no log was read."""
        if not self.read:
            return None
        return self.logs.get(query or "") or self.logs.get("") or SinkLog()

    def last_batch(self, query: str | None) -> int | None:
        """Return the newest batch of this query that the sink has, as far as that is known."""
        log = self.log_of(query)
        return None if log is None else log.last

    def has_batch(self, query: str | None, batch: int) -> bool | None:
        """Whether the sink has this batch of the query; None where no log was read."""
        log = self.log_of(query)
        if log is None:
            return None
        return log.last is not None and batch <= log.last

    def skips(self, query: str | None, batch: int) -> bool:
        """Whether the sink is known to skip this batch of the query: nobody writes its state."""
        return self.skips_plan is True and self.has_batch(query, batch) is True

    def version_to_restore(self, query: str | None, batch: int) -> int | None:
        """Return the sink's newest version with no more than `batch`: that batch's, or of the
        newest before. None if not known.
        """
        log = self.log_of(query)
        versions = {} if log is None else log.versions
        earlier = [number for number in versions if number <= batch]
        return versions[max(earlier)] if earlier else None


@dataclass(frozen=True, slots=True)
class InputFacts:
    """The input files that a source's log names: how many were looked for, how many of them are
    missing, and the first of those. `wrong` is why they could not be looked for.
    """

    log: str
    asked: int
    missing: int
    first_missing: str | None = None
    wrong: str | None = None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table that the job may read: the versions whose commits are there, and the newest one; of
    the files that the job reads next, how many were looked for, and the first that is missing.
    `schema` is that of its columns, as Delta writes it; `named`: as a source, in the spec. `wrong`
    is why it could not be read.
    """

    location: str
    named: bool
    id: str | None = None
    commits: frozenset[int] = frozenset()
    checkpoints: tuple[int, ...] = ()
    asked: int = 0
    missing: str | None = None
    wrong: str | None = None
    hint: str | None = None
    schema: str | None = None

    @property
    def newest(self) -> int:
        return max((*self.commits, *self.checkpoints), default=-1)


@dataclass(frozen=True, slots=True)
class Rates:
    """The speed of a short probe. Used for estimates only: never part of a fingerprint."""

    bytes_per_second: float
    files_per_second: float


@dataclass(frozen=True, slots=True)
class Brought:
    """A file that a round has copied while the job ran, and that still is what it was: at the
    target nobody has touched it; at the source it is the same file, or has been tidied away by a
    job that has not gone back since. `name` is its path at the target.
    """

    source: str
    target: str
    file: FileInfo
    digest: str
    name: str


@dataclass(frozen=True, slots=True)
class Left:
    """What is left to be copied at one look: the downtime for it, and how fast both sides write."""

    round: int
    epoch: int | None
    files: int
    bytes: int
    seconds: float
    written_per_second: float | None = None
    brought_per_second: float | None = None


def first_unread_of(
    images: Iterable[Image], without: Collection[str] = ()
) -> Mapping[str, Mapping[int, int]]:
    """Return the first offset of each partition that any source of these images reads next; those
    `without`, by their index, are left out.
    """
    unread: dict[str, dict[int, int]] = {}
    for endpoint in chain.from_iterable(image.endpoints for image in images):
        if endpoint.index in without:
            continue
        for topic, partitions in endpoint.offsets.items():
            lowest = unread.setdefault(topic, {})
            for partition, offset in partitions.items():
                lowest[partition] = min(offset, lowest.get(partition, offset))
    return unread


@dataclass(frozen=True, slots=True)
class OldFiles:
    """Files that are at a target since before the run: the `fence` of the job that ran there, and
    those of which no round has shown that the new image has them, too.
    """

    fence: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything a plan may know beside the spec. `at` is not part of any fingerprint. `brought`
    are the files that are at the target already, by the location they came from and their path;
    `chains` what shards were folded from in each round, the last one behind the others; `left`
    (location, path) what rounds have left at a target beside them, and `past` what of it was
    copied from a time that the job has gone back behind; `standing` are the anchors that say so
    of the rest, which are still there. `shown` is what a job could be started
    from at the target, made of what rounds have copied; `kept` are the images there, this one among
    them, that stay while the next is published. `stopped`: by this run. `in_the_way` are files of
    the target that are set aside before it is written to, `old` those that could stay.
    """

    source: Survey
    target: Survey
    merges: tuple[Survey, ...] = ()
    data: tuple[tuple[Survey, Survey], ...] = ()
    source_cluster: ClusterFacts | None = None
    target_cluster: ClusterFacts | None = None
    rates: Rates | None = None
    at: float = 0.0
    others: tuple[Survey, ...] = ()
    topics: Topics | None = None
    sink: SinkFacts | None = None  # None: the spec names none
    inputs: tuple[InputFacts, ...] = ()
    tables: tuple[TableFacts, ...] = ()
    positions: tuple[NewPosition, ...] = ()  # of sources that read on from elsewhere
    attempt: int = 1  # how often this run has tried to move the job, this time included
    brought: Mapping[tuple[str, str], Brought] = field(default_factory=dict)
    chains: tuple[ShardFiles, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    past: tuple[tuple[str, str], ...] = ()
    standing: tuple[FileInfo, ...] = ()
    shown: tuple[Image, ...] = ()
    kept: tuple[Image, ...] = ()
    in_the_way: tuple[FileInfo, ...] = ()
    old: OldFiles = OldFiles()
    stopped: bool = False

    @property
    def source_images(self) -> Iterator[Image]:
        """Yield the images of the source, and of the directories that are merged into it."""
        for survey in (self.source, *self.merges):
            yield from survey.images

    @property
    def wanted_offsets(self) -> Mapping[str, Mapping[int, int]]:
        """The first offset of each partition that any source of the job's reads next. Sources that
        read on from elsewhere are left out: they have been asked about.
        """
        if any(position.after is None for position in self.positions):
            return {}
        moved = {position.source for position in self.positions}
        return first_unread_of(self.source_images, moved)

    @property
    def records_unread(self) -> int | None:
        """The records at the brokers that no source of the job's has read; None: nobody knows."""
        if self.topics is None:
            return None
        return self.topics.records_after(self.wanted_offsets)

"""The contents of a location: the facts that all views of it share, and its documents. Pure.

SurveyFacts    a survey, with
  files          how many there are, how many a restart reads, how many are small, and each one
                 where all are to be listed
  operators      of all images, each with its image
  endpoints      sources and sinks of all images, each with its image
  embedded       absolute paths inside, of all images
  findings       of the location, then of each image
  names          the names that were looked for, and whether they are there
  entries        the first entries of every store
  standby        what its state file says, if one is kept here
  positions      the position of every source, partition by partition
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NotRequired, TypedDict, cast

from stateshift.documents.problems import FindingDocument, redact_all
from stateshift.documents.shape import At, document_of
from stateshift.documents.standby import StandbyDocument, StandbyFacts, SupersededDocument
from stateshift.formats import uid
from stateshift.sources.kinds import positions_of
from stateshift.sources.topics import topics_in
from stateshift.storage.locations import Redacted, redact

if TYPE_CHECKING:
    from stateshift.engines.views import DecodedFile
    from stateshift.formats.standby import Superseded
    from stateshift.look import Export, ShownEntry
    from stateshift.plain import JsonObject
    from stateshift.plan import Plan
    from stateshift.report import JobReport
    from stateshift.survey import (
        EmbeddedPath,
        Endpoint,
        FileInfo,
        Finding,
        Image,
        Operator,
        PositionChange,
        Survey,
    )

# Files below each of these many bytes are counted: what 6.2.3 of INFORE's D5.2 found to dominate a
# move.
SMALL = (4 * 1024, 64 * 1024, 1024 * 1024)
IMAGE_DETAILS = (
    "layout",
    "drained",
    "metadata_version",
    "masters",
    "unaligned",
    "real_time_seconds",
)


@dataclass(frozen=True, slots=True)
class Amount:
    """How many files, and how many bytes they are together."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SmallAmount(Amount):
    """The files that are smaller than `below`."""

    below: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file, and whether a restart reads it."""

    file: FileInfo
    needed: bool


@dataclass(frozen=True, slots=True)
class FileAmounts:
    """The files of a location: all, those that a restart reads, and those below each bound. `rows`
    are all files, where they are to be listed.
    """

    all: Amount
    needed: Amount
    small: tuple[SmallAmount, ...]
    rows: tuple[FileRow, ...] | None = None

    @property
    def spare(self) -> Amount:
        """Those that no restart reads."""
        return Amount(self.all.count - self.needed.count, self.all.bytes - self.needed.bytes)


@dataclass(frozen=True, slots=True)
class OperatorOf:
    """An operator, and the image that holds it."""

    operator: Operator
    image: Image

    @property
    def name(self) -> str | None:
        """Its name; in a workflow directory, that of the image."""
        return self.operator.name or self.image.name

    @property
    def uid(self) -> str | None:
        """Its uid; in a workflow directory, the name of the image."""
        return self.operator.uid or self.image.name


@dataclass(frozen=True, slots=True)
class EndpointOf:
    """A source or a sink, and the image that tells of it."""

    endpoint: Endpoint
    image: Image


@dataclass(frozen=True, slots=True)
class PositionOf:
    """The position in one part of a source: a partition, a shard, a file."""

    schema_name: ClassVar = "SourcePosition"
    image: Annotated[str, "the path of its image, below the location"]
    source: Annotated[str, "its number among the sources, or its operator in Flink"]
    kind: Annotated[str, "kafka, delta, file, ..."]
    partition: Annotated[Redacted, "the part; empty where the source has none"]
    position: Annotated[int | str, "an offset, or the position in words"]


@dataclass(frozen=True, slots=True)
class SoughtName:
    """A name that `inspect --uids` looked for."""

    schema_name: ClassVar = "Name"
    name: Annotated[str, "the name"]
    directory: Annotated[str, "the directory of its state"]
    flink_operator_id: Annotated[str, "Flink's operator id of it"]
    found: Annotated[bool, "whether the image has it"]


@dataclass(frozen=True, slots=True)
class FirstEntries:
    """The first entries of every store, and whether there are more of any."""

    shown: tuple[ShownEntry, ...]
    more: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """Why keys and values are not columns, each reason once."""
        return tuple(dict.fromkeys(entry.note for entry in self.shown if entry.note is not None))


@dataclass(frozen=True, slots=True)
class SurveyFacts:
    """A survey, and what is computed of it for all views."""

    survey: Survey
    files: FileAmounts
    findings: tuple[Finding, ...]
    names: tuple[SoughtName, ...] | None = None
    entries: FirstEntries | None = None
    standby: StandbyFacts | None = None
    superseded: Superseded | None = None
    positions: tuple[PositionOf, ...] | None = None

    @property
    def operators(self) -> tuple[OperatorOf, ...]:
        """The operators of all images."""
        images = self.survey.images
        pairs = [[OperatorOf(operator, image) for operator in image.operators] for image in images]
        return tuple(chain.from_iterable(pairs))

    @property
    def endpoints(self) -> tuple[EndpointOf, ...]:
        """The sources and sinks of all images."""
        images = self.survey.images
        pairs = [[EndpointOf(end, image) for end in image.endpoints] for image in images]
        return tuple(chain.from_iterable(pairs))

    @property
    def embedded(self) -> tuple[EmbeddedPath, ...]:
        """The absolute paths inside, of all images."""
        return tuple(chain.from_iterable(image.embedded for image in self.survey.images))

    @property
    def only_image(self) -> Image | None:
        """The image, where there is one and no more."""
        images = self.survey.images
        return images[0] if len(images) == 1 else None

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that a restart of the only image works from."""
        return () if self.only_image is None else tuple(self.only_image.epochs)


def survey_facts(
    survey: Survey,
    names: Sequence[str] = (),
    every_file: bool = False,
    every_position: bool = False,
) -> SurveyFacts:
    """Return the facts of a survey; `names` are looked for in it, `every_file` adds a row for each
    file, `every_position` one for each partition of a source. Operators whose ids are the hashes of
    these names are called by them.
    """
    images, files = survey.images, survey.files
    needed = frozenset(chain.from_iterable(image.needed_files for image in images))
    sizes = {file.path: file.size for file in files}
    small = []
    for bound in SMALL:
        below = [file.size for file in files if file.size < bound]
        small.append(SmallAmount(len(below), sum(below), bound))
    amounts = FileAmounts(
        all=Amount(len(files), sum(file.size for file in files)),
        needed=Amount(len(needed), sum(sizes.get(path, 0) for path in needed)),
        small=tuple(small),
        rows=tuple(FileRow(file, file.path in needed) for file in files) if every_file else None,
    )
    findings = (*survey.findings, *chain.from_iterable(image.findings for image in images))
    sought = None
    if names:
        sought = tuple(_sought_names(survey, names))
        by_id = {each.flink_operator_id: each.name for each in sought}
        named_images = tuple(_named(image, by_id) for image in images)
        survey = replace(survey, images=named_images)
    positions = tuple(source_positions(survey)) if every_position else None
    return SurveyFacts(survey, amounts, findings, sought, positions=positions)


def _named(image: Image, by_id: Mapping[str, str]) -> Image:
    """Return the image with names for operators, and for the sources and sinks that are these."""
    operators = []
    for operator in image.operators:
        operators.append(replace(operator, uid=operator.uid or by_id.get(operator.id)))
    ends = [replace(end, index=by_id.get(end.index, end.index)) for end in image.endpoints]
    return replace(image, operators=tuple(operators), endpoints=tuple(ends))


def source_positions(survey: Survey) -> Iterator[PositionOf]:
    """Yield the position in each part of every source of a survey."""
    for image in survey.images:
        sources = [end for end in image.endpoints if end.role == "source"]
        for source in sources:
            for each in positions_of(source.kind, source.details):
                position = each.position
                if isinstance(position, str):
                    position = redact(position)
                yield PositionOf(
                    image=image.path,
                    source=source.index,
                    kind=source.kind,
                    partition=redact(each.partition),
                    position=position,
                )


def _sought_names(survey: Survey, names: Iterable[str]) -> Iterator[SoughtName]:
    """Yield each name, where it would be, and whether the survey has it: as a directory of a
    workflow, or as the id of an operator.
    """
    present = {image.path for image in survey.images}
    for image in survey.images:
        present.update(operator.id for operator in image.operators)
    for name in names:
        directory = survey.names.get(name) or uid.directory_name(name)
        flink_id = uid.flink_operator_id(name)
        is_present = directory in present or flink_id in present
        yield SoughtName(name, directory, flink_id, is_present)


# ---- entries -------------------------------------------------------------------------------------


def first_entries(entries: Iterable[ShownEntry], limit: int) -> FirstEntries:
    """Return at most `limit` entries of each store; the reader was asked for one more of each."""
    counts: dict[tuple[str, str], int] = {}
    kept = []
    more = False
    for entry in entries:
        store = (entry.operator, entry.store)
        counts[store] = counts.get(store, 0) + 1
        if counts[store] <= limit:
            kept.append(entry)
        else:
            more = True
    return FirstEntries(tuple(kept), more)


# ---- the shapes of documents ---------------------------------------------------------------------


class CountDocument(TypedDict):
    """How many files, and how large they are together."""

    count: Annotated[int, "files"]
    bytes: Annotated[int, "their size together"]


class SmallFilesDocument(CountDocument):
    """The files that are smaller than a bound."""

    below: Annotated[int, "the bound, in bytes"]


class ListedFileDocument(TypedDict):
    """One file of a location."""

    path: Annotated[str, "relative to the location", At("file.path")]
    bytes: Annotated[int, "its size", At("file.size")]
    modified: Annotated[
        float, "seconds since 1970, 0 where the storage does not say", At("file.modified")
    ]
    needed: Annotated[bool, "whether a restart reads it"]


ListedFiles = list[ListedFileDocument]


class FilesDocument(TypedDict):
    """The files of a location."""

    count: Annotated[int, "files", At("all.count")]
    bytes: Annotated[int | None, "their size together; null for a single file", At("all.bytes")]
    needed: Annotated[CountDocument, "those that a restart reads"]
    small: NotRequired[
        Annotated[list[SmallFilesDocument], "small files, by size", At(_small_files)]
    ]
    list: NotRequired[Annotated[ListedFiles, "each file (--files)", At("rows")]]


class StoreDocument(TypedDict):
    """One state store of an operator, over all its shards."""

    name: Annotated[str, "the store's name"]
    files: Annotated[int, "how many files hold it"]
    bytes: Annotated[int, "their size together"]


class FieldDocument(TypedDict):
    """A field of an object or a row."""

    name: Annotated[str, "its name; f0, f1, ... where it has none"]
    type: Annotated[str, "its type, as Java or SQL calls it"]


class StateDocument(TypedDict):
    """One registered state of a Flink operator."""

    name: Annotated[str, "the state's name"]
    kind: Annotated[str, "what holds it: value, list, map, operator, ..."]
    type: Annotated[str | None, "its kind of state descriptor, where the image tells"]
    key: Annotated[str | None, "the type of its keys, where the image tells"]
    namespace: Annotated[str | None, "the type of its windows or other namespaces"]
    value: Annotated[str | None, "the type of what it holds, where the image tells"]
    fields: Annotated[list[FieldDocument], "the fields of what it holds"]
    unread: Annotated[str | None, "the serializer whose values the job's classes alone can read"]


class KeyGroupBytesDocument(TypedDict):
    """The sizes of an operator's key groups."""

    min: Annotated[int, "bytes of the smallest"]
    median: Annotated[int, "bytes of the one in the middle"]
    max: Annotated[int, "bytes of the largest"]


class KeyGroupsDocument(TypedDict):
    """An operator's key groups."""

    count: Annotated[int, "key groups that were counted"]
    empty: Annotated[int, "those that hold nothing"]
    bytes: Annotated[KeyGroupBytesDocument, "how large they are"]


class OperatorDocument(TypedDict):
    """One stateful operator of an image."""

    image: Annotated[str, "the path of its image, below the location", At("image.path")]
    id: Annotated[str, "the engine's id", At("operator.id")]
    name: Annotated[str | None, "its name, where the image has it"]
    uid: Annotated[str | None, "its uid, where it is known"]
    provider: Annotated[
        str | None,
        "what keeps its state: a state store provider, or a backend",
        At("operator.provider"),
    ]
    shards: Annotated[int, "Spark's partitions, or Flink's parallelism", At("operator.shards")]
    stores: Annotated[list[StoreDocument], "its state stores", At("operator.stores")]
    max_parallelism: NotRequired[Annotated[int, "Flink: how many key groups there are"]]
    finished: NotRequired[Annotated[bool | int, "Flink: whether, or how many subtasks, finished"]]
    states: NotRequired[Annotated[list[StateDocument], "Flink: the states it registered"]]
    serializers: NotRequired[Annotated[list[str], "Flink: the serializers they were written with"]]
    key_groups: NotRequired[Annotated[KeyGroupsDocument | None, "Flink: its key groups"]]


class EmbeddedPathDocument(TypedDict):
    """An absolute path inside a file of the image."""

    file: Annotated[str, "the file that names it"]
    path: Annotated[Redacted, "what it names"]
    count: Annotated[int, "how often"]
    role: Annotated[Literal["source", "sink", "self"], "what the place is to the job"]
    found: Annotated[
        Literal["", "here", "equal", "elsewhere", "maybe", "missing", "different", "unreadable"],
        "of the image itself, what is there: the image (here); elsewhere, the same bytes (equal) "
        "or files that are looked for one by one; maybe the image by another name; no file, other "
        "bytes, or a place that cannot be read; empty where nobody has looked",
    ]


class EndpointDocument(TypedDict):
    """A source or a sink of the job, as far as the image tells."""

    role: Annotated[Literal["source", "sink"], "which of the two"]
    index: Annotated[str, "its number among the sources; in Flink its operator"]
    kind: Annotated[str, "the engine's word: kafka, delta, file, rate, ..."]
    replayable: Annotated[bool | None, "whether it can be read again from there"]
    detail: Annotated[Redacted | None, "what else is known, in words"]
    details: Annotated[
        dict[str, object],
        "what is known of it, by kind: how far a source was read, which batches a sink has",
        At(endpoint_details),
    ]


@dataclass(frozen=True, slots=True)
class NewPositionOf:
    """The new position of a partition, and the job that reads it."""

    job: str
    change: PositionChange


def new_positions_of(parts: Iterable[Plan | JobReport]) -> Iterator[NewPositionOf]:
    """Yield the new positions of each job, as its last plan has them."""
    by_job = {part.job: part.positions for part in parts if part.positions}
    for job, changes in by_job.items():
        for change in changes:
            yield NewPositionOf(job, change)


# `from` is a word of Python's, and no name of a key in a class.
_Ends = TypedDict(
    "_Ends",
    {
        "from": Annotated[
            int | None, "what was to be read next; null: it was not read", At("change.before")
        ]
    },
)


class NewPositionDocument(_Ends):
    """The next record of a partition, or version of a Delta table, that a repositioned source
    reads; the snapshot of an Iceberg table up to which it has read.
    """

    source: Annotated[str, "its number or name among the job's sources", At("change.source")]
    partition: Annotated[Redacted, "topic/partition, or a table's location", At("change.partition")]
    to: Annotated[int, "the next offset, version or last snapshot", At("change.after")]
    again: Annotated[
        int | None,
        "records, versions or snapshots read again; null: nobody knows",
        At("change.again"),
    ]
    skipped: Annotated[int | None, "the same of what is skipped", At("change.skipped")]
    job: Annotated[str, "the job that reads it"]


class ForeignFilesDocument(TypedDict):
    """Files in a checkpoint that the engine does not know."""

    path: Annotated[str, "a folder, or a file"]
    files: Annotated[int, "how many files"]
    bytes: Annotated[int, "their size together"]


class ImageDocument(TypedDict):
    """One job's, or one query's, whole state."""

    path: Annotated[str, "below the location; empty for the location itself"]
    name: Annotated[str | None, "the operator's name, in a workflow directory"]
    id: Annotated[str | None, "the query's or the job's id", At("identity")]
    epoch: Annotated[int | None, "the last committed epoch"]
    planned: Annotated[int | None, "an epoch that was begun and not committed"]
    epochs: Annotated[list[int], "the epochs that a restart works from"]
    needed: Annotated[
        int, "how many files a restart reads", At(lambda image: len(image.needed_files))
    ]
    written_by: Annotated[str | None, "which version of the engine wrote it"]
    fence: Annotated[str | None, "who fenced it, if somebody did"]
    endpoints: Annotated[list[EndpointDocument], "its sources and sinks"]
    strangers: Annotated[
        list[ForeignFilesDocument],
        "files that are not the engine's",
        At(lambda image: [dict(each) for each in image.described.get("strangers", ())]),
    ]
    settings: Annotated[dict[str, str], "what the engine wrote down of its configuration"]
    layout: NotRequired[Annotated[str | None, "Flink: canonical, native, full, incremental, ..."]]
    drained: NotRequired[Annotated[bool, "Flink: whether the sources had ended"]]
    metadata_version: NotRequired[Annotated[int, "Flink: the version of _metadata"]]
    masters: NotRequired[Annotated[list[str], "Flink: hooks that kept state of their own"]]
    unaligned: NotRequired[Annotated[bool, "Flink: whether it holds records in flight"]]
    real_time_seconds: NotRequired[
        Annotated[float, "Spark: the length of its batches in real-time mode; not of others"]
    ]


class EntryDocument(TypedDict):
    """One key and its value."""

    operator: Annotated[str, "the operator's id"]
    store: Annotated[str, "the store's name"]
    shard: Annotated[int, "the shard that holds it"]
    key: Annotated[object, "the key, by its own columns where they are known"]
    value: Annotated[object, "the value, by its own columns where they are known"]


class LineDocument(EntryDocument):
    """One line of `export --to FILE.jsonl`, or of `--to -`."""

    batch: NotRequired[Annotated[int, "the batch that made the change (--changes)"]]
    change: NotRequired[Annotated[str, "what it did: put, remove, ... (--changes)"]]


class SurveyDocument(TypedDict):
    """What `inspect` finds at a directory: an image, a workflow, or none of them."""

    location: Annotated[Redacted, "where it lies", At("survey.location")]
    engine: Annotated[
        str | None, "spark or flink; null where there is no image", At("survey.engine")
    ]
    kind: Annotated[
        str, "checkpoint, savepoint, workflow, data, empty or foreign", At("survey.kind")
    ]
    epoch: Annotated[
        int | None, "the last committed epoch of a single image", At("only_image.epoch")
    ]
    epochs: Annotated[list[int], "the epochs that a restart of a single image works from"]
    operators: Annotated[list[OperatorDocument], "of all images", At(operator_documents)]
    files: Annotated[FilesDocument, "all files"]
    paths: Annotated[list[EmbeddedPathDocument], "absolute paths inside", At("embedded")]
    warnings: Annotated[list[FindingDocument], "what to know before acting", At("findings")]
    images: Annotated[
        list[ImageDocument],
        "each image",
        At(lambda facts: [image_document(image) for image in facts.survey.images]),
    ]
    names: Annotated[
        dict[str, str], "the name index of a workflow: name to directory", At("survey.names")
    ]
    uids: NotRequired[
        Annotated[list[SoughtName], "the names that were asked for (--uids)", At("names")]
    ]
    sources: NotRequired[
        Annotated[list[PositionOf], "each source, part by part (--sources)", At("positions")]
    ]
    entries: NotRequired[
        Annotated[list[EntryDocument], "the first of each store (--entries)", At("entries.shown")]
    ]
    entries_more: NotRequired[Annotated[bool, "whether there are more", At("entries.more")]]
    entries_notes: NotRequired[
        Annotated[list[str], "why keys and values are not columns", At("entries.notes")]
    ]
    standby: NotRequired[
        Annotated[StandbyDocument, "the standby that is kept here; its source was not asked"]
    ]
    superseded: NotRequired[
        Annotated[SupersededDocument, "where the job runs since a failover, and from which batch"]
    ]


class FileDocument(TypedDict):
    """What `inspect` finds in a single file."""

    location: Annotated[str, "the file"]
    engine: Annotated[None, "a file alone does not say"]
    kind: Annotated[Literal["file"], "tells it from a directory"]
    epoch: None
    epochs: list[int]
    operators: list[OperatorDocument]
    files: FilesDocument
    paths: list[EmbeddedPathDocument]
    warnings: list[FindingDocument]
    format: Annotated[str, "the format of the file"]
    content: Annotated[object, "what it holds, decoded"]


class ExportDocument(TypedDict):
    """What `export --to FILE` wrote."""

    entries: Annotated[int, "how many entries, or changes"]
    file: Annotated[str, "where they were written"]
    format: Annotated[str, "parquet, arrow or jsonl"]
    bytes: Annotated[int, "the size of the file"]
    notes: Annotated[list[str], "what a reader of the file has to know"]


class OperatorIdDocument(TypedDict):
    """What an operator's name becomes."""

    name: Annotated[str, "the operator's name"]
    hash: Annotated[int, "its rolling hash"]
    directory: Annotated[str, "the directory of its state"]
    results_directory: Annotated[str, "the directory of its results, in production"]
    flink_operator_id: Annotated[str, "Flink's operator id of it"]


# ---- documents -----------------------------------------------------------------------------------


def file_document(decoded: DecodedFile, location: str) -> FileDocument:
    """Return the document of a single file, decoded."""
    return {
        "location": redact(location),
        "engine": None,
        "kind": "file",
        "epoch": None,
        "epochs": [],
        "operators": [],
        "files": {"count": 1, "bytes": None, "needed": {"count": 0, "bytes": 0}},
        "paths": [],
        "warnings": [],
        "format": decoded.format,
        "content": decoded.value,
    }


def operator_documents(facts: SurveyFacts) -> list[OperatorDocument]:
    """Return the documents of all operators, with the details that their engine adds."""
    documents = []
    for each in facts.operators:
        shared = document_of(OperatorDocument, each)
        documents.append(cast(OperatorDocument, {**shared, **each.operator.details}))
    return documents


def image_document(image: Image) -> ImageDocument:
    """Return the document of an image, with the details that its engine adds."""
    shared = document_of(ImageDocument, image)
    details = {key: value for key, value in image.described.items() if key in IMAGE_DETAILS}
    return cast(ImageDocument, {**shared, **details})


def _small_files(files: FileAmounts) -> list[SmallFilesDocument]:
    """Return the documents of small files. The bound comes first."""
    return [
        {"below": small.below, "count": small.count, "bytes": small.bytes} for small in files.small
    ]


def endpoint_details(end: Endpoint) -> dict[str, object]:
    """Return the details of a source or a sink."""
    details = dict(end.details)
    if details.get("offsets") is not None:
        topics = topics_in(details)
        # Numbers of partitions become texts, as keys of JSON are.
        details["offsets"] = {
            topic.name: {str(partition): offset for partition, offset in topic.offsets}
            for topic in topics
        }
        details["sum"] = {topic.name: topic.sum for topic in topics}
    return {name: redact_all(value) for name, value in details.items()}


def export_document(state: Export, to: str, size: int) -> ExportDocument:
    """Return the document of state that was written to a file."""
    return document_of(ExportDocument, state, file=redact(to), bytes=size)


def store_rows(inspected: JsonObject) -> list[dict[str, object]]:
    """Return a row for each store of a document of `inspect`, below its operator's columns."""
    rows: list[dict[str, object]] = []
    for operator in inspected.get("operators", ()):
        of_operator = {key: cell for key, cell in operator.items() if not isinstance(cell, list)}
        for store in operator["stores"]:
            of_store = {"store": store["name"], "files": store["files"], "bytes": store["bytes"]}
            rows.append({**of_operator, **of_store})
    return rows

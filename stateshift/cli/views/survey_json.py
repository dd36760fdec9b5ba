"""The JSON documents of images: `inspect`, `export`, `uid`. Values in, typed
dictionaries out. Pure.

The classes declare each document once: mypy holds the functions against them, and the published
schemas are generated from them (`documents.py`). Keys are added freely, and never removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict, cast

from stateshift.cli.views.endpoints_facts import TopicOffsets, topics_of
from stateshift.cli.views.problems_json import FindingDocument, finding, redacted
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.cli.views.survey_facts import (
        FileRow,
        FirstEntries,
        OperatorOf,
        SoughtName,
        SurveyFacts,
    )
    from stateshift.engines.views import DecodedFile
    from stateshift.look import Export, ShownEntry
    from stateshift.survey import EmbeddedPath, Endpoint, Image, Store

IMAGE_DETAILS = ("layout", "drained", "metadata_version", "masters", "unaligned")

# ---- the shapes ----------------------------------------------------------------------------------


class CountDocument(TypedDict):
    """How many files, and how large they are together."""

    count: Annotated[int, "files"]
    bytes: Annotated[int, "their size together"]


class SmallFilesDocument(CountDocument):
    """The files that are smaller than a bound."""

    below: Annotated[int, "the bound, in bytes"]


class ListedFileDocument(TypedDict):
    """One file of a location."""

    path: Annotated[str, "relative to the location"]
    bytes: Annotated[int, "its size"]
    modified: Annotated[float, "seconds since 1970, 0 where the storage does not say"]
    needed: Annotated[bool, "whether a restart reads it"]


ListedFiles = list[ListedFileDocument]


class FilesDocument(TypedDict):
    """The files of a location."""

    count: Annotated[int, "files"]
    bytes: Annotated[int | None, "their size together; null for a single file"]
    needed: Annotated[CountDocument, "those that a restart reads"]
    small: NotRequired[Annotated[list[SmallFilesDocument], "small files, by size"]]
    list: NotRequired[Annotated[ListedFiles, "each file (--files)"]]


class StoreDocument(TypedDict):
    """One state store of an operator, over all its shards."""

    name: Annotated[str, "the store's name"]
    files: Annotated[int, "how many files hold it"]
    bytes: Annotated[int, "their size together"]


class StateDocument(TypedDict):
    """One registered state of a Flink operator."""

    name: Annotated[str, "the state's name"]
    kind: Annotated[str, "what holds it: value, list, map, operator, ..."]
    type: Annotated[str | None, "its kind of state descriptor, where the image tells"]


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

    image: Annotated[str, "the path of its image, below the location"]
    id: Annotated[str, "the engine's id"]
    name: Annotated[str | None, "its name, where the image has it"]
    uid: Annotated[str | None, "its uid, where it is known"]
    provider: Annotated[str | None, "what keeps its state: a state store provider, or a backend"]
    shards: Annotated[int, "Spark's partitions, or Flink's parallelism"]
    stores: Annotated[list[StoreDocument], "its state stores"]
    max_parallelism: NotRequired[Annotated[int, "Flink: how many key groups there are"]]
    finished: NotRequired[Annotated[bool | int, "Flink: whether, or how many subtasks, finished"]]
    states: NotRequired[Annotated[list[StateDocument], "Flink: the states it registered"]]
    serializers: NotRequired[Annotated[list[str], "Flink: the serializers they were written with"]]
    key_groups: NotRequired[Annotated[KeyGroupsDocument | None, "Flink: its key groups"]]


class EmbeddedPathDocument(TypedDict):
    """An absolute path inside a file of the image."""

    file: Annotated[str, "the file that names it"]
    path: Annotated[str, "what it names"]
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
    index: Annotated[str, "its number among the sources"]
    kind: Annotated[str, "the engine's word: kafka, delta, file, rate, ..."]
    replayable: Annotated[bool | None, "whether it can be read again from there"]
    detail: Annotated[str | None, "what else is known, in words"]
    details: Annotated[
        dict[str, object],
        "what is known of it, by kind: how far a source was read, which batches a sink has",
    ]


class ForeignFilesDocument(TypedDict):
    """Files in a checkpoint that the engine does not know."""

    path: Annotated[str, "a folder, or a file"]
    files: Annotated[int, "how many files"]
    bytes: Annotated[int, "their size together"]


class ImageDocument(TypedDict):
    """One job's, or one query's, whole state."""

    path: Annotated[str, "below the location; empty for the location itself"]
    name: Annotated[str | None, "the operator's name, in a workflow directory"]
    id: Annotated[str | None, "the query's or the job's id"]
    epoch: Annotated[int | None, "the last committed epoch"]
    planned: Annotated[int | None, "an epoch that was begun and not committed"]
    epochs: Annotated[list[int], "the epochs that a restart works from"]
    needed: Annotated[int, "how many files a restart reads"]
    written_by: Annotated[str | None, "which version of the engine wrote it"]
    fence: Annotated[str | None, "who fenced it, if somebody did"]
    endpoints: Annotated[list[EndpointDocument], "its sources and sinks"]
    strangers: Annotated[list[ForeignFilesDocument], "files that are not the engine's"]
    settings: Annotated[dict[str, str], "what the engine wrote down of its configuration"]
    layout: NotRequired[Annotated[str | None, "Flink: canonical, native, full, incremental, ..."]]
    drained: NotRequired[Annotated[bool, "Flink: whether the sources had ended"]]
    metadata_version: NotRequired[Annotated[int, "Flink: the version of _metadata"]]
    masters: NotRequired[Annotated[list[str], "Flink: hooks that kept state of their own"]]
    unaligned: NotRequired[Annotated[bool, "Flink: whether it holds records in flight"]]


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


class NameDocument(TypedDict):
    """A name that `inspect --uids` looked for."""

    name: Annotated[str, "the name"]
    directory: Annotated[str, "the directory of its state"]
    flink_operator_id: Annotated[str, "Flink's operator id of it"]
    found: Annotated[bool, "whether the image has it"]


class SurveyDocument(TypedDict):
    """What `inspect` finds at a directory: an image, a workflow, or none of them."""

    location: Annotated[str, "where it lies"]
    engine: Annotated[str | None, "spark or flink; null where there is no image"]
    kind: Annotated[str, "checkpoint, savepoint, workflow, data, empty or foreign"]
    epoch: Annotated[int | None, "the last committed epoch of a single image"]
    epochs: Annotated[list[int], "the epochs that a restart of a single image works from"]
    operators: Annotated[list[OperatorDocument], "of all images"]
    files: Annotated[FilesDocument, "all files"]
    paths: Annotated[list[EmbeddedPathDocument], "absolute paths inside"]
    warnings: Annotated[list[FindingDocument], "what to know before acting"]
    images: Annotated[list[ImageDocument], "each image"]
    names: Annotated[dict[str, str], "the name index of a workflow: name to directory"]
    uids: NotRequired[Annotated[list[NameDocument], "the names that were asked for (--uids)"]]
    entries: NotRequired[Annotated[list[EntryDocument], "the first of each store (--entries)"]]
    entries_more: NotRequired[Annotated[bool, "whether there are more"]]
    entries_notes: NotRequired[Annotated[list[str], "why keys and values are not columns"]]


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


# ---- inspect -------------------------------------------------------------------------------------


def file_document(decoded: DecodedFile, location: str) -> FileDocument:
    """Return a single file, decoded."""
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


def document(facts: SurveyFacts) -> SurveyDocument:
    """Return everything that was found at a directory, and what was asked for besides."""
    survey, only = facts.survey, facts.only_image
    shown: SurveyDocument = {
        "location": redact(survey.location),
        "engine": survey.engine,
        "kind": survey.kind,
        "epoch": only.epoch if only else None,
        "epochs": list(only.epochs) if only else [],
        "operators": [operator(each) for each in facts.operators],
        "files": files(facts),
        "paths": [embedded_path(path) for path in facts.embedded],
        "warnings": [finding(each) for each in facts.findings],
        "images": [image(each) for each in survey.images],
        "names": dict(survey.names),
    }
    if facts.names is not None:
        shown["uids"] = [sought_name(name) for name in facts.names]
    if facts.entries is not None:
        add_entries(shown, facts.entries)
    return shown


def add_entries(shown: SurveyDocument, entries: FirstEntries) -> None:
    """Add the first entries of every store."""
    shown["entries"] = [entry(each) for each in entries.shown]
    shown["entries_more"] = entries.more
    shown["entries_notes"] = list(entries.notes)


def files(facts: SurveyFacts) -> FilesDocument:
    """Return how many files there are, how many a restart reads, and how many are small."""
    amounts = facts.files
    counted: FilesDocument = {
        "count": amounts.all.count,
        "bytes": amounts.all.bytes,
        "needed": {"count": amounts.needed.count, "bytes": amounts.needed.bytes},
        "small": [
            {"below": below, "count": small.count, "bytes": small.bytes}
            for below, small in amounts.small
        ],
    }
    if facts.rows is not None:
        counted["list"] = [listed_file(row) for row in facts.rows]
    return counted


def listed_file(row: FileRow) -> ListedFileDocument:
    """Return one file."""
    return {
        "path": row.file.path,
        "bytes": row.file.size,
        "modified": row.file.modified,
        "needed": row.needed,
    }


def embedded_path(path: EmbeddedPath) -> EmbeddedPathDocument:
    """Return an absolute path inside a file."""
    return {
        "file": path.file,
        "path": redact(path.path),
        "count": path.count,
        "role": path.role,
        "found": path.found,
    }


def sought_name(name: SoughtName) -> NameDocument:
    """Return a name that was looked for."""
    return {
        "name": name.name,
        "directory": name.directory,
        "flink_operator_id": name.flink_operator_id,
        "found": name.found,
    }


def operator(owned: OperatorOf) -> OperatorDocument:
    """Return an operator of an image, with what the image's engine knows besides."""
    operator_, owner = owned.operator, owned.image
    shared: OperatorDocument = {
        "image": owner.path,
        "id": operator_.id,
        "name": operator_.name or owner.name,
        "uid": operator_.uid or owner.name,
        "provider": operator_.provider,
        "shards": operator_.shards,
        "stores": [store(each) for each in operator_.stores],
    }
    return cast("OperatorDocument", {**shared, **operator_.details})


def store(kept: Store) -> StoreDocument:
    """Return one state store of an operator."""
    return {"name": kept.name, "files": kept.files, "bytes": kept.bytes}


def image(surveyed: Image) -> ImageDocument:
    """Return an image, with what its engine knows besides."""
    shared: ImageDocument = {
        "path": surveyed.path,
        "name": surveyed.name,
        "id": surveyed.identity,
        "epoch": surveyed.epoch,
        "planned": surveyed.planned,
        "epochs": list(surveyed.epochs),
        "needed": len(surveyed.needed_files),
        "written_by": surveyed.written_by,
        "fence": surveyed.fence,
        "endpoints": [endpoint(each) for each in surveyed.endpoints],
        "strangers": strangers(surveyed),
        "settings": dict(surveyed.settings),
    }
    details = {key: value for key, value in surveyed.described.items() if key in IMAGE_DETAILS}
    return cast("ImageDocument", {**shared, **details})


def strangers(surveyed: Image) -> list[ForeignFilesDocument]:
    """Return the files in a checkpoint that its engine does not know."""
    held = [dict(each) for each in surveyed.described.get("strangers", ())]
    return cast("list[ForeignFilesDocument]", held)


def endpoint(end: Endpoint) -> EndpointDocument:
    """Return a source or a sink; partitions of topics become texts, as keys of JSON are."""
    details = dict(end.details)
    if details.get("offsets") is not None:
        topics = topics_of(end)
        details["offsets"] = {topic.name: by_partition(topic) for topic in topics}
        details["sum"] = {topic.name: topic.sum for topic in topics}
    return {
        "role": end.role,
        "index": end.index,
        "kind": end.kind,
        "replayable": end.replayable,
        "detail": end.detail and redact(end.detail),
        "details": {name: redacted(value) for name, value in details.items()},
    }


def by_partition(topic: TopicOffsets) -> dict[str, int]:
    """Return the offsets of a topic, by the numbers of its partitions as texts."""
    return {str(partition): offset for partition, offset in topic.offsets}


def entry(shown: ShownEntry) -> EntryDocument:
    """Return one entry."""
    return {
        "operator": shown.operator,
        "store": shown.store,
        "shard": shown.shard,
        "key": shown.key,
        "value": shown.value,
    }


# ---- export --------------------------------------------------------------------------------------


def export(state: Export, to: str, size: int) -> ExportDocument:
    """Return what was written to a file."""
    return {
        "entries": state.entries,
        "file": redact(to),
        "format": state.format,
        "bytes": size,
        "notes": list(state.notes),
    }

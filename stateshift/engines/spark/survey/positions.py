"""New positions of sources that read on from elsewhere, as a `reposition` of the spec asks for
them. Reads only.

    offsets/N-1, offsets/N   the new position: Spark starts batch N+1 from offsets/N. A source of
                             Delta is asked once more for batch N, from offsets/N-1 to offsets/N
    offsets/N+1              the new end of a planned batch that is kept

Spark 4.0 was tried with each of these. It reads a partition that is not named from its beginning,
so that every partition of a new topic is named. A Delta table has an id, and versions:

    {"sourceVersion":1,"reservoirId":"<id>","reservoirVersion":4,"index":-1,
     "isStartingVersion":false}

The id becomes the new table's, and the version the first one that is read there. That everything
before it is what the job has read shows in the logs of both tables:

    the same files      a copy or a clone: name, size, and rows that are marked as deleted
    as many records     a table that was written anew (CTAS): its content is not compared
    anything else       nobody knows

While the first snapshot is read, its files are in an order of that table's own; and files of a
version that is read in part are counted. Neither has a counterpart in another table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple
from urllib.parse import unquote

from stateshift.engines.repositioning import (
    Outside,
    RefusedError,
    Topics,
    TopicSource,
    endpoint_of,
    positions_of,
    topics_elsewhere,
)
from stateshift.engines.spark import layout
from stateshift.engines.spark.small_files import SMALL, errors_at, json_or_text
from stateshift.engines.spark.survey.delta_log import actions_in
from stateshift.engines.spark.survey.inputs import table_at
from stateshift.engines.views import Opening
from stateshift.errors import MissingFile
from stateshift.formats.delta_log import (
    FOLDER,
    SIDECARS,
    checkpoint_name,
    commit_version,
    decode_actions,
    newest_checkpoint,
)
from stateshift.formats.spark.names import DELTA_SCHEMA_LOG
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.formats.spark.text import is_integer
from stateshift.plain import JsonObject
from stateshift.sources.topics import topics_of
from stateshift.specification.transform import Reposition
from stateshift.storage.protocol import Storage
from stateshift.survey import Endpoint, Finding, NewPosition, PositionChange, Survey


def ask_positions(survey: Survey, outside: Outside) -> tuple[NewPosition, ...]:
    """Return the new positions of the sources that the job repositions."""

    def locate(change: Reposition) -> Endpoint | None:
        if len(survey.images) > 1:
            raise RefusedError(
                f"{survey.location} holds {len(survey.images)} queries: of which one is the "
                "source?",
                "reposition each query by itself: its own folder is the checkpoint",
            )
        complete = [image for image in survey.images if image.epoch is not None]
        return endpoint_of(complete[0].endpoints, change) if complete else None

    def translate(change: Reposition, endpoint: Endpoint) -> NewPosition:
        return _position(survey, change, endpoint, outside)

    return positions_of(outside, locate, translate)


def _position(
    survey: Survey, change: Reposition, endpoint: Endpoint, outside: Outside
) -> NewPosition:
    (image,) = survey.images
    epoch = image.epoch or 0
    is_kept = outside.job.planned_batch == "keep" and image.planned == epoch + 1
    batches = [epoch, epoch + 1] if is_kept else [epoch]
    storage = outside.opening(survey.location)
    offsets: dict[int, JsonObject] = {}
    for batch in batches:
        path = layout.under(image.path, layout.offset_path(batch))
        entry = decode_offsets(storage.read(path, SMALL))
        texts = {each.source: each.offset for each in entry.offsets}
        text = texts.get(endpoint.index)
        if text is None:
            raise RefusedError(
                f"source {endpoint.index} has read nothing in batch {batch}",
                "let the job read something of it first",
            )
        offsets[batch] = json.loads(text)
    before = [epoch - 1] if epoch > 0 else []
    if change.table is not None:
        made = _table_position(change, endpoint, offsets, outside.opening)
    else:
        made = _topic_position(change, endpoint, offsets, outside)
    if epoch not in made.offsets:  # it is the same one, or there is none
        return made
    schema_log = f"{DELTA_SCHEMA_LOG}{endpoint.details.get('table_id')}"
    if any(f"/{schema_log}" in f"/{path}" for path in image.needed):
        raise RefusedError(
            f"the checkpoint tracks the schema of the table of source {endpoint.index} "
            f"({schema_log}), and another table has another one",
            "let the job read on in a copy of that table (its files, with their log)",
        )
    texts_of = {**dict.fromkeys(before, made.offsets[epoch]), **made.offsets}
    return replace(made, offsets=texts_of)


def _topic_position(
    change: Reposition, endpoint: Endpoint, offsets: Mapping[int, JsonObject], outside: Outside
) -> NewPosition:
    """Return the position of a source of Kafka, of all its topics together."""
    source = endpoint.index
    epoch, *planned = sorted(offsets)
    by_batch = {batch: _topics(offset, source) for batch, offset in offsets.items()}
    ends = by_batch[planned[0]] if planned else None
    found = topics_elsewhere(TopicSource(source, change, by_batch[epoch], ends), outside)
    findings = tuple(chain.from_iterable(each.findings for each in found))
    if not all(each.read for each in found):
        return NewPosition(source, endpoint.kind, findings=findings)
    made = {epoch: {each.topic: dict(sorted(each.read.items())) for each in found}}
    for batch in planned:
        last = {each.topic: each.planned or each.read for each in found}
        made[batch] = {topic: dict(sorted(last[topic].items())) for topic in last}
    return NewPosition(
        source,
        endpoint.kind,
        replace(endpoint, offsets=made[epoch], details={"offsets": made[epoch]}),
        {batch: json.dumps(each, separators=(",", ":")) for batch, each in made.items()},
        tuple(chain.from_iterable(each.changes for each in found)),
        findings,
    )


def _topics(offset: JsonObject, source: str) -> Topics:
    """Return topic -> partition -> the next offset."""
    topics = topics_of(offset)
    hint = "let the job read something of it first"
    for topic, partitions in offset.items():
        unread = partitions.keys() - map(str, topics.get(topic, {}))
        if unread:
            fact = f"source {source} stands at no offset in {topic}/{min(unread)}"
            raise RefusedError(fact, hint)
    if not topics:
        raise RefusedError(f"source {source} has read no topic yet", hint)
    return topics


# ---- Delta

OTHER = "other-records"
# An index before, and one behind, a change of the table's schema (DeltaSourceOffset).
SCHEMA_CHANGES = (-20, -19)
_READ_ON = (
    "let the job read on where it is until a batch ends with a version, or go back to such a batch "
    "as well (rewind)"
)


class TableFile(NamedTuple):
    """A file of a table, as far as two tables can be compared by it."""

    name: str
    size: int
    deleted: int
    records: int | None


def _table_position(
    change: Reposition, endpoint: Endpoint, offsets: Mapping[int, JsonObject], opening: Opening
) -> NewPosition:
    """Return the position in the table that the change names."""
    source, location = endpoint.index, change.table or ""
    epoch = min(offsets)
    refusals: list[Finding] = []
    details = endpoint.details
    at = f"version {details['version']}"
    if details["starting_snapshot"]:
        fact = (
            f"source {source} still reads the first snapshot of its table ({at}), in an order that "
            "another table does not have"
        )
        hint = "let the job read that snapshot to its end where it is"
        refusals.append(Finding("refuse", fact, hint=hint))
    elif details["index"] in SCHEMA_CHANGES:
        fact = f"source {source} stands at a change of its table's schema ({at})"
        refusals.append(Finding("refuse", fact, hint=_READ_ON))
    elif details["index"] >= 0:
        fact = f"source {source} has read {at} of its table in part (up to file {details['index']})"
        refusals.append(Finding("refuse", fact, hint=_READ_ON))
    table = table_at(location, opening)
    if table.wrong is not None:
        fact = f"the Delta table {location} could not be asked: {table.wrong}"
        refusals.append(Finding("refuse", fact, hint=table.hint))
    old_id, old_version = endpoint.details["table_id"], endpoint.details["version"]
    is_same_table = table.id == old_id
    version = old_version if change.version is None and is_same_table else change.version
    if version is None and table.wrong is None:
        refusals.append(
            Finding(
                "refuse",
                f"{location} is another table (its id is {table.id}, and the job has read "
                f"{old_id}): which of its versions comes next is not known",
                hint=f"name the first one that the job reads (--version V): it has versions up "
                f"to {table.newest}",
            )
        )
    is_planned = len(offsets) > 1
    if is_planned and (not is_same_table or version != old_version):
        refusals.append(
            Finding(
                "refuse",
                f"a batch is planned over the table of source {source}, whose versions are not "
                f"those of {location}",
                hint='plan it anew: --planned-batch drop (in a spec, "planned_batch": "drop"), if '
                "the sink does not have it; or start the job once where it is",
            )
        )
    if refusals or version is None:
        return NewPosition(source, endpoint.kind, findings=tuple(refusals))
    counts, findings = _proof(change, (old_version, version), is_same_table, opening)
    texts: dict[int, str] = {}
    if not is_same_table or version != old_version:
        new = {**offsets[epoch], "reservoirId": table.id, "reservoirVersion": version}
        texts[epoch] = json.dumps(new, separators=(",", ":"))
    details = {**details, "table_id": table.id, "version": version}
    return NewPosition(
        source,
        endpoint.kind,
        replace(endpoint, details=details),
        texts,
        (PositionChange(source, location, old_version, version, *counts),),
        findings,
    )


Counts = tuple[int | None, int | None]


def _proof(
    change: Reposition, versions: tuple[int, int], is_same_table: bool, opening: Opening
) -> tuple[Counts, tuple[Finding, ...]]:
    """Return the versions that are read again, and skipped, and the findings that prove it."""
    old_version, version = versions
    if is_same_table and version != old_version:
        return (max(0, old_version - version), max(0, version - old_version)), ()
    new = change.table or ""
    if change.from_table is None:
        if is_same_table:
            fact = f"{new} has the id of the table that the job has read, and was not compared"
            hint = 'name the table as it was: --from-table LOCATION (in a spec, "from_table")'
            return (0, 0), (Finding("warn", fact, hint=hint),)
        return (None, None), (
            Finding(
                "refuse",
                f"nobody can say whether {new} before version {version} is what the job has read",
                OTHER,
                "name the table that it has read: --from-table LOCATION (in a spec, "
                f'"from_table"); or, where you know it, "waive": ["{OTHER}"]',
            ),
        )
    ours = files_at(opening(change.from_table), old_version - 1)
    theirs = files_at(opening(new), version - 1)
    before = f"{change.from_table} before version {old_version}"
    after = f"{new} before version {version}"
    if _without_counts(ours) == _without_counts(theirs):
        fact = f"{after} has the files of {before} ({len(ours)})"
        return (0, 0), (Finding("note", fact),)
    counts = _records(ours), _records(theirs)
    if None not in counts and counts[0] == counts[1]:
        fact = f"{after} has as many records as {before} ({counts[0]:,}), in other files"
        hint = "whether they are the same ones was not compared"
        return (0, 0), (Finding("warn", fact, hint=hint),)
    shown = ["an unknown number of" if count is None else f"{count:,}" for count in counts]
    return (None, None), (
        Finding(
            "refuse",
            f"{after} has {shown[1]} records, and {before} has {shown[0]}: the job would miss "
            "some, or get some twice",
            OTHER,
            "let the job read up to the version that was copied before, or name another version "
            f'(--version V); or, where you know better, "waive": ["{OTHER}"]',
        ),
    )


def _without_counts(files: Iterable[TableFile]) -> list[tuple[str, int, int]]:
    return sorted((file.name, file.size, file.deleted) for file in files)


def _records(files: Iterable[TableFile]) -> int | None:
    """Return the number of records; None where a file does not tell."""
    total = 0
    for file in files:
        if file.records is None:
            return None
        total += file.records - file.deleted
    return total


def files_at(storage: Storage, version: int) -> list[TableFile]:
    """Return the files of a table at a version; none before its first."""
    if version < 0:
        return []
    names = [file.path.rpartition("/")[2] for file in storage.list(FOLDER)]
    checkpoints = filter(None, map(checkpoint_name, names))
    checkpoint = newest_checkpoint(each.name for each in checkpoints if each.version <= version)
    first = checkpoint[0].version + 1 if checkpoint else 0
    commits = {each for each in map(commit_version, names) if each is not None}
    missing = sorted(set(range(first, version + 1)) - commits)
    if missing:
        raise MissingFile(
            f"{storage.location} can no longer show version {version}: its commit {missing[0]} is "
            "gone",
            location=storage.location,
        )
    adds: dict[str, JsonObject] = {}
    for file in checkpoint:
        path = f"{FOLDER}/{file.name}"
        # A checkpoint V2 has its files in others beside it.
        sidecars = _actions(storage, path, "sidecar")
        paths = [path, *(f"{SIDECARS}/{each.get('path')}" for each in sidecars)]
        for add in chain.from_iterable(_actions(storage, each, "add") for each in paths):
            adds[str(add.get("path"))] = add
    for number in range(first, version + 1):
        path = f"{FOLDER}/{number:020d}.json"
        for remove in _actions(storage, path, "remove"):
            adds.pop(str(remove.get("path")), None)
        for add in _actions(storage, path, "add"):
            adds[str(add.get("path"))] = add
    return [_file(add) for add in adds.values()]


def _actions(storage: Storage, path: str, name: str) -> Iterator[JsonObject]:
    with errors_at(path):
        if path.endswith(".json"):
            yield from decode_actions(storage.chunks(path), name)
        else:
            yield from actions_in(storage, path, name)


def _file(add: JsonObject) -> TableFile:
    name = unquote(str(add.get("path"))).rpartition("/")[2]
    vector = add.get("deletionVector") or {}
    stats = add.get("stats")
    told = json_or_text(stats) if isinstance(stats, str) else None
    records = told.get("numRecords") if isinstance(told, dict) else None
    size, deleted = int(add.get("size") or 0), int(vector.get("cardinality") or 0)
    return TableFile(name, size, deleted, records if is_integer(records) else None)

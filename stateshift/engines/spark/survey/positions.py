"""New positions of sources that read on from elsewhere, as a `reposition` of the spec asks for
them. Reads only.

    offsets/N-1, offsets/N   the new position: Spark starts batch N+1 from offsets/N. A source of
                             Delta is asked once more for batch N, from offsets/N-1 to offsets/N
    offsets/N+1              the new end of a planned batch that is kept
    sources/<i>/…            the first offset of Kafka and Iceberg: see `rewrite.logs`

Spark 4.0 was tried with each of these. It reads a partition that is not named from its beginning,
so that every partition of a new topic is named.

A source may read on in another table of Delta or Iceberg, with a proof that the other table has
before the new position what the job has read:

    Delta      {"sourceVersion":1,"reservoirId":"<id>","reservoirVersion":4,"index":-1,
                "isStartingVersion":false}
    Iceberg    {"version":1,"snapshot_id":599…,"position":2,"scan_all_files":false}

Delta's version is the first one that is read. Iceberg's snapshot is the last one, read whole if the
position is the number of data files that it added (SparkMicroBatchStream.latestOffset, planFiles).
A version follows the newest content that is proved to be the same. `engines.tables` compares it,
and looks for the snapshot.

While Delta's first snapshot is read, its files are in an order of that table's own; and files of a
version, or a snapshot, that is read in part are counted. Neither has a counterpart elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

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
from stateshift.engines.spark.small_files import SMALL, json_or_text
from stateshift.engines.spark.survey.inputs import table_at
from stateshift.engines.spark.survey.table_logs import files_at
from stateshift.engines.tables import (
    SEARCHED_MAX,
    Counts,
    SnapshotSearch,
    TableState,
    compare_tables,
    has_same_files,
    not_compared,
    snapshot_search,
)
from stateshift.engines.views import Opening
from stateshift.errors import MissingFile
from stateshift.formats.spark.names import DELTA_SCHEMA_LOG
from stateshift.formats.spark.offsets import decode_offsets, encode_offsets, with_positions
from stateshift.plain import JsonObject
from stateshift.sources.kinds import ICEBERG
from stateshift.sources.topics import topics_of
from stateshift.specification import JobSpec
from stateshift.specification.transform import Reposition
from stateshift.storage import locations
from stateshift.survey import (
    Endpoint,
    Finding,
    NewPosition,
    PositionChange,
    Survey,
    TableFacts,
    refuse,
    warn,
)


def ask_positions(survey: Survey, outside: Outside) -> tuple[NewPosition, ...]:
    """Return the new positions of the sources that the job repositions."""

    def locate(change: Reposition) -> Endpoint | None:
        return _locate(survey, change)

    def translate(change: Reposition, endpoint: Endpoint) -> NewPosition:
        return _position(survey, change, endpoint, outside)

    return positions_of(outside, locate, translate)


def offsets_read(
    job: JobSpec, survey: Survey, opening: Opening
) -> Mapping[str, Sequence[Mapping[int, int]]]:
    """Return the offsets of each topic that the job repositions, in each batch of the image that a
    start reads; none of an image that cannot be repositioned.
    """
    read: dict[str, list[Mapping[int, int]]] = {}
    for change in job.transform:
        if not isinstance(change, Reposition) or change.table is not None:
            continue
        try:
            endpoint = _locate(survey, change)
            if endpoint is None:
                continue
            offsets = _offsets_of(job, survey, endpoint, opening)
            by_batch = [_topics(offset, endpoint.index) for offset in offsets.values()]
        except RefusedError:
            continue
        for topics in by_batch:
            for topic, partitions in topics.items():
                read.setdefault(topic, []).append(partitions)
    return read


def repositioned_files(
    survey: Survey, positions: Sequence[NewPosition], opening: Opening
) -> Mapping[str, tuple[bytes, bytes]]:
    """Return the logs with offsets of these sources, as they are and as they become."""
    storage, files = opening(survey.location), dict[str, tuple[bytes, bytes]]()
    for image in survey.images:
        for batch in sorted(set(chain.from_iterable(each.offsets for each in positions))):
            path = layout.under(image.path, layout.offset_path(batch))
            if storage.stat(path) is None:  # batch N-1 of a job that has just begun
                continue
            held = storage.read(path, SMALL)
            own = {each.source: each.offsets[batch] for each in positions if batch in each.offsets}
            files[path] = (held, encode_offsets(with_positions(decode_offsets(held), own)))
    return files


def _locate(survey: Survey, change: Reposition) -> Endpoint | None:
    """Return the source that a change is about; None where the job has committed nothing."""
    if len(survey.images) > 1:
        raise RefusedError(
            f"{survey.location} holds {len(survey.images)} queries: of which one is the source?",
            "reposition each query by itself: its own folder is the checkpoint",
        )
    complete = [image for image in survey.images if image.epoch is not None]
    return endpoint_of(complete[0].endpoints, change) if complete else None


def _position(
    survey: Survey, change: Reposition, endpoint: Endpoint, outside: Outside
) -> NewPosition:
    (image,) = survey.images
    epoch = image.epoch or 0
    offsets = _offsets_of(outside.job, survey, endpoint, outside.opening)
    before = [epoch - 1] if epoch > 0 else []
    if endpoint.kind == ICEBERG.name:
        made = iceberg_position(change, endpoint, offsets, outside.opening)
    elif change.table is not None:
        made = delta_position(change, endpoint, offsets, outside.opening)
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


def _offsets_of(
    job: JobSpec, survey: Survey, endpoint: Endpoint, opening: Opening
) -> dict[int, JsonObject]:
    """Return the offset of a source in the last batch, and in a planned one that is kept."""
    (image,) = survey.images
    epoch = image.epoch or 0
    is_kept = job.planned_batch == "keep" and image.planned == epoch + 1
    batches = [epoch, epoch + 1] if is_kept else [epoch]
    storage = opening(survey.location)
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
    return offsets


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
        dict(chain.from_iterable(each.brokers.items() for each in found)),
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

# An index before, and one behind, a change of the table's schema (DeltaSourceOffset).
SCHEMA_CHANGES = (-20, -19)
_PLAN_ANEW = (
    'plan it anew: --planned-batch drop (in a spec, "planned_batch": "drop"), if the sink does not '
    "have it; or start the job once where it is"
)
_READ_ON = (
    "let the job read on where it is until a batch ends with a version, or go back to such a "
    "batch as well (rewind)"
)


def delta_position(
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
            f"source {source} still reads the first snapshot of its table ({at}), in an order "
            "that another table does not have"
        )
        hint = "let the job read that snapshot to its end where it is"
        refusals.append(refuse(fact, hint=hint))
    elif details["index"] in SCHEMA_CHANGES:
        fact = f"source {source} stands at a change of its table's schema ({at})"
        refusals.append(refuse(fact, hint=_READ_ON))
    elif details["index"] >= 0:
        fact = f"source {source} has read {at} of its table in part (up to file {details['index']})"
        refusals.append(refuse(fact, hint=_READ_ON))
    table = table_at(location, opening)
    if table.wrong is not None:
        fact = f"the Delta table {location} could not be asked: {table.wrong}"
        refusals.append(refuse(fact, hint=table.hint))
    old_id, old_version = endpoint.details["table_id"], endpoint.details["version"]
    is_same_table = table.id == old_id
    version = old_version if change.version is None and is_same_table else change.version
    if version is None and table.wrong is None and change.from_table is not None:
        version = _equal_version(change, table, old_version, opening)
    if version is None and table.wrong is None:
        refusals.append(
            refuse(
                f"{location} is another table (its id is {table.id}, and the job has read "
                f"{old_id}): which of its versions comes next is not known",
                hint=f"name the first one that the job reads (--version V): it has versions up "
                f"to {table.newest}; or the table that it has read (--from-table LOCATION): the "
                "version behind one with the same files is looked for",
            )
        )
    is_planned = len(offsets) > 1
    if is_planned and (not is_same_table or version != old_version):
        refusals.append(
            refuse(
                f"a batch is planned over the table of source {source}, whose versions are not "
                f"those of {location}",
                hint=_PLAN_ANEW,
            )
        )
    if refusals or version is None:
        return NewPosition(source, endpoint.kind, findings=tuple(refusals))
    counts, findings = _delta_proof(change, (old_version, version), is_same_table, opening)
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


def _delta_proof(
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
            return (0, 0), (warn(fact, hint=hint),)
        return (None, None), (not_compared(f"{new} before version {version}"),)
    counts, finding = compare_tables(
        delta_at(change.from_table, old_version, opening, change.compare_rows),
        delta_at(new, version, opening, change.compare_rows),
        opening if change.compare_rows else None,
        "let the job read up to the version that was copied before, or name another version "
        "(--version V)",
    )
    return counts, (finding,)


def _equal_version(
    change: Reposition, table: TableFacts, old_version: int, opening: Opening
) -> int | None:
    """Return the version behind the newest that has what the job has read; None for none."""
    rows = change.compare_rows
    before = delta_at(change.from_table or "", old_version, opening, rows)
    for version in range(table.newest + 1, max(0, table.newest + 1 - SEARCHED_MAX), -1):
        try:
            after = delta_at(change.table or "", version, opening, rows)
        except MissingFile:
            return None  # the log does not lead further back
        if has_same_files(before, after):
            return version
        if rows and compare_tables(before, after, opening, "")[1].level == "note":
            return version
    return None


def delta_at(location: str, version: int, opening: Opening, rows: bool) -> TableState:
    """Return the table as it was before a version; its columns, too, if `rows` will be read."""
    storage = opening(location)
    columns: dict[str | int, str] = {}
    types: dict[str, object] = {}
    plain = json_or_text(table_at(location, opening).schema) if rows else None
    for item in plain.get("fields", ()) if isinstance(plain, dict) else ():
        match item:
            case {"name": str() as name, "type": kind, "metadata": dict() as metadata}:
                physical = str(metadata.get("delta.columnMapping.physicalName", name))
                columns[physical], types[name] = name, kind
    files = []
    for file in files_at(storage, version - 1):
        place = file.place if "://" in file.place else f"{location}/{file.place}"
        constants = [(columns.get(name, name), text) for name, text in file.constants]
        files.append(file._replace(place=locations.normal(place), constants=tuple(constants)))
    return TableState(f"{location} before version {version}", files, columns, types)


# ---- Iceberg

# Spark reads neither, and goes on only if the job says so (streaming-skip-…-snapshots).
SKIPPED_BY_OPTION = ("overwrite", "delete")


def iceberg_position(
    change: Reposition, endpoint: Endpoint, offsets: Mapping[int, JsonObject], opening: Opening
) -> NewPosition:
    """Return the position in the table that the change names."""
    source, details, epoch = endpoint.index, endpoint.details, min(offsets)
    try:
        if details["snapshot_id"] < 0:
            hint = "start the job anew there, or let it read something where it is"
            raise RefusedError(f"source {source} has read nothing of its table yet", hint)
        search = snapshot_search(change, source, details["snapshot_id"], opening)
        snapshot = search.equal_snapshot()
        is_same = snapshot.id == search.last
        if not is_same:
            _refuse_within(search, details)
        planned = search.table.snapshot(offsets[max(offsets)].get("snapshot_id"))
        if len(offsets) > 1 and not (is_same and planned):
            raise RefusedError(
                f"a batch is planned over the table of source {source}, whose snapshots are not "
                f"those of {search.location}",
                _PLAN_ANEW,
            )
        counts, proof = search.proof(snapshot)
    except RefusedError as refused:
        return NewPosition(source, endpoint.kind, findings=(refused.finding,))
    findings = [proof, *search.unreadable()]
    if snapshot.operation in SKIPPED_BY_OPTION:
        fact = f"snapshot {snapshot.id} is of the operation {snapshot.operation}"
        hint = f"let the job have streaming-skip-{snapshot.operation}-snapshots=true"
        findings.append(warn(f"{fact}: Spark stops at it", hint=hint))
    texts: dict[int, str] = {}
    if not is_same:
        new = {"snapshot_id": snapshot.id, "position": snapshot.added_files}
        details = {**details, **new, "starting_snapshot": False}
        offset = {**offsets[epoch], **new, "scan_all_files": False}
        texts[epoch] = json.dumps(offset, separators=(",", ":"))
    return NewPosition(
        source,
        endpoint.kind,
        replace(endpoint, details=details),
        texts,
        (PositionChange(source, search.location, search.last, snapshot.id, *counts),),
        tuple(findings),
    )


def _refuse_within(search: SnapshotSearch, details: JsonObject) -> None:
    """Refuse a position within a snapshot: another table has other files, in another order."""
    read, source = search.last_read, search.source
    position, hint = details["position"], "let the job read that snapshot to its end where it is"
    files = None if read is None else read.count("total-data-files")
    if details["starting_snapshot"] and files != position:
        fact = f"source {source} still reads the first snapshot of its table ({search.last})"
        raise RefusedError(fact, hint)
    if not details["starting_snapshot"] and read and read.added_files != position:
        raise RefusedError(
            f"source {source} has read snapshot {search.last} of its table in part ({position} of "
            f"{read.added_files} files)",
            hint,
        )

"""What a restart of one query needs, and from which batches it would work.

The consistent cut: batch N is the highest one committed, its state has version N + 1. Where no
batch has a commit, N is the one before the last that was planned, as Spark sees it. Needed are
offsets N and N - 1, commit N, the query's id, the sources' logs, and per operator, shard and store
the chain of files of that version. What is newer is left behind; a batch that was planned and not
committed is told apart (`planned`), and so is the state that it has written (`planned_state`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import partitions_of
from stateshift.engines.spark.image import Newest, SparkImage
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.endpoints import (
    Endpoints,
    endpoints_of,
    refuse_unreadable_ends,
    written_by,
)
from stateshift.engines.spark.survey.restart.batches import (
    check_uncommitted,
    last_done,
    refuse_disorder,
    refuse_holes,
    warn_of_no_commits,
)
from stateshift.engines.spark.survey.restart.operators import (
    files_of_operators,
    is_foreign,
    newest_metadata,
    operators_of,
    own_places,
    refuse_foreign_state,
    refuse_unparsable,
)
from stateshift.engines.spark.survey.restart.planned import planned_state_of
from stateshift.engines.spark.survey.restart.query_files import Found, sorted_by_kind
from stateshift.engines.spark.survey.restart.shards import Uuids, restartable, shards_of
from stateshift.engines.spark.survey.restart.tracked import counted_strangers, tracked_schemas
from stateshift.errors import MissingFile
from stateshift.formats.marks import fence_owner
from stateshift.formats.spark import commits as commit_format
from stateshift.formats.spark import metadata as metadata_format
from stateshift.formats.spark import offsets as offset_format
from stateshift.survey import FileInfo, Image, Operator, ShardFiles


def surveyed_image(
    reading: Reading,
    files: tuple[FileInfo, ...],
    thorough: bool,
    changes: Sequence[Mapping[str, Any]] = (),
) -> Image:
    """One query's checkpoint, from its listing and its small files; what `changes` need to know
    besides. Where they rewind it, everything after that batch does not count.
    """
    found = sorted_by_kind(files, len(reading.prefix) + 1 if reading.prefix else 0)
    fence = _without_fence(reading, found)
    newest_done, newest_planned = last_done(found), max(found.offsets, default=None)
    rewound = _rewind(reading, found, changes)
    epoch, planned = last_done(found), max(found.offsets, default=None)
    query = _query(reading) if found.metadata else None
    if not found.metadata and (found.offsets or found.commits):
        reading.refuse(
            f"{reading.path(layout.METADATA)} is missing: Spark 4.2 and later refuse to "
            "start, earlier ones "
            "take it for another query",
            layout.METADATA,
        )
    warn_of_no_commits(reading, found, epoch)
    refuse_holes(reading, found, epoch)
    suspects = refuse_disorder(reading, found, epoch, thorough)
    settings, lines, batch_ms = _offsets(reading, found, epoch, planned)
    unique = _commit(reading, epoch) if epoch in found.commits else {}
    operators = operators_of(reading, found, settings)
    refuse_foreign_state(reading, operators, settings, planned if epoch is None else epoch)
    shards = shards_of(reading, found, operators, unique, epoch)
    check_uncommitted(reading, found, operators, epoch)
    if thorough and epoch is not None:
        refuse_unparsable(reading, found, epoch)
    ends = endpoints_of(reading, found.sources, lines, thorough)
    refuse_unreadable_ends(reading, found.sources, _neighbours(reading, found, epoch, planned))
    tracked = tracked_schemas(reading, found.schema_logs)
    epochs: tuple[int, ...] = ()
    if not is_foreign(settings):  # each batch names the provider that the query was born with
        works = restartable(reading, found, operators, epoch, thorough)
        epochs = tuple(batch for batch in works if batch not in suspects)
    # Behind a rewind it is the state of a batch which is to be done again, maybe by other code.
    written = None if rewound else planned_state_of(reading, found, operators, epoch, planned)
    return Image(
        path=reading.prefix,
        name=None,
        identity=None if query is None else query.id,
        epoch=epoch,
        epochs=epochs,
        planned=planned,
        operators=operators,
        shards=shards,
        needed=_needed(reading, found, ends, shards, epoch, planned),
        first_read=_first_read(reading, found, epoch, planned),
        embedded=(*ends.embedded, *own_places(reading, found, epoch), *tracked),
        endpoints=ends.endpoints,
        settings=settings,
        written_by=written_by(settings, bool(found.operator_files)),
        fence=fence,
        findings=tuple(reading.findings),
        details=SparkImage(
            offsets=len(found.offsets),
            commits=len(found.commits),
            batch_timestamp_ms=batch_ms,
            strangers=counted_strangers(found.strangers),
            newest=Newest(newest_done, newest_planned)
            if rewound and newest_done is not None
            else None,
            schemas=_schemas(reading, found, operators, epoch, settings) if changes else {},
        ),
        planned_state=written,
    )


def _query(reading: Reading) -> metadata_format.QueryMetadata | None:
    """The query's id, and what is odd about the file that holds it."""
    query = reading.decoded(layout.METADATA, metadata_format.decode_metadata)
    if query is None:
        return None
    path = reading.path(layout.METADATA)
    if query.id != query.written.lower():
        reading.warn(
            f"{path} holds the query id {query.written}, which Spark takes for {query.id}",
            layout.METADATA,
        )
    if query.trailing:
        end = len(metadata_format.encode_metadata(query)) - query.trailing
        fact = (
            f"{path} goes on for {query.trailing} bytes behind its JSON, which Spark does not read"
        )
        reading.warn(fact, layout.METADATA, end)
    return query


def _rewind(reading: Reading, found: Found, changes: Sequence[Mapping[str, Any]]) -> bool:
    """Leave out what came after the batch to go back to. Whether any batch after it is committed:
    else it is a move as any other, also of a batch that was planned.
    """
    batch = next((change["batch"] for change in changes if change["kind"] == "rewind"), None)
    if batch is None:
        return False
    if batch not in found.commits:
        newest = f"; the newest is batch {max(found.commits)}" if found.commits else ""
        reading.refuse(
            f"batch {batch} is not committed in {reading.storage.location}{newest}: there "
            "is no going back "
            "to it"
        )
        return False
    if batch == max(found.commits):
        return False
    found.commits = {b for b in found.commits if b <= batch}
    found.offsets = {b for b in found.offsets if b <= batch + 1}
    return True


def _schemas(
    reading: Reading,
    found: Found,
    operators: tuple[Operator, ...],
    epoch: int | None,
    settings: Mapping[str, str],
) -> Mapping[str, Mapping[str, Any]]:
    from stateshift.engines.spark.survey.schemas import schemas_of

    stores = {operator.id: tuple(store.name for store in operator.stores) for operator in operators}
    newest = {operator: newest_metadata(found, operator, epoch) for operator in stores}
    applying = {operator: path for operator, path in newest.items() if path}
    return schemas_of(reading, stores, found.operator_files, applying, settings)


def _without_fence(reading: Reading, found: Found) -> str | None:
    """A fence of ours is neither a planned nor a committed batch: whose it is, and the logs
    without it.
    """
    owner = None
    for numbers, path_of in (
        (found.offsets, layout.offset_path),
        (found.commits, layout.commit_path),
    ):
        newest = max(numbers, default=None)
        if newest is None:
            continue
        try:
            held = fence_owner(reading.content(path_of(newest)))
        except MissingFile:
            continue
        if held is not None:
            numbers.discard(newest)
            owner = held
    return owner


def _offsets(
    reading: Reading, found: Found, epoch: int | None, planned: int | None
) -> tuple[dict[str, str], tuple[offset_format.SourceOffset, ...], int | None]:
    """Settings, source lines and time of the last committed batch."""
    if epoch is None:
        epoch = planned
    if epoch is None:
        return {}, (), None
    entry = reading.decoded(layout.offset_path(epoch), offset_format.decode_offsets)
    if entry is not None and entry.watermark_ms > 0 and not found.stores:
        place = reading.path("") or reading.storage.location
        reading.warn(
            f"{place} holds no state, though its query has a watermark: it needs none, or "
            "all is missing"
        )
    if entry is None:
        return {}, (), None
    told = entry.conf.get(offset_format.PARTITIONS)
    if told is not None and partitions_of(entry.conf) is None:
        path = layout.offset_path(epoch)
        reading.refuse(
            f"{reading.path(path)} says that there are {told[:40]!r} partitions, which no job has",
            path,
        )
    return dict(entry.conf), entry.offsets, entry.timestamp_ms


def _neighbours(
    reading: Reading, found: Found, epoch: int | None, planned: int | None
) -> dict[int, offset_format.OffsetEntry]:
    """Return the offset logs beside that of the last committed batch, by batch: the one before it,
    and that of a planned batch. A restart reads both, so they must be whole.
    """
    last = planned if epoch is None else epoch
    if last is None:
        return {}
    batches = [last - 1] if last > 0 else []
    if last + 1 in found.offsets:
        batches.append(last + 1)
    entries: dict[int, offset_format.OffsetEntry] = {}
    for batch in batches:
        entry = reading.decoded(layout.offset_path(batch), offset_format.decode_offsets)
        if entry is not None:
            entries[batch] = entry
    return entries


def _commit(reading: Reading, epoch: int | None) -> Uuids:
    """The uuids of the stores that belong to the commit, under checkpoint format 2."""
    if epoch is None:
        return {}
    entry = reading.decoded(layout.commit_path(epoch), commit_format.decode_commit)
    return {} if entry is None else entry.state_ids


def _first_read(
    reading: Reading, found: Found, epoch: int | None, planned: int | None
) -> tuple[str, ...]:
    if epoch is None:
        return ()
    paths = layout.first_read(epoch, planned if planned == epoch + 1 else None)
    if epoch not in found.commits:
        paths = tuple(path for path in paths if not layout.is_commit(path))
    return tuple(reading.path(path) for path in paths)


def _needed(
    reading: Reading,
    found: Found,
    ends: Endpoints,
    shards: tuple[ShardFiles, ...],
    epoch: int | None,
    planned: int | None,
) -> tuple[str, ...]:
    """Every path a restart reads. Spark's own checksums stay with the bytes they describe;
    Hadoop's are not needed.
    """
    if epoch is None:
        return ()
    logs = set(layout.first_read(epoch, planned if planned == epoch + 1 else None))
    there = {layout.offset_path(b) for b in found.offsets} | {
        layout.commit_path(b) for b in found.commits
    }
    there |= {layout.METADATA} if found.metadata else set()
    paths = {reading.path(path) for path in (logs & there) | set(ends.logs)}
    paths |= {
        reading.path(path) for path in (*files_of_operators(found, epoch), *found.schema_logs)
    }
    for shard in shards:
        paths.update(shard.files)
    crcs = {reading.path(path) for path in found.spark_crcs}
    return tuple(sorted(paths | {f"{path}.crc" for path in paths if f"{path}.crc" in crcs}))

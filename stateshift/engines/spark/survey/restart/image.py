"""The files that a restart of one query needs, and the batches from which it would work.

The consistent cut: batch N is the highest one committed, its state has version N + 1. If no batch
has a commit, N is the one before the last that was planned, as Spark sees it. Needed are offsets N
and N - 1, commit N, the query's id, the sources' logs, and per operator, shard and store the chain
of files of that version. Newer batches are left behind; a batch that was planned and not committed
is told apart (`planned`), and so is the state that it has written (`planned_state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import Chain, StoreFiles, chain, partitions_of
from stateshift.engines.spark.image import Backlog, Newest, SparkImage
from stateshift.engines.spark.real_time import LAST_BATCHES, real_time_lengths
from stateshift.engines.spark.small_files import KEPT_EACH, Reading
from stateshift.engines.spark.survey.endpoints import (
    Endpoints,
    backlog_of,
    endpoints_of,
    named_sinks,
    refuse_unreadable_ends,
)
from stateshift.engines.spark.survey.file_sources import logs_by_source
from stateshift.engines.spark.survey.planned_image import planned_state_of
from stateshift.engines.spark.survey.restart.batches import (
    check_uncommitted,
    last_done,
    refuse_disorder,
    refuse_holes,
    refuse_misplaced,
    warn_of_no_commits,
)
from stateshift.engines.spark.survey.restart.operator_checks import refuse_incomplete
from stateshift.engines.spark.survey.restart.operators import (
    files_of_operators,
    is_foreign,
    operators_of,
    own_places,
    refuse_foreign_state,
    refuse_unparsable,
    schemas_of,
    tracked_schemas,
)
from stateshift.engines.spark.survey.restart.query_files import (
    ListedFiles,
    counted_strangers,
    folder_of,
    sort_by_kind,
    store_keys,
)
from stateshift.engines.spark.survey.restart.settings import (
    StateFacts,
    refuse_changed,
    refuse_unfit,
)
from stateshift.engines.spark.versions import oldest_writer
from stateshift.errors import MissingFile
from stateshift.formats.marks import fence_owner
from stateshift.formats.spark import commits as commit_format
from stateshift.formats.spark import metadata as metadata_format
from stateshift.formats.spark import offsets as offset_format
from stateshift.formats.spark import rocksdb, state_files
from stateshift.specification.transform import Change, Rewind, find_change
from stateshift.survey import FileInfo, Image, Operator, ShardFiles


def surveyed_image(
    reading: Reading, files: tuple[FileInfo, ...], thorough: bool, changes: Sequence[Change] = ()
) -> Image:
    """Survey one query's checkpoint: listing, small files, and what `changes` need."""
    listed = sort_by_kind(files, skip=len(reading.path("")))
    fence = _without_fence(reading, listed)
    newest = _cut(listed)
    is_rewound = _rewind(reading, listed, changes)
    cut = _cut(listed)
    epoch = cut.epoch
    reading.read_ahead(_small_files(reading, listed, cut, files))
    query = _query(reading, listed)
    warn_of_no_commits(reading, listed, epoch)
    refuse_misplaced(reading, listed)
    refuse_holes(reading, listed, epoch)
    suspects = refuse_disorder(reading, listed, epoch, thorough)
    last_batch = _last_batch(reading, listed, cut)
    settings = last_batch.settings
    commit = None
    if epoch is not None and epoch in listed.commits:
        commit = reading.decoded(layout.commit_path(epoch), commit_format.decode_commit)
    unique: Uuids = {} if commit is None else commit.state_ids  # under checkpoint format 2
    operators = operators_of(reading, listed, settings)
    refuse_foreign_state(reading, operators, settings, cut.last)
    refuse_incomplete(reading, operators, unique, epoch, changes)
    shards = shards_of(reading, listed, operators, unique, epoch)
    schemas = schemas_of(reading, listed, operators, epoch, settings)
    _refuse_settings(
        reading,
        listed,
        cut,
        settings,
        StateFacts(
            operators, shards, schemas, any(store.changes for store in listed.stores.values())
        ),
    )
    check_uncommitted(reading, listed, operators, epoch)
    if thorough and epoch is not None:
        refuse_unparsable(reading, listed, epoch)
    ends = endpoints_of(reading, listed.sources, last_batch.sources, thorough)
    if cut.last is not None:
        last = cut.last  # a restart reads it, the one before, and the last two planned
        planned = sorted(batch for batch in listed.offsets if batch > last)[-2:]
        before = [last - 1] if last > 0 else []
        batches = [*before, *listed.offsets.intersection((last,)), *planned]
        entries = dict(_offset_logs(reading, batches))
        refuse_unreadable_ends(reading, listed.sources, entries, last)
    tracked = tracked_schemas(reading, listed.schema_logs)
    epochs: set[int] = set()
    if not is_foreign(settings):  # each batch names the provider that the query was born with
        epochs = set(restartable(reading, listed, operators, epoch, thorough)) - suspects
    planned_state = None
    if not is_rewound:  # else that batch is to be done again, maybe by other code
        planned_state = planned_state_of(reading, listed, operators, epoch, cut.planned)
    embedded = (*ends.embedded, *own_places(reading, listed), *tracked)
    findings = tuple(reading.findings)
    backlog: tuple[Backlog, ...] = ()
    rewound_from = None
    if is_rewound and newest.epoch is not None and epoch is not None:
        rewound_from = Newest(newest.epoch, newest.planned)
        backlog = backlog_of(reading, logs_by_source(listed.sources), epoch, newest.epoch)
    details = SparkImage(
        offsets=len(listed.offsets),
        commits=len(listed.commits),
        batch_timestamp_ms=last_batch.timestamp_ms,
        real_time_lengths=_real_time_lengths(reading, listed, files),
        strangers=counted_strangers(listed.strangers),
        newest=rewound_from,
        backlog=backlog,
        schemas=schemas if changes else {},
    )
    return Image(
        path=reading.prefix,
        name=None,
        identity=None if query is None else query.id,
        epoch=epoch,
        epochs=tuple(sorted(epochs)),
        planned=cut.planned,
        operators=operators,
        shards=shards,
        needed=_needed(reading, listed, ends, shards, cut),
        first_read=_first_read(reading, listed, cut),
        embedded=embedded,
        endpoints=(*ends.endpoints, *named_sinks(commit)),
        settings=settings,
        written_by=oldest_writer(settings),
        fence=fence,
        findings=findings,
        details=details,
        planned_state=planned_state,
    )


@dataclass(frozen=True, slots=True)
class _Cut:
    """The last batch that Spark takes as done, and the last one that was planned."""

    epoch: int | None
    planned: int | None

    @property
    def last(self) -> int | None:
        """The batch whose offsets describe the query: the last one done, else the one planned."""
        return self.planned if self.epoch is None else self.epoch

    @property
    def next_planned(self) -> int | None:
        if self.epoch is None or self.planned != self.epoch + 1:
            return None
        return self.planned


def _cut(listed: ListedFiles) -> _Cut:
    return _Cut(last_done(listed), max(listed.offsets, default=None))


def _small_files(
    reading: Reading, listed: ListedFiles, cut: _Cut, files: tuple[FileInfo, ...]
) -> list[str]:
    """Return the small files of every look: the last logs, and the operators' metadata."""
    if cut.last is None:
        return []
    logs = listed.logs()
    wanted = logs.intersection(layout.first_read(cut.last, cut.next_planned))
    wanted.update(files_of_operators(listed, cut.last))
    sizes = {file.path: file.size for file in files}
    return [path for path in sorted(wanted) if sizes.get(reading.path(path), 0) <= KEPT_EACH]


@dataclass(frozen=True, slots=True)
class _LastBatch:
    """The last committed batch in the offset log."""

    settings: dict[str, str] = field(default_factory=dict)
    sources: tuple[offset_format.SourceOffset, ...] = ()
    timestamp_ms: int | None = None


def _query(reading: Reading, listed: ListedFiles) -> metadata_format.QueryMetadata | None:
    """Return the query's id; say what is odd about the file that holds it."""
    if not listed.metadata:
        if listed.offsets or listed.commits:
            reading.refuse(
                f"{reading.path(layout.METADATA)} is missing: Spark 4.2 and later refuse to "
                "start, earlier ones take it for another query",
                layout.METADATA,
            )
        return None
    query = reading.decoded(layout.METADATA, metadata_format.decode_metadata)
    if query is None:
        return None
    path = reading.path(layout.METADATA)
    if query.id != query.written.lower():
        message = f"{path} holds the query id {query.written}, which Spark takes for {query.id}"
        reading.warn(message, layout.METADATA)
    if query.trailing:
        end = len(metadata_format.encode_metadata(query)) - query.trailing
        fact = f"{path} has {query.trailing} more bytes behind its JSON, which Spark does not read"
        reading.warn(fact, layout.METADATA, end)
    return query


def _rewind(reading: Reading, listed: ListedFiles, changes: Sequence[Change]) -> bool:
    """Leave out what came after the batch to go back to; return whether there was something, and
    that batch is committed.
    """
    rewind = find_change(changes, Rewind)
    newest = max(listed.commits, default=None)
    if rewind is None:
        return False
    if rewind.batch == newest and max(listed.offsets, default=0) <= newest + 1:
        return False
    batch = rewind.batch
    is_committed = batch in listed.commits
    if is_committed:
        listed.forget_after(batch)
    else:
        known = "" if newest is None else f"; the newest is batch {newest}"
        reading.refuse(
            f"batch {batch} is not committed in {reading.storage.location}{known}: there "
            "is no going back to it"
        )
    return is_committed


def _refuse_settings(
    reading: Reading, listed: ListedFiles, cut: _Cut, settings: Mapping[str, str], state: StateFacts
) -> None:
    if cut.epoch is None:
        return
    refuse_unfit(reading, layout.offset_path(cut.epoch), settings, state)
    if cut.planned is not None and cut.planned > cut.epoch:
        for batch, planned in _offset_logs(reading, [cut.planned]):
            refuse_changed(reading, layout.offset_path(batch), settings, planned)


def _without_fence(reading: Reading, listed: ListedFiles) -> str | None:
    """Take our fence out of the logs; return its owner. Several planned batches have two."""
    owner = None
    logs = ((listed.offsets, layout.offset_path), (listed.commits, layout.commit_path))
    for numbers, path_of in logs:
        while numbers:
            newest = max(numbers)
            try:
                held = fence_owner(reading.content(path_of(newest)))
            except MissingFile:
                break
            if held is None:
                break
            numbers.discard(newest)
            owner = held
    return owner


def _last_batch(reading: Reading, listed: ListedFiles, cut: _Cut) -> _LastBatch:
    if cut.last is None:
        return _LastBatch()
    path = layout.offset_path(cut.last)
    entry = reading.decoded(path, offset_format.decode_offsets)
    if entry is None:
        return _LastBatch()
    if not listed.stores and entry.watermark_ms > 0:
        place = reading.path("") or reading.storage.location
        reading.warn(
            f"{place} holds no state, though its query has a watermark: it needs none, or "
            "all is missing"
        )
    partitions = entry.conf.get(offset_format.PARTITIONS)
    if partitions is not None and partitions_of(entry.conf) is None:
        reading.refuse(
            f"{reading.path(path)} says that there are {partitions[:40]!r} partitions, which no "
            "job has",
            path,
        )
    return _LastBatch(dict(entry.conf), entry.offsets, entry.timestamp_ms)


def _real_time_lengths(
    reading: Reading, listed: ListedFiles, files: Iterable[FileInfo]
) -> tuple[float, ...]:
    """Return the seconds of those of the last two batches that look like real-time mode."""
    modified = {file.path: file.modified for file in files}
    done = sorted(listed.commits & listed.offsets)[-LAST_BATCHES:]
    entries = dict(_offset_logs(reading, done))
    written = {batch: modified[reading.path(layout.offset_path(batch))] for batch in done}
    commits = {batch: modified[reading.path(layout.commit_path(batch))] for batch in listed.commits}
    return real_time_lengths(entries, written, commits)


def _offset_logs(
    reading: Reading, batches: Iterable[int]
) -> Iterator[tuple[int, offset_format.OffsetEntry]]:
    for batch in batches:
        entry = reading.decoded(layout.offset_path(batch), offset_format.decode_offsets)
        if entry is not None:
            yield batch, entry


def _first_read(reading: Reading, listed: ListedFiles, cut: _Cut) -> tuple[str, ...]:
    if cut.epoch is None:
        return ()
    paths = layout.first_read(cut.epoch, cut.next_planned)
    if cut.epoch not in listed.commits:
        paths = tuple(path for path in paths if not layout.is_commit(path))
    return tuple(reading.path(path) for path in paths)


def _needed(
    reading: Reading,
    listed: ListedFiles,
    ends: Endpoints,
    shards: tuple[ShardFiles, ...],
    cut: _Cut,
) -> tuple[str, ...]:
    """Return all paths of a restart, with Spark's checksums, which stay with their bytes."""
    if cut.epoch is None:
        return ()
    logs = listed.logs().intersection(layout.first_read(cut.epoch, cut.next_planned))
    operator_files = files_of_operators(listed, cut.epoch)
    beside_state = {*logs, *ends.logs, *operator_files, *listed.schema_logs}
    paths = set(map(reading.path, beside_state))
    for shard in shards:
        paths.update(shard.files)
    checksums = {f"{path}.crc" for path in paths}
    checksums.intersection_update(map(reading.path, listed.spark_crcs))
    return tuple(sorted(paths | checksums))


# Operator -> shard -> the uuid of each store's file, in the order of the operator's stores.
Uuids = Mapping[str, tuple[tuple[str, ...], ...]]

# The number of shards missing from an operator that are named one by one.
MISSING_MAX = 20


def shards_of(
    reading: Reading,
    listed: ListedFiles,
    operators: tuple[Operator, ...],
    unique: Uuids,
    epoch: int | None,
) -> tuple[ShardFiles, ...]:
    """Return the chain of every shard's stores at the epoch, and refuse missing files."""
    if epoch is None:
        return ()
    shards: list[ShardFiles] = []
    for operator in operators:
        numbers = {store.name: number for number, store in enumerate(operator.stores)}
        missing: list[str] = []
        for key in store_keys([operator]):
            _, shard, name = key
            store = listed.stores.get(key)
            if store is None:
                missing.append(folder_of(*key))
                continue
            uuid = ""
            if store.uses_uuids:
                with suppress(KeyError, IndexError):  # else the commit names none
                    uuid = unique[operator.id][shard][numbers[name]]
            files = _chain_at(reading, store, epoch + 1, uuid)
            for path in files.missing:
                fact = f"{reading.path(path)} is missing: epoch {epoch} cannot be restored"
                reading.refuse(f"{fact} without it", path)
            paths = tuple(map(reading.path, files.files))
            shards.append(ShardFiles(operator.id, name, shard, paths))
        # The first few by name, for there may be as many as somebody wrote into a log.
        for folder in missing[:MISSING_MAX]:
            reading.refuse(
                f"{reading.path(folder)} is missing: the operator has {operator.shards} shards",
                folder,
            )
        if len(missing) > MISSING_MAX:
            more, folder = len(missing) - MISSING_MAX, f"state/{operator.id}"
            reading.refuse(
                f"{more} more shards are missing from {reading.path(folder)}, of {operator.shards}",
                folder,
            )
        _refuse_more(reading, listed, operator, epoch)
    return tuple(shards)


def _chain_at(reading: Reading, store: StoreFiles, version: int, uuid: str = "") -> Chain:
    return chain(store, version, partial(_ssts, reading), partial(_lineage, reading), uuid)


def _refuse_more(reading: Reading, listed: ListedFiles, operator: Operator, epoch: int) -> None:
    """Refuse state in shards beyond the offset log's count: a job would start without it."""
    more = set()
    for store in listed.stores.values():
        is_unknown = store.operator == operator.id and store.shard >= operator.shards
        if is_unknown and store.at(epoch + 1):
            more.add(store.shard)
    if more:
        folder = f"state/{operator.id}/{min(more)}"
        reading.refuse(
            f"{reading.path(folder)} holds state of epoch {epoch}, and the offset log says that "
            f"operator {operator.id} has {operator.shards} shards, where {len(more)} more are "
            "there: a job would start without that state",
            folder,
            hint="restore the offset log from a copy of the checkpoint; or, where a query that "
            f"was taken back to an earlier batch has left it, move {reading.path(folder)} away",
        )


def _ssts(reading: Reading, path: str) -> tuple[str, ...]:
    decoded = reading.decoded(path, rocksdb.decode_zip)
    if decoded is None:
        return ()
    folder = path.rsplit("/", 1)[0]
    return tuple(f"{folder}/SSTs/{table.stored}" for table in decoded.tables)


def _lineage(reading: Reading, path: str) -> tuple[tuple[int, str], ...]:
    """Return the versions before a changelog's, as its head names them."""
    decoded = reading.streamed(path, state_files.decode_changelog)
    return () if decoded is None else decoded[0].lineage


def restartable(
    reading: Reading,
    listed: ListedFiles,
    operators: tuple[Operator, ...],
    epoch: int | None,
    thorough: bool,
) -> tuple[int, ...]:
    """Return the committed batches that a restart works from. `thorough` looks into every zip."""
    if not listed.metadata or reading.refuses_below("sources"):
        return ()
    done = set(listed.commits)
    if not done and epoch is not None:
        done = {epoch}
    predecessors = {-1, *listed.offsets}
    batches = set()
    for batch in done & listed.offsets:
        is_readable = reading.refused.isdisjoint(layout.first_read(batch))
        if is_readable and batch - 1 in predecessors:
            batches.add(batch)
    for key in store_keys(operators):
        store = listed.stores.get(key)
        loadable = set() if store is None else store.loadable()
        batches = {batch for batch in batches if batch + 1 in loadable}
    if reading.refuses_below("state"):
        batches -= {epoch}
    if thorough:
        others = batches - {epoch}
        batches -= {batch for batch in others if not _zips_whole(reading, listed, batch + 1)}
    return tuple(sorted(batches))


def _zips_whole(reading: Reading, listed: ListedFiles, version: int) -> bool:
    """Whether every zip and SST of a version reads; only of chains without uuids."""
    probe = reading.unreported()
    for store in listed.stores.values():
        if store.ssts and not store.uses_uuids:
            files = _chain_at(probe, store, version)
            if files.missing or probe.findings:
                return False
    return True

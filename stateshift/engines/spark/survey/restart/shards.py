"""The chain of files of every store of every shard at an epoch, and the epochs that have all of
theirs. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import Chain, StoreFiles, chain
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.query_files import ListedFiles, folder_of, store_keys
from stateshift.formats.spark import rocksdb, state_files
from stateshift.survey import Operator, ShardFiles

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
    batches = _with_logs(reading, listed, epoch)
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


def _with_logs(reading: Reading, listed: ListedFiles, epoch: int | None) -> set[int]:
    """Return the batches that are done, and whose logs a restart can read."""
    done = set(listed.commits)
    if not done and epoch is not None:
        done = {epoch}
    predecessors = {-1, *listed.offsets}
    batches = set()
    for batch in done & listed.offsets:
        is_readable = reading.refused.isdisjoint(layout.first_read(batch))
        if is_readable and batch - 1 in predecessors:
            batches.add(batch)
    return batches


def _zips_whole(reading: Reading, listed: ListedFiles, version: int) -> bool:
    """Whether every zip and SST of a version reads; only of chains without uuids."""
    probe = reading.unreported()
    for store in listed.stores.values():
        if store.ssts and not store.uses_uuids:
            files = _chain_at(probe, store, version)
            if files.missing or probe.findings:
                return False
    return True

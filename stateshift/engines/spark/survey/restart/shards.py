"""The chain of files of every store of every shard at an epoch, and the epochs that have all of
theirs. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import chain
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.endpoints import Endpoints
from stateshift.engines.spark.survey.restart.operators import is_foreign
from stateshift.engines.spark.survey.restart.query_files import Found, folder_of
from stateshift.errors import FormatError, MissingFile, TooLarge
from stateshift.formats.spark import rocksdb, state_files
from stateshift.survey import Operator, ShardFiles

# Operator -> shard -> the uuid of each store's file, in the order of the operator's stores.
Uuids = Mapping[str, tuple[tuple[str, ...], ...]]

# So many shards that are missing from an operator are told one by one.
MISSING_MAX = 20


def shards_of(
    reading: Reading,
    found: Found,
    operators: tuple[Operator, ...],
    settings: Mapping[str, str],
    unique: Uuids,
    epoch: int | None,
) -> tuple[ShardFiles, ...]:
    """The chain of every store of every shard at the epoch; what is missing from one is refused
    by name.
    """
    if epoch is None:
        return ()
    shards = []
    for operator in operators:
        names = [store.name for store in operator.stores]
        missing: list[str] = []
        for shard in range(operator.shards):
            for number, name in enumerate(names):
                store = found.stores.get((operator.id, shard, name))
                if store is None:
                    missing.append(folder_of(operator.id, shard, name))
                    continue
                uuid = _uuid(unique, operator.id, shard, number) if store.uses_uuids else ""
                files = chain(
                    store,
                    epoch + 1,
                    lambda p: _ssts(reading, p),
                    lambda p: _lineage(reading, p),
                    uuid,
                )
                for path in files.missing:
                    place = reading.path(path)
                    reading.refuse(
                        f"{place} is missing: epoch {epoch} cannot be restored without it", path
                    )
                shards.append(
                    ShardFiles(
                        operator.id, name, shard, tuple(reading.path(p) for p in files.files)
                    )
                )
        _refuse_missing(reading, operator, missing)
        _warn_of_more(reading, found, operator, epoch)
    return tuple(shards)


def _refuse_missing(reading: Reading, operator: Operator, folders: list[str]) -> None:
    """Shards without any file: the first few by name, for there may be as many as somebody wrote
    into a log.
    """
    for folder in folders[:MISSING_MAX]:
        reading.refuse(
            f"{reading.path(folder)} is missing: the operator has {operator.shards} shards", folder
        )
    if len(folders) > MISSING_MAX:
        more, folder = len(folders) - MISSING_MAX, f"state/{operator.id}"
        reading.refuse(
            f"{more} more shards are missing from {reading.path(folder)}, of {operator.shards}",
            folder,
        )


def _warn_of_more(reading: Reading, found: Found, operator: Operator, epoch: int) -> None:
    """State of the epoch in shards that the offset log knows nothing of: a restart would leave
    it out.
    """
    more = {
        shard
        for (id, shard, _), store in found.stores.items()
        if id == operator.id and shard >= operator.shards and store.at(epoch + 1)
    }
    if more:
        folder = f"state/{operator.id}/{min(more)}"
        reading.warn(
            f"{reading.path(folder)} holds state of epoch {epoch} that a restart leaves "
            "out: the offset log "
            f"says {operator.shards} shards, {len(more)} more are there",
            folder,
        )


def _uuid(unique: Uuids, operator: str, shard: int, store: int) -> str:
    """The commit's word for the store's file; "" where it has none, which `chain` reports as
    missing.
    """
    try:
        return unique[operator][shard][store]
    except (KeyError, IndexError):
        return ""


def _ssts(reading: Reading, path: str) -> tuple[str, ...]:
    """The SST files that a zip's metadata names."""
    decoded = reading.decoded(path, rocksdb.decode_zip)
    folder = path.rsplit("/", 1)[0]
    return (
        ()
        if decoded is None
        else tuple(f"{folder}/SSTs/{table.stored}" for table in decoded.tables)
    )


def _lineage(reading: Reading, path: str) -> tuple[tuple[int, str], ...]:
    try:
        return state_files.decode_changelog(reading.chunks(path))[0].lineage
    except TooLarge as error:
        raise error.at(reading.path(path)) from error
    except FormatError as error:
        reading.refuse(f"{reading.path(path)} is damaged: {error.fact}", path, error.offset or 0)
    except MissingFile:
        reading.vanished(path)
    return ()


def restartable(
    reading: Reading,
    found: Found,
    operators: tuple[Operator, ...],
    settings: Mapping[str, str],
    ends: Endpoints,
    epoch: int | None,
    thorough: bool,
) -> tuple[int, ...]:
    """The committed batches from which a restart works: their offsets and the ones before are
    there, and every store can be loaded. `thorough` also looks into every zip they lean on.
    """
    if is_foreign(settings):
        return ()  # each batch's offsets name the provider that the query was born with
    if not found.metadata or any(
        f.level == "refuse" and f.path and "sources/" in f.path for f in reading.findings
    ):
        return ()
    done = found.commits or ({epoch} if epoch is not None else set())
    batches = {b for b in done if b in found.offsets and (b == 0 or b - 1 in found.offsets)}
    broken = {f.path for f in reading.findings if f.level == "refuse"}
    batches = {b for b in batches if not broken & {reading.path(p) for p in layout.first_read(b)}}
    for operator in operators:
        for shard in range(operator.shards):
            for store in operator.stores:
                files = found.stores.get((operator.id, shard, store.name))
                loadable = files.loadable() if files else set()
                batches = {b for b in batches if b + 1 in loadable}
    if any(f.level == "refuse" and f.path and "state/" in f.path for f in reading.findings):
        batches.discard(epoch if epoch is not None else -1)
    if thorough:
        batches = {b for b in batches if b == epoch or _zips_whole(reading, found, b + 1)}
    return tuple(sorted(batches))


def _zips_whole(reading: Reading, found: Found, version: int) -> bool:
    """Whether every zip and SST of a version is there and reads; for plain chains only, uuids
    are the commit's word.
    """
    probe = Reading(reading.storage, reading.prefix)
    for store in found.stores.values():
        if store.ssts and not store.uses_uuids:
            files = chain(store, version, lambda p: _ssts(probe, p), lambda p: _lineage(probe, p))
            if files.missing or probe.findings:
                return False
    return True

"""The state that a batch has written which was planned and not committed. Reads only.

Batch N + 1 writes state version N + 2 in all its tasks. The sink commits after them, and Spark's
own commit comes last:

    state N+2 of every shard     the sink's commit     commits/N+1
                            |                      |
             killed here: the sink        killed here: the sink has the batch. After a restart it
                                          recognises the
             has not got the batch        number and does not run the plan (FileStreamSink.addBatch;
                                          Delta, and its
                                          txnVersion in a foreachBatch): the next batch loads
                                          version N+2 as it is

Nobody can tell the two from the checkpoint, so the state counts as needed once it is whole. If one
shard lacks it, then some task had not ended, and no sink has the batch.

Of each shard the file of changes is enough, for the version before it is there. A snapshot beside
it is left out: where the batch does run again, Spark overwrites the changes, and would prefer the
stale snapshot to them.

Under checkpoint format 2 only commits/N+1 could say which of the files is meant. Spark cannot go on
there itself, in place or elsewhere: it fails with `CheckpointInfo length: 0` (StateStoreWriter;
seen with 4.0.5 and 4.3.0).
"""

from __future__ import annotations

from stateshift.engines.spark.chains import StoreFiles
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.query_files import Found
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import rocksdb
from stateshift.survey import Operator, PlannedState


def planned_state_of(
    reading: Reading,
    found: Found,
    operators: tuple[Operator, ...],
    epoch: int | None,
    planned: int | None,
) -> PlannedState | None:
    """Return the state version that batch `epoch` + 1 wrote; None where it was not planned, or a
    shard lacks it.
    """
    if epoch is None or planned != epoch + 1:
        return None
    stores = _stores(found, operators)
    version = planned + 1
    if not stores or not all(store is not None and store.at(version) for store in stores):
        return None
    files: list[str] = []
    for store in stores:
        assert store is not None, "all of them are there"
        if store.uses_uuids:
            return PlannedState((), unnamed=True)
        own = _files(reading, store, version)
        if own is None:
            return None
        files += own
    with_checksums: list[str] = []
    for path in files:
        with_checksums.extend((path, f"{path}.crc"))
    kept = [
        path for path in with_checksums if not path.endswith(".crc") or path in found.spark_crcs
    ]
    return PlannedState(tuple(sorted({reading.path(path) for path in kept})))


def _stores(found: Found, operators: tuple[Operator, ...]) -> list[StoreFiles | None]:
    """Every store of every shard that the query has."""
    stores = []
    for operator in operators:
        for shard in range(operator.shards):
            for store in operator.stores:
                stores.append(found.stores.get((operator.id, shard, store.name)))
    return stores


def _files(reading: Reading, store: StoreFiles, version: int) -> list[str] | None:
    """The files of one store at the version; None where one of them is gone or not there yet."""
    changes = store.changes.get((version, ""))
    if changes is not None:
        return [changes]
    snapshot = store.snapshots[version, ""]
    if not snapshot.endswith(".zip"):
        return [snapshot]
    tables = _tables(reading, snapshot)
    if tables is None or any(table not in store.ssts for table in tables):
        return None
    return [snapshot, *(store.ssts[table] for table in tables)]


def _tables(reading: Reading, path: str) -> list[str] | None:
    """The SST files that a zip names; None where it cannot be read."""
    try:
        decoded = rocksdb.decode_zip(reading.content(path))
    except MissingFile:
        return None
    except FormatError as error:
        reading.refuse(
            f"{reading.path(path)} is damaged: {error.fact}. A batch that was planned and "
            "not committed wrote it, and "
            "a job reads it if its sink has that batch",
            path,
            error.offset or 0,
            hint=(
                "if the sink does not have the batch, move this file away: the job then runs "
                "the batch again"
            ),
        )
        return None
    return [table.stored for table in decoded.tables]

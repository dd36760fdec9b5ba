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
shard lacks it, then some task had not ended, and no sink has the batch; or files are gone, which
only the sink's own log tells. What is damaged is nobody's loss where the batch runs again, for
Spark writes it anew: whoever knows the sink judges it.

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
from stateshift.engines.spark.survey.restart.query_files import ListedFiles, store_keys
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import rocksdb
from stateshift.survey import Operator, PlannedState


def planned_state_of(
    reading: Reading,
    listed: ListedFiles,
    operators: tuple[Operator, ...],
    epoch: int | None,
    planned: int | None,
) -> PlannedState | None:
    """Return the state version that batch `epoch` + 1 wrote; None where it was not planned, or a
    shard lacks it.
    """
    if epoch is None or planned != epoch + 1:
        return None
    version = planned + 1
    stores = _stores_at(version, listed, operators)
    if not stores:
        return None
    files: set[str] = set()
    for store in stores:
        if store.uses_uuids:
            return PlannedState((), unnamed=True)
        try:
            own_files = _files(reading, store, version)
        except FormatError as error:
            return PlannedState((), wrong=str(error))
        if own_files is None:
            return None
        files.update(own_files)
    checksums = {f"{path}.crc" for path in files} & listed.spark_crcs
    return PlannedState(tuple(sorted(map(reading.path, files | checksums))))


def _stores_at(
    version: int, listed: ListedFiles, operators: tuple[Operator, ...]
) -> list[StoreFiles]:
    """Return every store of every shard; none of them where one has nothing of the version."""
    stores = []
    for key in store_keys(operators):
        store = listed.stores.get(key)
        if store is None or not store.at(version):
            return []
        stores.append(store)
    return stores


def _files(reading: Reading, store: StoreFiles, version: int) -> list[str] | None:
    """Return the files of one store at the version; None where one of them is gone, or not there
    yet.
    """
    changes = store.changes.get((version, ""))
    if changes is not None:
        return [changes]
    snapshot = store.snapshots[version, ""]
    if not snapshot.endswith(".zip"):
        return [snapshot]
    tables = _tables(reading, snapshot)
    if tables is None or not store.ssts.keys() >= set(tables):
        return None
    return [snapshot, *(store.ssts[table] for table in tables)]


def _tables(reading: Reading, path: str) -> list[str] | None:
    """Return the SST files that a zip names; None where it is not there any more."""
    try:
        decoded = rocksdb.decode_zip(reading.content(path))
    except MissingFile:
        return None
    except FormatError as error:
        raise error.at(reading.path(path)) from error
    return [table.stored for table in decoded.tables]

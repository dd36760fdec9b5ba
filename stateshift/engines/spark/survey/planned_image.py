"""The state of a planned batch as an image of its own, so that it is read to its end, and changed,
like that of the epoch. Reads only.

shard at the epoch  1.snapshot  2.delta  3.delta
after the batch     1.snapshot  2.delta  3.delta  4.delta  or its own 4.zip with the tables it names

Batch N + 1, which was planned and not committed, writes state version N + 2 in all its tasks. The
sink commits after them, and Spark's own commit comes last:

    state N+2 of every shard     the sink's commit     commits/N+1
                            |                      |
             killed here: the sink        killed here: the sink has the batch
             has not got the batch

A sink that has the batch recognises the number after a restart and does not run the plan
(FileStreamSink.addBatch; Delta, and its txnVersion in a foreachBatch): the next batch loads version
N+2 as it is. Nobody can tell the two from the checkpoint, so the state counts as needed once it is
whole. If one shard lacks it, then some task had not ended, and no sink has the batch; or files are
gone, which only the sink's own log tells. Damage is nobody's loss where the batch runs again, for
Spark writes it anew: whoever knows the sink judges it.

The file of changes of each shard is enough, for the version before it is there. A snapshot beside
it is left out: where the batch does run again, Spark overwrites the changes, and would prefer the
stale snapshot to them.

Under checkpoint format 2 only commits/N+1 could say which of the files is meant. Spark cannot go on
there itself, in place or elsewhere: it fails with `CheckpointInfo length: 0` (StateStoreWriter;
seen with 4.0.5 and 4.3.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from stateshift.engines.spark.chains import StoreFiles, StoreKey, place_of, store_key
from stateshift.engines.spark.layout import inside, under
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.query_files import ListedFiles, store_keys
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import rocksdb
from stateshift.formats.spark.names import classify
from stateshift.survey import Image, Operator, PlannedState, ShardFiles, Survey

SKIPPING = "Delta, a file sink, or a foreachBatch with txnVersion"
NAME_THE_SINK = 'name the sink, and the plan says which: "sink": {"kind": "delta", "location": "…"}'


def after_planned(image: Image) -> Image | None:
    """Return the image with the planned batch's state; None where there is none."""
    if image.planned_state is None or not image.planned_state.files:
        return None
    written: dict[StoreKey, list[str]] = {}
    for path in image.planned_state.files:
        if not path.endswith(".crc"):
            store = store_key(classify(inside(image, path)))
            written.setdefault(store, []).append(path)
    shards = []
    for shard in image.shards:
        files = written.get(place_of(shard), [])
        snapshots = [path for path in files if path.endswith((".zip", ".snapshot"))]
        before = snapshots or shard.files  # a snapshot stands instead of the shard's own
        others = [path for path in files if path not in snapshots]
        shards.append(replace(shard, files=(*before, *others)))
    return replace(
        image,
        epoch=image.planned,
        shards=tuple(shards),
        needed=image.needed_files,
        planned_state=None,
    )


def planned_files(image: Image) -> Iterator[str]:
    """Yield the state files of a batch that was planned and not committed."""
    if image.planned_state is not None:
        yield from image.planned_state.files


def narrow_image(image: Image, stays: Callable[[str], bool], shards: Iterable[ShardFiles]) -> Image:
    """Return an image of these shards, with only the files whose path stays."""
    planned = image.planned_state
    if planned is not None:
        planned = replace(planned, files=tuple(filter(stays, planned.files)))
    needed = tuple(filter(stays, image.needed))
    return replace(image, shards=tuple(shards), needed=needed, planned_state=planned)


def lacks_state(image: Image) -> bool:
    """Whether a planned batch's state is not whole, and the batch has to run again."""
    if not image.operators or image.epoch is None or image.planned != image.epoch + 1:
        return False
    return image.planned_state is None or image.planned_state.wrong is not None


def is_begun(survey: Survey, image: Image) -> bool:
    """Whether the planned batch has left any state, whole or not."""
    for file in survey.files:
        if file.path.startswith(under(image.path, "state/")):
            place = classify(inside(image, file.path))
            if place.area == "state" and place.version == (image.planned or 0) + 1:
                return True
    return False


def planned_fate(image: Image) -> str:
    """Report the fate of the planned batch's state, where nobody knows its sink."""
    return (
        f"batch {image.planned} wrote it, which was planned and not committed: a sink that has the "
        f"batch ({SKIPPING}) skips it, and the job fails behind it, or goes on from wrong state; "
        "any other takes it again, and Spark writes this state anew"
    )


def planned_state_of(
    reading: Reading,
    listed: ListedFiles,
    operators: tuple[Operator, ...],
    epoch: int | None,
    planned: int | None,
) -> PlannedState | None:
    """Return the state of batch `epoch` + 1; None if not planned, or if a shard lacks it."""
    if epoch is None or planned != epoch + 1:
        return None
    version = planned + 1
    stores = [listed.stores.get(key) for key in store_keys(operators)]
    if not stores or not all(store is not None and store.at(version) for store in stores):
        return None
    files: set[str] = set()
    for store in filter(None, stores):
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


def _files(reading: Reading, store: StoreFiles, version: int) -> list[str] | None:
    changes = store.changes.get((version, ""))
    if changes is not None:
        return [changes]
    snapshot = store.snapshots[version, ""]
    if not snapshot.endswith(".zip"):
        return [snapshot]
    try:
        decoded = rocksdb.decode_zip(reading.content(snapshot))
    except MissingFile:
        return None
    except FormatError as error:
        raise error.at(reading.path(snapshot)) from error
    tables = [table.stored for table in decoded.tables]
    if not store.ssts.keys() >= set(tables):
        return None
    return [snapshot, *(store.ssts[table] for table in tables)]

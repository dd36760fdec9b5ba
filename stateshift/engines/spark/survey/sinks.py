"""The batches of a job's output in the sink that a spec names, read from the sink's own log; and
how far another job has read them.

    delta          _delta_log                 txn actions: application id and batch, with the
                                              table's version
    iceberg        metadata/*.metadata.json   snapshot summaries: query id and batch, with the
                                              snapshot's id
    file           _spark_metadata            the newest batch
    foreach-batch  _delta_log                 where the spec names the table and the txnAppId
    kafka          nothing: it keeps no log of batches

    the writer  starts behind batch a, its last commit, or a batch that it has planned, which has
                the same offsets again: it puts out the batches after a once more
    the reader  has read none of them: "within"; some of them, or what the sink here does not have
                and the writer cannot have put out up to a: "beyond"

The result of a batch that each kind is given twice:

    kind           knows batches    skips the plan    source
    delta          yes              yes               DeltaSink.addBatch: txn action (query id,
                                                      batch)
    file           yes              yes               FileStreamSink.addBatch: _spark_metadata
    iceberg        yes              no                SparkWrite.StreamingWrite: the plan runs, the
                                                      commit is skipped
    kafka          no               no                KafkaStreamingWrite: at least once
    foreach-batch  its author's matter: the spec says it (`idempotent_by_batch`, `transaction_id`)

Source: Spark, FileStreamSink; Delta, DeltaSink; Iceberg, SparkWrite. No JVM is started.

The log of a file sink names no query: its batches are all up to the newest number in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from stateshift.engines.spark.layout import SINK_LOG, inside, number_of_log
from stateshift.engines.spark.survey.inputs import table_at
from stateshift.engines.spark.survey.table_logs import read_delta_log
from stateshift.engines.tables import METADATA_ENDING, newest_path
from stateshift.engines.views import Opening
from stateshift.errors import FormatError, MissingFile, StateshiftError, StorageError, errors_at
from stateshift.formats.iceberg_metadata import METADATA_BYTES_MAX, decode_table
from stateshift.formats.spark.source_log import decode_source_log
from stateshift.formats.spark.uris import decode_location
from stateshift.sources.kinds import DELTA, FILE
from stateshift.specification import SinkSpec
from stateshift.specification.location import relation
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, OutputRead, SinkFacts, SinkLog, Survey

KNOWS_BATCHES = {"delta": True, "file": True, "iceberg": True, "kafka": False}
SKIPS_PLAN = {"delta": True, "file": True, "iceberg": False, "kafka": False}


def named_sink(sink: SinkSpec) -> SinkFacts:
    """Return the facts of the sink that the spec alone tells."""
    if sink.kind != "foreach-batch":
        return SinkFacts(sink.kind, sink.location, KNOWS_BATCHES[sink.kind], SKIPS_PLAN[sink.kind])
    knows = sink.idempotent_by_batch
    if knows is None and sink.transaction_id is not None:
        knows = True
    return SinkFacts(sink.kind, sink.location, knows, knows)


def read_sink(sink: SinkSpec, opening: Opening, back_to: Mapping[str, int]) -> SinkFacts:
    """Return the sink's batches of these queries; of a log that cannot be read, the reason."""
    facts = named_sink(sink)
    try:
        logs = _logs(sink, opening, back_to)
    except FormatError as error:
        return replace(facts, wrong=str(error), hint=error.hint)
    except StateshiftError as error:
        return replace(facts, wrong=error.fact, hint=error.hint)
    if logs is None:
        return facts
    return replace(facts, read=True, logs=logs)


def _logs(
    sink: SinkSpec, opening: Opening, back_to: Mapping[str, int]
) -> dict[str, SinkLog] | None:
    """Return the content of its log; None where there is none to be read."""
    if sink.location is None:
        return None
    match sink.kind:
        case "delta":
            return read_delta_log(opening(sink.location), back_to)
        case "iceberg" if sink.location.endswith(METADATA_ENDING):
            folder, _, name = sink.location.rpartition("/")
            return read_iceberg_metadata(opening(folder), name, back_to)
        case "iceberg":
            storage = opening(sink.location)
            return read_iceberg_metadata(storage, newest_path(storage), back_to)
        case "file":
            return read_file_sink_log(opening(sink.location))
        case "foreach-batch" if sink.transaction_id is not None:
            oldest = min(back_to.values(), default=0)
            found = read_delta_log(opening(sink.location), {sink.transaction_id: oldest})
            return {"": found[sink.transaction_id]}
        case "foreach-batch" | "kafka":
            return None
    raise StorageError(f"no sink of kind {sink.kind} is known", location=sink.location)


def read_file_sink_log(storage: Storage) -> dict[str, SinkLog]:
    """Return the newest batch of the sink, whichever query wrote it."""
    numbered = {}
    for file in storage.list(SINK_LOG):
        number = number_of_log(file.path)
        if number >= 0 and file.path.count("/") == 1:
            numbered[number] = file.path
    if not numbered:
        raise MissingFile(
            f"{storage.location} has no {SINK_LOG}: no file sink of Spark has written there"
        )
    last = max(numbered)
    path = numbered[last]
    with errors_at(path):  # the first lines show whether the file is such a log
        next(iter(decode_source_log(storage.chunks(path))), None)
    return {"": SinkLog(last)}


def read_iceberg_metadata(
    storage: Storage, path: str, queries: Mapping[str, int]
) -> dict[str, SinkLog]:
    """Return the batches that the table which this metadata file describes has of each query."""
    with errors_at(path):
        table = decode_table(storage.read(path, METADATA_BYTES_MAX))
    # Snapshots come from the newest back, and the newest of a batch counts.
    by_query: dict[str, dict[int, int]] = {query: {} for query in queries}
    for snapshot in table.streamed:
        if snapshot.query in by_query:
            by_query[snapshot.query].setdefault(snapshot.batch, snapshot.snapshot_id)
    logs = {}
    for query, batches in by_query.items():
        logs[query] = SinkLog(next(iter(batches), None), batches)
    return logs


# ---- how far another job has read it


def output_read(sink: SinkSpec, writer: Survey, reader: Survey, opening: Opening) -> OutputRead:
    """Return the part of the writer's output that the reader has read. A sink of any other kind has
    no log that tells it: "nothing".
    """
    is_table = sink.kind == "delta" or sink.transaction_id is not None
    if sink.location is None or not (is_table or sink.kind == "file"):
        return "nothing"
    try:
        if is_table:
            return _read_of_table(sink, opening(sink.location), writer, reader, opening)
        return _read_of_files(opening(sink.location), writer, reader, opening)
    except StateshiftError:
        return "unknown"


def _last_batch(image: Image) -> int:
    """Return the last batch that a job does not do again with other input; -1 where all are."""
    return max(-1 if batch is None else batch for batch in (image.epoch, image.planned))


def _read_of_table(
    sink: SinkSpec, storage: Storage, writer: Survey, reader: Survey, opening: Opening
) -> OutputRead:
    ends = chain.from_iterable(image.endpoints for image in reader.images)
    sources = [end.details for end in ends if end.kind == DELTA.name]
    if not sources:
        return "nothing"
    table = table_at(storage.location, opening)
    if table.wrong is not None or table.id is None:
        return "unknown"
    versions = []  # of which the reader has read something
    for source in sources:
        if source["table_id"] == table.id:
            has_begun = source["starting_snapshot"] or source["index"] >= 0
            versions.append(source["version"] if has_begun else source["version"] - 1)
    if not versions:
        return "nothing"
    is_beyond = max(versions) > table.newest
    for image in writer.images:
        batch, query = _last_batch(image), sink.transaction_id or image.identity
        if query is None:
            return "unknown"
        log = read_delta_log(storage, {query: batch})[query]
        again = [version for number, version in log.versions.items() if number > batch]
        is_beyond = is_beyond or max(versions) >= min(again, default=table.newest + 1)
    return "beyond" if is_beyond else "within"


def _read_of_files(sink: Storage, writer: Survey, reader: Survey, opening: Opening) -> OutputRead:
    files = _files_read(sink.location, reader, opening)
    if not files:
        return "nothing"
    paths = [file.path for file in sink.list(SINK_LOG) if file.path.count("/") == 1]
    if len(writer.images) != 1 or not paths:
        return "unknown"  # nothing tells whose output it is, or there is none
    batch = _last_batch(writer.images[0])
    earlier, later, is_whole = set[str](), set[str](), batch < 0
    for path in sorted(paths, key=number_of_log, reverse=True):
        with errors_at(path):  # each file has an id of its own in its name
            log = decode_source_log(sink.chunks(path))
            names = {entry.path.rpartition("/")[2] for entry in log}
        if number_of_log(path) > batch:
            later |= names
        elif not is_whole:
            earlier |= names
            is_whole = path.endswith(".compact") or number_of_log(path) == 0
    if not is_whole:
        return "unknown"
    again = (later - earlier).intersection(chain.from_iterable(files.values()))
    # The files that it has read last may be there no more, or not yet.
    is_there = earlier.issuperset(files[max(files)])
    return "within" if is_there and not again else "beyond"


def _files_read(folder: str, reader: Survey, opening: Opening) -> dict[int, set[str]]:
    """Return the names of the files of a folder that a job has read, by batches of its source."""
    storage = opening(reader.location)
    by_batch: dict[int, set[str]] = {}
    is_own: dict[str, bool] = {}
    for image in reader.images:
        logs = tuple(f"sources/{end.index}/" for end in image.endpoints if end.kind == FILE.name)
        for path in [each for each in image.needed if inside(image, each).startswith(logs)]:
            with errors_at(path):
                for entry in decode_source_log(storage.chunks(path)):
                    above, _, name = decode_location(entry.path).rpartition("/")
                    if above not in is_own:
                        is_own[above] = relation(above, folder) in ("same", "inside")
                    if is_own[above]:
                        batch = entry.fields.get("batchId")
                        number = batch if isinstance(batch, int) else 0
                        by_batch.setdefault(number, set()).add(name)
    return by_batch

"""Read what the sink that a spec names has of a job's output.

    delta          _delta_log                 txn actions: application id and batch, with the
                                              table's version
    iceberg        metadata/*.metadata.json   snapshot summaries: query id and batch, with the
                                              snapshot's id
    file           _spark_metadata            the newest batch
    foreach-batch  _delta_log                 where the spec names the table and the txnAppId
    kafka          nothing: it keeps no log of batches

What each kind makes of a batch that it is given twice:

    kind           knows batches    skips the plan    source
    delta          yes              yes               DeltaSink.addBatch: txn action (query id,
                                                      batch)
    file           yes              yes               FileStreamSink.addBatch: _spark_metadata
    iceberg        yes              no                SparkWrite.StreamingWrite: the plan runs, the
                                                      commit is skipped
    kafka          no               no                KafkaStreamingWrite: at least once
    foreach-batch  its author's matter: the spec says it (`idempotent_by_batch`, `transaction_id`)

Source: Spark, FileStreamSink; Delta, DeltaSink; Iceberg, SparkWrite. No JVM is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stateshift.engines.spark.survey.sinks.delta import read_delta_log
from stateshift.engines.spark.survey.sinks.file_log import read_file_sink_log
from stateshift.engines.spark.survey.sinks.iceberg import read_iceberg_metadata, read_iceberg_table
from stateshift.engines.views import Opening
from stateshift.errors import FormatError, StateshiftError, StorageError
from stateshift.specification import SinkSpec
from stateshift.survey import SinkFacts, SinkLog

METADATA_ENDING = ".metadata.json"
KNOWS_BATCHES = {"delta": True, "file": True, "iceberg": True, "kafka": False}
SKIPS_PLAN = {"delta": True, "file": True, "iceberg": False, "kafka": False}


def named_sink(sink: SinkSpec) -> SinkFacts:
    """Return what the spec alone tells of the sink."""
    if sink.kind != "foreach-batch":
        return SinkFacts(sink.kind, sink.location, KNOWS_BATCHES[sink.kind], SKIPS_PLAN[sink.kind])
    knows = sink.idempotent_by_batch
    if knows is None and sink.transaction_id is not None:
        knows = True
    return SinkFacts(sink.kind, sink.location, knows, knows)


def read_sink(sink: SinkSpec, opening: Opening, back_to: Mapping[str, int]) -> SinkFacts:
    """Return what the sink has of the queries whose ids these are, as far back as the batch beside
    each id. A log that cannot be read is no reason to fail: the facts say why.
    """
    facts = named_sink(sink)
    try:
        logs = _logs(sink, opening, back_to)
    except FormatError as error:
        return replace(facts, wrong=str(error), hint=error.hint)
    except StateshiftError as error:
        return replace(facts, wrong=error.fact, hint=error.hint)
    return facts if logs is None else replace(facts, read=True, logs=logs)


def _logs(
    sink: SinkSpec, opening: Opening, back_to: Mapping[str, int]
) -> dict[str, SinkLog] | None:
    """What its log has; None where there is none to be read."""
    if sink.location is None:
        return None
    match sink.kind:
        case "delta":
            return read_delta_log(opening(sink.location), back_to)
        case "iceberg" if sink.location.endswith(METADATA_ENDING):
            folder, _, name = sink.location.rpartition("/")
            return read_iceberg_metadata(opening(folder), name, back_to)
        case "iceberg":
            return read_iceberg_table(opening(sink.location), back_to)
        case "file":
            return read_file_sink_log(opening(sink.location))
        case "foreach-batch" if sink.transaction_id is not None:
            oldest = min(back_to.values(), default=0)
            found = read_delta_log(opening(sink.location), {sink.transaction_id: oldest})
            return {"": found[sink.transaction_id]}
        case "foreach-batch" | "kafka":
            return None
    raise StorageError(f"no sink of kind {sink.kind} is known", location=sink.location)

"""What each kind of sink makes of a batch that it is given twice. Pure.

kind           knows batches    skips the plan    source
delta          yes              yes               DeltaSink.addBatch: txn action (query id, batch)
file           yes              yes               FileStreamSink.addBatch: _spark_metadata
iceberg        yes              no                SparkWrite.StreamingWrite: the plan runs, the
                                                  commit is skipped
kafka          no               no                KafkaStreamingWrite: at least once
foreach-batch  its author's matter: the spec says it (`idempotent_by_batch`, `transaction_id`)
"""

from __future__ import annotations

from stateshift.specification import SinkSpec
from stateshift.survey import SinkFacts

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

"""The state of Flink's connectors, written: what `formats.flink` reads, byte for byte."""

from __future__ import annotations

from stateshift.formats.flink.file_source import Numbers
from stateshift.formats.flink.java_data import DataOutput
from stateshift.formats.flink.kafka import (
    SPLIT_VERSION,
    KafkaSplit,
    KafkaTransaction,
    encode_split,
)
from stateshift.formats.flink.operator_state import (
    COMMITTER_MAGIC,
    CheckpointCommittables,
    CommitterState,
    SubtaskCommittables,
)


def encode_cluster_split(version: int, split: KafkaSplit) -> bytes:
    """Return the bytes of a split of DynamicKafkaSource."""
    assert split.cluster is not None, "a KafkaSource has no clusters"
    out = DataOutput()
    out.utf(split.cluster)
    if version > 1:
        out.boolean(split.kept_until_ms is not None)
        if split.kept_until_ms is not None:
            out.i8(split.kept_until_ms)
    out.i4(SPLIT_VERSION)
    out.put(encode_split(split))
    return out.content()


def encode_transaction(transaction: KafkaTransaction) -> bytes:
    """Return the bytes of a committable, in version 1."""
    out = DataOutput()
    out.i2(transaction.epoch)
    out.i8(transaction.producer_id)
    out.utf(transaction.id)
    return out.content()


def encode_committer(state: CommitterState) -> bytes:
    """Return the bytes of a committer's state, in its version."""
    out = DataOutput()
    if state.version == 1:
        out.i4(state.inner_version, len(state.legacy))
        for content in state.legacy:
            out.sized(content)
        return out.content()
    out.put(COMMITTER_MAGIC.to_bytes(4, "big"))
    out.i4(state.inner_version, len(state.checkpoints))
    for checkpoint in state.checkpoints:
        out.sized(_checkpoint(checkpoint))
    return out.content()


def _checkpoint(checkpoint: CheckpointCommittables) -> bytes:
    out = DataOutput()
    out.i8(checkpoint.id)
    if checkpoint.of is not None:
        out.i4(checkpoint.of)
    out.i4(checkpoint.subtask_version, len(checkpoint.subtasks))
    for subtask in checkpoint.subtasks:
        out.sized(_subtask(subtask))
    return out.content()


def _subtask(subtask: SubtaskCommittables) -> bytes:
    out = DataOutput()
    if subtask.subtask is not None:
        out.i4(subtask.subtask)
    out.i4(0, len(subtask.requests))
    for request in subtask.requests:
        inner = DataOutput()
        inner.i4(request.committable.version)
        inner.sized(request.committable.content)
        inner.i4(request.retries, request.state)
        out.sized(inner.content())
    for number in subtask.numbers:
        out.i4(number)
    return out.content()


def encode_numbers(numbers: Numbers) -> bytes:
    """Return the bytes of a split of numbers."""
    out = DataOutput()
    out.utf(numbers.id)
    out.i8(numbers.next, numbers.last)
    return out.content()


def encode_numbers_enumerator(splits: tuple[Numbers, ...]) -> bytes:
    """Return the bytes of an enumerator of numbers."""
    out = DataOutput()
    out.i4(len(splits))
    for numbers in splits:
        out.put(encode_numbers(numbers))
    return out.content()

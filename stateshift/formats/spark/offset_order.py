"""Whether one source's offset lies behind another: the offsets of a job's batches only go forward.

    {"logOffset":3}                                   file: the number of the last entry of its log
    {"topic":{"0":123}}                               Kafka, Event Hubs: every partition that both
                                                      name
    5                                                 rate, memory, socket: a count
    {"offset":10,"timestamp":2000}                    rate-micro-batch: a count
    {"reservoirId":…,"reservoirVersion":7,"index":2}  Delta: the version, then the index; of one
                                                      table
    {"snapshot_id":…,"position":4}                    Iceberg: the position, within one snapshot

Nothing is said of other shapes, of two shapes, or of what only one of the two names: a partition
may vanish, a table may be another one. Negative offsets of Kafka (-2 earliest, -1 latest) stand for
no position.

Source: Spark, FileStreamSourceOffset, KafkaSourceOffset, LongOffset, RatePerMicroBatchStreamOffset;
Delta, DeltaSourceOffset.validateOffsets; Iceberg, StreamingOffset.
"""

from __future__ import annotations

import json
from typing import Any, TypeGuard


def step_back(before: str, after: str) -> str | None:
    """How `after` lies behind `before`, in words for a message; None where it does not, or
    nobody can know.
    """
    older, newer = _decoded(before), _decoded(after)
    if _is_count(older) and _is_count(newer):
        return _fell(older, newer)
    if not isinstance(older, dict) or not isinstance(newer, dict):
        return None
    for name in ("logOffset", "offset"):
        if _is_count(older.get(name)) and _is_count(newer.get(name)):
            return _fell(older[name], newer[name])
    if "reservoirId" in older and older.get("reservoirId") == newer.get("reservoirId"):
        return _of_delta(older, newer)
    if "snapshot_id" in older and older["snapshot_id"] == newer.get("snapshot_id"):
        return _of_field("position", older, newer)
    return _of_topics(older, newer)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _fell(before: int, after: int) -> str | None:
    return f"{before} to {after}" if after < before else None


def _of_field(name: str, older: dict[str, Any], newer: dict[str, Any]) -> str | None:
    before, after = older.get(name), newer.get(name)
    if not _is_count(before) or not _is_count(after) or after >= before:
        return None
    return f"{name} {before} to {after}"


def _of_delta(older: dict[str, Any], newer: dict[str, Any]) -> str | None:
    fell = _of_field("reservoirVersion", older, newer)
    if fell is None and older.get("reservoirVersion") == newer.get("reservoirVersion"):
        fell = _of_field("index", older, newer)
    return fell


def _of_topics(older: dict[str, Any], newer: dict[str, Any]) -> str | None:
    for topic, partitions in older.items():
        others = newer.get(topic)
        if not isinstance(partitions, dict) or not isinstance(others, dict):
            continue
        for number, before in partitions.items():
            after = others.get(number)
            if not number.isdecimal() or not _is_count(before) or not _is_count(after):
                continue
            if 0 <= after < before:
                return f"{topic}, partition {number}: {before} to {after}"
    return None

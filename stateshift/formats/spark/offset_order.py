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

from stateshift.formats.spark.text import JsonObject, is_integer

# Fields that count up, whatever source writes them.
_COUNTS = ("logOffset", "offset")


def step_back(before: str, after: str) -> str | None:
    """Return how `after` lies behind `before`, in words for a message; None where it does not, or
    nobody can know.
    """
    older, newer = _decoded(before), _decoded(after)
    if isinstance(older, dict) and isinstance(newer, dict):
        return _fall_of_objects(older, newer)
    if is_integer(older) and is_integer(newer):
        return _fall(older, newer)
    return None


def _fall_of_objects(older: JsonObject, newer: JsonObject) -> str | None:
    for name in _COUNTS:
        before, after = older.get(name), newer.get(name)
        if is_integer(before) and is_integer(after):
            return _fall(before, after)
    if _agree_on("reservoirId", older, newer):
        return _fall_of_delta(older, newer)
    if _agree_on("snapshot_id", older, newer):
        return _fall_of_field("position", older, newer)
    return _fall_of_topics(older, newer)


def _agree_on(name: str, older: JsonObject, newer: JsonObject) -> bool:
    return name in older and older[name] == newer.get(name)


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _fall(before: int, after: int) -> str | None:
    return f"{before} to {after}" if after < before else None


def _fall_of_field(name: str, older: JsonObject, newer: JsonObject) -> str | None:
    before, after = older.get(name), newer.get(name)
    if not is_integer(before) or not is_integer(after):
        return None
    return f"{name} {before} to {after}" if after < before else None


def _fall_of_delta(older: JsonObject, newer: JsonObject) -> str | None:
    if older.get("reservoirVersion") == newer.get("reservoirVersion"):
        return _fall_of_field("index", older, newer)
    return _fall_of_field("reservoirVersion", older, newer)


def _fall_of_topics(older: JsonObject, newer: JsonObject) -> str | None:
    for topic, partitions in older.items():
        others = newer.get(topic)
        if not isinstance(partitions, dict) or not isinstance(others, dict):
            continue
        for number, before in partitions.items():
            if number.isdecimal() and _is_behind(others.get(number), before):
                return f"{topic}, partition {number}: {before} to {others[number]}"
    return None


def _is_behind(after: object, before: object) -> bool:
    return is_integer(after) and is_integer(before) and 0 <= after < before

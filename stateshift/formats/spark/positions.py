"""The progress of a source: its offset, by the connector that wrote it; and whether one is behind
another: the offsets of a job's batches only go forward. Pure.

    {"logOffset":3}                                                          file
    {"orders":{"0":80,"1":80}}                                               Kafka, or old Event
                                                                             Hubs (see below)
    {"endpoint":…,"consumerGroup":…,"partitionToSeqNos":{"hub":{"0":23}}}    Event Hubs, newer
    {"sourceVersion":1,"reservoirId":"<table id>","reservoirVersion":4,      Delta
     "index":-1,"isStartingVersion":false}
    {"version":1,"snapshot_id":599…,"position":1,"scan_all_files":false}     Iceberg
    {"snapshotId":3,"index":1,"scanSnapshot":false}                          Paimon
    {"offset":10,"timestamp":2000}                                           rate-micro-batch
    5                                                                        rate, memory, socket

Source: Spark, KafkaSourceOffset; Delta, DeltaSourceOffset; Iceberg, StreamingOffset; Paimon,
PaimonSourceOffset; azure-event-hubs-spark, EventHubsSourceOffset, JsonUtils. Old Event Hubs
offsets, and the file under `sources/`, are Kafka's in every byte: only several topics, or a name
that no event hub may have, tell that it is Kafka.

Delta's index: below 0 nothing of that version is read yet, but for -20 and -19, which stand before
and behind a change of the table's schema (DeltaSourceOffset.METADATA_CHANGE_INDEX,
POST_METADATA_CHANGE_INDEX).

Two offsets are compared by the log's number, each partition that both name, the count, Delta's
version and then index (of one table), or Iceberg's position (within one snapshot). Other shapes,
two shapes, and names in only one of the two are passed over: a partition may vanish, a table may be
another one. Negative offsets of Kafka (-2 earliest, -1 latest) stand for no position.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from stateshift.formats.spark.text import is_integer
from stateshift.plain import JsonObject

KAFKA, EVENT_HUBS, EITHER = "kafka", "event-hubs", "kafka or event-hubs"
NAMES_TOPICS = (KAFKA, EVENT_HUBS, EITHER)
BEFORE_SCHEMA_CHANGE, BEHIND_SCHEMA_CHANGE = -20, -19

# An offset that is a JSON object, of which each connector knows its own fields.
Offset = JsonObject

# Event Hubs: letters, digits, periods, hyphens and underscores, with a letter or a digit at both
# ends.
_COUNTS = ("logOffset", "offset")  # fields that count up, whatever source writes them
_PARTITION = re.compile(r"[0-9]{1,10}")
_HUB_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,254}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """`kind` is the connector; `details` the offset in plain values with names of ours."""

    kind: str
    details: JsonObject = field(default_factory=dict)


def position_of(offset: object, has_log: bool) -> SourcePosition:
    """Return a source's offset, decoded JSON; `has_log`: it has files below `sources/`."""
    if is_integer(offset):
        return SourcePosition("rate" if has_log else "memory or socket", {"offset": offset})
    if isinstance(offset, dict):
        return _position_of_object(offset)
    return SourcePosition("unknown")


def _position_of_object(offset: Offset) -> SourcePosition:
    for kind, keys, fields in _CONNECTORS:
        if keys <= offset.keys():
            details = {name: offset.get(key) for name, key in fields.items()}
            if "starting_snapshot" in details:
                details["starting_snapshot"] = details["starting_snapshot"] is True
            hubs = offset.get("partitionToSeqNos")
            if kind == EVENT_HUBS and isinstance(hubs, dict) and _is_topics(hubs):
                details["offsets"] = topics_of(hubs)
            return SourcePosition(kind, details)
    if offset.keys() == {"offset", "timestamp"}:
        details = {"offset": offset["offset"], "timestamp": offset["timestamp"]}
        return SourcePosition("rate-micro-batch", details)
    if _is_topics(offset):
        names = list(offset)
        # An Event Hubs source reads one event hub.
        broker = EITHER if len(names) == 1 and _HUB_NAME.fullmatch(names[0]) else KAFKA
        return SourcePosition(broker, {"offsets": topics_of(offset)})
    return SourcePosition("unknown")


def topics_of(offset: Offset) -> dict[str, dict[int, int]]:
    """Return topic -> partition -> next offset; -2 and -1 (unread) are first and last."""
    read: dict[str, dict[int, int]] = {}
    for topic, partitions in offset.items():
        known = {}
        for number, at in partitions.items():
            if isinstance(at, int) and at >= 0:
                known[int(number)] = at
        if known:
            read[topic] = known
    return read


# A connector's name, the keys by which its offsets are known, and names of ours for their fields.
_CONNECTORS: tuple[tuple[str, frozenset[str], dict[str, str]], ...] = (
    ("file", frozenset(("logOffset",)), {"log_offset": "logOffset"}),
    (
        "delta",
        frozenset(("reservoirId",)),
        {
            "table_id": "reservoirId",
            "version": "reservoirVersion",
            "index": "index",
            "starting_snapshot": "isStartingVersion",
        },
    ),
    (
        "iceberg",
        frozenset(("snapshot_id", "position", "scan_all_files")),
        {
            "snapshot_id": "snapshot_id",
            "position": "position",
            "starting_snapshot": "scan_all_files",
        },
    ),
    (
        "paimon",
        frozenset(("snapshotId", "index", "scanSnapshot")),
        {"snapshot_id": "snapshotId", "position": "index", "starting_snapshot": "scanSnapshot"},
    ),
    (EVENT_HUBS, frozenset(("partitionToSeqNos",)), {"consumer_group": "consumerGroup"}),
)


def _is_topics(offset: Offset) -> bool:
    for partitions in offset.values():
        if not isinstance(partitions, dict) or not all(map(_PARTITION.fullmatch, partitions)):
            return False
    return bool(offset)


def step_back(before: str, after: str) -> str | None:
    """Return words for how `after` is behind `before`; None if it is not, or is unknown."""
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
    if "reservoirId" in older and older["reservoirId"] == newer.get("reservoirId"):
        same_version = older.get("reservoirVersion") == newer.get("reservoirVersion")
        return _fall_of_field("index" if same_version else "reservoirVersion", older, newer)
    if "snapshot_id" in older and older["snapshot_id"] == newer.get("snapshot_id"):
        return _fall_of_field("position", older, newer)
    return _fall_of_topics(older, newer)


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


def _fall_of_topics(older: JsonObject, newer: JsonObject) -> str | None:
    for topic, partitions in older.items():
        others = newer.get(topic)
        if not isinstance(partitions, dict) or not isinstance(others, dict):
            continue
        for number, before in partitions.items():
            after = others.get(number)
            if not number.isdecimal() or not is_integer(after) or not is_integer(before):
                continue
            if 0 <= after < before:
                return f"{topic}, partition {number}: {before} to {after}"
    return None

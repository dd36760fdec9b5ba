"""How far a source has been read: what its offset says, by the connector that wrote it. Pure.

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
"""

from __future__ import annotations

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
_HUB_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,254}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Position:
    """`kind` is the connector; `details` is what the offset says, in plain values with names of
    ours.
    """

    kind: str
    details: JsonObject = field(default_factory=dict)


def position_of(offset: object, has_log: bool) -> Position:
    """Return what a source's offset says, as decoded JSON; `has_log`: there are files below
    `sources/` of it.
    """
    if is_integer(offset):
        return Position("rate" if has_log else "memory or socket", {"offset": offset})
    if isinstance(offset, dict):
        return _position_of_object(offset)
    return Position("unknown")


def _position_of_object(offset: Offset) -> Position:
    for keys, read in _READERS:
        if keys <= offset.keys():
            return read(offset)
    if offset.keys() == {"offset", "timestamp"}:
        details = {"offset": offset["offset"], "timestamp": offset["timestamp"]}
        return Position("rate-micro-batch", details)
    if _is_topics(offset):
        return Position(_broker_of(offset), {"offsets": topics_of(offset)})
    return Position("unknown")


def topics_of(offset: Offset) -> dict[str, dict[int, int]]:
    """Return topic -> partition -> the next offset to read. -2 and -1 stand for the first and the
    last one there is, where a job has not read any yet.
    """
    read: dict[str, dict[int, int]] = {}
    for topic, partitions in offset.items():
        known = {int(number): at for number, at in partitions.items() if _is_offset(at)}
        if known:
            read[topic] = known
    return read


def _is_offset(at: object) -> bool:
    return isinstance(at, int) and at >= 0


def _file(offset: Offset) -> Position:
    return Position("file", {"log_offset": offset["logOffset"]})


def _delta(offset: Offset) -> Position:
    details = {
        "table_id": offset["reservoirId"],
        "version": offset.get("reservoirVersion"),
        "index": offset.get("index"),
        "starting_snapshot": offset.get("isStartingVersion") is True,
    }
    return Position("delta", details)


def _iceberg(offset: Offset) -> Position:
    details = {
        "snapshot_id": offset["snapshot_id"],
        "position": offset["position"],
        "starting_snapshot": offset["scan_all_files"] is True,
    }
    return Position("iceberg", details)


def _paimon(offset: Offset) -> Position:
    details = {
        "snapshot_id": offset["snapshotId"],
        "position": offset["index"],
        "starting_snapshot": offset["scanSnapshot"] is True,
    }
    return Position("paimon", details)


def _event_hubs(offset: Offset) -> Position:
    hubs = offset["partitionToSeqNos"]
    details = {"consumer_group": offset.get("consumerGroup")}
    if isinstance(hubs, dict) and _is_topics(hubs):
        return Position(EVENT_HUBS, {**details, "offsets": topics_of(hubs)})
    return Position(EVENT_HUBS, details)


_READERS = (
    (frozenset(("logOffset",)), _file),
    (frozenset(("reservoirId",)), _delta),
    (frozenset(("snapshot_id", "position", "scan_all_files")), _iceberg),
    (frozenset(("snapshotId", "index", "scanSnapshot")), _paimon),
    (frozenset(("partitionToSeqNos",)), _event_hubs),
)


def _broker_of(offset: Offset) -> str:
    """Return which broker an offset is of: an Event Hubs source reads one event hub."""
    names = list(offset)
    return EITHER if len(names) == 1 and _HUB_NAME.fullmatch(names[0]) else KAFKA


def _is_topics(offset: Offset) -> bool:
    return bool(offset) and all(map(_is_partitions, offset.values()))


def _is_partitions(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value))


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) <= 10

"""`_metadata` in another version, as an older cluster can read it, and the losses on the way. Pure.

    up    nothing is missing that a reader needs: names and uids stay empty, unless somebody gives
          them
    down  V5+ to V4 loses names and uids, V4 to V3 the properties; merged channels are expanded
          below V6; references to other checkpoints (V7) are dropped; file merging's handles (since
          1.20, in V4) have no older form

A file of V3 has no properties: it gets those of another that is written with it, else it cannot
become V4.
"""

from __future__ import annotations

from dataclasses import replace

from stateshift.errors import Incompatible
from stateshift.formats.flink.keyed_handles import Incremental, KeyGroups
from stateshift.formats.flink.metadata import (
    NAMES_FROM,
    PROPERTIES_FROM,
    REFERENCES_FROM,
    Metadata,
    OperatorState,
    SubtaskState,
)
from stateshift.formats.flink.operator_handles import KINDS_FROM, expand_channels
from stateshift.formats.flink.operator_state import VERSIONS

# The newest version of `_metadata` that a Flink reads, by its first two numbers.
READ_BY = {
    (1, 15): 3,
    (1, 16): 4,
    (1, 17): 4,
    (1, 18): 4,
    (1, 19): 4,
    (1, 20): 4,
    (2, 0): 5,
    (2, 1): 6,
    (2, 2): 6,
    (2, 3): 6,
}
# Operator state has a header of another version since (FLINK-30113): 1.17 reads up to 5.
OPERATOR_STATE_6_FROM = (1, 18)
PROMISED_FROM = 3  # Flink 1.11 to 1.15 write this version
OLD_TAGS = (3, 5)  # handles of key groups and of RocksDB's files up to Flink 1.14
WRITTEN_BY = {
    2: "Flink 1.3 to 1.10",
    3: "Flink 1.11 to 1.15",
    4: "Flink 1.16 to 1.20",
    5: "Flink 2.0",
    6: "Flink 2.1 to 2.3",
    7: "a Flink newer than 2.3",
}


def flink_version(text: str | None) -> tuple[int, int] | None:
    """Return the first two numbers of a version: (2, 3) of "2.3.0" and "2.3-SNAPSHOT"."""
    numbers = (text or "").split("-")[0].split(".")[:2]
    if len(numbers) < 2 or not all(map(str.isdigit, numbers)):
        return None
    major, minor = numbers
    return int(major), int(minor)


def newest_for(text: str | None) -> int | None:
    """Return the newest version that a Flink reads; None where that is not known."""
    flink = flink_version(text)
    if flink is None:
        return None
    if flink in READ_BY:
        return READ_BY[flink]
    return min(READ_BY.values()) if flink < min(READ_BY) else max(READ_BY.values())


def newest_operator_state_for(text: str | None) -> int | None:
    """Return the operator state version that a Flink writes; None if unknown."""
    flink = flink_version(text)
    if flink is None:
        return None
    older, newest = VERSIONS
    return newest if flink >= OPERATOR_STATE_6_FROM else older


def is_before_promised(metadata: Metadata) -> bool:
    """Whether a Flink before 1.15 wrote it: by version, or by a form of a handle."""
    if metadata.version < PROMISED_FROM:
        return True
    for operator in metadata.operators:
        for subtask in operator.all_subtasks:
            for handle in (subtask.managed_keyed, subtask.raw_keyed):
                if isinstance(handle, KeyGroups | Incremental) and handle.tag in OLD_TAGS:
                    return True
    return False


def convert_metadata(metadata: Metadata, version: int, properties: bytes = b"") -> Metadata:
    """Return the same state as metadata of another version."""
    if version == metadata.version:
        return metadata
    held = b""
    if version >= PROPERTIES_FROM:
        held = metadata.properties or properties
        if not held:
            raise Incompatible(
                f"metadata of version {metadata.version} says nothing of what kind it is, which "
                f"version {version} has to",
                hint="leave it in its version: every newer Flink reads it",
            )
    operators = tuple(_operator(operator, version) for operator in metadata.operators)
    return replace(metadata, version=version, operators=operators, properties=held)


def _operator(operator: OperatorState, version: int) -> OperatorState:
    name, uid = None, None
    if version >= NAMES_FROM:
        name, uid = operator.name or "", operator.uid or ""
    subtasks = operator.subtasks
    if subtasks is not None:
        subtasks = tuple(_subtask(subtask, version) for subtask in subtasks)
    return replace(operator, subtasks=subtasks, name=name, uid=uid)


def _subtask(subtask: SubtaskState, version: int) -> SubtaskState:
    inputs, outputs = subtask.inputs, subtask.outputs
    if version < KINDS_FROM:
        inputs, outputs = tuple(expand_channels(inputs)), tuple(expand_channels(outputs))
    reference = subtask.reference if version >= REFERENCES_FROM else None
    return replace(subtask, inputs=inputs, outputs=outputs, reference=reference)

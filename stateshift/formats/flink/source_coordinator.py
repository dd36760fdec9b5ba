"""The state of a source's coordinator, which lies in `_metadata`: a frame around what the split
enumerator of the connector keeps.

    i32 version of the frame, 0 or 1
    i32 version of the enumerator's serializer
    i32 n, n bytes of the enumerator            the connector's own, whatever version it counts
    version 0 only: more may follow, which is not read

There is no checksum. Flink reads no other version of the frame, and behind version 1 no trailing
bytes ("Unexpected trailing bytes in enumerator checkpoint data").

Source: Flink 1.20.5 and 2.3.0, runtime/source/coordinator/SourceCoordinator.deserializeCheckpoint,
SourceCoordinatorSerdeUtils.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stateshift.formats.flink.java_data import Input

# The list state of every operator that reads a source (SourceOperator.SPLITS_STATE_DESC).
READER_STATE: Final = "SourceReaderState"
VERSIONS: Final = (0, 1)


@dataclass(frozen=True, slots=True)
class EnumeratorState:
    """What the split enumerator keeps, and the version of the serializer that wrote it."""

    version: int
    content: bytes


def decode_source_coordinator(content: bytes) -> EnumeratorState:
    """Return the enumerator's state; raise FormatError for a frame that Flink refuses."""
    data = Input(content, "the state of a source's coordinator")
    frame = data.i4()
    if frame not in VERSIONS:
        raise data.wrong(f"version {frame}, and Flink reads {VERSIONS[0]} and {VERSIONS[-1]}", 0)
    version = data.i4()
    enumerator = data.take(data.i4())
    if frame > 0 and not data.at_end():
        raise data.wrong(f"{data.end - data.at} trailing bytes, which Flink refuses")
    return EnumeratorState(version, enumerator)

"""State that a connector's own serializer wrote, in frames of Flink's. There are no checksums.

    coordinator  i32 version of the frame, 0 or 1         of a source, in `_metadata`
                 i32 version of the enumerator's serializer
                 i32 n, n bytes of the enumerator
                 version 0 only: more may follow, which is not read
    element      i32 length of the rest                   of a list state
                 i32 version of the serializer            (BytePrimitiveArraySerializer)
                 i32 n, n bytes; nothing may follow

Flink reads no other version of the coordinator's frame, and behind version 1 no trailing bytes
("Unexpected trailing bytes in enumerator checkpoint data"). If the lengths of an element differ it
ends with "Corrupt data, conflicting lengths".

Source: Flink 1.15 to 2.3, runtime/source/coordinator/SourceCoordinator.deserializeCheckpoint,
SourceCoordinatorSerdeUtils; core/io/SimpleVersionedSerialization, api/operators/util/
SimpleVersionedListState.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stateshift.formats.flink.java_data import DataInput

# The list state of every operator that reads a source (SourceOperator.SPLITS_STATE_DESC).
READER_STATE: Final = "SourceReaderState"
# A source's splits, the state of a sink's writers, and what its committers have still to commit.
STATES: Final = (READER_STATE, "writer_raw_states", "streaming_committer_raw_states")
SERIALIZER: Final = "BytePrimitiveArraySerializer"
VERSIONS: Final = (0, 1)


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """The bytes of a connector, and the version of its serializer that wrote them."""

    version: int
    content: bytes


def decode_source_coordinator(content: bytes) -> ConnectorState:
    """Return the enumerator's state; raise FormatError for a frame that Flink refuses."""
    data = DataInput(content, "the state of a source's coordinator")
    frame = data.i4()
    if frame not in VERSIONS:
        raise data.wrong(f"version {frame}, and Flink reads {VERSIONS[0]} and {VERSIONS[-1]}", 0)
    version = data.i4()
    enumerator = data.take(data.i4())
    if frame > 0:
        data.require_end("trailing bytes, which Flink refuses")
    return ConnectorState(version, enumerator)


def decode_versioned_elements(
    content: bytes, state: str, count: int = 1
) -> Iterator[ConnectorState]:
    """Yield `count` elements; raise FormatError for a frame that Flink refuses."""
    data = DataInput(content, f"state {state!r}")
    for _ in range(count):
        start = data.at
        frame = DataInput(data.take(data.i4()), data.what)
        version = frame.i4()
        size, left = frame.i4(), frame.end - frame.at
        if size != left:
            raise data.wrong(
                f"an element's length is {size}, and {left} bytes are there: Flink refuses it",
                start + 8,
            )
        yield ConnectorState(version, frame.take(size))

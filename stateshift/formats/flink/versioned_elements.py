"""Elements of list states that connectors fill: what the connector's own serializer wrote, in a
frame of Flink's.

    i32 length of the rest              BytePrimitiveArraySerializer
    i32 version of the serializer
    i32 n, n bytes                      the connector's own; nothing may follow

There is no checksum. Where the lengths differ Flink ends with "Corrupt data, conflicting lengths".

Source: Flink 1.15 to 2.3, core/io/SimpleVersionedSerialization, api/operators/util/
SimpleVersionedListState.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stateshift.formats.flink.java_data import Input

# A source's splits, what a sink's writers keep, and what its committers have still to commit.
STATES: Final = ("SourceReaderState", "writer_raw_states", "streaming_committer_raw_states")
SERIALIZER: Final = "BytePrimitiveArraySerializer"


@dataclass(frozen=True, slots=True)
class VersionedElement:
    """What a connector keeps, and the version of its serializer that wrote it."""

    version: int
    content: bytes


def decode_versioned_elements(
    content: bytes, state: str, count: int = 1
) -> Iterator[VersionedElement]:
    """Yield `count` elements; raise FormatError for a frame that Flink refuses."""
    data = Input(content, f"state {state!r}")
    for _ in range(count):
        start = data.at
        frame = Input(data.take(data.i4()), data.what)
        version = frame.i4()
        size, left = frame.i4(), frame.end - frame.at
        if size != left:
            raise data.wrong(
                f"an element's length is {size}, and {left} bytes are there: Flink refuses it",
                start + 8,
            )
        yield VersionedElement(version, frame.take(size))

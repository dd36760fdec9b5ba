"""The pure transforms that Flink's plans name: source streams in, target streams out, nothing else touched.

    flink.keep        files as they are, under other names
    flink.cut         pieces of one file: options {"pieces": [[start, size], ...]}, one output each
    flink.metadata    the metadata of one image out of those of several: options {"taken": [...], "version": n or null}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stateshift.engines.flink.editing import Taken, united
from stateshift.engines.flink.reading import decoded
from stateshift.formats.flink.metadata import encode_metadata
from stateshift.formats.stream import Stream
from stateshift.storage.protocol import CHUNK, Content
from stateshift.world import Transform

KEEP, CUT, METADATA = "flink.keep", "flink.cut", "flink.metadata"


def keep(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    return inputs


def cut(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    (content,) = inputs
    return tuple(_piece(content, start, size) for start, size in options["pieces"])


def _piece(content: Content, start: int, size: int) -> Content:
    def piece() -> Iterator[bytes]:
        data = Stream(content(), "a segment of a merged file")
        for length in _lengths(start):
            data.take(length)
        for length in _lengths(size):
            yield data.take(length)

    return piece


def _lengths(size: int) -> Iterator[int]:
    while size > 0:
        yield min(size, CHUNK)
        size -= CHUNK


def metadata(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    taken = [Taken.of(plain) for plain in options["taken"]]

    def made() -> Iterator[bytes]:
        images = [decoded(b"".join(content())) for content in inputs]
        yield encode_metadata(united(images, taken, options["version"]))

    return (made,)


TRANSFORMS: Mapping[str, Transform] = {KEEP: keep, CUT: cut, METADATA: metadata}

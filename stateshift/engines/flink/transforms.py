"""The pure transforms that Flink's plans name: source streams in, target streams out, nothing else touched.

    flink.keep        files as they are, under other names
    flink.cut         pieces of one file: options {"pieces": [[start, size], ...]}, one output each
    flink.metadata    the metadata of one image out of those of several: options {"taken": [...], "version": n or null}
    flink.rescale     an operator's keyed state for other subtasks: its files, and where key groups begin in them

Metadata is made last: it reads what `flink.rescale` says of its files (`Rescaled`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from stateshift.engines.flink.editing import Rescaled, Taken, united, with_rescaled
from stateshift.engines.flink.reading import Streams, decoded
from stateshift.engines.flink.rescaling import Part, Rescaler
from stateshift.formats.flink.metadata import encode_metadata
from stateshift.formats.stream import Stream
from stateshift.storage.protocol import CHUNK, Content
from stateshift.world import Transform

KEEP, CUT, METADATA, RESCALE = "flink.keep", "flink.cut", "flink.metadata", "flink.rescale"


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
        contents = [b"".join(content()) for content in inputs]
        images = [decoded(content) for content in contents[: len(taken)]]
        rescaled = [Rescaled.of(json.loads(content)) for content in contents[len(taken) :]]
        image = united(images, taken, options["version"])
        yield encode_metadata(with_rescaled(image, rescaled, options.get("max_parallelism")))

    return (made,)


def rescale(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """Inputs are the image's metadata and, by the paths that the options name, its files; outputs a file for each new
    subtask, and what `metadata` is told of them."""
    paths: list[str] = options["paths"]
    taken, names = Taken.of(options["taken"]), list(options["names"])

    def read(path: str, offset: int = 0) -> Iterator[bytes]:
        left = offset
        for chunk in inputs[1 + paths.index(path)]():
            yield chunk[left:]
            left = max(0, left - len(chunk))

    @cache
    def rescaling() -> Rescaler:
        image = decoded(b"".join(inputs[0]()))
        operator = next(o for o in image.operators if o.id.hex() == options["operator"])
        streams = Streams(read, taken.places)
        return Rescaler(operator, streams, options["parallelism"], options["max_parallelism"])

    told: dict[int, tuple[int, tuple[int, ...], int]] = {}

    def part(number: int) -> Part:
        made = rescaling().part(number)
        told[number] = (made.first, made.offsets, len(made.content))
        return made

    def file(number: int) -> Content:
        return lambda: iter((part(number).content,))

    def summary() -> Iterator[bytes]:
        for number in range(len(names)):
            if number not in told:
                part(number)
        new = taken.operators[options["operator"]][0]
        parts = tuple(told[number] for number in range(len(names)))
        made = Rescaled(new, options["parallelism"], options["max_parallelism"], tuple(names), parts)
        yield json.dumps(made.plain(), sort_keys=True).encode()

    return (*(file(number) for number in range(len(names))), summary)


TRANSFORMS: Mapping[str, Transform] = {KEEP: keep, CUT: cut, METADATA: metadata, RESCALE: rescale}

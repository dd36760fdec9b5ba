"""The pure transforms that Flink's plans name: source streams in, target streams out, nothing else
touched.

    flink.keep      files as they are, under other names
    flink.cut       pieces of one file: options {"pieces": [[start, size], ...]}, one output each
    flink.metadata  the metadata of one image out of those of several: options {"taken": [...],
                    "version": n or null}
    flink.rescale   an operator's state for other subtasks, of one image or of several: its files,
                    and what is in them

Metadata is made last: it reads what `flink.rescale` says of its files (`RewrittenOperator`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from stateshift.engines.flink.places import places
from stateshift.engines.flink.rewrite.metadata import (
    Part,
    RewrittenOperator,
    Taken,
    UnkeyedFile,
    united,
)
from stateshift.engines.flink.rewrite.rescale import Origin, Rescaler
from stateshift.engines.flink.rewrite.unkeyed import Joined
from stateshift.engines.flink.streams import Streams, decoded
from stateshift.formats import bounds
from stateshift.formats.flink.metadata import encode_metadata
from stateshift.formats.stream import Stream
from stateshift.storage.protocol import CHUNK, Content, Input
from stateshift.world import Transform

if TYPE_CHECKING:
    from stateshift.formats.sorting import Scratch

KEEP, CUT, METADATA, RESCALE = "flink.keep", "flink.cut", "flink.metadata", "flink.rescale"


def keep(options: Mapping[str, Any], inputs: Sequence[Input]) -> Sequence[Content]:
    return inputs


def cut(options: Mapping[str, Any], inputs: Sequence[Input]) -> Sequence[Content]:
    (content,) = inputs
    return tuple(_piece(content, start, size) for start, size in options["pieces"])


def _piece(content: Input, start: int, size: int) -> Content:
    def piece() -> Iterator[bytes]:
        data = Stream(content(start), "a segment of a merged file")
        for length in _lengths(size):
            yield data.take(length)

    return piece


def _lengths(size: int) -> Iterator[int]:
    while size > 0:
        yield min(size, CHUNK)
        size -= CHUNK


def metadata(options: Mapping[str, Any], inputs: Sequence[Input]) -> Sequence[Content]:
    taken = [Taken.of(plain) for plain in options["taken"]]

    def made() -> Iterator[bytes]:
        contents = [bounds.gathered(content(), "_metadata") for content in inputs]
        images = [decoded(content) for content in contents[: len(taken)]]
        rewritten = [
            RewrittenOperator.of(json.loads(content)) for content in contents[len(taken) :]
        ]
        yield encode_metadata(
            united(images, taken, options["version"], rewritten, options.get("max_parallelism"))
        )

    return (made,)


def rescale(
    options: Mapping[str, Any], inputs: Sequence[Input], scratch: Scratch = BytesIO
) -> Sequence[Content]:
    """Inputs are, image by image, its metadata and its files of the operator, by the paths that the
    options name. Outputs are a file for each new subtask; for each role of operator state that is
    rewritten too, one each; and what `metadata` is told of them.
    """
    names: list[str] = options["names"]
    roles: dict[str, list[str]] = options["loose"]

    @cache
    def rescaler() -> Rescaler:
        origins, left = [], list(inputs)
        for origin in options["origins"]:
            count = 1 + len(origin["paths"])
            origins.append(_origin(origin, left[:count]))
            left = left[count:]
        return Rescaler(origins, options["parallelism"], options["max_parallelism"], scratch)

    @cache
    def unkeyed_of(number: int, role: str) -> Joined:
        return rescaler().unkeyed(number, role)

    def summary() -> Iterator[bytes]:
        cuts = [rescaler().keyed(number) for number in range(len(names))]
        parts = [
            Part(name, made.size, made.first, made.offsets, tuple(told(number)))
            for number, (name, made) in enumerate(zip(names, cuts, strict=True))
        ]
        made = RewrittenOperator(options["operator"], options["max_parallelism"], tuple(parts))
        yield json.dumps(made.plain(), sort_keys=True).encode()

    def told(number: int) -> Iterator[UnkeyedFile]:
        for role, files in roles.items():
            made = unkeyed_of(number, role)
            yield UnkeyedFile(role, files[number], len(made.content), made.states)

    def keyed_file(number: int) -> Content:
        return lambda: rescaler().keyed(number).content()

    def unkeyed_file(number: int, role: str) -> Content:
        return lambda: iter((unkeyed_of(number, role).content,))

    return (
        *(keyed_file(number) for number in range(len(names))),
        *(
            unkeyed_file(number, role)
            for role, files in roles.items()
            for number in range(len(files))
        ),
        summary,
    )


def _origin(plain: Mapping[str, Any], inputs: Sequence[Input]) -> Origin:
    paths: list[str] = plain["paths"]
    files = inputs[1:]

    def read(path: str, offset: int = 0) -> Iterator[bytes]:
        return files[paths.index(path)](offset)

    image = decoded(bounds.gathered(inputs[0](), "_metadata"))
    operator = next(o for o in image.operators if o.id.hex() == plain["operator"])
    return Origin(operator, Streams(read, places(plain)))


TRANSFORMS: Mapping[str, Transform] = {KEEP: keep, CUT: cut, METADATA: metadata, RESCALE: rescale}

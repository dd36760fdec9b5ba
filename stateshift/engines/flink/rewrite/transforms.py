"""The transforms that Flink's plans name: source streams in, target streams out. Pure.

    flink.keep      files as they are, under other names
    flink.cut       pieces of one file: options {"pieces": [[start, size], ...]}, one output each
    flink.metadata  the metadata of one image out of those of several: options {"taken": [...],
                    "version": n or null, "changed": sources of the first that read on elsewhere}
    flink.rescale   an operator's state for other subtasks, of one image or of several, or with its
                    entries edited: its files, and what is in them

Metadata is made last: it reads what `flink.rescale` says of its files (`RewrittenOperator`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from io import BytesIO
from typing import TYPE_CHECKING

from stateshift.engines.flink.entries.edits import Edit
from stateshift.engines.flink.new_offsets import (
    NewOffsets,
    PlainNewOffsets,
    rewrite_operator,
)
from stateshift.engines.flink.places import PlainPlaces, places
from stateshift.engines.flink.rewrite.keyed_files import Hashing, Origin
from stateshift.engines.flink.rewrite.metadata import (
    RewrittenOperator,
    SubtaskPart,
    Taken,
    UnkeyedFile,
    unite_images,
)
from stateshift.engines.flink.rewrite.rescale import Rescaler
from stateshift.engines.flink.rewrite.unkeyed import Joined
from stateshift.engines.flink.streams import Read, Streams, decode_once
from stateshift.formats import bounds
from stateshift.formats.flink.metadata import Metadata, OperatorState, encode_metadata
from stateshift.formats.stream import Stream
from stateshift.plain import JsonObject
from stateshift.storage.protocol import CHUNK, Content, Input
from stateshift.world import Transform

if TYPE_CHECKING:
    from stateshift.formats.sorting import Scratch

KEEP, CUT, METADATA, RESCALE = "flink.keep", "flink.cut", "flink.metadata", "flink.rescale"

# The hashing by a job's jars of these SHA-256, in a JVM of that distribution of Flink.
OpenHashing = Callable[[Mapping[str, str], str | None], Hashing]

# The options of a step of a plan, of which each transform has keys of its own.
Options = JsonObject


def keep(options: Options, inputs: Sequence[Input]) -> Sequence[Content]:
    """Return the inputs unchanged, one output for each (`flink.keep`)."""
    return inputs


def cut(options: Options, inputs: Sequence[Input]) -> Sequence[Content]:
    """Return pieces of the one input, one output for each [start, size] in bytes (`flink.cut`)."""
    (content,) = inputs
    return tuple(partial(_piece, content, start, size) for start, size in options["pieces"])


def _piece(content: Input, start: int, size: int) -> Iterator[bytes]:
    data = Stream(content(start), "a segment of a merged file")
    for place in range(0, size, CHUNK):
        yield data.take(min(CHUNK, size - place))


def metadata(options: Options, inputs: Sequence[Input]) -> Sequence[Content]:
    """Return the target's `_metadata`, of each taken image's and the summaries of rescaling."""
    taken = [Taken.of(plain) for plain in options["taken"]]
    changed: PlainChanged | None = options.get("changed")
    count = len(inputs) - (0 if changed is None else len(changed["paths"]))
    files = inputs[count:]

    def made() -> Iterator[bytes]:
        contents = [bounds.gather(content(), "_metadata") for content in inputs[:count]]
        of_images, summaries = contents[: len(taken)], contents[len(taken) :]
        images = [decode_once(content) for content in of_images]
        if changed is not None:
            images[0] = _with_new_offsets(images[0], changed, files)
        rewritten = [RewrittenOperator.of(json.loads(summary)) for summary in summaries]
        max_parallelism = options.get("max_parallelism")
        target = unite_images(images, taken, options["version"], rewritten, max_parallelism)
        yield encode_metadata(target)

    return (made,)


class PlainChanged(PlainPlaces):
    """The operators of the first image that read on from elsewhere, by their ids, and the paths of
    their files.
    """

    operators: Mapping[str, PlainNewOffsets]
    paths: Sequence[str]


def _with_new_offsets(image: Metadata, changed: PlainChanged, files: Sequence[Input]) -> Metadata:
    streams = Streams(_reader(changed["paths"], files), places(changed))
    operators: list[OperatorState] = []
    for operator in image.operators:
        plain = changed["operators"].get(operator.id.hex())
        if plain is not None:
            operator = rewrite_operator(operator, streams, NewOffsets.of(plain))
        operators.append(operator)
    return replace(image, operators=tuple(operators))


def rescale(
    options: Options,
    inputs: Sequence[Input],
    scratch: Scratch = BytesIO,
    open_hashing: OpenHashing | None = None,
) -> Sequence[Content]:
    """Rewrite an operator's state for other subtasks.

    Inputs are, image by image, its metadata and its files of the operator, by the paths that the
    options name. Outputs are a file for each new subtask; for each role of operator state that is
    rewritten too, one each; and what `metadata` reads of them.
    """
    new = _NewFiles(options, inputs, scratch, open_hashing)
    outputs = [partial(new.keyed, number) for number in range(len(new.names))]
    for role, files in new.unkeyed_names.items():
        outputs += [partial(new.unkeyed, number, role) for number in range(len(files))]
    return (*outputs, new.summary)


class _NewFiles:
    """The new files of an operator. Nothing is read before one of them is."""

    def __init__(
        self,
        options: Options,
        inputs: Sequence[Input],
        scratch: Scratch,
        open_hashing: OpenHashing | None,
    ) -> None:
        self.names: list[str] = options["names"]
        self.unkeyed_names: dict[str, list[str]] = options["loose"]  # by role
        self._options, self._inputs, self._scratch = options, inputs, scratch
        self._open_hashing = open_hashing
        self._joined: dict[tuple[int, str], Joined] = {}

    def keyed(self, number: int) -> Iterator[bytes]:
        return self._rescaler.keyed(number).content()

    def unkeyed(self, number: int, role: str) -> Iterator[bytes]:
        yield self._unkeyed(number, role).content

    def summary(self) -> Iterator[bytes]:
        parts = []
        for number, name in enumerate(self.names):
            made = self._rescaler.keyed(number)
            unkeyed = []
            for role, files in self.unkeyed_names.items():
                joined = self._unkeyed(number, role)
                size = len(joined.content)
                unkeyed.append(UnkeyedFile(role, files[number], size, joined.states))
            parts.append(SubtaskPart(name, made.size, made.first, made.offsets, tuple(unkeyed)))
        most = self._options["max_parallelism"]
        operator = RewrittenOperator(self._options["operator"], most, tuple(parts))
        yield json.dumps(operator.plain(), sort_keys=True).encode()

    def _unkeyed(self, number: int, role: str) -> Joined:
        if (number, role) not in self._joined:
            self._joined[number, role] = self._rescaler.unkeyed(number, role)
        return self._joined[number, role]

    @cached_property
    def _rescaler(self) -> Rescaler:
        options, plain = self._options, self._options.get("edit")
        hashing, classes = None, options.get("classes")
        if classes:
            assert self._open_hashing is not None, "only the engine's own transforms have classes"
            hashing = self._open_hashing(classes, options.get("flink"))
        origins, left = [], list(self._inputs)
        for origin in options["origins"]:
            count = 1 + len(origin["paths"])
            origins.append(replace(_origin(origin, left[:count]), hashing=hashing))
            left = left[count:]
        parallelism, most = options["parallelism"], options["max_parallelism"]
        edit = None if plain is None else Edit.of(plain)
        return Rescaler(origins, parallelism, most, self._scratch, edit)


class PlainOrigin(PlainPlaces):
    """The origin of an operator: places, id, and the paths of its files."""

    operator: str
    paths: list[str]


def _origin(plain: PlainOrigin, inputs: Sequence[Input]) -> Origin:
    image = decode_once(bounds.gather(inputs[0](), "_metadata"))
    operator = next(o for o in image.operators if o.id.hex() == plain["operator"])
    streams = Streams(_reader(plain["paths"], inputs[1:]), places(plain))
    return Origin(operator, streams)


def _reader(paths: Sequence[str], files: Sequence[Input]) -> Read:
    """Return a function that opens the files of a step by their paths."""

    def read(path: str, offset: int = 0) -> Iterator[bytes]:
        return files[paths.index(path)](offset)

    return read


TRANSFORMS: Mapping[str, Transform] = {KEEP: keep, CUT: cut, METADATA: metadata, RESCALE: rescale}

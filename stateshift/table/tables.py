"""The tables of images: one for each store of an operator, by a name that SQL can use.

A row has the columns operator, store, shard, key and value. Spark's keys and values have the
columns of their schema; Flink's are JSON.

They come as an Arrow file that leaves in pieces: eight bytes of magic and padding, then a stream of
record batches with an end mark, then a footer (Apache Arrow, "IPC File Format"). Behind the magic
it is read as a stream.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from string import ascii_lowercase
from typing import Annotated

import pyarrow as pa

from stateshift.engines.registry import engine_of
from stateshift.engines.views import Opening, Readers, Wanted
from stateshift.errors import PlanError

MAGIC = b"ARROW1\0\0"
IMAGES_MAX = len(ascii_lowercase)


@dataclass(frozen=True, slots=True)
class StateTable:
    """One store of an image as a table."""

    name: Annotated[str, "its name in SQL"]
    location: Annotated[str, "where its image is"]
    operator: Annotated[str, "the operator whose state it is"]
    store: Annotated[str, "the store of that operator"]

    def batches(
        self, opening: Opening, readers: Readers | None = None, every: int = 1
    ) -> pa.RecordBatchReader:
        """Return its rows, which are read as they are asked for; of every so-many-th shard."""
        wanted = Wanted(self.operator, self.store, every=every)
        engine = engine_of(self.location, opening=opening)
        export = engine.export(self.location, wanted, "arrow", opening)
        batches = record_batches(export.chunks(readers))
        first = next(batches, None)
        if first is None:
            return pa.RecordBatchReader.from_batches(_EMPTY, iter(()))
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))


_EMPTY = pa.schema([(name, pa.string()) for name in ("operator", "store", "shard", "key", "value")])


def tables_of(locations: Sequence[str], opening: Opening) -> tuple[StateTable, ...]:
    """Return the tables of images, in the order of their operators. Those of several begin with
    a_, b_ and so on.

    Raises:
        PlanError: there is no image; or more than can be told apart.
    """
    if len(locations) > IMAGES_MAX:
        raise PlanError(f"{len(locations)} images: at most {IMAGES_MAX} are asked at once")
    found: list[StateTable] = []
    for letter, location in zip(ascii_lowercase, locations, strict=False):
        engine = engine_of(location, opening=opening)
        stores = engine.export(location, Wanted(), "jsonl", opening).stores
        prefix = f"{letter}_" if len(locations) > 1 else ""
        for name, (operator, store) in zip(_names(stores), stores, strict=True):
            found.append(StateTable(f"{prefix}{name}", location, operator, store))
    return tuple(found)


def _names(stores: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a name for each store: state_0, or orders_left_keyToNumValues."""
    taken: set[str] = set()
    for operator, store in stores:
        own = operator.rpartition("/")[2]
        if re.fullmatch(r"[0-9a-f]{32}|[0-9]+", own):  # an id, and no name
            own = f"state_{own[:8]}"
        words = [own, *(word for word in store.split("/") if word != "default")]
        plain = "_".join(re.sub(r"\W+", "_", word, flags=re.ASCII).strip("_") for word in words)
        plain = plain.lower() if plain[:1].isalpha() else f"state_{plain.lower()}"
        name, number = plain, 2
        while name in taken:
            name, number = f"{plain}_{number}", number + 1
        taken.add(name)
        yield name


def record_batches(chunks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an Arrow file that comes in chunks."""
    with _reader(chunks) as reader:
        yield from reader


def table_of(chunks: Iterator[bytes]) -> pa.Table:
    """Return an Arrow file that comes in chunks as one table."""
    with _reader(chunks) as reader:
        return reader.read_all()


def _reader(chunks: Iterator[bytes]) -> pa.RecordBatchReader:
    stream = Chunks(chunks)
    magic = stream.read(len(MAGIC))
    assert magic == MAGIC, "we write Arrow files ourselves"
    return pa.ipc.open_stream(pa.PythonFile(stream, mode="r"))


class Chunks(io.RawIOBase):
    """Chunks as a file that is read once, from its beginning to its end."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return true."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        parts: list[bytes] = []
        left = size
        while left != 0:
            if not self._rest:
                chunk = next(self._chunks, None)
                if chunk is None:
                    break
                self._rest = memoryview(chunk)
                continue
            part = self._rest if left < 0 else self._rest[:left]
            self._rest = self._rest[len(part) :]
            left -= len(part) if left > 0 else 0
            parts.append(bytes(part))
        return b"".join(parts)

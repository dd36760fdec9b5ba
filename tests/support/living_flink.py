"""A job of Flink in memory that goes on completing incremental checkpoints: the golden one, of
which each further one has some shared files under new names, and its own files anew. Older ones are
tidied away with what nobody names any more, as Flink does it.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import replace

from stateshift.formats.flink.metadata import Metadata, decode_metadata, encode_metadata
from stateshift.formats.flink.references import with_streams
from stateshift.formats.flink.stream_handles import AbsoluteFile, RelativeFile, StreamHandle
from stateshift.storage import locations
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden
from tests.support.checkpoints import put

IMAGE = "flink-2.3.0/count-checkpoint-incremental"


class LivingFlinkJob:
    def __init__(self, disk: MemoryDisk, random: random.Random, image: str = IMAGE) -> None:
        self.disk, self.random = disk, random
        self.location = golden.write(disk, image)
        self.folder = locations.parent(self.location)
        self.running = True
        self.tidies = True

    @property
    def number(self) -> int:
        return int(self.location.rpartition("-")[2])

    def complete(self) -> str:
        """The next checkpoint: where it is."""
        was = self.disk.open(self.location)
        metadata = decode_metadata(was.read("_metadata"))
        name, new = f"chk-{self.number + 1}", dict[str, str]()
        there = self.disk.open(f"{self.folder}/{name}")

        def change(stream: StreamHandle, whole: bool) -> StreamHandle:
            match stream:
                case AbsoluteFile(path) if self.random.random() < 0.3 or path in new:
                    if path not in new:
                        new[path] = f"{path.rpartition('/')[0]}/{self._name()}"
                        self._copied(path, new[path])
                    return replace(stream, path=new[path])
                case RelativeFile(path):
                    if path not in new:
                        new[path] = self._name()
                        put(there, new[path], was.read(path))
                    return replace(stream, path=new[path])
            return stream

        following = with_streams(replace(metadata, checkpoint_id=self.number + 1), change)
        put(there, "_metadata", encode_metadata(following))
        before, self.location = self.location, f"{self.folder}/{name}"
        if self.tidies:
            self._tidy(before, following)
        return self.location

    def _name(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128)))

    def _copied(self, path: str, other: str) -> None:
        """Other content would have to be a table of RocksDB: the same serves, under another
        name.
        """
        content = self.disk.open(locations.parent(path)).read(locations.name(path))
        put(self.disk.open(locations.parent(other)), locations.name(other), content)

    def _tidy(self, before: str, now: Metadata) -> None:
        named = set[str]()

        def look(stream: StreamHandle, whole: bool) -> StreamHandle:
            if isinstance(stream, AbsoluteFile):
                named.add(locations.name(stream.path))
            return stream

        with_streams(now, look)
        shared = self.disk.open(f"{self.folder}/shared")
        for file in list(shared.list()):
            if file.path not in named:
                shared.remove(file.path)
        old = self.disk.open(before)
        for file in list(old.list()):
            old.remove(file.path)

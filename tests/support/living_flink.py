"""A job of Flink in memory that goes on completing incremental checkpoints: the golden one, of
which each further one has some shared files under new names, and its own files anew. Older ones are
tidied away with what nobody names any more, as Flink does it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from stateshift.formats.flink.metadata import Metadata, decode_metadata, encode_metadata
from stateshift.formats.flink.references import with_streams
from stateshift.formats.flink.stream_handles import AbsoluteFile, RelativeFile, StreamHandle
from stateshift.report import Report
from stateshift.specification import Spec, parse_spec
from stateshift.storage import locations
from stateshift.survey import Survey
from stateshift.testing.memory_flink import MemoryFlink
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden
from tests.support.checkpoints import put
from tests.support.ground import TARGET, Ground
from tests.support.living import Watched

CLUSTERS = {"old": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}}
SAVEPOINTS = "file:///taken"
IMAGE = "flink-2.3.0/count-checkpoint-incremental"


class LivingFlinkJob:
    def __init__(self, disk: MemoryDisk, random: Random, image: str = IMAGE) -> None:
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


class LivingFlinkGround(Ground):
    """A job that completes a checkpoint now and then while somebody looks; what it is taken for in
    the end is held against its last one.
    """

    def __init__(self, folder: Path, seed: int = 1, mood: float = 0.0, image: str = IMAGE) -> None:
        super().__init__(folder)
        self.random, self.mood = Random(seed), mood
        self.job = LivingFlinkJob(self.disk, self.random, image)
        self.cluster = self.flink = MemoryFlink(lambda location: None)
        self.flink.run("orders", "orders-id")
        self.flink.latest, self.flink.complete = self.job.location, self._complete
        self.clock.time += 600
        self.wrap = lambda storage: Watched(storage, self, ("list", "stat", "chunks", "write"))  # type: ignore[assignment,return-value]

    def _complete(self) -> str:
        self.flink.latest = self.job.complete()
        self.job.running = False
        return self.job.location

    def live(self) -> None:
        if self.job.running and self.random.random() < self.mood:
            self.flink.latest = self.job.complete()

    def warm(self, **keys: Any) -> Report:
        return self.apply(warm_spec(**keys))

    def arrived(self) -> None:
        """What is there is the job's last checkpoint, operator for operator and file for file,
        and no more.
        """
        wanted = golden.looked_at(self.disk, self.job.location)[1]
        found = golden.looked_at(self.disk, TARGET)[1]
        assert found.images[0].epoch == wanted.images[0].epoch == self.job.number
        assert not [f for f in found.images[0].findings if f.level == "refuse"]
        assert self._content(wanted) == self._content(found)
        named = {path for path in found.images[0].needed if path != "_metadata"}
        assert {path for path in self.held(TARGET) if path != "_metadata"} == named
        assert [submission.location for submission in self.flink.submissions] == [TARGET]

    def _content(self, survey: Survey) -> list[bytes]:
        storage = self.disk.open(survey.location)
        needed = survey.images[0].needed
        return sorted(storage.read(path) for path in needed if not path.endswith("_metadata"))


def warm_spec(on_failure: str = "stop", **more: Any) -> Spec:
    job = {
        "name": "orders",
        "job_ids": ["orders-id"],
        "source_cluster": "old",
        "target_cluster": "old",
        "mode": "warm",
        "target_directory": SAVEPOINTS,
        "new_savepoint_path": TARGET,
        "submit": {"command": "go"},
        "source_submit": {"command": "back"},
        **more,
    }
    beside = {"clusters": CLUSTERS, "on_failure": on_failure}
    return parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": [job], **beside}))

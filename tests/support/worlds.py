"""A world of in-memory twins, for tests of steps and of the executor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from stateshift.clusters.memory import MemoryCluster
from stateshift.engines.registry import all_entries, all_transforms
from stateshift.storage.memory import MemoryDisk
from stateshift.storage.protocol import Storage
from stateshift.world import World
from tests.support.checkpoints import held, put
from tests.support.ground import Clock


@dataclass
class Twins:
    """One disk, one cluster, a clock that does not wait."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    clock: Clock = field(default_factory=Clock)
    wrap: Callable[[Storage], Storage] = lambda storage: storage

    def __post_init__(self) -> None:
        storages: dict[str, Storage] = {}

        def storage(location: str) -> Storage:
            if location not in storages:
                storages[location] = self.wrap(self.disk.open(location))
            return storages[location]

        self.world = World(
            storage=storage, cluster=lambda name: self.cluster, transforms=all_transforms(), entries=all_entries(),
            clock=self.clock, run="run-1", stop=threading.Event(),
        )  # fmt: skip

    def put(self, location: str, files: dict[str, bytes]) -> None:
        storage = self.disk.open(location)
        for path, content in files.items():
            put(storage, path, content)
        storage.sync()

    def held(self, location: str) -> dict[str, bytes]:
        return held(self.disk.open(location))

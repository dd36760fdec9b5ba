"""The storages the contract holds for, each opened on a place of its own."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from pathlib import Path

from stateshift.storage.fsspec.storage import FsspecStorage
from stateshift.storage.local.storage import LocalStorage
from stateshift.storage.protocol import Storage
from stateshift.storage.wrappers import Pace, Retrying, Throttled
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.ground import Clock

# Opens another storage on the same place, as another process would.
Reopen = Callable[[], Storage]


def memory(tmp_path: Path) -> Reopen:
    disk = MemoryDisk()
    return lambda: disk.open("memory://machine/place")


def local(tmp_path: Path) -> Reopen:
    return lambda: LocalStorage(str(tmp_path / "a b" / "place%20#?"))


def fsspec_local(tmp_path: Path) -> Reopen:
    return lambda: FsspecStorage.open(f"file://{tmp_path}/a b/place%20#?")


def fsspec_memory(tmp_path: Path) -> Reopen:
    location = f"memory://{uuid.uuid4()}/a b/place%20#?"
    return lambda: FsspecStorage.open(location)


def retrying(inner: Callable[[Path], Reopen]) -> Callable[[Path], Reopen]:
    def member(tmp_path: Path) -> Reopen:
        reopen = inner(tmp_path)
        return lambda: Retrying(reopen(), Clock(), random.Random(1))

    return member


def throttled(inner: Callable[[Path], Reopen]) -> Callable[[Path], Reopen]:
    def member(tmp_path: Path) -> Reopen:
        reopen = inner(tmp_path)
        pace = Pace(Clock(), bytes_per_second=1e6, operations_per_second=1e3)
        return lambda: Throttled(reopen(), pace)

    return member


MEMBERS: dict[str, Callable[[Path], Reopen]] = {
    "memory": memory,
    "local": local,
    "fsspec-local": fsspec_local,
    "fsspec-memory": fsspec_memory,
    "retrying-memory": retrying(memory),
    "retrying-local": retrying(local),
    "throttled-memory": throttled(memory),
    "throttled-local": throttled(local),
}

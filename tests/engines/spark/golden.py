"""The checkpoints that real Sparks wrote, put on a disk in memory so that a test may damage
them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.checkpoints import put

FOLDER = Path(__file__).resolve().parents[2] / "golden"
NAMES = tuple(
    sorted(str(place.parent.relative_to(FOLDER)) for place in FOLDER.glob("spark-*/*/checkpoint"))
)


def golden(name: str, keep: Callable[[str], bool] = lambda path: True) -> Storage:
    """`spark-4.3.0/window-hdfs`, and so on; the files whose path `keep` likes."""
    top = FOLDER / name / "checkpoint"
    storage = MemoryDisk().open(f"file:///golden/{name}")
    for file in sorted(top.rglob("*")):
        path = str(file.relative_to(top))
        if file.is_file() and keep(path):
            put(storage, path, file.read_bytes())
    return storage

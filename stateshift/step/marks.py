"""Parts of steps that move no bytes: the tag of a job, and small files that say one thing."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

from stateshift.errors import AlreadyThere, MissingFile
from stateshift.formats.marks import (
    FOLDER,
    RELEASED,
    STOP,
    STOPPING,
    WAITING,
    asks_to_stop,
    encode_tag,
    is_meant,
    is_stop_of,
)
from stateshift.plain import fingerprint
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.storage.protocol import Storage
from stateshift.world import World


class NoFiles:
    """A step that moves no bytes. Its evidence holds and nothing is undone, unless it says so."""

    __slots__ = ()
    decodes: ClassVar[bool] = False

    @property
    def fills(self) -> str | None:
        return None

    @property
    def files(self) -> int:
        return 0

    @property
    def bytes(self) -> int:
        return 0

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return []

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        return []


def tag_of(world: World, job: str) -> str:
    """Return the tag by which a second attempt recognises the first. It is safe in file names."""
    return f"{world.run}.{fingerprint(job)[:8]}"


def forget_marks(storage: Storage) -> None:
    """Remove the marks of a job that was started early."""
    for path in (WAITING, RELEASED):
        storage.remove(path)


def is_being_stopped(storage: Storage, job: str, tag: str | None, now: float) -> bool:
    """Whether an attempt to stop the job that was cut short has left a marker that still counts."""
    content = content_of(storage, STOP)
    if content is None or not is_stop_of(content, job):
        return False
    return asks_to_stop(content, job, tag, now)


def forget_stop(storage: Storage, job: str) -> None:
    """Remove the marker of an attempt to stop the job: it would stop the next one, too."""
    ours = [path for path in (STOP, STOPPING) if is_stop_of(content_of(storage, path), job)]
    for path in ours:
        storage.remove(path)
    if ours:
        storage.prune(FOLDER)


def release(storage: Storage, tag: str) -> None:
    """Tell a job started early that its image is there: by a rename, the quickest on HDFS."""
    if storage.traits.renames and is_meant(content_of(storage, WAITING), tag):
        with suppress(AlreadyThere):
            return storage.move(WAITING, RELEASED)
    storage.write(RELEASED, lambda: iter((encode_tag(tag),)))
    return None


def content_of(storage: Storage, path: str) -> bytes | None:
    """Return the content of a small file; None where it is not there."""
    if storage.stat(path) is None:
        return None
    try:
        return storage.read(path, 1 << 20)
    except MissingFile:  # it was taken away meanwhile
        return None

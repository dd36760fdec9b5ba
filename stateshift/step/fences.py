"""Steps that keep the old job from going on, and let it again: ReadyFence, FenceSource,
LiftFence.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from stateshift.errors import AlreadyThere, MissingFile, OtherRunError, StalePlan, StorageError
from stateshift.formats.marks import FENCE, fence_owner, fence_text, is_fence_of
from stateshift.step.contents import each
from stateshift.step.evidence import FenceLifted, FenceReadied, SourceFenced
from stateshift.step.marks import NoFiles, content_of
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.storage.protocol import Storage
from stateshift.world import World

EMPTY_SECONDS_MAX = 2.0  # for a name that is taken, while there is nothing to read under it
OTHERS_SECONDS_MAX = 30.0  # for runs that were second to take away what they have put up of a fence


@dataclass(frozen=True, slots=True)
class ReadyFence(NoFiles):
    """Write a fence's files beforehand, to be renamed: HDFS waits half a second for new ones."""

    kind: ClassVar[str] = "ReadyFence"
    name: str
    location: str
    files_max: int

    def describe(self) -> str:
        return f"write beforehand what will fence {self.location}"

    def run(self, world: World) -> Evidence:
        storage, text = world.storage(self.location), fence_text(world.run).encode()
        try:
            ready = _ready(world, self.files_max)
            each(world, ready, lambda path: storage.write(path, lambda: iter((text,))), storage)
            storage.sync()
        except StorageError as error:
            return FenceReadied(0, error.fact)
        return FenceReadied(self.files_max)

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        _forget_ready(world, world.storage(self.location), _ready(world, self.files_max))
        return []


@dataclass(frozen=True, slots=True)
class FenceSource(NoFiles):
    """Take the files that the old job would have to create for its next commit, so that it cannot.
    The engine creates them exclusively: a zombie that wakes up later finds them taken and dies.

    On object stores we create exclusively, and Spark nearly: s3a: looks whether a name is free,
    then copies onto it. A driver that slept between the two writes over one of these files and dies
    at the other: it commits the batch it was in, or puts out once more the one that it began.
    `holds` tells of it (tests/servers/test_fence_on_s3.py).
    """

    kind: ClassVar[str] = "FenceSource"
    name: str
    location: str
    paths: tuple[str, ...]
    ready: int = 0

    def describe(self) -> str:
        return f"fence {self.location} ({', '.join(self.paths)})"

    def run(self, world: World) -> Evidence:
        """Put up all files at once, where each waits for a network: the job is down meanwhile. It
        may have gone on, and a fence before the commit of the batch that it is in would kill it: so
        all are looked at before the first is put up. If several runs put one up together, the one
        that has the first file has the source: it waits for the others, which take theirs away.
        """
        storage, owner = world.storage(self.location), world.run
        ready = _ready(world, self.ready)
        try:
            each(world, self.paths, lambda path: self._refuse_others(storage, path, owner), storage)
            ready_for = dict(zip(self.paths, ready, strict=False))

            def take(path: str) -> bool:
                return _take(storage, path, owner, ready_for.get(path))

            are_ours = each(world, self.paths, take, storage)
            for path, is_ours in zip(self.paths, are_ours, strict=True):
                if not is_ours:
                    patience = 0.0 if path == self.paths[0] else OTHERS_SECONDS_MAX
                    until = world.clock.now() + patience
                    while not _take(storage, path, owner):
                        content = content_of(storage, path)
                        # An empty file may be a fence that is still being written.
                        owned = fence_owner(content) if content else "somebody"
                        if owned is None or world.clock.now() >= until:
                            self._refuse_others(storage, path, owner)
                        if content is None and world.clock.now() >= until + EMPTY_SECONDS_MAX:
                            raise StorageError(
                                f"{path} is taken, and holds no file: is it a directory?",
                                location=self.location,
                                hint=f"move {self.location}/{path} away, then resume",
                            )
                        world.check_interrupted()
                        world.clock.sleep(0.2)
        except StalePlan:
            _take_down(storage, self.paths, owner)
            raise
        if ready:
            _forget_ready(world, storage, ready)
        return SourceFenced(self.paths, "remove these files")

    def _refuse_others(self, storage: Storage, path: str, run: str) -> None:
        """Refuse a file that somebody else wrote first: another run, or the job."""
        content = content_of(storage, path)
        if content is None or is_fence_of(content, run):
            return
        place, owner = f"{self.location}/{path}", fence_owner(content)
        if owner is not None:
            raise OtherRunError(
                f"{place} was fenced by run {owner} after the plan was made: two runs move one "
                "source",
                hint="let the other run finish; this one changed nothing: let go of its target "
                "with `stateshift rollback WORKDIR`",
            )
        raise StalePlan(
            f"{place} was written after the plan was made: the job is still running",
            hint="stop the job, let go of the target (`stateshift rollback WORKDIR`), then plan "
            "again; nothing was changed",
        )

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        storage = world.storage(self.location)
        there = "nothing or something else"
        return [
            Discrepancy(f"{self.location}/{path}", "our fence", there)
            for path in self.paths
            if not is_fence_of(content_of(storage, path), world.run)
        ]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        storage, left = world.storage(self.location), []
        for path in reversed(self.paths):
            content = content_of(storage, path)
            if is_fence_of(content, world.run):
                storage.remove(path)
            elif content is not None and evidence is not None:
                left.append(f"{self.location}/{path} is no longer our fence: left as it is")
        return left


@dataclass(frozen=True, slots=True)
class LiftFence(NoFiles):
    """Take our fence away before the run is over: the job goes on. Undone, it is put up again."""

    kind: ClassVar[str] = "LiftFence"
    name: str
    location: str
    paths: tuple[str, ...]

    def describe(self) -> str:
        return f"lift the fence at {self.location} ({', '.join(self.paths)})"

    def run(self, world: World) -> Evidence:
        storage = world.storage(self.location)
        for path in reversed(self.paths):
            world.check_interrupted()
            _take_down(storage, (path,), world.run)
        return FenceLifted(self.paths)

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        storage = world.storage(self.location)
        return [
            Discrepancy(f"{self.location}/{path}", "no fence of ours", "our fence")
            for path in self.paths
            if is_fence_of(content_of(storage, path), world.run)
        ]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        FenceSource(self.name, self.location, self.paths).run(world)
        return []


def _take_down(storage: Storage, paths: Sequence[str], owner: str) -> None:
    """Remove our files of a fence, last written first."""
    for path in reversed(paths):
        if is_fence_of(content_of(storage, path), owner):
            storage.remove(path)


def _ready(world: World, files: int) -> tuple[str, ...]:
    """Return names of this run: another one may be about to fence the same source."""
    return tuple(f"{FENCE}/{world.run}-{number}" for number in range(files))


def _forget_ready(world: World, storage: Storage, paths: tuple[str, ...]) -> None:
    each(world, paths, storage.remove, storage)
    storage.prune(FENCE)


def _take(storage: Storage, path: str, owner: str, ready: str | None = None) -> bool:
    """Whether the file is ours now, or was."""
    try:
        with suppress(MissingFile):
            if ready is not None:
                storage.move(ready, path)
                return is_fence_of(content_of(storage, path), owner)
        storage.create(path, fence_text(owner).encode())
        return True
    except AlreadyThere:
        return is_fence_of(content_of(storage, path), owner)

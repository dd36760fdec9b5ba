"""Steps that touch nothing but files: CopyFiles, CopyInOrder, StageFiles, MoveFiles, SetAside,
WriteFile.

Each of them recognises what is already there by digest, never by name and size, so that repeating
it costs reading and no writing. Each syncs before it returns: evidence is only given of what a
crash of the machine would leave in place.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from stateshift.errors import AlreadyThere, StalePlan, StorageError
from stateshift.formats.marks import FOLDER, STAGED
from stateshift.step.contents import (
    NewFile,
    digest_of,
    each,
    files_hold,
    may_hold,
    paths_in_words,
    reading,
    remove_ours,
    settle,
)
from stateshift.step.evidence import (
    FilesMoved,
    FilesSetAside,
    FilesStaged,
    FilesWritten,
    files_of,
    written_files,
)
from stateshift.step.marks import NoFiles
from stateshift.step.protocol import Discrepancy, Evidence, FileEvidence
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo
from stateshift.world import Spared, World


class Rename(NamedTuple):
    """One file on its way from one path to another, both below the same location."""

    path: str
    target_path: str
    size: int


class Bundle:
    """The part of a step that writes files below its target, by their paths or other `names`."""

    __slots__ = ()
    decodes: ClassVar[bool] = False
    target: str
    items: tuple[FileInfo, ...]
    names: tuple[str, ...]

    @property
    def fills(self) -> str | None:
        return self.target

    @property
    def named(self) -> tuple[tuple[FileInfo, str], ...]:
        """Each file, and its path below the target."""
        names = self.names or tuple(item.path for item in self.items)
        return tuple(zip(self.items, names, strict=True))

    @property
    def files(self) -> int:
        return len(self.items)

    @property
    def bytes(self) -> int:
        return sum(item.size for item in self.items)

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return files_hold(world, self.target, files_of(evidence))

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        paths = tuple(name for _, name in self.named)
        return remove_ours(world, self.target, paths, written_files(evidence))


@dataclass(frozen=True, slots=True)
class CopyFiles(Bundle):
    """Stream a bundle of files from one location to another. Files that make an image visible have
    to be `whole`: durable before they are seen, so that a power cut leaves no half of one. `staged`
    ones only get their names.

    The engine may overwrite files that are `replaceable`: the evidence holds as long as they are
    there.
    """

    kind: ClassVar[str] = "CopyFiles"
    name: str
    source: str
    target: str
    items: tuple[FileInfo, ...]
    keep_times: bool = False
    whole: bool = False
    staged: bool = False
    names: tuple[str, ...] = ()
    replaceable: bool = False

    def describe(self) -> str:
        return f"copy {paths_in_words(tuple(i.path for i in self.items))} to {self.target}"

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return files_hold(world, self.target, files_of(evidence), self.replaceable)

    def run(self, world: World) -> Evidence:
        source, target = world.storage(self.source), world.storage(self.target)

        def copy(named: tuple[FileInfo, str]) -> FileEvidence:
            item, name = named
            written = _published(source, target, item) if self.staged else None
            if written is None:
                modified = item.modified if self.keep_times and item.modified else None
                file = NewFile(name, reading(source, item), modified, self.whole, item.size)
                is_new = not may_hold(world, target, name, len(self.items))
                written = settle(target, file, is_new)
                _refuse_changed(item, file, written, target)
            world.meter.done(1, item.size)
            return written

        written = each(world, self.named, copy, source, target, size=size_of)
        target.sync()
        if self.staged:
            target.prune(FOLDER)
        return FilesWritten(tuple(written))


@dataclass(frozen=True, slots=True)
class CopyInOrder(Bundle):
    """Copy small files that have to appear one after the other, each whole. Where a rename is
    cheaper than a write, all of them are brought under other names first, several at once.
    """

    kind: ClassVar[str] = "CopyInOrder"
    name: str
    source: str
    target: str
    items: tuple[FileInfo, ...]
    names: tuple[str, ...] = ()

    def describe(self) -> str:
        paths = paths_in_words(tuple(item.path for item in self.items))
        return f"copy {paths} to {self.target}, one after the other"

    def run(self, world: World) -> Evidence:
        source, target = world.storage(self.source), world.storage(self.target)
        renames_sooner = target.traits.renames_sooner

        def bring(named: tuple[FileInfo, str]) -> tuple[NewFile, FileEvidence, bool]:
            """Return the file, what will show it, and whether it only needs its name."""
            item, path = named
            content = b"".join(reading(source, item)())
            file = NewFile(path, lambda: iter((content,)), whole=True, size=item.size)
            read = FileEvidence(path, *digest_of(file.content()))
            _refuse_changed(item, file, read, target)
            is_staged = renames_sooner and target.stat(path) is None
            if is_staged:
                target.write(_staged(item), file.content)
            return file, read, is_staged

        brought = each(world, self.named, bring, source, target, size=size_of)
        if renames_sooner:
            target.sync()
        written: list[FileEvidence] = []
        for item, (file, read, is_staged) in zip(self.items, brought, strict=True):
            world.check_interrupted()
            if is_staged:
                target.move(_staged(item), file.path)
                written.append(read)
            else:
                written.append(settle(target, file))
            world.meter.done(1, item.size)
        target.sync()
        target.prune(FOLDER)
        return FilesWritten(tuple(written))

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        storage = world.storage(self.target)
        each(world, self.items, lambda item: storage.remove(_staged(item)), storage)
        return Bundle.undo(self, world, evidence)


@dataclass(frozen=True, slots=True)
class StageFiles(Bundle):
    """Copy what will make an image visible under neutral names; publishing has the evidence."""

    kind: ClassVar[str] = "StageFiles"
    name: str
    source: str
    target: str
    items: tuple[FileInfo, ...]
    names: tuple[str, ...] = ()

    def describe(self) -> str:
        paths = paths_in_words(tuple(item.path for item in self.items))
        return f"bring {paths} to {self.target}, not yet to be seen"

    def run(self, world: World) -> Evidence:
        source, target = world.storage(self.source), world.storage(self.target)

        def stage(named: tuple[FileInfo, str]) -> None:
            item, name = named
            settle(target, NewFile(name, reading(source, item)))
            world.meter.done(1, item.size)

        named = tuple(zip(self.items, self.staged_names, strict=True))
        each(world, named, stage, source, target, size=size_of)
        target.sync()
        return FilesStaged(len(self.items))

    @property
    def staged_names(self) -> tuple[str, ...]:
        return tuple(_staged(item) for item in self.items)

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return []

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        storage = world.storage(self.target)
        each(world, self.staged_names, storage.remove, storage)
        return []


@dataclass(frozen=True, slots=True)
class MoveFiles(NoFiles):
    """Rename a bundle of files within one storage: Algorithm 5's merge."""

    kind: ClassVar[str] = "MoveFiles"
    name: str
    location: str
    items: tuple[Rename, ...]

    @property
    def files(self) -> int:
        return len(self.items)

    def describe(self) -> str:
        return f"move {paths_in_words(tuple(i.path for i in self.items))} within {self.location}"

    def run(self, world: World) -> Evidence:
        storage = world.storage(self.location)

        def rename(item: Rename) -> None:
            # A repeat finds the file in its new place.
            if storage.stat(item.path) is not None or storage.stat(item.target_path) is None:
                try:
                    storage.move(item.path, item.target_path)
                except AlreadyThere as error:
                    raise StorageError(
                        f"cannot move {item.path}: {item.target_path} is there already",
                        location=storage.location,
                        hint="two operators of one name; remove or rename one of the two "
                        "directories",
                    ) from error
            world.meter.done(1, 0)

        each(world, self.items, rename, storage)
        return FilesMoved(tuple((item.path, item.target_path) for item in self.items))

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        storage = world.storage(self.location)
        return [
            Discrepancy(item.target_path, f"the file moved from {item.path}", "nothing")
            for item in self.items
            if storage.stat(item.target_path) is None
        ]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        storage = world.storage(self.location)
        left = []
        for item in reversed(self.items):
            if storage.stat(item.target_path) is None:
                if storage.stat(item.path) is None:
                    moved = f"{item.path} was moved to {item.target_path}"
                    left.append(f"{moved}, and is in neither place any more")
            else:
                # Both names: a rename that was killed half-way, which its repeat finishes, or a
                # file of somebody else that has kept us from moving ours.
                with suppress(AlreadyThere):
                    storage.move(item.target_path, item.path)
        # Directories that held the files, and those above, as far as no file is in them.
        used: set[str] = set()
        for item in sorted(self.items, key=lambda item: item.target_path, reverse=True):
            folder = item.target_path.rpartition("/")[0]
            while folder and folder not in used:
                used.add(folder)
                if next(storage.list(folder), None) is not None:
                    break
                storage.prune(folder)
                folder = folder.rpartition("/")[0]
        return left


@dataclass(frozen=True, slots=True)
class SetAside(NoFiles):
    """Move `items` of a location to a folder below it: an image that is in the way of another one.
    Files of `stays` are needed by the new image, too, in the same size. `fence` keeps the old job
    from going on, until the new image can be seen.

        before      state/0/0/7.delta   commits/7   commits/8
        after       state/0/0/7.delta
                    _stateshift/aside-RUN/commits/7
                    _stateshift/aside-RUN/commits/8

    A file that stays may turn out to be another one. Whoever replaces or removes it moves it to the
    folder, too (`storage.wrappers.Sparing`): nothing is lost, and undone, all of it is back.
    """

    kind: ClassVar[str] = "SetAside"
    name: str
    location: str
    folder: str
    items: tuple[Rename, ...]
    stays: tuple[str, ...] = ()
    fence: tuple[str, ...] = ()
    fenced_by: str | None = None

    @property
    def fills(self) -> str | None:
        return self.location

    @property
    def files(self) -> int:
        return len(self.items)

    @property
    def spared(self) -> Spared:
        """The files that stay and are not to be lost."""
        return Spared(self.folder, frozenset((*self.stays, *self.fence)))

    def describe(self) -> str:
        paths = paths_in_words(tuple(item.path for item in self.items))
        return f"set {paths} aside, to {self.location}/{self.folder}"

    def run(self, world: World) -> Evidence:
        self._moves.run(world)
        return FilesSetAside(f"{self.location}/{self.folder}", len(self.items), len(self.stays))

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return self._moves.holds(world, evidence)

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        """Put everything back. Files that others wrote since are moved away, and named."""
        storage, left = world.storage(self.location), []
        paths = {file.path for file in storage.list()}
        aside = {path for path in paths if path.startswith(f"{self.folder}/")}
        old = {path.removeprefix(f"{self.folder}/") for path in aside}
        for path in sorted(old & paths):
            # A move that was cut short is finished: not every storage renames at once.
            with suppress(AlreadyThere):
                storage.move(f"{self.folder}/{path}", path)
                old.remove(path)
        in_place = {*self.spared.paths, *(item.path for item in self.items)} - old
        later = []
        for path in sorted(paths - aside - in_place):
            if path in old or not path.startswith(f"{FOLDER}/"):
                later.append(path)
        if later:
            folder = f"{self.folder}.later-{world.clock.now():.0f}"
            each(world, later, lambda path: storage.move(path, f"{folder}/{path}"), storage)
            left.append(
                f"{self.location}/{folder} holds what was written after that ({len(later)} files): "
                "remove it once nobody needs it"
            )
        back = [Rename(path, f"{self.folder}/{path}", 0) for path in sorted(old)]
        return [*left, *MoveFiles(self.name, self.location, tuple(back)).undo(world, None)]

    @property
    def _moves(self) -> MoveFiles:
        return MoveFiles(self.name, self.location, self.items)


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write text, or base64. `replaces` is the text of a place not ours: undo puts it back."""

    kind: ClassVar[str] = "WriteFile"
    decodes: ClassVar[bool] = False
    name: str
    target: str
    path: str
    text: str | None = None
    base64: str | None = None
    replaces: str | None = None

    @classmethod
    def of(
        cls, name: str, target: str, path: str, content: bytes, replaces: str | None = None
    ) -> WriteFile:
        try:
            return cls(name, target, path, text=content.decode("utf-8"), replaces=replaces)
        except UnicodeDecodeError:
            encoded = base64.b64encode(content).decode("ascii")
            return cls(name, target, path, base64=encoded, replaces=replaces)

    @property
    def fills(self) -> str | None:
        return self.target

    @property
    def content(self) -> bytes:
        if self.text is not None:
            return self.text.encode("utf-8")
        return base64.b64decode(self.base64 or "")

    @property
    def files(self) -> int:
        return 1

    @property
    def bytes(self) -> int:
        return len(self.content)

    def describe(self) -> str:
        return f"write {self.path} to {self.target}"

    def run(self, world: World) -> Evidence:
        world.check_interrupted()
        storage, content = world.storage(self.target), self.content
        written = settle(storage, NewFile(self.path, lambda: iter((content,))))
        storage.sync()
        world.meter.done(1, len(content))
        return FilesWritten((written,))

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return files_hold(world, self.target, files_of(evidence))

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        before = self.replaces
        if before is None:
            return remove_ours(world, self.target, (self.path,), written_files(evidence))
        storage, ours = world.storage(self.target), digest_of(iter((self.content,)))
        is_gone = storage.stat(self.path) is None
        if is_gone or digest_of(storage.chunks(self.path)) == ours:
            storage.write(self.path, lambda: iter((before.encode("utf-8"),)))
            storage.sync()
        return []


def size_of(named: tuple[FileInfo, str]) -> int:
    """Return the bytes that are moved of a file, given with its name at the target."""
    return named[0].size


def _staged(item: FileInfo) -> str:
    return f"{STAGED}/{item.path}"


def _published(source: Storage, target: Storage, item: FileInfo) -> FileEvidence | None:
    """Give a staged file its name; None where it is not there, as in a repeat, or is another."""
    staged = _staged(item)
    info = target.stat(staged)
    if info is None or info.size != item.size:
        return None
    size, digest = digest_of(target.chunks(staged))
    if digest_of(reading(source, item)()) != (size, digest):
        return None
    target.remove(item.path)
    target.move(staged, item.path)
    return FileEvidence(item.path, size, digest)


def _refuse_changed(item: FileInfo, file: NewFile, written: FileEvidence, target: Storage) -> None:
    if written.size == item.size:
        return
    if not file.whole:
        target.remove(file.path)
    raise StalePlan(
        f"{item.path} changed while it was copied: {item.size} bytes when planned, "
        f"{written.size} when read",
        hint="stop the job that writes it, take this run back (`stateshift rollback WORKDIR`), "
        "then plan again",
    )

"""Steps of a move that begins while the job runs: BringFiles, in each round, and KeepBrought, once
it has stopped.

A running job writes, tidies up, may be started again or go back to an earlier batch. Nothing of
that is an error of a round: a file that is gone, or is another one by the time it was read, is left
out of the evidence, and the next round, or the move, copies what is then there. A file in the
evidence was read whole while its stamp stayed the same, and was read back from the target with the
same digest.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from stateshift import plain
from stateshift.errors import MissingFile
from stateshift.step.contents import (
    LARGE_BYTES,
    NewFile,
    digest_of,
    each,
    files_hold,
    paths_in_words,
    reading,
    same_checksum,
    settle,
)
from stateshift.step.evidence import FilesBrought, FilesKept, of_kind
from stateshift.step.files import Bundle, size_of
from stateshift.step.marks import NoFiles
from stateshift.step.protocol import Discrepancy, Evidence, FileEvidence
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo, ShardFiles
from stateshift.world import World


@dataclass(frozen=True, slots=True)
class BringFiles(Bundle):
    """Stream a bundle of files to the same paths while their job runs. `shards` are the chains that
    they belong to, as of this round; `anchors` files that stay what they are for as long as the job
    does not go back behind this round. `continued` are anchors of earlier rounds that were there:
    this one's answer for their files, too, whose own may be tidied away long before.
    """

    kind: ClassVar[str] = "BringFiles"
    name: str
    source: str
    target: str
    items: tuple[FileInfo, ...]
    shards: tuple[ShardFiles, ...] = ()
    anchors: tuple[FileInfo, ...] = ()
    keep_times: bool = False
    read_back: bool = True
    names: tuple[str, ...] = ()
    continued: tuple[FileInfo, ...] = plain.later(())

    def describe(self) -> str:
        paths = paths_in_words(tuple(item.path for item in self.items))
        return f"bring {paths} to {self.target} while the job runs"

    def run(self, world: World) -> Evidence:
        source, target = world.storage(self.source), world.storage(self.target)

        def copy(named: tuple[FileInfo, str]) -> tuple[FileEvidence, str] | None:
            copied = self._copied(source, target, *named)
            world.meter.done(1, size_of(named))
            return copied

        results = each(world, self.named, copy, source, target, size=size_of)
        arrived = [result for result in results if result is not None]
        target.sync()
        stamps = {file.path: stamp for file, stamp in arrived}
        missed = len(self.items) - len(arrived)
        files = tuple(file for file, _ in arrived)
        return FilesBrought(files, stamps, missed, self.read_back)

    def _copied(
        self, source: Storage, target: Storage, item: FileInfo, name: str
    ) -> tuple[FileEvidence, str] | None:
        """Return the file as it arrived, and its stamp; None if it was gone or changed before."""
        modified = item.modified if self.keep_times and item.modified else None
        before = target.stat(name)
        with suppress(MissingFile):
            is_large = before is not None and before.size == item.size >= LARGE_BYTES
            if is_large and same_checksum(source, target, item.path, name):
                # By both storages' word: then it is not read where it comes from.
                written = FileEvidence(name, *digest_of(target.chunks(name)))
            else:
                file = NewFile(name, reading(source, item), modified)
                written = settle(target, file, new=before is None)
            after, arrived = source.stat(item.path), target.stat(name)
            # By its storage's word it is the very file that it was.
            is_the_same = after is not None and after.stamp == item.stamp != ""
            if is_the_same and written.size == item.size and arrived is not None:
                is_whole = not self.read_back or _is_whole(source, target, item, written)
                if is_whole:
                    return written, arrived.stamp
        # A file that was there before may belong to an image, and is still as it was.
        now = target.stat(name)
        if before is None or before.stamp == "" or before != now:
            target.remove(name)
        return None


def _is_whole(source: Storage, target: Storage, item: FileInfo, written: FileEvidence) -> bool:
    """Whether the target holds the bytes that were read: by checksum, or by reading it again."""
    if written.size >= LARGE_BYTES and same_checksum(source, target, item.path, written.path):
        return True
    return digest_of(target.chunks(written.path)) == (written.size, written.digest)


@dataclass(frozen=True, slots=True)
class KeepBrought(NoFiles):
    """Keep `items` of what rounds have copied: they belong to the image. Everything else of it,
    `dropped`, goes before the image can be seen. A file of a batch that was done again, or of a
    time that the job has gone back behind, would be taken for the image's own. The rounds take back
    what they have copied; nobody needs a dropped file.
    """

    kind: ClassVar[str] = "KeepBrought"
    name: str
    target: str
    items: tuple[FileEvidence, ...]
    dropped: tuple[str, ...] = ()

    def describe(self) -> str:
        return (
            f"keep {len(self.items)} files that are there already, and remove "
            f"{len(self.dropped)}, at {self.target}"
        )

    def run(self, world: World) -> Evidence:
        storage = world.storage(self.target)
        each(world, self.dropped, storage.remove, storage)
        return FilesKept(self.items, len(self.dropped))

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return files_hold(world, self.target, of_kind(evidence, FilesKept).files)

"""Files grouped into steps: worthwhile units of journaled work. Forty thousand files are not forty
thousand journal writes, and one file of ten gigabytes is a step of its own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol, TypeVar

from stateshift.specification import JobSpec
from stateshift.step import CopyFiles
from stateshift.survey import Facts, FileInfo, Image, ShardFiles

FILES_MAX = 256
PIECES_MAX = 16  # of what is rewritten: one after the other in its step, while other steps run
BYTES_MAX = 64 * 1024 * 1024
# Bytes that are decoded: a second of a core, so that the last of them leave no core idle for long.
DECODED_BYTES_MAX = 16 * 1024 * 1024


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=_Sized)


def bundled(
    items: Iterable[S], files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[list[S]]:
    """Yield runs of at most `files_max` items and, beyond the first, `bytes_max` bytes; in the
    order given.
    """
    bundle: list[S] = []
    size = 0
    for item in items:
        is_full = len(bundle) >= files_max or size + item.size > bytes_max
        if bundle and is_full:
            yield bundle
            bundle, size = [], 0
        bundle.append(item)
        size += item.size
    if bundle:
        yield bundle


def shard_bundles(
    shards: Iterable[ShardFiles], sizes: Mapping[str, int]
) -> Iterator[tuple[tuple[ShardFiles, ...], int]]:
    """Yield shards grouped the same way, with the bytes of each group."""
    bundle: list[ShardFiles] = []
    files = size = 0
    for shard in shards:
        own = sum(sizes.get(path, 0) for path in shard.files)
        is_full = files + len(shard.files) > FILES_MAX or size + own > DECODED_BYTES_MAX
        if bundle and is_full:
            yield tuple(bundle), size
            bundle, files, size = [], 0, 0
        bundle.append(shard)
        files += len(shard.files)
        size += own
    if bundle:
        yield tuple(bundle), size


@dataclass(frozen=True, slots=True)
class Group:
    """Files that go from one location to another, each to the same path."""

    source: str
    target: str
    files: tuple[FileInfo, ...]


def is_hadoop_checksum(path: str) -> bool:
    """Whether it is `.name.crc`: what Hadoop's local file system keeps beside every file, and
    nobody else reads.
    """
    name = path.rsplit("/", 1)[-1]
    return name.startswith(".") and name.endswith(".crc")


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of everything that stays as it is: by pair of places, as steps, and the size of
    each file by path.
    """

    groups: tuple[Group, ...]
    steps: tuple[CopyFiles, ...]
    sizes: Mapping[str, int]

    @property
    def files(self) -> set[tuple[str, str]]:
        """Return the files that are copied, by location and path."""
        files: set[tuple[str, str]] = set()
        for group in self.groups:
            files.update((group.source, file.path) for file in group.files)
        return files


def copies(
    job: JobSpec, facts: Facts, images: tuple[Image, ...], left_out: frozenset[tuple[str, str]]
) -> Copies:
    """Return the copies of everything that stays as it is: the files that the images need, but for
    those that are published last or rewritten (`left_out`, as (location, path)), and the places
    that move along, whose files keep their times.
    """
    infos = {}
    for survey in (facts.source, *facts.merges):
        for file in survey.files:
            infos[file.path] = file
    groups = [_state_group(facts, images, infos, left_out)]
    for data, (here, there) in zip(job.data, facts.data, strict=True):
        if data.copy:
            files = []
            for file in sorted(here.files):
                is_left_out = (here.location, file.path) in left_out
                if not is_left_out and not is_hadoop_checksum(file.path):
                    files.append(file)
            data_group = Group(here.location, there.location, tuple(files))
            groups.append(data_group)
    sizes = {path: file.size for path, file in infos.items()}
    return Copies(tuple(groups), copy_steps(groups), sizes)


def _state_group(
    facts: Facts,
    images: tuple[Image, ...],
    infos: Mapping[str, FileInfo],
    left_out: frozenset[tuple[str, str]],
) -> Group:
    """Return the files of the images. The checksum of a file that is rewritten is left out with it:
    a stale one makes an intact file unreadable.
    """
    source = facts.source.location
    first_read = set(chain.from_iterable(image.first_read for image in images))
    needed = set(chain.from_iterable(image.needed for image in images))
    files = []
    for path in sorted(needed - first_read):
        if (source, path.removesuffix(".crc")) not in left_out:
            files.append(infos[path])
    return Group(source, facts.target.location, tuple(files))


def copy_steps(groups: Iterable[Group]) -> tuple[CopyFiles, ...]:
    """Return the steps that copy: the state's group is the first; what moves along keeps its
    times.
    """
    steps = []
    for g, group in enumerate(groups):
        for number, bundle in enumerate(bundled(group.files)):
            steps.append(
                CopyFiles(
                    f"copy/{g}-{number}",
                    group.source,
                    group.target,
                    tuple(bundle),
                    keep_times=g > 0,
                )
            )
    return tuple(steps)

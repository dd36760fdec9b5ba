"""Files grouped into steps that copy: worthwhile units of journaled work. Forty thousand files are
not forty thousand journal writes, and one file of ten gigabytes is a step of its own. Pure.

Rounds copy ahead; `facts.brought` tells which files are at the target already, by the location they
came from and their path. The rest of what the image needs is still to be copied, but for the files
that make it visible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol, TypeVar

from stateshift.specification import JobSpec
from stateshift.step import BringFiles, CopyFiles, FileEvidence, KeepBrought
from stateshift.survey import Facts, FileInfo, Image, ShardFiles, Survey

FILES_MAX = 256
PIECES_MAX = 16  # of what is rewritten: one after the other in its step, while other steps run
BYTES_MAX = 64 * 1024 * 1024
# Bytes that are decoded: a second of a core, so that the last of them leave no core idle for long.
DECODED_BYTES_MAX = 16 * 1024 * 1024


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=_Sized)
T = TypeVar("T")


def bundle_by(
    items: Iterable[T],
    amount: Callable[[T], tuple[int, int]],
    files_max: int = FILES_MAX,
    bytes_max: int = DECODED_BYTES_MAX,
) -> Iterator[list[T]]:
    """Yield runs of items in order; `amount` tells the files and bytes of one."""
    bundle: list[T] = []
    files = size = 0
    for item in items:
        own_files, own_size = amount(item)
        is_full = files + own_files > files_max or size + own_size > bytes_max
        if bundle and is_full:
            yield bundle
            bundle, files, size = [], 0, 0
        bundle.append(item)
        files += own_files
        size += own_size
    if bundle:
        yield bundle


def bundle_items(
    items: Iterable[S], files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[list[S]]:
    """Yield runs of items that are one file each."""
    return bundle_by(items, lambda item: (1, item.size), files_max, bytes_max)


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that go from one location to another, each to the same path."""

    source: str
    target: str
    files: tuple[FileInfo, ...]


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of what stays as it is: by pair of places, as steps, and file sizes by path."""

    groups: tuple[FileGroup, ...]
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
    infos = infos_of((facts.source, *facts.merges))
    source = facts.source.location
    first_read = set(chain.from_iterable(image.first_read for image in images))
    needed = set(chain.from_iterable(image.needed for image in images))
    files = []
    for path in sorted(needed - first_read):
        # A rewritten file's checksum stays behind: a stale one makes an intact file unreadable.
        if (source, path.removesuffix(".crc")) not in left_out:
            files.append(infos[path])
    groups = [FileGroup(source, facts.target.location, tuple(files))]
    for data, (here, there) in zip(job.data, facts.data, strict=True):
        if data.copy:
            files = []
            for file in sorted(here.files):
                name = file.path.rpartition("/")[2]
                # Hadoop's local file system keeps `.name.crc`, which nobody else reads.
                is_checksum = name.startswith(".") and name.endswith(".crc")
                if not is_checksum and (here.location, file.path) not in left_out:
                    files.append(file)
            groups.append(FileGroup(here.location, there.location, tuple(files)))
    sizes = {path: file.size for path, file in infos.items()}
    return Copies(tuple(groups), copy_steps(groups), sizes)


def infos_of(surveys: Iterable[Survey]) -> dict[str, FileInfo]:
    """Return all files of these surveys by path; no two of them have the same."""
    infos: dict[str, FileInfo] = {}
    for survey in surveys:
        infos.update((file.path, file) for file in survey.files)
    return infos


def copy_steps(groups: Iterable[FileGroup]) -> tuple[CopyFiles, ...]:
    """Return the steps that copy: the state's group first; what moves along keeps its times."""
    steps = []
    for g, group in enumerate(groups):
        for number, bundle in enumerate(bundle_items(group.files)):
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


def bare(facts: Facts) -> Facts:
    """Return facts without stamps: rounds alone care which file of a name it was."""
    return replace(
        facts,
        source=_bare(facts.source),
        target=_bare(facts.target),
        merges=tuple(map(_bare, facts.merges)),
        data=tuple((_bare(here), _bare(there)) for here, there in facts.data),
        others=tuple(map(_bare, facts.others)),
    )


def _bare(survey: Survey) -> Survey:
    return replace(survey, files=tuple(FileInfo(*file[:3]) for file in survey.files))


def still_to_copy(facts: Facts, copied: Copies) -> Copies:
    """Return the same without the files that are there, bundled again: few bundles run at once."""
    if not facts.brought:
        return copied
    groups = []
    for group in copied.groups:
        files = (file for file in group.files if (group.source, file.path) not in facts.brought)
        groups.append(replace(group, files=tuple(files)))
    return replace(copied, groups=tuple(groups), steps=copy_steps(groups))


def transfers_of(
    facts: Facts,
    copied: Copies,
    chains: Iterable[ShardFiles],
    anchors: tuple[FileInfo, ...],
    read_back: bool,
) -> Iterator[BringFiles]:
    """Yield the round that does what these copies would, as far as it is not done. A bundle knows
    the chains that its files complete, also where what is missing of one is in another bundle.
    """
    stamps: dict[tuple[str, str], FileInfo] = {}
    for survey in (facts.source, *(here for here, _ in facts.data)):
        stamps.update(((survey.location, file.path), file) for file in survey.files)
    chain_of: dict[str, ShardFiles] = {}
    for shard in chains:
        chain_of.update(dict.fromkeys(shard.files, shard))
    for step in still_to_copy(facts, copied).steps:
        items = tuple(stamps[step.source, item.path] for item in step.items)
        completed = filter(None, (chain_of.get(item.path) for item in items))
        yield BringFiles(
            step.name,
            step.source,
            step.target,
            items,
            tuple({id(chain): chain for chain in completed}.values()),
            anchors,
            step.keep_times,
            read_back,
            continued=facts.standing,
        )


def keep_copied(
    facts: Facts, wanted: Collection[tuple[str, str]], again: Collection[str]
) -> Iterator[KeepBrought]:
    """Yield the steps that keep what is wanted, and drop the rest but for what comes `again`."""
    targets = [arrived.target for arrived in facts.brought.values()]
    targets += [place for place, _ in facts.left]
    for number, target in enumerate(dict.fromkeys(targets)):
        stays: list[FileEvidence] = []
        goes = {path for place, path in facts.left if place == target}.difference(again)
        for key, arrived in facts.brought.items():
            if arrived.target == target and key in wanted:
                stays.append(FileEvidence(arrived.name, arrived.file.size, arrived.digest))
            elif arrived.target == target:
                goes.add(arrived.name)
        yield KeepBrought(f"copy/kept-{number}", target, tuple(sorted(stays)), tuple(sorted(goes)))


def without_kept(facts: Facts, steps: Iterable[KeepBrought]) -> Iterator[KeepBrought]:
    """Yield the steps that retire what an image does not need, without files of kept images."""
    kept: set[str] = set()
    for image in facts.kept:
        kept.update(image.needed_files)
    for step in steps:
        if step.target != facts.target.location:
            yield step
            continue
        dropped = tuple(path for path in step.dropped if path not in kept)
        yield replace(step, dropped=dropped)


def without_shown(
    facts: Facts, steps: Iterable[KeepBrought]
) -> tuple[tuple[KeepBrought, ...], tuple[KeepBrought, ...]]:
    """Return the steps without files that a standby shows, and those that remove them later."""
    shown: set[str] = set()
    for image in facts.shown:
        shown.update(image.needed_files)
    at_once, later = [], []
    for number, step in enumerate(steps):
        needed = shown.intersection(step.dropped if step.target == facts.target.location else ())
        rest = tuple(path for path in step.dropped if path not in needed)
        at_once.append(replace(step, dropped=rest))
        if needed:
            name, dropped = f"publish/kept-{number}", tuple(sorted(needed))
            later.append(KeepBrought(name, step.target, (), dropped))
    return tuple(at_once), tuple(later)

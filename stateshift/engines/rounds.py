"""The facts that rounds need of any engine's image: which of its files are there already, and what
is still to be copied. Pure.

    at the target already    facts.brought, by the location they came from and their path
    still to be copied       what the image needs otherwise, but for the files that make it visible
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from stateshift.engines.bundles import Copies, copy_steps
from stateshift.step import BringFiles, FileEvidence, KeepBrought
from stateshift.survey import Facts, FileInfo, ShardFiles, Survey


def bare(facts: Facts) -> Facts:
    """Return facts without stamps: a plan says what is done with which file, and rounds alone care
    which one it was.
    """
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
    """Return the same, without the files that are there already. The rest is bundled again: little
    of it lay beside much that is not, and a bundle's files are copied at the same time, but few
    bundles are.
    """
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
        )


def keep_copied(
    facts: Facts, wanted: Collection[tuple[str, str]], again: Collection[str]
) -> Iterator[KeepBrought]:
    """Yield the steps that keep what was copied and is wanted, which becomes this plan's to answer
    for. Unwanted files go; a file that is wanted, and is not the one that was copied, is written
    `again`, there.
    """
    targets = [arrived.target for arrived in facts.brought.values()]
    targets += [place for place, _ in facts.left]
    for number, target in enumerate(dict.fromkeys(targets)):
        stays, goes = _kept_and_gone(facts, wanted, target)
        leftover = {path for place, path in facts.left if place == target}
        goes |= leftover.difference(again)
        yield KeepBrought(f"copy/kept-{number}", target, tuple(sorted(stays)), tuple(sorted(goes)))


def without_shown(
    facts: Facts, steps: Iterable[KeepBrought]
) -> tuple[tuple[KeepBrought, ...], tuple[KeepBrought, ...]]:
    """Return the steps without the files of the image that a standby shows, and the steps that
    remove those. The latter come first in `publish`: until then that image may be the last copy.
    """
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


def _kept_and_gone(
    facts: Facts, wanted: Collection[tuple[str, str]], target: str
) -> tuple[list[FileEvidence], set[str]]:
    """Return the files that were copied to a place and are wanted; and those that are not."""
    stays: list[FileEvidence] = []
    goes: set[str] = set()
    for key, arrived in facts.brought.items():
        if arrived.target != target:
            continue
        if key in wanted:
            stays.append(FileEvidence(arrived.name, arrived.file.size, arrived.digest))
        else:
            goes.add(arrived.name)
    return stays, goes

"""What rounds need to know of any engine's image: which of its files are there already, and what is
still to be brought. Pure.

    at the target already    facts.brought, by the location they came from and their path
    still to be brought      what the image needs otherwise, but for the files that make it visible
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from stateshift.engines.bundles import Copies, copy_steps
from stateshift.step import BringFiles, FileEvidence, KeepBrought
from stateshift.survey import Facts, FileInfo, ShardFiles, Survey


def bare(facts: Facts) -> Facts:
    """Without stamps: a plan says what is done with which file, and rounds alone care which one
    it was.
    """
    return replace(
        facts,
        source=replace(facts.source, files=_bare(facts.source.files)),
        target=replace(facts.target, files=_bare(facts.target.files)),
        merges=tuple(replace(survey, files=_bare(survey.files)) for survey in facts.merges),
        data=tuple(
            (replace(here, files=_bare(here.files)), replace(there, files=_bare(there.files)))
            for here, there in facts.data
        ),
        others=tuple(replace(survey, files=_bare(survey.files)) for survey in facts.others),
    )


def _bare(files: Iterable[FileInfo]) -> tuple[FileInfo, ...]:
    return tuple(FileInfo(*file[:3]) for file in files)


def still_to_copy(facts: Facts, copied: Copies) -> Copies:
    """The same, without the files that are there already. What is left is bundled anew: little of
    it lay beside much that is not, and a bundle's files are copied at the same time, but few
    bundles are.
    """
    if not facts.brought:
        return copied
    left = (
        (g, tuple(f for f in g.files if (g.source, f.path) not in facts.brought))
        for g in copied.groups
    )
    groups = tuple(replace(group, files=files) for group, files in left)
    return replace(copied, groups=groups, steps=copy_steps(groups))


def brought_by(
    facts: Facts,
    copied: Copies,
    chains: Iterable[ShardFiles],
    anchors: tuple[FileInfo, ...],
    read_back: bool,
) -> Iterator[BringFiles]:
    """The round that does what these copies would, as far as it is not done. A bundle knows the
    chains that its files complete, also where what is missing of one is in another bundle.
    """
    stamps = {}
    for survey in _sources(facts):
        for f in survey.files:
            stamps[(survey.location, f.path)] = f
    owners = {}
    for chain in chains:
        for path in chain.files:
            owners[path] = chain
    for step in still_to_copy(facts, copied).steps:
        items = tuple(stamps[step.source, item.path] for item in step.items)
        shards = tuple(
            {id(c): c for item in items if (c := owners.get(item.path)) is not None}.values()
        )
        yield BringFiles(
            step.name, step.source, step.target, items, shards, anchors, step.keep_times, read_back
        )


def _sources(facts: Facts) -> Iterator[Survey]:
    yield facts.source
    yield from (here for here, _ in facts.data)


def kept(
    facts: Facts, wanted: Collection[tuple[str, str]], again: Collection[str]
) -> Iterator[KeepBrought]:
    """What was brought and is wanted stays, and becomes this plan's to answer for. What is not
    wanted goes; what is wanted, and is not what was brought, is written `again`, there.
    """
    targets = dict.fromkeys(
        (*(one.target for one in facts.brought.values()), *(place for place, _ in facts.left))
    )
    for number, target in enumerate(targets):
        items: list[FileEvidence] = []
        gone: set[str] = set()
        for place, path in facts.left:
            if place == target and path not in again:
                gone.add(path)
        for key, arrived in facts.brought.items():
            if arrived.target != target:
                continue
            if key in wanted:
                items.append(FileEvidence(arrived.name, arrived.file.size, arrived.digest))
            else:
                gone.add(arrived.name)
        yield KeepBrought(f"copy/kept-{number}", target, tuple(sorted(items)), tuple(sorted(gone)))

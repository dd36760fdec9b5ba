"""A Flink job that moves while it runs: the files of its last checkpoint that a round copies. Pure.

A checkpoint's files never change once it is completed, and an incremental one names those of
earlier ones again: a round may copy all of the last checkpoint, and the next one has little that is
new. The metadata of the checkpoint that the job ends with says which files the image is made of;
what rounds have copied beside is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from stateshift.engines.flink import layout
from stateshift.engines.flink.plan.copy import Whole, bundles
from stateshift.engines.flink.rewrite.move import Move
from stateshift.step import AnyStep, BringFiles, CompareImages, CopyFiles
from stateshift.survey import Facts, FileInfo, Survey

Names = Mapping[tuple[str, str], str]  # by location and path, what a file is called in the target


def bare(facts: Facts) -> Facts:
    """Return facts without stamps, and without the times of what lies outside the image's folder: a
    plan says what is done with which file, and rounds alone care which one it was.
    """
    source = _bare(facts.source)
    target = source if facts.target is facts.source else _bare(facts.target)
    others = tuple(_bare(survey) for survey in facts.others)
    return replace(facts, source=source, target=target, others=others)


def _bare(survey: Survey) -> Survey:
    inside = tuple(f"{image.path}/" if image.path else "" for image in survey.images) or ("",)
    files = []
    for file in survey.files:
        times = (file.modified,) if file.path.startswith(inside) else ()
        files.append(FileInfo(file.path, file.size, *times))
    return replace(survey, files=tuple(files))


def there_already(facts: Facts, wanted: Names) -> frozenset[tuple[str, str]]:
    """Return the wanted files that rounds have copied under the name that they are to have."""
    return frozenset(key for key, file in facts.brought.items() if wanted.get(key) == file.name)


def names_of(wholes: Iterable[Whole]) -> dict[tuple[str, str], str]:
    """Return the name at the target of each file that is copied whole, by its location and path."""
    names = {}
    for whole in wholes:
        for file, name in whole.files:
            names[(whole.location, file.path)] = name
    return names


def round_of(move: Move, wholes: Sequence[Whole]) -> Iterator[BringFiles]:
    """Yield steps for all of the last checkpoint that is there and is not copied yet. A part of a
    file that others share, and may still grow, is left for the end.
    """
    at_target = there_already(move.facts, names_of(wholes))
    for number, whole in enumerate(wholes):
        left = whole.files_not_in(at_target)
        for bundle, (items, names) in enumerate(bundles(left)):
            yield BringFiles(
                f"copy/{number}-{bundle}",
                whole.location,
                move.target,
                items,
                read_back=move.job.verify != "none",
                names=names,
            )


def compare_copies(copied: Sequence[AnyStep]) -> Iterator[CompareImages]:
    """Yield comparisons of what was copied now, byte for byte: as rounds have compared the rest."""
    copies = [step for step in copied if isinstance(step, CopyFiles)]
    for number, step in enumerate(copies):
        yield CompareImages.of_copy(f"compare/{number}", layout.ENGINE, step)

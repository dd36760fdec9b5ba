"""A Flink job that moves while it runs: what a round copies of its last checkpoint. Pure.

A checkpoint's files never change once it is completed, and an incremental one names those of
earlier ones again: a round may copy all of the last checkpoint, and the next one has little that is
new. The metadata of the checkpoint that the job ends with says which files the image is made of;
what rounds have copied beside is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from stateshift.engines.flink import layout
from stateshift.engines.flink.image import is_readable, metadata_of
from stateshift.engines.flink.plan.copy import Whole, bundles
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import AbsoluteFile, FileHandle, Segment, files_of
from stateshift.specification import JobSpec
from stateshift.step import AnyStep, BringFiles, CompareImages, CopyFiles
from stateshift.survey import Facts, FileInfo, Finding, Survey

Names = Mapping[tuple[str, str], str]  # by location and path, what a file is called in the target

# What is said of checkpoints of which nothing stays, and the setting with which it does.
_PARTS = (
    "are parts of files that still grow",
    '"execution.checkpointing.file-merging.enabled": false',
)
_WRITTEN_AGAIN = (
    "are written again each time",
    '"state.backend.type": rocksdb with "execution.checkpointing.incremental": true',
)


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
    return replace(survey, files=tuple(_bare_file(file, inside) for file in survey.files))


def _bare_file(file: FileInfo, inside: tuple[str, ...]) -> FileInfo:
    if file.path.startswith(inside):
        return FileInfo(file.path, file.size, file.modified)
    return FileInfo(file.path, file.size)


def there_already(facts: Facts, wanted: Names) -> frozenset[tuple[str, str]]:
    """Return what of the wanted files rounds have copied, under the name that it is to have."""
    return frozenset(key for key, file in facts.brought.items() if wanted.get(key) == file.name)


def names_of(wholes: Iterable[Whole]) -> dict[tuple[str, str], str]:
    """Return the name at the target of each file that is copied whole, by its location and path."""
    names = {}
    for whole in wholes:
        for file, name in whole.files:
            names[(whole.location, file.path)] = name
    return names


def round_of(job: JobSpec, facts: Facts, wholes: Sequence[Whole]) -> Iterator[BringFiles]:
    """Yield steps for all of the last checkpoint that is there and is not copied yet. What is a
    part of a file that others share, and may still grow, is left for the end.
    """
    at_target = there_already(facts, names_of(wholes))
    for number, whole in enumerate(wholes):
        left = whole.files_not_in(at_target)
        for bundle, (items, names) in enumerate(bundles(left)):
            yield BringFiles(
                f"copy/{number}-{bundle}",
                whole.location,
                facts.target.location,
                items,
                read_back=job.verify != "none",
                names=names,
            )


def compared(copied: Sequence[AnyStep]) -> Iterator[CompareImages]:
    """Yield comparisons of what was copied now, byte for byte: as rounds have compared the rest."""
    copies = [step for step in copied if isinstance(step, CopyFiles)]
    for number, step in enumerate(copies):
        yield CompareImages.of_copy(f"compare/{number}", layout.ENGINE, step)


def of_rounds(job: JobSpec, surveys: Sequence[Survey]) -> Iterator[Finding]:
    """Yield a refusal for each image of which a round could copy nothing for good."""
    for survey in surveys:
        reason = _why_nothing_stays(survey) if is_readable(survey) else None
        if reason is not None:
            what, way = reason
            yield Finding(
                "refuse",
                f"{job.name}'s checkpoints {what}: nothing can be copied for good before the job "
                "is stopped",
                hint=f'start it with {way}; or "mode": "move"',
            )


def _why_nothing_stays(survey: Survey) -> tuple[str, str] | None:
    """Return why nothing of a checkpoint stays as it is, and the setting with which it does."""
    files = _keyed_files(survey)
    if not files or any(isinstance(file, AbsoluteFile) for file in files):
        return None
    if any(isinstance(file, Segment) for file in files):
        return _PARTS
    return _WRITTEN_AGAIN  # what a checkpoint does not share with others lies beside its metadata


def _keyed_files(survey: Survey) -> list[FileHandle]:
    files: list[FileHandle] = []
    for reference in references(metadata_of(survey.images[0])):
        if reference.role == "keyed":
            files.extend(files_of(reference.stream))
    return files

"""A Flink job that moves while it runs: what a round brings of its last checkpoint. Pure.

A checkpoint's files never change once it is completed, and an incremental one names those of
earlier ones again: a round may copy all of the last checkpoint, and the next one has little that is
new. Which files the image is made of is told by the metadata of the checkpoint that the job ends
with; what rounds have brought beside is removed.
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


def bare(facts: Facts) -> Facts:
    """Without stamps, and of what lies outside the image's folder not even times: a plan says what
    is done with which file, and rounds alone care which one it was.
    """
    source = _bare(facts.source)
    target = source if facts.target is facts.source else _bare(facts.target)
    return replace(
        facts, source=source, target=target, others=tuple(_bare(one) for one in facts.others)
    )


def _bare(survey: Survey) -> Survey:
    inside = tuple(f"{image.path}/" if image.path else "" for image in survey.images) or ("",)
    files = (
        FileInfo(f.path, f.size, *((f.modified,) if f.path.startswith(inside) else ()))
        for f in survey.files
    )
    return replace(survey, files=tuple(files))


def there_already(facts: Facts, wanted: Names) -> frozenset[tuple[str, str]]:
    """Of what is wanted: what rounds have brought, under the name that it is to have."""
    return frozenset(key for key, one in facts.brought.items() if wanted.get(key) == one.name)


def names_of(wholes: Iterable[Whole]) -> dict[tuple[str, str], str]:
    names = {}
    for one in wholes:
        for file, name in one.files:
            names[(one.location, file.path)] = name
    return names


def round_of(job: JobSpec, facts: Facts, wholes: Sequence[Whole]) -> Iterator[BringFiles]:
    """All of the last checkpoint that is there and is not brought yet. What is a part of a file
    that others share, and may still grow, is left for the end.
    """
    there = there_already(facts, names_of(wholes))
    target, read_back = facts.target.location, job.verify != "none"
    for number, whole in enumerate(wholes):
        left = (one for one in whole.files if (whole.location, one.file.path) not in there)
        for bundle, (items, names) in enumerate(bundles(left)):
            yield BringFiles(
                f"copy/{number}-{bundle}",
                whole.location,
                target,
                items,
                read_back=read_back,
                names=names,
            )


def compared(copied: Sequence[AnyStep]) -> Iterator[CompareImages]:
    """What was copied now, byte for byte: as rounds have compared the rest."""
    for number, step in enumerate(step for step in copied if isinstance(step, CopyFiles)):
        paths = tuple(item.path for item in step.items)
        yield CompareImages(
            f"compare/{number}",
            layout.ENGINE,
            step.source,
            step.target,
            (),
            None,
            paths,
            {},
            step.bytes,
            names=step.names,
        )


def of_rounds(job: JobSpec, surveys: Sequence[Survey]) -> Iterator[Finding]:
    """Whether there is anything that a round could bring for good."""
    for survey in surveys:
        if not is_readable(survey):
            continue
        metadata = metadata_of(survey.images[0])
        files: list[FileHandle] = []
        for r in references(metadata):
            if r.role == "keyed":
                files.extend(files_of(r.stream))
        if not files or any(isinstance(file, AbsoluteFile) for file in files):
            continue
        if any(isinstance(file, Segment) for file in files):
            what, way = (
                "are parts of files that still grow",
                '"execution.checkpointing.file-merging.enabled": false',
            )
        else:  # what a checkpoint does not share with others lies beside its metadata
            what = "are written anew each time"
            way = '"state.backend.type": rocksdb with "execution.checkpointing.incremental": true'
        yield Finding(
            "refuse",
            (
                f"{job.name}'s checkpoints {what}: nothing can be brought for good before the "
                "job is stopped"
            ),
            hint=f'start it with {way}; or "mode": "move"',
        )

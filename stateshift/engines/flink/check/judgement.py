"""Whether a job could restart from an image. Reads only.

An image has one epoch. Whatever is wrong with it, there is no other one to go back to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter

from stateshift.engines.flink.image import flink_image, metadata_of, places_of
from stateshift.engines.views import CheckStage, Coverage, DeepCheck, ImageAt, Judged, Part
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.flink.references import files_named
from stateshift.survey import Image, sizes_of


def judge(at: ImageAt, deep: DeepCheck | None) -> Judged:
    """Return what is wrong with the image, and its epoch where a job could restart from it."""
    if deep is None:
        return Judged((), at.image.epochs)
    from stateshift.engines.flink.check.image import everything, walk_of

    began = perf_counter()
    if flink_image(at.image) is None:
        return Judged((), at.image.epochs)
    walk = walk_of(at.storage, at.image)
    findings = tuple(everything(at.storage, at.image, deep.part, walk))
    seconds = perf_counter() - began
    part = _amount(at, deep.part)
    refused = any(finding.level == "refuse" for finding in findings)
    coverage = None
    if deep.part is not None:
        whole = _amount(at, None)
        coverage = Coverage(part.subtasks, whole.subtasks, part.bytes, whole.bytes)
    return Judged(
        findings,
        () if refused else at.image.epochs,
        stages=(CheckStage("state", seconds, part.files, part.bytes),),
        coverage=coverage,
        no_checksum=_joined(walk.ranges),
        undecoded=tuple(sorted(walk.classes)),
    )


def _joined(ranges: Mapping[str, list[tuple[int, int]]]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return the ranges of each file in their order, those that touch as one."""
    joined = {}
    for path, own in sorted(ranges.items()):
        merged: list[tuple[int, int]] = []
        for start, end in sorted(own):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        joined[path] = tuple(merged)
    return joined


@dataclass(frozen=True, slots=True)
class _Amount:
    """How much one part of an image is, or all of it."""

    subtasks: int
    files: int
    bytes: int


def _amount(at: ImageAt, part: Part | None) -> _Amount:
    from stateshift.engines.flink.check.image import operators_in

    if flink_image(at.image) is None:
        return _Amount(0, 0, 0)
    operators = operators_in(at.image, part)
    needed = set(at.image.needed_files) if part is None else _paths(at.image, operators)
    sizes = sizes_of(at.survey, needed)
    subtasks = sum(len(operator.all_subtasks) for operator in operators)
    return _Amount(subtasks, len(sizes), sum(sizes))


def _paths(image: Image, operators: tuple[OperatorState, ...]) -> set[str]:
    """Return the metadata, and the files that these operators name."""
    places = places_of(image)
    named = files_named(replace(metadata_of(image), operators=operators))
    paths = {places.path_of(file) for file in named}
    return {*image.first_read, *(path for path in paths if path is not None)}

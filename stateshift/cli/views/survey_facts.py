"""What all views of a survey say, computed once from what was found at a location.

SurveyFacts    a survey, with
  files          how many there are, how many a restart reads, how many are small
  rows           each file, where all are to be listed
  operators      of all images, each with its image
  endpoints      sources and sinks of all images, each with its image
  embedded       absolute paths inside, of all images
  findings       of the location, then of each image
  names          the names that were looked for, and whether they are there
  entries        the first entries of every store
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stateshift.formats import uid

if TYPE_CHECKING:
    from stateshift.look import ShownEntry
    from stateshift.survey import (
        EmbeddedPath,
        Endpoint,
        FileInfo,
        Finding,
        Image,
        Operator,
        Survey,
    )

# Files below each of these many bytes are counted: what 6.2.3 of INFORE's D5.2 found to dominate a
# move.
SMALL = (4 * 1024, 64 * 1024, 1024 * 1024)


@dataclass(frozen=True, slots=True)
class Amount:
    """How many files, and how many bytes they are together."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FileAmounts:
    """The files of a location: all, those that a restart reads, and those below each bound."""

    all: Amount
    needed: Amount
    small: tuple[tuple[int, Amount], ...]

    @property
    def spare(self) -> Amount:
        """Those that no restart reads."""
        return Amount(self.all.count - self.needed.count, self.all.bytes - self.needed.bytes)


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file, and whether a restart reads it."""

    file: FileInfo
    needed: bool


@dataclass(frozen=True, slots=True)
class OperatorOf:
    """An operator, and the image that holds it."""

    operator: Operator
    image: Image


@dataclass(frozen=True, slots=True)
class EndpointOf:
    """A source or a sink, and the image that tells of it."""

    endpoint: Endpoint
    image: Image


@dataclass(frozen=True, slots=True)
class SoughtName:
    """An operator's name that somebody looks for, where it would be, and whether it is there."""

    name: str
    directory: str
    flink_operator_id: str
    found: bool


@dataclass(frozen=True, slots=True)
class FirstEntries:
    """The first entries of every store, and whether there are more of any."""

    shown: tuple[ShownEntry, ...]
    more: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """Why keys and values are not columns, each reason once."""
        return tuple(dict.fromkeys(entry.note for entry in self.shown if entry.note is not None))


@dataclass(frozen=True, slots=True)
class SurveyFacts:
    """A survey, and what is computed of it for all views."""

    survey: Survey
    files: FileAmounts
    findings: tuple[Finding, ...]
    rows: tuple[FileRow, ...] | None = None
    names: tuple[SoughtName, ...] | None = None
    entries: FirstEntries | None = None

    @property
    def operators(self) -> tuple[OperatorOf, ...]:
        """The operators of all images."""
        operators: list[OperatorOf] = []
        for image in self.survey.images:
            operators.extend(OperatorOf(operator, image) for operator in image.operators)
        return tuple(operators)

    @property
    def endpoints(self) -> tuple[EndpointOf, ...]:
        """The sources and sinks of all images."""
        endpoints: list[EndpointOf] = []
        for image in self.survey.images:
            endpoints.extend(EndpointOf(endpoint, image) for endpoint in image.endpoints)
        return tuple(endpoints)

    @property
    def embedded(self) -> tuple[EmbeddedPath, ...]:
        """The absolute paths inside, of all images."""
        paths: list[EmbeddedPath] = []
        for image in self.survey.images:
            paths.extend(image.embedded)
        return tuple(paths)

    @property
    def only_image(self) -> Image | None:
        """The image, where there is one and no more."""
        images = self.survey.images
        return images[0] if len(images) == 1 else None


def survey_facts(
    survey: Survey, names: Sequence[str] = (), every_file: bool = False
) -> SurveyFacts:
    """Return what the views say of a survey; `names` are looked for in it."""
    needed = needed_files(survey)
    survey = with_names(survey, names) if names else survey
    return SurveyFacts(
        survey=survey,
        files=file_amounts(survey.files, needed),
        findings=findings_of(survey),
        rows=file_rows(survey.files, needed) if every_file else None,
        names=tuple(sought_names(survey, names)) if names else None,
    )


def needed_files(survey: Survey) -> frozenset[str]:
    """Return every path, relative to the location, that a restart reads."""
    needed: set[str] = set()
    for image in survey.images:
        needed.update(image.needed_files)
    return frozenset(needed)


def findings_of(survey: Survey) -> tuple[Finding, ...]:
    """Return the findings of the location, then those of each image."""
    findings = list(survey.findings)
    for image in survey.images:
        findings.extend(image.findings)
    return tuple(findings)


def file_amounts(files: Sequence[FileInfo], needed: frozenset[str]) -> FileAmounts:
    """Return how many files there are, how many a restart reads, and how many are small."""
    sizes = {file.path: file.size for file in files}
    return FileAmounts(
        all=Amount(len(files), sum(file.size for file in files)),
        needed=Amount(len(needed), sum(sizes.get(path, 0) for path in needed)),
        small=tuple((bound, amount_below(bound, files)) for bound in SMALL),
    )


def amount_below(bound: int, files: Iterable[FileInfo]) -> Amount:
    """Return how many files are smaller than a bound."""
    sizes = [file.size for file in files if file.size < bound]
    return Amount(len(sizes), sum(sizes))


def file_rows(files: Iterable[FileInfo], needed: frozenset[str]) -> tuple[FileRow, ...]:
    """Return a row for each file."""
    return tuple(FileRow(file, file.path in needed) for file in files)


# ---- names ---------------------------------------------------------------------------------------


def with_names(survey: Survey, names: Iterable[str]) -> Survey:
    """Return the survey with the operators named whose ids are the hashes of these names."""
    by_id = {uid.flink_operator_id(name): name for name in names}
    images = tuple(_with_names(image, by_id) for image in survey.images)
    return replace(survey, images=images)


def _with_names(image: Image, by_id: dict[str, str]) -> Image:
    operators = []
    for operator in image.operators:
        operators.append(replace(operator, uid=operator.uid or by_id.get(operator.id)))
    return replace(image, operators=tuple(operators))


def sought_names(survey: Survey, names: Iterable[str]) -> Iterable[SoughtName]:
    """Yield each name, where it would be, and whether the survey has it.

    A name is there as a directory of a workflow, or as the id of an operator.
    """
    present = directories_and_ids(survey)
    for name in names:
        directory = survey.names.get(name) or uid.directory_name(name)
        flink_id = uid.flink_operator_id(name)
        is_present = directory in present or flink_id in present
        yield SoughtName(name, directory, flink_id, is_present)


def directories_and_ids(survey: Survey) -> frozenset[str]:
    """Return the directories of a workflow's images, and the ids of all operators."""
    present = set()
    for image in survey.images:
        present.add(image.path)
        present.update(operator.id for operator in image.operators)
    return frozenset(present)


# ---- entries -------------------------------------------------------------------------------------


def first_entries(entries: Iterable[ShownEntry], limit: int) -> FirstEntries:
    """Return at most `limit` entries of each store; the reader was asked for one more of each."""
    counts: dict[tuple[str, str], int] = {}
    kept = []
    more = False
    for entry in entries:
        store = (entry.operator, entry.store)
        counts[store] = counts.get(store, 0) + 1
        if counts[store] <= limit:
            kept.append(entry)
        else:
            more = True
    return FirstEntries(tuple(kept), more)

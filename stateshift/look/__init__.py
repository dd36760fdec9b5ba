"""An image looked at, without a run. Reads only, but for an exported file; needs no JVM.

    inspect      what is in an image, a workflow directory or a single file
    entries      some of its state, decoded as far as its schemas allow
    restartable  could a job restart from it, and from which batches
    export       its state, or what single batches did to it, as Parquet, Arrow or JSON lines
    diff         two images compared by their entries

The registry of engines tells the engine of an image, which does the rest (`engines.views`): who
inspects waits for nothing that decodes or compares.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote

from stateshift.engines.protocol import Engine
from stateshift.engines.registry import (
    absence,
    decoded_file,
    engine_of,
    find_image,
    is_whole,
    refuse_document,
    single,
)
from stateshift.engines.views import (
    CheckStage,
    Coverage,
    DecodedFile,
    DeepCheck,
    Difference,
    Differences,
    Export,
    ImageAt,
    Judged,
    NumberedPart,
    Opening,
    Readers,
    ShownEntry,
    StateRead,
    Wanted,
)
from stateshift.errors import Complaint, FormatError, NothingThere, PlanError, SpecError
from stateshift.formats.standby import Superseded
from stateshift.specification.location import relation
from stateshift.specification.transform import Repair
from stateshift.step.claims import note_at_primary
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Survey, image_around

__all__ = [
    "Difference",
    "Differences",
    "Export",
    "JudgedImage",
    "Judgement",
    "ShownEntry",
    "Wanted",
    "diff",
    "entries",
    "export",
    "find_repair",
    "inspect",
    "open_patiently",
    "restartable",
    "rows_of",
    "save",
]

STDOUT = "-"
EVERYTHING = DeepCheck()
_SUFFIXES = {".parquet": "parquet", ".arrow": "arrow", ".jsonl": "jsonl", ".json": "jsonl"}


@dataclass(frozen=True, slots=True)
class InspectedPlace:
    """A survey of a directory, or a single file decoded."""

    survey: Survey | None = None
    file: DecodedFile | None = None


def inspect(location: str, opening: Opening = open_patiently) -> InspectedPlace:
    """Look at whatever is at the location."""
    refuse_document(location, opening)
    file = single(location, opening)
    if file is not None and is_whole(file[1]):
        return inspect(locations.parent(locations.normal(location, os.getcwd())), opening)
    if file is not None:
        storage, name = file
        return InspectedPlace(file=decoded_file(storage, name, location, opening))
    _, _, survey = find_image(location, opening)
    if not survey.images and survey.kind == "empty":
        hint = locations.look_above(survey.location)
        raise NothingThere(absence(survey.location, location), location=location, hint=hint)
    path = locations.local_path(survey.location)
    if not survey.images and path is not None and any(Path(path).glob("*/journal")):
        hint = f"stateshift runs {quote(path)}"
        raise FormatError(f"{location} holds the workdirs of runs, and no image", hint=hint)
    return InspectedPlace(survey)


def entries(
    location: str, opening: Opening = open_patiently, limit: int = 20
) -> Iterator[ShownEntry]:
    """Return the first entries of every store, by the names of their columns if these are known."""
    engine, storage, survey = find_image(location, opening)
    return engine.first_entries(storage, survey, limit)


def diff(
    one: str,
    other: str,
    opening: Opening = open_patiently,
    show: int = 0,
    fleet: Readers | None = None,
) -> Differences:
    """Compare two images, A and B, by operator and store; `show` of the differences are decoded."""
    engine = engine_of(*(locations.normal(at, os.getcwd()) for at in (one, other)), opening=opening)
    return engine.diff(one, other, opening, show, fleet)


@dataclass(frozen=True, slots=True)
class JudgedImage:
    """One query's image: its path, its newest epoch, and those a job could restart from."""

    path: str
    name: str | None
    epoch: int | None
    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a job could restart, and from which epoch. `images` has each query's own epochs."""

    restartable: bool
    epoch: int | None
    epochs: tuple[int, ...]
    findings: tuple[Finding, ...]
    images: tuple[JudgedImage, ...] = ()
    engine: str = "spark"
    checked: Checked | None = None
    superseded: Superseded | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """How far a deep check went: its stages, over all images, and what was left out, in words.
    `part` is the part that was read, `coverage` how much that is; None where it is all. `so_far` is
    what is remembered of all parts. `no_checksum`, `undecoded` and `read` are those of `Judged`.
    """

    stages: tuple[CheckStage, ...] = ()
    left_out: tuple[str, ...] = ()
    part: NumberedPart | None = None
    coverage: Coverage | None = None
    so_far: PartsSoFar | None = None
    no_checksum: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    undecoded: tuple[str, ...] = ()
    read: tuple[StateRead, ...] = ()


@dataclass(frozen=True, slots=True)
class PartsSoFar:
    """The number of sound parts, the time of the oldest check (if all have one), the file."""

    parts: int
    oldest: float | None
    file: str


def restartable(
    location: str,
    opening: Opening = open_patiently,
    thorough: bool = False,
    fleet: Readers | None = None,
    how: DeepCheck = EVERYTHING,
) -> Judgement:
    """Whether a job could restart from what is there. `thorough` also reads what it needs to its
    end, as far as `how` says (a `fleet` does, where there is one), and of the earlier epochs names
    those that would do, if the newest does not.
    """
    engine, storage, survey = find_image(location, opening, thorough=True)
    if not survey.images:
        fact = f"{location} holds no checkpoint that a job could restart from"
        hint = f"stateshift inspect {quote(survey.location)}"
        if survey.kind == "empty":
            fact = absence(survey.location, location)
            hint = locations.look_above(survey.location)
        nothing = Finding("refuse", fact, hint=hint)
        found = survey.findings or (nothing,)
        return Judgement(False, None, (), found, engine=engine.name)
    findings = list(survey.all_findings)
    judged = []
    checked = []
    for image in survey.images:
        at = ImageAt(storage, survey, image, image.path or location)
        judgement = engine.judge(at, how if thorough else None, fleet)
        findings += judgement.findings
        checked.append(judgement)
        judged.append(JudgedImage(image.path, image.name, image.epoch, judgement.epochs))
    together = _checked_together(checked, how.part) if thorough else None
    if together is not None and together.part is not None and together.coverage is not None:
        shards = together.coverage.shards_all
        if 0 < shards < together.part.of:  # however often they are read
            fact = f"{together.part.of} parts of {shards} shards: some hold no state"
            findings.append(Finding("note", fact, hint=f"--part next/{shards}"))
    # Each image's epoch is one to restart from, or its first batch is planned.
    others = [image for image in survey.images if not image.begins]
    whole = all(image.epoch is not None and image.epoch in image.epochs for image in others)
    refused = any(finding.level == "refuse" for finding in findings)
    epochs = judged[0].epochs if len(judged) == 1 else ()  # a workflow has none in common
    return Judgement(
        whole and not refused,
        survey.epoch,
        epochs,
        tuple(_with_hints(findings, judged, engine, location)),
        tuple(judged),
        engine.name,
        together,
        note_of_failover(storage, survey),
    )


def note_of_failover(storage: Storage, survey: Survey) -> Superseded | None:
    """Return the note that the job of a place runs at its standby; None where there is none."""
    if not survey.superseded:
        return None
    return note_at_primary(storage, [image.fence for image in survey.images])


def _checked_together(images: Collection[Judged], part: NumberedPart | None) -> Checked:
    """Return the same stages of all images as one, and what was left out of each."""
    stages: dict[str, CheckStage] = {}
    left_out: list[str] = []
    no_checksum: dict[str, tuple[tuple[int, int], ...]] = {}
    undecoded: set[str] = set()
    read: list[StateRead] = []
    coverage = None if part is None else Coverage(0, 0, 0, 0)
    for image in images:
        left_out += image.left_out
        for stage in image.stages:
            before = stages.get(stage.name)
            stages[stage.name] = stage if before is None else before + stage
        if coverage is not None and image.coverage is not None:
            coverage += image.coverage
        no_checksum.update(image.no_checksum)
        undecoded.update(image.undecoded)
        read += image.read
    return Checked(
        tuple(stages.values()),
        tuple(left_out),
        part,
        coverage,
        no_checksum=no_checksum,
        undecoded=tuple(sorted(undecoded)),
        read=tuple(read),
    )


def _with_hints(
    findings: Iterable[Finding], judged: list[JudgedImage], engine: Engine, location: str
) -> Iterator[Finding]:
    """Yield the findings with hints: none to verify, which was just done. If an earlier epoch of
    the damaged image works, the first damage in it tells how to get to it.
    """
    images = [image.path for image in judged]
    told: set[str | None] = set()
    for finding in findings:
        if finding.hint and finding.hint.startswith("stateshift verify"):
            finding = replace(finding, hint=None)
        if finding.is_damage and not finding.hint:
            assert finding.path is not None, "damage is of a file"
            damaged = image_around(finding.path, images)
            around = [image for image in judged if damaged in (None, image.path)]
            is_restorable = any(image.epochs for image in around)
            if not (is_restorable and damaged in told):
                hint = engine.way_out(finding.path, location, images, is_restorable)
                finding = replace(finding, hint=hint)
                told.add(damaged)
        yield finding


def find_repair(location: str, also: Collection[str], opening: Opening = open_patiently) -> Repair:
    """Return the repair that gives the newest epoch of a damaged image."""
    here = os.getcwd()
    place = locations.normal(location, here)
    copies = [locations.normal(copy, here) for copy in also]
    return engine_of(place, opening=opening).find_repair(place, copies, opening)


def export(
    location: str, to: str, wanted: Wanted | None = None, opening: Opening = open_patiently
) -> Export:
    """Return the export to `to`. Refuse here what can be refused without reading the state."""
    place = locations.normal(location, os.getcwd())
    made = rows_of(location, _format(to), wanted or Wanted(), opening)
    if to != STDOUT and relation(locations.normal(to, os.getcwd()), place) in ("same", "inside"):
        fact = f"{to} lies inside of what is exported"
        raise PlanError(fact, hint="name a file outside of the checkpoint")
    return made


def rows_of(location: str, format: str, wanted: Wanted, opening: Opening) -> Export:
    """Return the export in this format, wherever it goes."""
    place = locations.normal(location, os.getcwd())
    return engine_of(place, opening=opening).export(location, wanted, format, opening)


def save(
    made: Export, to: str, opening: Opening = open_patiently, readers: Readers | None = None
) -> int:
    """Write the export to a file, whole or not at all; `readers` help. Return its size."""
    target = locations.normal(to, os.getcwd())
    storage = opening(locations.parent(target))
    size = storage.write(locations.name(target), lambda: made.chunks(readers))
    storage.sync()
    return size


def _format(to: str) -> str:
    if to == STDOUT:
        return "jsonl"
    suffix = os.path.splitext(to)[1].lower()
    if suffix not in _SUFFIXES:
        fact = f"the suffix decides the format, and {suffix or 'none'} is none that is known"
        hint = "name it .parquet, .arrow or .jsonl; - writes JSON lines to stdout"
        complaint = Complaint("--to", f"{to}: {fact}")
        raise SpecError((complaint,), hint=hint)
    return _SUFFIXES[suffix]

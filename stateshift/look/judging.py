"""Could a job restart from an image, and from which epochs: what a survey says, and what every
needed byte says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote

from stateshift.engines.protocol import Engine
from stateshift.engines.registry import find_image
from stateshift.engines.views import (
    CheckStage,
    Coverage,
    DeepCheck,
    ImageAt,
    Judged,
    Opening,
    Part,
    Readers,
)
from stateshift.storage.opening import open_patiently
from stateshift.survey import Finding

EVERYTHING = DeepCheck()


@dataclass(frozen=True, slots=True)
class JudgedImage:
    """One query's image: its path, its newest epoch, and those a job could restart from."""

    path: str
    name: str | None
    epoch: int | None
    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a job could restart, from which epoch, and all findings. Each query of a workflow has
    its own epochs, in `images`. `checked` is None if only names were read.
    """

    restartable: bool
    epoch: int | None
    epochs: tuple[int, ...]
    findings: tuple[Finding, ...]
    images: tuple[JudgedImage, ...] = ()
    engine: str = "spark"
    checked: Checked | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """How far a deep check went: its stages, over all images, and what was left out, in words.
    `part` is the part that was read, `coverage` how much that is; None where it is all. `so_far` is
    what is remembered of all parts. `no_checksum` and `undecoded` are those of `Judged`.
    """

    stages: tuple[CheckStage, ...] = ()
    left_out: tuple[str, ...] = ()
    part: Part | None = None
    coverage: Coverage | None = None
    so_far: PartsSoFar | None = None
    no_checksum: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    undecoded: tuple[str, ...] = ()


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
        nothing = Finding(
            "refuse",
            f"{location} holds no checkpoint that a job could restart from",
            hint=f"stateshift inspect {quote(location)}",
        )
        return Judgement(False, None, (), (nothing,), engine=engine.name)
    findings = list(survey.all_findings)
    judged = []
    checked = []
    for image in survey.images:
        at = ImageAt(storage, survey, image, image.path or location)
        judgement = engine.judge(at, how if thorough else None, fleet)
        findings += judgement.findings
        checked.append(judgement)
        judged.append(JudgedImage(image.path, image.name, image.epoch, judgement.epochs))
    together = None
    if thorough:
        together = _checked_together(checked, how.part)
        if together.part is not None and together.coverage is not None:
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
        tuple(_with_hint(finding, judged, engine) for finding in findings),
        tuple(judged),
        engine.name,
        together,
    )


def _checked_together(images: Collection[Judged], part: Part | None) -> Checked:
    """Return the same stages of all images as one, and what was left out of each."""
    stages: dict[str, CheckStage] = {}
    left_out: list[str] = []
    no_checksum: dict[str, tuple[tuple[int, int], ...]] = {}
    undecoded: set[str] = set()
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
    return Checked(
        tuple(stages.values()),
        tuple(left_out),
        part,
        coverage,
        no_checksum=no_checksum,
        undecoded=tuple(sorted(undecoded)),
    )


def _with_hint(finding: Finding, judged: list[JudgedImage], engine: Engine) -> Finding:
    """Return the finding with a hint: an earlier epoch, or none to verify, which was just done."""
    if finding.hint and finding.hint.startswith("stateshift verify"):
        finding = replace(finding, hint=None)
    if not finding.is_damage or finding.hint or any(image.epochs for image in judged):
        return finding
    assert finding.path is not None, "damage is of a file"
    return replace(finding, hint=engine.way_out(finding.path, [image.path for image in judged]))

"""Could a job restart from an image, and from which epochs: what a survey says, and what every
needed byte says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from shlex import quote

from stateshift.engines.protocol import Engine
from stateshift.engines.registry import found_at
from stateshift.engines.views import ImageAt, Opening, Readers
from stateshift.storage.opening import open_patiently
from stateshift.survey import Finding


@dataclass(frozen=True, slots=True)
class JudgedImage:
    """One query's image: where below the location it lies, its newest epoch, and those a job
    could restart from.
    """

    path: str
    name: str | None
    epoch: int | None
    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a job could restart, from which epoch, and everything that was found on the way.
    `epoch` and `epochs` are those of a single query; each query of a workflow has its own, in
    `images`.
    """

    restartable: bool
    epoch: int | None
    epochs: tuple[int, ...]
    findings: tuple[Finding, ...]
    images: tuple[JudgedImage, ...] = ()
    engine: str = "spark"


def restartable(
    location: str,
    opening: Opening = open_patiently,
    thorough: bool = False,
    fleet: Readers | None = None,
) -> Judgement:
    """Whether a job could restart from what is there. `thorough` also reads everything it needs to
    its end (a `fleet` does, where there is one), and of the earlier epochs names those that would
    do, if the newest does not.
    """
    engine, storage, survey = found_at(location, opening, thorough=True)
    if not survey.images:
        found = Finding(
            "refuse",
            f"{location} holds no checkpoint that a job could restart from",
            hint=f"stateshift inspect {quote(location)}",
        )
        return Judgement(False, None, (), (found,), engine=engine.name)
    findings = [
        *survey.findings,
        *(finding for image in survey.images for finding in image.findings),
    ]
    judged = []
    for image in survey.images:
        at = ImageAt(storage, survey, image, image.path or location)
        one = engine.judge(at, thorough, fleet)
        findings += one.findings
        judged.append(JudgedImage(image.path, image.name, image.epoch, one.epochs))
    whole = all(i.begins or (i.epoch is not None and i.epoch in i.epochs) for i in survey.images)
    refused = any(finding.level == "refuse" for finding in findings)
    epochs = judged[0].epochs if len(judged) == 1 else ()  # a workflow has none in common
    told = tuple(
        _with_way_out(_without_this_command(finding), judged, engine) for finding in findings
    )
    return Judgement(whole and not refused, survey.epoch, epochs, told, tuple(judged), engine.name)


def _with_way_out(finding: Finding, judged: list[JudgedImage], engine: Engine) -> Finding:
    """Where an earlier epoch works, that is the way out, and said beside."""
    if (
        finding.level != "refuse"
        or finding.hint
        or finding.path is None
        or any(image.epochs for image in judged)
    ):
        return finding
    return replace(finding, hint=engine.way_out(finding.path, [image.path for image in judged]))


def _without_this_command(finding: Finding) -> Finding:
    """To verify is a good hint in a plan; here it was just done."""
    return (
        replace(finding, hint=None)
        if (finding.hint or "").startswith("stateshift verify")
        else finding
    )

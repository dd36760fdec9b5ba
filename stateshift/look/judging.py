"""Could a job restart from an image, and from which epochs: what a survey says, and what every needed byte says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING

from stateshift.engines.registry import ENGINES, surveyed
from stateshift.engines.spark.deep import everything as deep
from stateshift.engines.spark.deep import sidecars
from stateshift.engines.spark.findings.moves import taking_back
from stateshift.engines.spark.findings.ways_out import way_out
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, Survey

if TYPE_CHECKING:
    from stateshift.fleet.crew import Crew


@dataclass(frozen=True, slots=True)
class JudgedImage:
    """One query's image: where below the location it lies, its newest epoch, and those a job could restart from."""

    path: str
    name: str | None
    epoch: int | None
    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a job could restart, from which epoch, and everything that was found on the way. `epoch` and `epochs`
    are those of a single query; each query of a workflow has its own, in `images`."""

    restartable: bool
    epoch: int | None
    epochs: tuple[int, ...]
    findings: tuple[Finding, ...]
    images: tuple[JudgedImage, ...] = ()


def restartable(
    location: str,
    opening: Callable[[str], Storage] = open_patiently,
    thorough: bool = False,
    fleet: Crew | None = None,
) -> Judgement:
    """Whether a job could restart from what is there. `thorough` also reads everything it needs to its end (a `fleet`
    does, where there is one), and of the earlier epochs names those that would do, if the newest does not."""
    looked = ((e, *surveyed(e, location, opening, True)) for e in ENGINES.values())
    engine, storage, survey = next((found for found in looked if found[2].images), (None, None, None))
    if engine is None or storage is None or survey is None:
        found = Finding("refuse", f"{location} holds no checkpoint that a job could restart from",
                        hint=f"stateshift inspect {quote(location)}")  # fmt: skip
        return Judgement(False, None, (), (found,))
    findings = [*survey.findings, *(finding for image in survey.images for finding in image.findings)]
    judged = []
    for image in survey.images:
        if image.fence is not None:
            findings.append(Finding("refuse", f"{image.path or location} is fenced by run {image.fence}: a job that "
                                    "starts here fails", hint=taking_back(image.fence)))  # fmt: skip
        if _begins(image):
            findings.append(Finding("note", f"{image.path or location} has not committed a batch: a job begins with "
                                    "batch 0, as it was planned"))  # fmt: skip
        elif image.epoch is None and engine.name == "spark":
            findings.append(Finding("refuse", f"{image.path or location} has not committed a batch"))
        epochs = image.epochs
        if thorough:
            found_deep = tuple(_deep(engine.name, storage, survey, image, fleet))
            findings += found_deep
            if engine.name == "flink" and found_deep:
                epochs = ()
            elif epochs and any(finding.level == "refuse" for finding in (*image.findings, *found_deep)):
                epochs = deep.works(storage, image, found_deep)
        judged.append(JudgedImage(image.path, image.name, image.epoch, epochs))
    whole = all(_begins(i) or (i.epoch is not None and i.epoch in i.epochs) for i in survey.images)
    refused = any(finding.level == "refuse" for finding in findings)
    epochs = judged[0].epochs if len(judged) == 1 else ()  # a workflow has none in common
    told = tuple(_with_way_out(_without_this_command(finding), judged) for finding in findings)
    return Judgement(whole and not refused, survey.epoch, epochs, told, tuple(judged))


def _begins(image: Image) -> bool:
    """Its first batch was planned, and not committed: Spark does that batch, over the input that was written down."""
    return image.epoch is None and image.planned == 0


def _with_way_out(finding: Finding, judged: list[JudgedImage]) -> Finding:
    """Where an earlier epoch works, that is the way out, and said beside."""
    if finding.level != "refuse" or finding.hint or finding.path is None or any(image.epochs for image in judged):
        return finding
    images = (image.path for image in judged if finding.path.startswith(image.path))
    return replace(finding, hint=way_out(finding.path, max(images, key=len, default="")))


def _deep(engine: str, storage: Storage, survey: Survey, image: Image, fleet: Crew | None) -> Iterator[Finding]:
    if engine == "flink":
        from stateshift.engines.flink.deep import everything  # neither engine's way waits for the other's

        yield from everything(storage, image)
        return
    if fleet is None:
        yield from deep.findings(storage, survey, image)
        return
    yield from fleet.deep(survey, image)
    yield from sidecars.orphans(storage, survey, image)


def _without_this_command(finding: Finding) -> Finding:
    """To verify is a good hint in a plan; here it was just done."""
    return replace(finding, hint=None) if (finding.hint or "").startswith("stateshift verify") else finding

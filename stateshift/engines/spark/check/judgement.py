"""Whether a job could restart from an image, and from which epochs; and what to do about a file
that no earlier epoch gets around. Reads only.

Without a deep look, what the survey says is judged. With one, everything a restart needs is read to
its end (`check.image`), by a fleet where there is one.

What Spark does without a file was seen with 3.5 to 4.3: schemas of stores and the operators'
metadata of version 1 it writes again; without the query's id 4.2 and later refuse to start, earlier
ones take it for another query.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from stateshift.engines.spark.survey.restart.old_state import refused_since_3
from stateshift.engines.spark.survey.restart.strangers import strangers
from stateshift.engines.views import ImageAt, Judged, Readers
from stateshift.formats.spark.names import classify
from stateshift.survey import Finding, Image

_COPY = "restore {path} from a copy of the checkpoint"


def judge(at: ImageAt, thorough: bool, fleet: Readers | None) -> Judged:
    """Return what is wrong with the image, and the epochs that a job could restart from."""
    image = at.image
    findings = [*_state_of(at.where, image)]
    for fact in refused_since_3(image.operators, image.settings):
        findings.append(Finding("warn", fact))
    findings += strangers(at.survey.files, image)
    if not thorough:
        return Judged(tuple(findings), image.epochs)
    return _judge_deep(at, findings, fleet)


def _judge_deep(at: ImageAt, findings: list[Finding], fleet: Readers | None) -> Judged:
    from stateshift.engines.spark.check import unchecked
    from stateshift.engines.spark.check.image import works

    damages = tuple(_deep(at, fleet))
    findings = [*findings, *damages, *unchecked.findings(at.survey, at.image)]
    refused = any(finding.level == "refuse" for finding in (*at.image.findings, *damages))
    epochs = at.image.epochs
    if epochs and refused:
        epochs = works(at.storage, at.image, damages)
    return Judged(tuple(findings), epochs)


def _deep(at: ImageAt, fleet: Readers | None) -> Iterator[Finding]:
    from stateshift.engines.spark.check import image as check
    from stateshift.engines.spark.check import sidecars

    if fleet is None:
        yield from check.findings(at.storage, at.survey, at.image)
        return
    yield from fleet.deep(at.survey, at.image)
    yield from sidecars.orphans(at.storage, at.survey, at.image)


def _state_of(where: str, image: Image) -> Iterator[Finding]:
    if image.fence is not None:
        yield Finding(
            "refuse",
            f"{where} is fenced by run {image.fence}: a job that starts here fails",
            hint=rollback_of(image.fence),
        )
    if image.begins:
        yield Finding(
            "note",
            f"{where} has not committed a batch: a job begins with batch 0, as it was planned",
        )
    elif image.epoch is None:
        yield Finding("refuse", f"{where} has not committed a batch")


def rollback_of(run: str) -> str:
    """Return the command that takes a run's fence away again."""
    workdir = quote(f".stateshift/{run}")
    return f"stateshift rollback {workdir}   # or wherever its workdir is: stateshift runs DIR"


def way_out(path: str, image: str) -> str:
    """Return a hint for the damaged or missing file at `path`, which belongs to the image at
    `image`.
    """
    place = classify(path[len(image) :].lstrip("/") if image else path)
    match place.area:
        case "metadata":
            hint = (
                f"{_COPY}, or write the query's id into it, as the job's own log and its "
                "progress name it"
            )
        case "state-schema" | "state-metadata" if place.version is None:
            hint = "move {path} out of the way: Spark writes it again when the job starts"
        case "sources":
            hint = f"{_COPY}: nothing else says which files the source has read"
        case _:
            hint = _COPY
    return hint.format(path=path)

"""Whether a job could restart from an image. Reads only.

An image has one epoch. Whatever is wrong with it, there is no other one to go back to.
"""

from __future__ import annotations

from time import perf_counter

from stateshift.engines.views import CheckStage, DeepCheck, ImageAt, Judged
from stateshift.survey import sizes_of


def judge(at: ImageAt, deep: DeepCheck | None) -> Judged:
    """Return what is wrong with the image, and its epoch where a job could restart from it."""
    if deep is None:
        return Judged((), at.image.epochs)
    from stateshift.engines.flink.check.image import everything

    began = perf_counter()
    findings = tuple(everything(at.storage, at.image))
    sizes = sizes_of(at.survey, at.image.needed_files)
    stage = CheckStage("state", perf_counter() - began, len(sizes), sum(sizes))
    refused = any(finding.level == "refuse" for finding in findings)
    return Judged(findings, () if refused else at.image.epochs, (stage,))

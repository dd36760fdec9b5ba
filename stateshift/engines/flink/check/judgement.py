"""Whether a job could restart from an image. Reads only.

An image has one epoch. Whatever is wrong with it, there is no other one to go back to.
"""

from __future__ import annotations

from stateshift.engines.views import ImageAt, Judged


def judge(at: ImageAt, thorough: bool) -> Judged:
    """Return what is wrong with the image, and its epoch where a job could restart from it."""
    if not thorough:
        return Judged((), at.image.epochs)
    from stateshift.engines.flink.check.image import everything

    findings = tuple(everything(at.storage, at.image))
    refused = any(finding.level == "refuse" for finding in findings)
    return Judged(findings, () if refused else at.image.epochs)

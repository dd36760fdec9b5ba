"""A rewind under new numbers (see `rewrite.batch_numbers`): what cannot be done so, and what is
left to do. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark.image import name_of
from stateshift.engines.spark.layout import under
from stateshift.engines.spark.rewrite.wishes import Wishes
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Finding, Image

WITHOUT = 'rewind in a fork instead: leave `renumber` out, and say `--fork` ("mode": "fork")'


def of_renumbering(job: JobSpec, wishes: Wishes, facts: Facts) -> Iterator[Finding]:
    """Refuse everything that keeps a rewind from getting new numbers."""
    if not wishes.renumber:
        return
    if facts.source.kind == "workflow":
        yield Finding(
            "refuse",
            f"{facts.source.location} is a workflow: a batch of one of its queries is none "
            "of the others, and each has numbers of its own",
            hint="rewind the queries one by one, each as a job of its own",
        )
        return
    if wishes.merge:
        yield Finding(
            "refuse",
            "a rewind under new numbers beside a merge: the merged job has numbers of its own",
            hint="one after the other: two jobs",
        )
    for image in facts.source.images:
        yield from _of_image(job, facts, image)


def _of_image(job: JobSpec, facts: Facts, image: Image) -> Iterator[Finding]:
    name = name_of(image, facts.source.location)
    if image.epoch == 0:
        yield Finding(
            "refuse",
            f"{name}: batch 0 has none before it, and Spark reads the offsets of the batch "
            "before the last one, under whatever number",
            hint=f"{WITHOUT}; or start the job without a checkpoint",
        )
    for index in sorted(_unknown_logs(facts, image)):
        yield Finding(
            "refuse",
            f"{name}: source {index} is none that stateshift knows, and keeps files below "
            f"sources/{index}: they may be numbered by batch",
            hint=WITHOUT,
        )


def _unknown_logs(facts: Facts, image: Image) -> set[str]:
    """Return the sources of an unknown kind which keep files of their own."""
    unknown = set()
    for end in image.endpoints:
        if end.role == "source" and end.kind == "unknown":
            unknown.add(end.index)
    folder = under(image.path, "sources/")
    with_logs = set()
    for file in facts.source.files:
        if file.path.startswith(folder):
            with_logs.add(file.path.removeprefix(folder).partition("/")[0])
    return unknown & with_logs

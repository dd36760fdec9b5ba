"""What lies in a checkpoint and is not Spark's: it is named, and stays unless the spec takes it
along. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark import layout
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.layout import is_strange
from stateshift.engines.spark.survey.own_part import is_taken
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Finding, Image

SHOWN_MAX = 4


def of_strangers(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Say which files stay, and refuse to take along what is not there."""
    if job.target is None:
        return
    images = tuple(facts.source_images)
    for image in images:
        yield from _of_image(job, image)
    for asked in job.also:
        if not any(_holds(facts, image, asked) for image in facts.source.images):
            yield Finding(
                "refuse",
                f"nothing is at {asked} in {facts.source.location}, which should move along",
                hint="correct `also`: it names paths below the checkpoint that are not Spark's",
            )


def _of_image(job: JobSpec, image: Image) -> Iterator[Finding]:
    left = [one for one in spark_image(image).strangers if not is_taken(job, one.path.rstrip("/"))]
    if not left:
        return
    count = sum(one.files for one in left)
    folders = ", ".join(f"`{layout.under(image.path, one.path)}`" for one in left[:SHOWN_MAX])
    if len(left) > SHOWN_MAX:
        folders += f" and {len(left) - SHOWN_MAX} more"
    fact = f"{count} files in {folders} are not Spark's and stay"
    if count == 1:
        fact = f"1 file in {folders} is not Spark's and stays"
    if any(_is_partly_taken(job, one.path) for one in left):
        fact += ", but for what `also` names"
    yield Finding("note", fact, hint=f'take them along: "also": ["{left[0].path}"]')


def _is_partly_taken(job: JobSpec, folder: str) -> bool:
    return any(asked.startswith(folder) for asked in job.also)


def _holds(facts: Facts, image: Image, asked: str) -> bool:
    start = f"{image.path}/" if image.path else ""
    inside = [file.path[len(start) :] for file in facts.source.files if file.path.startswith(start)]
    return any(
        is_strange(path) and (path == asked or path.startswith(f"{asked}/")) for path in inside
    )

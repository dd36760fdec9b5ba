"""What lies in a checkpoint and is not Spark's: it is named, and stays unless the spec takes it
along. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark import layout
from stateshift.engines.spark.image import Strangers, spark_image
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
        is_there = any(_holds(facts, image, asked) for image in facts.source.images)
        if not is_there:
            yield Finding(
                "refuse",
                f"nothing is at {asked} in {facts.source.location}, which should move along",
                hint="correct `also`: it names paths below the checkpoint that are not Spark's",
            )


def _of_image(job: JobSpec, image: Image) -> Iterator[Finding]:
    strangers = spark_image(image).strangers
    staying = [each for each in strangers if not is_taken(job, each.path.rstrip("/"))]
    if not staying:
        return
    fact = _fact_of(staying, image)
    if any(_is_partly_taken(job, each.path) for each in staying):
        fact += ", but for what `also` names"
    yield Finding("note", fact, hint=f'take them along: "also": ["{staying[0].path}"]')


def _fact_of(staying: list[Strangers], image: Image) -> str:
    folders = _named([layout.under(image.path, each.path) for each in staying])
    count = sum(each.files for each in staying)
    if count == 1:
        return f"1 file in {folders} is not Spark's and stays"
    return f"{count} files in {folders} are not Spark's and stay"


def _named(folders: list[str]) -> str:
    names = ", ".join(f"`{folder}`" for folder in folders[:SHOWN_MAX])
    more = len(folders) - SHOWN_MAX
    return f"{names} and {more} more" if more > 0 else names


def _is_partly_taken(job: JobSpec, folder: str) -> bool:
    return any(asked.startswith(folder) for asked in job.also)


def _holds(facts: Facts, image: Image, asked: str) -> bool:
    """Whether the image has this file, or a folder of this name, and it is not Spark's."""
    start = layout.under(image.path, "")
    place = start + asked
    for file in facts.source.files:
        is_asked = file.path == place or file.path.startswith(f"{place}/")
        if is_asked and is_strange(file.path.removeprefix(start)):
            return True
    return False

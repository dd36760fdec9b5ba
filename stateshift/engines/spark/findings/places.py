"""Places that the image names, data that moves along, and files that are not Spark's. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from shlex import quote

from stateshift.engines.spark import layout
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.layout import SINK_LOG, deepest_above
from stateshift.engines.spark.places import is_covered, needed_embedded, own_places_of
from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.spark.survey.checkpoint import is_taken
from stateshift.specification import DataSpec, JobSpec
from stateshift.survey import EmbeddedPath, Finding, Image, InputFacts, Survey

SHOWN_MAX = 4


def of_places(move: Move) -> Iterator[Finding]:
    """Report absolute places inside the image that are not taken along."""
    if move.job.target is None:
        return
    for survey in (move.facts.source, *move.facts.merges):
        yield from _of_own_places(move.job, survey)
        by_log: dict[str, list[EmbeddedPath]] = {}
        for embedded in _outside(move.job, survey, "source"):
            by_log.setdefault(embedded.file.rpartition("/")[0], []).append(embedded)
        for log in sorted(by_log):
            yield _left_behind(move, log, by_log[log])


def _of_own_places(job: JobSpec, survey: Survey) -> Iterator[Finding]:
    """Warn of an image that was copied by hand, and refuse one whose files name others."""
    known = tuple((place, "") for place in own_places_of(job, survey))
    for embedded in _outside(job, survey, "self"):
        named = f"{embedded.file} names {embedded.path}, which is not in {survey.location}"
        if embedded.found == "different":
            yield Finding(
                "refuse",
                f"{named}, and other files are there: which of the two the state was written by "
                "is not known",
                hint=f"move it from where it was made: stateshift inspect {quote(embedded.path)}",
                path=embedded.file,
            )
        elif is_covered(embedded.path, known):
            fact = f"{named}: it was copied by other means. It will name its new place"
            yield Finding("warn", fact, hint='say where it was: --was-at, or "was_at" in the spec')
        else:
            yield Finding(
                "refuse",
                f"{named}: it cannot be rewritten",
                hint="say where the checkpoint was when it was made, or what its place is also "
                'called: --was-at OLD, or "was_at" in the spec',
                path=embedded.file,
            )
    names = chain.from_iterable(image.embedded for image in survey.images)
    if job.was_at and not any(is_covered(each.path, ((job.was_at, ""),)) for each in names):
        fact = f"nothing in {survey.location} names {job.was_at}: it was not there (`was_at`)"
        yield Finding("note", fact)


def _outside(job: JobSpec, survey: Survey, role: str) -> Iterator[EmbeddedPath]:
    """Yield the places of this role that lie in none of those that move along."""
    moved = tuple((data.source, data.target) for data in job.data)
    if role == "self":
        moved = ((survey.location, ""), (job.source, ""), (job.was_at or survey.location, ""))
    for embedded in chain.from_iterable(needed_embedded(survey.images).values()):
        if embedded.role == role and not is_covered(embedded.path, moved):
            yield embedded


def _left_behind(move: Move, log: str, places: list[EmbeddedPath]) -> Finding:
    """Warn of input that stays and is there; refuse it where that is not known."""
    folder = deepest_above(place.path for place in places)
    files = sum(place.count for place in places)
    named = f"{log} names {files:,} files under {folder}"
    asked = next((inputs for inputs in move.facts.inputs if inputs.log == log), None)
    unknown = _why_unknown(move, folder, asked)
    if unknown is None:
        assert asked is not None, "else it is not known"
        looked_for = "all of them are there"
        if asked.asked < files:
            looked_for = f"{asked.asked:,} were looked for, all there"
        return Finding("warn", f"{named}; {looked_for}. The job has to go on reading there")
    return Finding(
        "refuse",
        f"{named}{unknown}: if they lie elsewhere afterwards, the job reads all of them again",
        waive="paths-stay",
        hint='where the job keeps reading there, "waive": ["paths-stay"] (without a spec: --waive '
        'paths-stay); else add to the job "data": '
        f'[{{"source": "{folder}", "target": "${{NEW_PLACE}}"}}]',
    )


def _why_unknown(move: Move, folder: str, asked: InputFacts | None) -> str | None:
    """Return the reason for a job not to find its input, to end a sentence; None if it will."""
    if asked is None:
        return ""
    if asked.wrong is not None:
        return f", which could not be looked for ({asked.wrong})"
    if asked.missing:
        return (
            f", of which {asked.missing:,} of {asked.asked:,} are missing ({asked.first_missing})"
        )
    cluster = move.facts.target_cluster
    if folder.startswith("file://"):
        if cluster is not None and cluster.host and cluster.reaches is not True:
            return f" on a disk of this machine, and {cluster.name} runs jobs on {cluster.host}"
        if cluster is None and not move.job.destination.startswith("file://"):
            return " on a disk of this machine, and the image goes elsewhere"
    return None


def of_data(move: Move) -> Iterator[Finding]:
    """Report on the data that moves with the job."""
    for data, (here, there) in zip(move.job.data, move.facts.data, strict=True):
        if data.copy:
            yield from _of_copied_data(data, here, there)
            continue
        if not there.files:
            fact = (
                f'nothing is at {data.target}, where the data is said to be already ("copy": false)'
            )
            yield Finding("refuse", fact, hint='move it there first, or say "copy": true')
        yield from there.findings
        if _has_sink_log(here) and not _has_sink_log(there):
            yield Finding(
                "refuse",
                f"{data.source} has a {SINK_LOG}, {data.target} has none: readers would "
                "silently see nothing",
                hint=f'say "copy": true, or copy {SINK_LOG} there with its paths rewritten',
            )


def _of_copied_data(data: DataSpec, here: Survey, there: Survey) -> Iterator[Finding]:
    if here.kind == "empty":
        yield Finding(
            "refuse", f"nothing is at {data.source}, which should move along", hint="correct `data`"
        )
    if there.files:
        yield Finding(
            "refuse",
            f"the place {data.target} is not empty: it holds {len(there.files)} files",
            hint='choose another, clear it yourself, or say "copy": false where the data is '
            "there already",
        )
    yield from there.findings
    if not there.traits.get("keeps_times", True):
        yield Finding(
            "warn",
            f"{data.target} cannot keep the times of files: a file source whose "
            "maxFileAge has passed would read old files again",
            hint="give the source an ending maxFileAge, or keep the data on a file system",
        )


def _has_sink_log(survey: Survey) -> bool:
    return any(f"{SINK_LOG}/" in file.path for file in survey.files)


def of_strangers(move: Move) -> Iterator[Finding]:
    """Name strange files that stay, and refuse to take along what is not there."""
    if move.job.target is None:
        return
    for image in move.images:
        yield from _of_staying(move.job, image)
    for asked in move.job.also:
        if not any(_holds(move, image, asked) for image in move.facts.source.images):
            fact = f"nothing is at {asked} in {move.source}, which should move along"
            hint = "correct `also`: it names paths below the checkpoint that are not Spark's"
            yield Finding("refuse", fact, hint=hint)


def _of_staying(job: JobSpec, image: Image) -> Iterator[Finding]:
    strangers = spark_image(image).strangers
    staying = [each for each in strangers if not is_taken(job, each.path.rstrip("/"))]
    if not staying:
        return
    names = ", ".join(f"`{layout.under(image.path, each.path)}`" for each in staying[:SHOWN_MAX])
    more = len(staying) - SHOWN_MAX
    if more > 0:
        names = f"{names} and {more} more"
    count = sum(each.files for each in staying)
    fact = f"{count} files in {names} are not Spark's and stay"
    if count == 1:
        fact = f"1 file in {names} is not Spark's and stays"
    folders = tuple(each.path for each in staying)
    if any(asked.startswith(folders) for asked in job.also):
        fact += ", but for what `also` names"
    yield Finding("note", fact, hint=f'take them along: "also": ["{staying[0].path}"]')


def _holds(move: Move, image: Image, asked: str) -> bool:
    """Whether the image has this file, or a folder of this name, and it is not Spark's."""
    start = layout.under(image.path, "")
    place = start + asked
    for file in move.facts.source.files:
        is_asked = file.path == place or file.path.startswith(f"{place}/")
        if is_asked and layout.is_strange(file.path.removeprefix(start)):
            return True
    return False

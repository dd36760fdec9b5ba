"""Whether the job gets its input again, once and whole, and what its sinks make of it (IS-14). Pure.

    source          can it be read again from the offsets of the checkpoint?
    topics          Kafka: are these offsets, and these records, still there? (`topics`)
    sinks           what a checkpoint tells of them is next to nothing; what a file sink's own log tells, is told
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark.findings.topics import of_topics, wanted_of
from stateshift.engines.spark.layout import SINK_LOG
from stateshift.spec import JobSpec
from stateshift.survey import Endpoint, Facts, Finding, Image


def of_inputs(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    images = tuple(image for survey in (facts.source, *facts.merges) for image in survey.images)
    for image in images:
        for endpoint in image.endpoints:
            yield from _of_replay(endpoint)
    wanted = wanted_of(facts)
    if wanted.offsets:
        yield from of_topics(wanted, facts.topics)
    if images:
        yield from _of_sinks(job, facts, images)


def _of_replay(endpoint: Endpoint) -> Iterator[Finding]:
    if endpoint.role == "source" and endpoint.replayable is False:
        yield Finding(
            "warn",
            f"source {endpoint.index} ({endpoint.kind}) cannot be read again: input between the last commit "
            "and the stop is lost",
        )
    elif endpoint.role == "source" and endpoint.replayable is None:
        yield Finding(
            "note",
            f"source {endpoint.index} ({endpoint.kind}) is not one we know: exactly once holds only if it can "
            "be read again from its offsets",
        )


def _of_sinks(job: JobSpec, facts: Facts, images: tuple[Image, ...]) -> Iterator[Finding]:
    yield Finding(
        "note",
        "exactly once needs an idempotent sink, too; a file sink's output directory has to be named in `data`",
    )
    if len(images) != 1 or images[0].epoch is None or facts.merges:
        return  # whose output it is, nothing tells
    last = max(images[0].epoch, images[0].planned or 0)
    for data, (here, there) in zip(job.data, facts.data, strict=True):
        survey = here if data.copy else there
        ahead = max((_batch(file.path) for file in survey.files if f"{SINK_LOG}/" in f"/{file.path}"), default=-1)
        if ahead > last:
            yield Finding(
                "warn",
                f"{survey.location} holds the output of batches up to {ahead}, and the checkpoint has planned none "
                f"after {last}: a file sink drops what the job puts out in batches {last + 1} to {ahead}, for it has "
                "them already",
                hint="bring the output that belongs to this checkpoint, or let the job write to a place of its own",
            )


def _batch(path: str) -> int:
    stem = path.rpartition("/")[2].removesuffix(".compact")
    return int(stem) if stem.isascii() and stem.isdecimal() and len(stem) <= 18 else -1

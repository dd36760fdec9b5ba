"""Whether the job gets its input again, once and whole, and what its sinks make of it (IS-14).
Pure.

source          can it be read again from the offsets of the checkpoint?
topics          Kafka: are these offsets, and these records, still there? (`topics`)
tables          Delta: are this version, and the files that come next, still there? (`tables`)
sinks           what a checkpoint tells of them is next to nothing: `findings.sinks`
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark.findings.sinks import of_sinks
from stateshift.engines.spark.findings.tables import of_tables
from stateshift.engines.spark.findings.topics import of_topics, wanted_of
from stateshift.specification import JobSpec
from stateshift.survey import Endpoint, Facts, Finding


def of_inputs(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield what is worth saying of the job's sources and of its sinks."""
    images = tuple(facts.source_images)
    for image in images:
        for endpoint in image.endpoints:
            yield from _of_replay(endpoint)
    wanted = wanted_of(facts)
    if wanted.offsets:
        yield from of_topics(wanted, facts.topics)
    yield from of_tables(facts)
    if images:
        yield from of_sinks(job, facts, images)


def _of_replay(endpoint: Endpoint) -> Iterator[Finding]:
    if endpoint.role != "source":
        return
    if endpoint.replayable is None:
        yield Finding(
            "note",
            f"source {endpoint.index} ({endpoint.kind}) is not one we know: exactly once "
            "holds only if it can be read again from its offsets",
        )
    elif not endpoint.replayable:
        yield Finding(
            "warn",
            f"source {endpoint.index} ({endpoint.kind}) cannot be read again: input "
            "between the last commit and the stop is lost",
        )

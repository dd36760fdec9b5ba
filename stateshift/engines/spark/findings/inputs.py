"""Whether the job gets its input again, once and whole, and what its sinks make of it (IS-14). Pure.

    source          can it be read again from the offsets of the checkpoint?
    topics          Kafka: are these offsets still there? Only its brokers know, and only the spec names them
    sinks           what a checkpoint tells of them is next to nothing; what a file sink's own log tells, is told
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateshift.engines.spark.layout import SINK_LOG
from stateshift.spec import JobSpec
from stateshift.survey import Endpoint, Facts, Finding, Image, Topics

LOST = "lost-offsets"
_WAIVE = f'or, where what is lost is not needed (and the job has failOnDataLoss false), "waive": ["{LOST}"]'


def of_inputs(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    images = tuple(image for survey in (facts.source, *facts.merges) for image in survey.images)
    for image in images:
        for endpoint in image.endpoints:
            yield from _of_replay(endpoint)
    wanted = wanted_offsets(images)
    if wanted:
        yield from _of_topics(wanted, facts.topics)
    if images:
        yield from _of_sinks(job, facts, images)


def wanted_offsets(images: tuple[Image, ...]) -> dict[str, dict[int, int]]:
    """The first offset of each partition that any of the sources reads next."""
    wanted: dict[str, dict[int, int]] = {}
    for offsets in (endpoint.offsets for image in images for endpoint in image.endpoints):
        for topic, partitions in offsets.items():
            held = wanted.setdefault(topic, {})
            for partition, offset in partitions.items():
                held[partition] = min(offset, held.get(partition, offset))
    return wanted


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


def _of_topics(wanted: Mapping[str, Mapping[int, int]], topics: Topics | None) -> Iterator[Finding]:
    names = ", ".join(sorted(wanted))
    if topics is None:
        yield Finding(
            "note",
            f"whether Kafka still has the offsets of {names} was not asked: a checkpoint does not name the brokers",
            hint='name those that the job reads afterwards: "kafka": {"bootstrap_servers": "HOST:9092"}',
        )
        return
    if topics.wrong is not None:
        ways = f"{topics.hint}; {_WAIVE}" if topics.hint else _WAIVE
        yield Finding("refuse", f"{topics.brokers} was not to be asked for {names}: {topics.wrong}", LOST, ways)
        return
    lost = [finding for topic in sorted(wanted) for finding in _of_topic(topic, wanted[topic], topics)]
    yield from lost
    if not lost:
        yield Finding("note", f"{topics.brokers} still has every offset from which the job reads on, of {names}")


def _of_topic(topic: str, wanted: Mapping[int, int], topics: Topics) -> Iterator[Finding]:
    spans = topics.spans.get(topic, {})
    if not spans:
        yield _lost(f"{topics.brokers} has no topic {topic}, from which the job reads")
        return
    gone = sorted(wanted.keys() - spans.keys())
    if gone:
        told = ", ".join(map(str, gone))
        yield _lost(f"{topic} has no partition {told} at {topics.brokers}, and the checkpoint has offsets of it")
    for partition in sorted(wanted.keys() & spans.keys()):
        (first, end), ours = spans[partition], wanted[partition]
        if ours < first:
            yield _lost(f"{topic}/{partition} begins at offset {first}: {first - ours} records from {ours} on are "
                        "gone, and the job has not read them")  # fmt: skip
        elif ours > end:
            yield _lost(f"{topic}/{partition} ends at offset {end}, and the job has read up to {ours}: the topic was "
                        "made anew, or is another one")  # fmt: skip


def _lost(fact: str) -> Finding:
    return Finding("refuse", fact, LOST, f"name the brokers that have it, or bring the records back; {_WAIVE}")


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

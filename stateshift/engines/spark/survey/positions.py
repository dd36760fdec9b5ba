"""New positions of sources that read on from elsewhere, as a `reposition` of the spec asks for
them. Reads only.

    offsets/N-1, offsets/N   the new position: Spark starts batch N+1 from offsets/N. A source of
                             Delta is asked once more for batch N, from offsets/N-1 to offsets/N
    offsets/N+1              the new end of a planned batch that is kept
    sources/<i>/…            the first offset of Kafka and Iceberg: see `rewrite.logs`

Spark 4.0 was tried with each of these. It reads a partition that is not named from its beginning,
so that every partition of a new topic is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from stateshift.engines.repositioning import (
    Outside,
    RefusedError,
    Topics,
    TopicSource,
    endpoint_of,
    positions_of,
    topics_elsewhere,
)
from stateshift.engines.spark import layout
from stateshift.engines.spark.small_files import SMALL
from stateshift.engines.spark.survey.table_positions import delta_position, iceberg_position
from stateshift.engines.views import Opening
from stateshift.formats.spark.names import DELTA_SCHEMA_LOG
from stateshift.formats.spark.offsets import decode_offsets, encode_offsets, with_positions
from stateshift.plain import JsonObject
from stateshift.sources.kinds import ICEBERG
from stateshift.sources.topics import topics_of
from stateshift.specification import JobSpec
from stateshift.specification.transform import Reposition
from stateshift.survey import Endpoint, NewPosition, Survey


def ask_positions(survey: Survey, outside: Outside) -> tuple[NewPosition, ...]:
    """Return the new positions of the sources that the job repositions."""

    def locate(change: Reposition) -> Endpoint | None:
        return _locate(survey, change)

    def translate(change: Reposition, endpoint: Endpoint) -> NewPosition:
        return _position(survey, change, endpoint, outside)

    return positions_of(outside, locate, translate)


def offsets_read(
    job: JobSpec, survey: Survey, opening: Opening
) -> Mapping[str, Sequence[Mapping[int, int]]]:
    """Return the offsets of each topic that the job repositions, in each batch of the image that a
    start reads; none of an image that cannot be repositioned.
    """
    read: dict[str, list[Mapping[int, int]]] = {}
    for change in job.transform:
        if not isinstance(change, Reposition) or change.table is not None:
            continue
        try:
            endpoint = _locate(survey, change)
            if endpoint is None:
                continue
            offsets = _offsets_of(job, survey, endpoint, opening)
            by_batch = [_topics(offset, endpoint.index) for offset in offsets.values()]
        except RefusedError:
            continue
        for topics in by_batch:
            for topic, partitions in topics.items():
                read.setdefault(topic, []).append(partitions)
    return read


def repositioned_files(
    survey: Survey, positions: Sequence[NewPosition], opening: Opening
) -> Mapping[str, tuple[bytes, bytes]]:
    """Return the logs with offsets of these sources, as they are and as they become."""
    storage, files = opening(survey.location), dict[str, tuple[bytes, bytes]]()
    for image in survey.images:
        for batch in sorted(set(chain.from_iterable(each.offsets for each in positions))):
            path = layout.under(image.path, layout.offset_path(batch))
            if storage.stat(path) is None:  # batch N-1 of a job that has just begun
                continue
            held = storage.read(path, SMALL)
            own = {each.source: each.offsets[batch] for each in positions if batch in each.offsets}
            files[path] = (held, encode_offsets(with_positions(decode_offsets(held), own)))
    return files


def _locate(survey: Survey, change: Reposition) -> Endpoint | None:
    """Return the source that a change is about; None where the job has committed nothing."""
    if len(survey.images) > 1:
        raise RefusedError(
            f"{survey.location} holds {len(survey.images)} queries: of which one is the source?",
            "reposition each query by itself: its own folder is the checkpoint",
        )
    complete = [image for image in survey.images if image.epoch is not None]
    return endpoint_of(complete[0].endpoints, change) if complete else None


def _position(
    survey: Survey, change: Reposition, endpoint: Endpoint, outside: Outside
) -> NewPosition:
    (image,) = survey.images
    epoch = image.epoch or 0
    offsets = _offsets_of(outside.job, survey, endpoint, outside.opening)
    before = [epoch - 1] if epoch > 0 else []
    if endpoint.kind == ICEBERG.name:
        made = iceberg_position(change, endpoint, offsets, outside.opening)
    elif change.table is not None:
        made = delta_position(change, endpoint, offsets, outside.opening)
    else:
        made = _topic_position(change, endpoint, offsets, outside)
    if epoch not in made.offsets:  # it is the same one, or there is none
        return made
    schema_log = f"{DELTA_SCHEMA_LOG}{endpoint.details.get('table_id')}"
    if any(f"/{schema_log}" in f"/{path}" for path in image.needed):
        raise RefusedError(
            f"the checkpoint tracks the schema of the table of source {endpoint.index} "
            f"({schema_log}), and another table has another one",
            "let the job read on in a copy of that table (its files, with their log)",
        )
    texts_of = {**dict.fromkeys(before, made.offsets[epoch]), **made.offsets}
    return replace(made, offsets=texts_of)


def _offsets_of(
    job: JobSpec, survey: Survey, endpoint: Endpoint, opening: Opening
) -> dict[int, JsonObject]:
    """Return the offset of a source in the last batch, and in a planned one that is kept."""
    (image,) = survey.images
    epoch = image.epoch or 0
    is_kept = job.planned_batch == "keep" and image.planned == epoch + 1
    batches = [epoch, epoch + 1] if is_kept else [epoch]
    storage = opening(survey.location)
    offsets: dict[int, JsonObject] = {}
    for batch in batches:
        path = layout.under(image.path, layout.offset_path(batch))
        entry = decode_offsets(storage.read(path, SMALL))
        texts = {each.source: each.offset for each in entry.offsets}
        text = texts.get(endpoint.index)
        if text is None:
            raise RefusedError(
                f"source {endpoint.index} has read nothing in batch {batch}",
                "let the job read something of it first",
            )
        offsets[batch] = json.loads(text)
    return offsets


def _topic_position(
    change: Reposition, endpoint: Endpoint, offsets: Mapping[int, JsonObject], outside: Outside
) -> NewPosition:
    """Return the position of a source of Kafka, of all its topics together."""
    source = endpoint.index
    epoch, *planned = sorted(offsets)
    by_batch = {batch: _topics(offset, source) for batch, offset in offsets.items()}
    ends = by_batch[planned[0]] if planned else None
    found = topics_elsewhere(TopicSource(source, change, by_batch[epoch], ends), outside)
    findings = tuple(chain.from_iterable(each.findings for each in found))
    if not all(each.read for each in found):
        return NewPosition(source, endpoint.kind, findings=findings)
    made = {epoch: {each.topic: dict(sorted(each.read.items())) for each in found}}
    for batch in planned:
        last = {each.topic: each.planned or each.read for each in found}
        made[batch] = {topic: dict(sorted(last[topic].items())) for topic in last}
    return NewPosition(
        source,
        endpoint.kind,
        replace(endpoint, offsets=made[epoch], details={"offsets": made[epoch]}),
        {batch: json.dumps(each, separators=(",", ":")) for batch, each in made.items()},
        tuple(chain.from_iterable(each.changes for each in found)),
        findings,
        dict(chain.from_iterable(each.brokers.items() for each in found)),
    )


def _topics(offset: JsonObject, source: str) -> Topics:
    """Return topic -> partition -> the next offset."""
    topics = topics_of(offset)
    hint = "let the job read something of it first"
    for topic, partitions in offset.items():
        unread = partitions.keys() - map(str, topics.get(topic, {}))
        if unread:
            fact = f"source {source} stands at no offset in {topic}/{min(unread)}"
            raise RefusedError(fact, hint)
    if not topics:
        raise RefusedError(f"source {source} has read no topic yet", hint)
    return topics

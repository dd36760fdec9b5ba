"""New positions of sources that read on from elsewhere, as a `reposition` of the spec asks for
them. Reads only.

    offsets/N-1, offsets/N   the new position: Spark starts batch N+1 from offsets/N. A source of
                             Delta is asked once more for batch N, from offsets/N-1 to offsets/N
    offsets/N+1              the new end of a planned batch that is kept

Spark 4.0 was tried with each of these. It reads a partition that is not named from its beginning,
so that every partition of a new topic is named.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain

from stateshift.engines.spark import layout
from stateshift.engines.spark.small_files import SMALL
from stateshift.engines.spark.survey.table_positions import table_position
from stateshift.engines.views import Opening
from stateshift.errors import StateshiftError
from stateshift.formats.offset_file import BYTES_MAX, decode_offset_file
from stateshift.formats.spark.names import DELTA_SCHEMA_LOG
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.plain import JsonObject
from stateshift.sources.kinds import DELTA
from stateshift.sources.topic_positions import (
    OpenTopics,
    TopicPositions,
    TopicReader,
    TopicRequest,
    new_positions,
)
from stateshift.sources.topics import EITHER, KAFKA, topics_of
from stateshift.specification import JobSpec
from stateshift.specification.transform import Reposition
from stateshift.storage import locations
from stateshift.survey import Endpoint, Finding, Image, NewPosition, Survey

Topics = Mapping[str, Mapping[int, int]]


class RefusedError(Exception):
    """A position that cannot be found, with the finding that says why."""

    def __init__(self, fact: str, hint: str | None = None) -> None:
        super().__init__(fact)
        self.finding = Finding("refuse", fact, hint=hint)


@dataclass(frozen=True, slots=True)
class Outside:
    """The ways out of this program, and what the spec says of them."""

    job: JobSpec
    opening: Opening
    open_topics: OpenTopics


def ask_positions(survey: Survey, outside: Outside) -> tuple[NewPosition, ...]:
    """Return the new positions of the sources that the job repositions."""
    changes = [each for each in outside.job.transform if isinstance(each, Reposition)]
    positions: list[NewPosition] = []
    for change in changes:
        position = NewPosition(
            change.source or "", KAFKA.name if change.table is None else DELTA.name
        )
        try:
            if len(survey.images) > 1:
                raise RefusedError(
                    f"{survey.location} holds {len(survey.images)} queries: of which one is the "
                    "source?",
                    "reposition each query by itself: its own folder is the checkpoint",
                )
            for image in survey.images:
                if image.epoch is None:
                    continue
                endpoint = _endpoint_of(image, change)
                position = NewPosition(endpoint.index, endpoint.kind)
                if endpoint.index in [each.source for each in positions]:
                    fact = f"source {endpoint.index} is repositioned twice"
                    raise RefusedError(fact, "once for each source")
                position = _position(survey, image, change, endpoint, outside)
        except RefusedError as refused:
            position = replace(position, findings=(refused.finding,))
        except StateshiftError as error:
            finding = Finding("refuse", str(error), hint=error.hint)
            position = replace(position, findings=(finding,))
        positions.append(position)
    return tuple(positions)


def _endpoint_of(image: Image, change: Reposition) -> Endpoint:
    """Return the source that the change is about."""
    sources = [end for end in image.endpoints if end.role == "source"]
    kinds = (DELTA.name,) if change.table is not None else (KAFKA.name, EITHER.name)
    what = "Delta table" if change.table is not None else "topic of Kafka"
    shown = ", ".join(f"{end.index} ({end.kind})" for end in sources) or "none"
    if change.source is not None:
        named = [end for end in sources if end.index == change.source]
        if not named:
            raise RefusedError(f"the job has no source {change.source}", f"it has: {shown}")
        if named[0].kind not in kinds:
            fact = f"source {change.source} is of the kind {named[0].kind}, and reads no {what}"
            raise RefusedError(fact, f"the job's sources: {shown}")
        return named[0]
    fitting = [end for end in sources if end.kind in kinds]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise RefusedError(f"no source of the job reads a {what}", f"its sources: {shown}")
    numbers = ", ".join(end.index for end in fitting)
    raise RefusedError(
        f"{len(fitting)} sources of the job read a {what}",
        f'name one of {numbers}: --source {fitting[0].index} (in a spec, "source")',
    )


def _position(
    survey: Survey, image: Image, change: Reposition, endpoint: Endpoint, outside: Outside
) -> NewPosition:
    epoch = image.epoch or 0
    is_kept = outside.job.planned_batch == "keep" and image.planned == epoch + 1
    batches = [epoch, epoch + 1] if is_kept else [epoch]
    storage = outside.opening(survey.location)
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
    before = [epoch - 1] if epoch > 0 else []
    if change.table is not None:
        made = table_position(change, endpoint, offsets, outside.opening)
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


# ---- Kafka


def _topic_position(
    change: Reposition, endpoint: Endpoint, offsets: Mapping[int, JsonObject], outside: Outside
) -> NewPosition:
    """Return the position of a source of Kafka, of all its topics together."""
    source, kafka = endpoint.index, outside.job.kafka
    assert kafka is not None and change.by is not None, "a spec that is checked"
    epoch, *planned = sorted(offsets)
    by_batch = {batch: _topics(offset, source) for batch, offset in offsets.items()}
    read = by_batch[epoch]
    topics = dict.fromkeys(chain.from_iterable(by_batch.values()))
    names = {topic: change.topics.get(topic, topic) for topic in topics}
    for old_name in change.topics.keys() - names.keys():
        known = ", ".join(sorted(names))
        raise RefusedError(f"source {source} reads no topic {old_name}", f"it reads: {known}")
    for new_name, count in Counter(names.values()).items():
        if count > 1:
            fact = f"{count} topics of source {source} would be {new_name}"
            raise RefusedError(fact, "another topic for each")
    file = _offsets_of_file(change, names, outside.opening)
    found: list[TopicPositions] = []
    with ExitStack() as opened:
        new = opened.enter_context(outside.open_topics(kafka.bootstrap_servers, kafka.properties))
        old: TopicReader | None = None
        if kafka.source_bootstrap_servers is not None:
            old = opened.enter_context(
                outside.open_topics(kafka.source_bootstrap_servers, kafka.source_properties)
            )
        for topic, name in names.items():
            request = TopicRequest(
                source=source,
                old_topic=topic,
                new_topic=name,
                read=read.get(topic, {}),
                planned=by_batch[planned[0]].get(topic, {}) if planned else None,
                way=change.by,
                offsets=file.get(name),
                window=change.window,
            )
            found.append(new_positions(request, old, new))
    findings = tuple(chain.from_iterable(each.findings for each in found))
    if not all(each.read for each in found):
        return NewPosition(source, endpoint.kind, findings=findings)
    made = {epoch: {each.topic: dict(sorted(each.read.items())) for each in found}}
    for batch in planned:
        ends = {each.topic: each.planned or each.read for each in found}
        made[batch] = {topic: dict(sorted(ends[topic].items())) for topic in ends}
    return NewPosition(
        source,
        endpoint.kind,
        replace(endpoint, offsets=made[epoch], details={"offsets": made[epoch]}),
        {batch: json.dumps(each, separators=(",", ":")) for batch, each in made.items()},
        tuple(chain.from_iterable(each.changes for each in found)),
        findings,
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


def _offsets_of_file(change: Reposition, names: Mapping[str, str], opening: Opening) -> Topics:
    """Return the offsets that somebody has written down; none if no file is named."""
    if change.offsets is None:
        return {}
    storage = opening(locations.parent(change.offsets))
    content = storage.read(locations.name(change.offsets), BYTES_MAX)
    offsets = decode_offset_file(content)
    for topic in offsets:
        if topic not in names.values():
            raise RefusedError(
                f"{change.offsets} names the topic {topic}, which the job does not read",
                f"it will read: {', '.join(sorted(names.values()))}",
            )
    return offsets

"""New positions of a job's sources, as far as it is the same for any engine: which source a
`reposition` of the spec is about, and the new offsets of its topics. Reads only.

    positions_of(outside, locate, translate)   the new position of each source, or why it has none
    endpoint_of(endpoints, change)             the source that a change is about
    topics_elsewhere(source, outside)          the new offsets of all topics of a source
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from stateshift.engines.views import Opening
from stateshift.errors import Interrupted, StateshiftError
from stateshift.formats.offset_file import BYTES_MAX, decode_offset_file
from stateshift.sources.kinds import DELTA, FILE, ICEBERG, UNTRANSLATED
from stateshift.sources.topic_positions import (
    OpenTopics,
    Patience,
    TopicPositions,
    TopicRequest,
    new_positions,
)
from stateshift.sources.topic_search import TopicReader
from stateshift.sources.topics import EITHER, KAFKA
from stateshift.specification import JobSpec, KafkaSpec
from stateshift.specification.transform import Reposition
from stateshift.storage import locations
from stateshift.survey import Endpoint, Finding, NewPosition

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
    patience: Patience


@dataclass(frozen=True, slots=True)
class TopicSource:
    """The topics of one source, and how far they are read: topic -> partition -> next offset.
    `planned` are the ends of a batch that is kept; None where there is none.
    """

    name: str
    change: Reposition
    read: Topics
    planned: Topics | None = None


def positions_of(
    outside: Outside,
    locate: Callable[[Reposition], Endpoint | None],
    translate: Callable[[Reposition, Endpoint], NewPosition],
) -> tuple[NewPosition, ...]:
    """Return the new position of each source that the job repositions, in the order of the spec.
    A source that no image has yet has none.
    """
    positions: list[NewPosition] = []
    for change in outside.job.transform:
        if not isinstance(change, Reposition):
            continue
        kind = KAFKA.name if change.table is None else "table"
        if change.root is not None:
            kind = FILE.name
        position = NewPosition(change.source or "", kind)
        try:
            endpoint = locate(change)
            if endpoint is not None:
                position = NewPosition(endpoint.index, endpoint.kind)
                if endpoint.index in [each.source for each in positions]:
                    fact = f"source {endpoint.index} is repositioned twice"
                    raise RefusedError(fact, "once for each source")
                position = translate(change, endpoint)
        except RefusedError as refused:
            position = replace(position, findings=(refused.finding,))
        except Interrupted:
            raise
        except StateshiftError as error:
            finding = Finding("refuse", str(error), hint=error.hint)
            position = replace(position, findings=(finding,))
        positions.append(position)
    return tuple(positions)


def endpoint_of(endpoints: Iterable[Endpoint], change: Reposition) -> Endpoint:
    """Return the source that the change is about."""
    sources = [end for end in endpoints if end.role == "source"]
    kinds: tuple[str, ...] = (KAFKA.name, EITHER.name)
    what = "topic of Kafka"
    if change.version is not None:
        kinds, what = (DELTA.name,), "table of Delta, which has versions"
    elif change.snapshot is not None or change.as_of is not None:
        kinds, what = (ICEBERG.name,), "table of Iceberg, which has snapshots"
    elif change.root is not None:
        kinds, what = (FILE.name,), "folder of files"
    elif change.table is not None:
        kinds, what = (DELTA.name, ICEBERG.name), "table of Delta or Iceberg"
    shown = ", ".join(f"{end.index} ({end.kind})" for end in sources) or "none"
    if change.source is not None:
        named = [end for end in sources if end.index == change.source]
        if not named:
            raise RefusedError(f"the job has no source {change.source}", f"it has: {shown}")
        if named[0].kind not in kinds:
            fact = f"source {change.source} is of the kind {named[0].kind}, and reads no {what}"
            raise RefusedError(fact, _way_of(named, shown))
        return named[0]
    fitting = [end for end in sources if end.kind in kinds]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise RefusedError(f"no source of the job reads a {what}", _way_of(sources, shown))
    numbers = ", ".join(end.index for end in fitting)
    raise RefusedError(
        f"{len(fitting)} sources of the job read a {what}",
        f'name one of {numbers}: --source {fitting[0].index} (in a spec, "source")',
    )


def _way_of(sources: Iterable[Endpoint], shown: str) -> str:
    """Return the hint for sources that cannot read on elsewhere."""
    kinds = dict.fromkeys(end.kind for end in sources)
    ways = [f"{kind}: {UNTRANSLATED[kind]}" for kind in kinds if kind in UNTRANSLATED]
    return "; ".join((f"the job's sources: {shown}", *ways))


def topics_elsewhere(source: TopicSource, outside: Outside) -> list[TopicPositions]:
    """Return the new offsets of each topic of a source."""
    change, kafka = source.change, outside.job.kafka
    assert kafka is not None and change.by is not None, "a spec that is checked"
    topics = dict.fromkeys([*source.read, *(source.planned or ())])
    names = {topic: source.change.topics.get(topic, topic) for topic in topics}
    for old_name in source.change.topics.keys() - names.keys():
        known = ", ".join(sorted(names))
        raise RefusedError(f"source {source.name} reads no topic {old_name}", f"it reads: {known}")
    for new_name, count in Counter(names.values()).items():
        if count > 1:
            fact = f"{count} topics of source {source.name} would be {new_name}"
            raise RefusedError(fact, "another topic for each")
    file = _offsets_of_file(change, names, outside.opening)
    found: list[TopicPositions] = []
    wait = outside.patience(change.timeout)
    with ExitStack() as opened:
        new = opened.enter_context(outside.open_topics(kafka.bootstrap_servers, kafka.properties))
        old: TopicReader | None = None
        if kafka.source_bootstrap_servers is not None:
            old = opened.enter_context(
                outside.open_topics(kafka.source_bootstrap_servers, kafka.source_properties)
            )
        for topic, name in names.items():
            request = TopicRequest(
                source=source.name,
                old_topic=topic,
                new_topic=name,
                read=source.read.get(topic, {}),
                planned=None if source.planned is None else source.planned.get(topic, {}),
                way=change.by,
                offsets=file.get(name),
                window=change.window,
                syncs=change.syncs,
            )
            found.append(new_positions(request, old, new, wait))
        readers = [reader for reader in (old, new) if reader is not None]
        brokers = {each.brokers: each.cluster for each in readers if each.cluster is not None}
    told = tuple(_of_clusters(source.name, kafka, brokers))
    return [replace(found[0], brokers=brokers, findings=(*found[0].findings, *told)), *found[1:]]


def _of_clusters(source: str, kafka: KafkaSpec, brokers: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a note of the clusters of Kafka that the brokers are, as far as they say it."""
    new, old = kafka.bootstrap_servers, kafka.source_bootstrap_servers
    if old is None or not {old, new} <= brokers.keys():
        return
    fact = f"from the cluster {brokers[old]} ({old}) to {brokers[new]} ({new})"
    if brokers[old] == brokers[new]:
        fact = f"{old} and {new} are one cluster of Kafka ({brokers[old]})"
    yield Finding("note", f"source {source}: {fact}")


def _offsets_of_file(change: Reposition, names: Mapping[str, str], opening: Opening) -> Topics:
    """Return the offsets that somebody has written down; none if no file is named."""
    if change.offsets is None:
        return {}
    storage = opening(locations.parent(change.offsets))
    offsets = decode_offset_file(storage.read(locations.name(change.offsets), BYTES_MAX))
    for topic in offsets:
        if topic not in names.values():
            raise RefusedError(
                f"{change.offsets} names the topic {topic}, which the job does not read",
                f"it will read: {', '.join(sorted(names.values()))}",
            )
    return offsets

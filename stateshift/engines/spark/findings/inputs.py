"""Whether the job gets its input again, once and whole (IS-14). Pure.

    source      can it be read again from the offsets of the checkpoint?
    Kafka       are these offsets, and these records, still there?
      spans       is each offset still there?
      records     are the last ones before each offset, and the one at it, the same at the source's
                  brokers?
      times       without the source's brokers: a record that the job has read is older than the
                  batch that read it
      partitions  one that the checkpoint does not name is read from its beginning
    elsewhere   does a source that is repositioned miss something, or get it twice?
    Delta       are this version, and the files that come next, still there?
      the id      Delta starts no job over another table than the one that its offset names
      the commits from the offset's version on, each is read (with failOnDataLoss, the default)
      the files   that these commits add

Equal numbers are no proof: a topic of the same name at another broker, or one that was recreated,
may have the offset, and other records around it. Spark reads on without a word then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stateshift.engines.findings import of_new_positions
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.layout import commit_path, under
from stateshift.engines.spark.real_time import is_in_real_time
from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.spark.survey.inputs import delta_sources
from stateshift.survey import (
    Endpoint,
    Finding,
    Image,
    Survey,
    TableFacts,
    TopicRecord,
    Topics,
)

LOST = "lost-offsets"
OTHER = "other-records"
SHOWN_MAX = 3  # partitions that a message names
# 2016, when Spark began to write batches: an earlier clock was not set.
FIRST_BATCH_MS = 1_451_606_400_000
CLOCKS_APART_MS = 600_000  # how far a producer's clock may be ahead of the driver's
_WAIVE = (
    "or, where what is lost is not needed (and the job has failOnDataLoss false), "
    f'"waive": ["{LOST}"]'
)
_ASK_SOURCE = (
    '"kafka": {"source_bootstrap_servers": "HOST:9092"} names the brokers that the job '
    "has read so far"
)
_READ_TWICE = (
    "where these records were read before, from other partitions, the job gets them twice: "
    "let it read the topic as it was, or begin without the old offsets"
)
_WAIVE_OTHER = f'or, where the records before these offsets do not matter, "waive": ["{OTHER}"]'

_UNTIMED = (
    "in real-time mode a batch reads until it ends, and neither the checkpoint nor its storage "
    "tells when the last one did"
)
_NAME_IT = 'name it: "sources": [{"kind": "delta", "location": "…"}]'
_RESTORE = (
    "restore what is missing, or, where it is not needed (and the job has failOnDataLoss false), "
    f'"waive": ["{LOST}"]'
)

Offsets = Mapping[str, Mapping[int, int]]
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The next offset of each partition; `batch_ms` is when the last batch was planned, or ended in
    real-time mode. `untimed` is the reason where it is None.
    """

    offsets: Offsets
    batch_ms: int | None = None
    now_ms: float = 0.0
    untimed: str = "the checkpoint does not tell the time of the batch that read them"


def of_replay(move: Move) -> Iterator[Finding]:
    """Report sources that cannot be read again, or of which that is not known."""
    for image in move.images:
        for endpoint in image.endpoints:
            if endpoint.role != "source" or endpoint.replayable:
                continue
            if endpoint.replayable is None:
                yield Finding(
                    "note",
                    f"source {endpoint.index} ({endpoint.kind}) is not one we know: exactly once "
                    "holds only if it can be read again from its offsets",
                )
            else:
                yield Finding(
                    "warn",
                    f"source {endpoint.index} ({endpoint.kind}) cannot be read again: input "
                    "between the last commit and the stop is lost",
                )


# ---- from elsewhere


def of_positions(move: Move) -> Iterator[Finding]:
    """Report new positions, and what is read again or skipped: nothing, unless it is accepted."""
    change = move.change
    if change.repositions and change.merge is not None:
        fact = "a merge and new positions of its sources at once"
        yield Finding("refuse", fact, hint="one after the other: two jobs")
    for position in move.facts.positions:
        source = position.source
        if source in change.dropped_sources:
            fact = f"source {source} is both repositioned and dropped"
            yield Finding("refuse", fact, hint="one of the two")
    yield from of_new_positions(move.job, move.facts)


# ---- Kafka


def of_topics(move: Move) -> Iterator[Finding]:
    """Report the topics that the checkpoints of the job, and of those that join it, read next."""
    facts = move.facts
    if facts.wanted_offsets:
        yield from of_offsets(_wanted(move, facts.wanted_offsets), facts.topics)


def _wanted(move: Move, offsets: Offsets) -> Wanted:
    """Return the offsets, with the time up to which the last batches of the job have read."""
    now_ms = 1000 * move.facts.at
    newest = 0
    for survey in (move.facts.source, *move.facts.merges):
        for image in survey.images:
            read_until_ms = _read_until_ms(image, survey)
            if read_until_ms is None:
                return Wanted(offsets, None, now_ms, _UNTIMED)
            newest = max(newest, read_until_ms)
    if newest < FIRST_BATCH_MS:
        return Wanted(offsets, None, now_ms)
    return Wanted(offsets, newest, now_ms)


def _read_until_ms(image: Image, survey: Survey) -> int | None:
    """Return the time up to which the image's batch has read; 0 of one without a time. A batch in
    real-time mode reads until it ends: None where nothing tells when that was.
    """
    details = spark_image(image)
    planned_ms = details.batch_timestamp_ms or 0
    if not is_in_real_time(image) or image.epoch is None:
        return planned_ms
    if planned_ms and details.real_time_seconds is not None:
        return planned_ms + int(1000 * details.real_time_seconds)
    # That of a copy that did not keep the times of files is too late: it bounds the records, too.
    commit = under(image.path, commit_path(image.epoch))
    times = [file.modified for file in survey.files if file.path == commit]
    return int(1000 * times[0]) if times and times[0] else None


def of_offsets(wanted: Wanted, topics: Topics | None) -> Iterator[Finding]:
    """Report the offsets that Kafka no longer has, or does not have yet."""
    names = ", ".join(sorted(wanted.offsets))
    if topics is None:
        yield Finding(
            "note",
            f"whether the offsets of {names} are still there was not asked: a checkpoint "
            "does not name the brokers",
            hint='name those of Kafka that the job reads afterwards: "kafka": '
            '{"bootstrap_servers": "HOST:9092"}',
        )
        return
    if topics.wrong is not None:
        ways = f"{topics.hint}; {_WAIVE}" if topics.hint else _WAIVE
        yield Finding(
            "refuse", f"{topics.brokers} could not be asked for {names}: {topics.wrong}", LOST, ways
        )
        return
    lost: list[Finding] = []
    for topic in sorted(wanted.offsets):
        lost.extend(_of_spans(topic, wanted.offsets[topic], topics))
    yield from lost
    yield from _of_new_partitions(wanted.offsets, topics)
    if not lost:
        fact = f"{topics.brokers} still has every offset from which the job reads on, of {names}"
        yield Finding("note", fact)
        yield from _of_records(wanted, topics)


def _of_spans(topic: str, wanted: Mapping[int, int], topics: Topics) -> Iterator[Finding]:
    spans = topics.spans.get(topic, {})
    if not spans:
        yield _lost(f"{topics.brokers} has no topic {topic}, from which the job reads")
        return
    gone = sorted(wanted.keys() - spans.keys())
    if gone:
        partitions = ", ".join(map(str, gone))
        yield _lost(
            f"{topic} has no partition {partitions} at {topics.brokers}, and the "
            "checkpoint has offsets of it"
        )
    for partition in sorted(wanted.keys() & spans.keys()):
        (first, end), ours = spans[partition], wanted[partition]
        if ours < first:
            yield _lost(
                f"{topic}/{partition} begins at offset {first}: {first - ours} records "
                f"from {ours} on are gone, and the job has not read them"
            )
        elif ours > end:
            yield _lost(
                f"{topic}/{partition} ends at offset {end}, and the job has read up to "
                f"{ours}: {ours - end} records are missing; the topic is a mirror that is late, "
                "was recreated, or is another one"
            )


def _lost(fact: str) -> Finding:
    return Finding(
        "refuse", fact, LOST, f"name the brokers that have it, or restore the records; {_WAIVE}"
    )


def _of_new_partitions(wanted: Offsets, topics: Topics) -> Iterator[Finding]:
    """Report partitions without an offset: Spark reads those from their first record on."""
    for topic in sorted(wanted.keys() & topics.spans.keys()):
        spans = topics.spans[topic]
        new = {number: spans[number] for number in sorted(spans.keys() - wanted[topic].keys())}
        if not new:
            continue
        names = _named([(topic, number) for number in new])
        records = sum(end - first for first, end in new.values())
        fact = (
            f"the checkpoint has no offset of {names}: the job reads it from the beginning "
            f"({records:,} records)"
        )
        if any(first > 0 for first, _ in new.values()):
            fact += "; one that begins behind offset 0 counts as lost data (failOnDataLoss)"
        yield Finding("warn", fact, hint=_READ_TWICE) if records else Finding("note", fact)


def _of_records(wanted: Wanted, topics: Topics) -> Iterator[Finding]:
    """Report whether the records around the offsets are those that the job reads."""
    late = _too_new(wanted, topics)
    if late:
        yield Finding(
            "refuse",
            f"{_named(late)} at {topics.brokers}: the records before the job's offset were written "
            "after the batch that has read up to it: the topic was recreated, or is another one",
            OTHER,
            f"{_ASK_SOURCE}: the records are then compared; {_WAIVE_OTHER}",
        )
    if topics.source is not None:
        yield from _compared(wanted.offsets, topics, topics.source)
    elif topics.records is None:
        why = f" ({topics.unread})" if topics.unread else ""
        fact = f"whether these are the records that the job has read was not asked{why}"
        yield Finding("note", fact, hint=_ASK_SOURCE)
    elif wanted.batch_ms is None:
        fact = (
            f"whether these are the records that the job has read was not checked: {wanted.untimed}"
        )
        yield Finding("note", fact, hint=_ASK_SOURCE)
    elif not late:
        yield Finding(
            "note",
            "whether these are the records that the job has read was asked of their times "
            "alone: none before its offsets is newer than the batch that read them",
            hint=_ASK_SOURCE,
        )


def _too_new(wanted: Wanted, topics: Topics) -> list[Place]:
    """Return the partitions whose last records before the offset are newer than their batch."""
    if wanted.batch_ms is None:
        return []
    newest_read_ms = wanted.batch_ms + CLOCKS_APART_MS

    def is_newer(record: TopicRecord) -> bool:
        time = record.timestamp
        return time is not None and newest_read_ms < time <= wanted.now_ms

    partitions = []
    for topic, number, records in _each(wanted.offsets, topics):
        next_offset = wanted.offsets[topic][number]
        read = [record for record in records if record.offset < next_offset]
        if read and all(map(is_newer, read)):
            partitions.append((topic, number))
    return partitions


def _compared(wanted: Offsets, topics: Topics, source: Topics) -> Iterator[Finding]:
    if source.wrong is not None:
        ways = f"{source.hint}; {_WAIVE_OTHER}" if source.hint else _WAIVE_OTHER
        fact = (
            f"{source.brokers} could not be asked for the records that the job has read: "
            f"{source.wrong}"
        )
        yield Finding("refuse", fact, OTHER, ways)
        return
    if topics.records is None:
        fact = f"{topics.brokers} gave no records to compare: {topics.unread}"
        yield Finding("refuse", fact, OTHER, _WAIVE_OTHER)
        return
    different: dict[Place, str] = {}
    unseen, same = list[Place](), list[Place]()
    source_records = {(topic, number): held for topic, number, held in _each(wanted, source)}
    for topic, number, records in _each(wanted, topics):
        place = (topic, number)
        others = {record.offset: record for record in records}
        own = source_records.get(place, ())
        pairs = [(record, others[record.offset]) for record in own if record.offset in others]
        differences = ((ours.offset, _difference(ours, theirs)) for ours, theirs in pairs)
        first = next((each for each in differences if each[1] is not None), None)
        if first is not None:
            different[place] = f"offset {first[0]} ({first[1]})"
        elif pairs:
            same.append(place)
        else:
            unseen.append(place)
    if different:
        (topic, number), where = next(iter(different.items()))
        yield Finding(
            "refuse",
            f"{_named(list(different))}: {topics.brokers} has other records than {source.brokers}, "
            f"as {topic}/{number} at {where}: the job would read some twice, or miss some",
            OTHER,
            f"read on at {source.brokers}, or where the offsets are the same; {_WAIVE_OTHER}",
        )
    if unseen:
        yield Finding(
            "warn",
            f"{_named(unseen)}: no record around the job's offset is at both {topics.brokers} and "
            f"{source.brokers}, so that nothing could be compared",
        )
    if same and not different:
        yield Finding(
            "note",
            f"the records around the job's offsets are the same at {topics.brokers} and at "
            f"{source.brokers} ({len(same)} partitions)",
        )


def _each(wanted: Offsets, topics: Topics) -> Iterator[tuple[str, int, tuple[TopicRecord, ...]]]:
    read = topics.records or {}
    for topic in sorted(wanted):
        for number in sorted(wanted[topic]):
            yield topic, number, read.get(topic, {}).get(number, ())


def _difference(ours: TopicRecord, theirs: TopicRecord) -> str | None:
    """Return the difference of two records. A broker that sets times has another for a copy."""
    if ours.key != theirs.key:
        return "another key"
    if ours.value != theirs.value:
        return "another value"
    if ours.appended or theirs.appended or ours.timestamp == theirs.timestamp:
        return None
    return "another timestamp"


def _named(places: list[Place]) -> str:
    names = ", ".join(f"{topic}/{number}" for topic, number in places[:SHOWN_MAX])
    more = len(places) - SHOWN_MAX
    return f"{names} and {more} more" if more > 0 else names


# ---- Delta


def of_tables(move: Move) -> Iterator[Finding]:
    """Report the versions and files that sources read next, and that Delta does not have."""
    facts, sources = move.facts, delta_sources(move.facts)
    ids = {source.details["table_id"] for source in sources}
    for table in facts.tables:
        if table.wrong is not None:
            fact = f"the Delta table {table.location} could not be asked: {table.wrong}"
            hint = f"{table.hint}; {_RESTORE}" if table.hint else _RESTORE
            yield Finding("refuse", fact, LOST, hint)
        elif table.id not in ids:
            yield Finding(
                "refuse",
                f"{table.location} is another table than the one that the job has read (its id is "
                f"{table.id}, and the checkpoint has {', '.join(map(str, sorted(ids)))}): Delta "
                "does not start the job over it",
                hint="correct the location in `sources`, or bring the table there as it was, with "
                "its log",
            )
    for source in sources:
        tables = [table for table in facts.tables if table.id == source.details["table_id"]]
        for table in tables:
            yield _of_table(source, table)
        if not tables and not any(table.named for table in facts.tables):
            yield Finding(
                "note",
                f"whether version {source.details['version']} of the Delta table that source "
                f"{source.index} reads is still there was not asked: an offset does not say where "
                "the table lies",
                hint=_NAME_IT,
            )


def _of_table(source: Endpoint, table: TableFacts) -> Finding:
    version, newest = source.details["version"], table.newest
    at = f"{table.location}, which source {source.index} reads from version {version} on,"
    first = version + 1 if source.details["starting_snapshot"] else version
    gone = sorted(set(range(first, newest + 1)) - table.commits)
    # The log leads up to a version from its beginning, or from a checkpoint.
    starts = [-1, *(each for each in table.checkpoints if each <= version)]
    ways = (range(start + 1, version + 1) for start in starts)
    leads_there = any(map(table.commits.issuperset, ways))
    if version > newest + 1 or (version > newest and source.details["starting_snapshot"]):
        fact = f"{at} ends at version {newest}: it was restored from an older copy, or recreated"
    elif gone:
        fact = f"{at} has no commit of version {gone[0]} any more: what it added was not read"
    elif first > version and not leads_there:
        fact = f"{at} can no longer show that version, which the job has not read to its end"
    elif table.missing is not None:
        fact = f"{at} lacks a file that the job reads next: {table.missing}"
    else:
        looked = f", and {table.asked:,} files that it reads next" if table.asked else ""
        return Finding("note", f"{at} still has it{looked}")
    return Finding("refuse", fact, LOST, _RESTORE)

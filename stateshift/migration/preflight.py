"""What is asked beside the surveys before anything moves: space, permission, what the brokers still
have. It reads.

    source, merges  may the fence's files be made there? (the folders that the engine looks into
                    first)
    target          is there space, may we write there, and beside it, where the lock goes?
    data            the same, where it is copied
    topics          the span of each partition that the checkpoint has an offset of, and the records
                    around that;
                    the same records at the brokers that the job has read so far

Nothing of it is in a plan's fingerprint: space comes and goes, and topics grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stateshift.errors import StateshiftError
from stateshift.migration.doors import AskRecords, Doors
from stateshift.specification import JobSpec, Spec
from stateshift.storage import locations
from stateshift.survey import Facts, Survey, Topics

Offsets = Mapping[str, Mapping[int, int]]


def asked(spec: Spec, job: JobSpec, facts: Facts, doors: Doors) -> Facts:
    """The same facts, and what only questions tell."""
    if not spec.restart:
        return facts
    stays = job.target is None
    fenced = spec.engine == "spark" and job.moves and (not stays or bool(job.transform))
    source = (
        _asked(facts.source, doors, _first_looked_into(facts.source)) if fenced else facts.source
    )
    if stays:
        source = _asked(_beside(source, doors), doors, ())
    return replace(
        facts,
        source=source,
        target=source if stays else _asked(_beside(facts.target, doors), doors, ("",)),
        merges=tuple(
            _asked(merge, doors, ("", *_first_looked_into(merge))) for merge in facts.merges
        ),
        data=tuple(
            (here, _asked(there, doors, ("",)) if data.copy else there)
            for data, (here, there) in zip(job.data, facts.data, strict=True)
        ),
        topics=_topics(job, facts, doors),
    )


def _asked(survey: Survey, doors: Doors, folders: tuple[str, ...]) -> Survey:
    """Its room, and which of these folders in it may not be written to."""
    storage = doors.open_storage(survey.location)
    told = {folder: storage.writable(folder) for folder in folders}
    return _told(
        replace(survey, room=survey.room or storage.room()),
        {locations.join(survey.location, folder): answer for folder, answer in told.items()},
    )


def _beside(survey: Survey, doors: Doors) -> Survey:
    """The lock lies beside a target, in the directory above it."""
    above = locations.parent(survey.location)
    return _told(survey, {above: doors.open_storage(above).writable()})


def _told(survey: Survey, answers: dict[str, bool | None]) -> Survey:
    """What was denied is known to be, whatever else is not known."""
    denied = tuple(place for place, answer in answers.items() if answer is False)
    before = survey.denied or ()
    mute = any(answer is None for answer in answers.values())
    return replace(survey, denied=(*before, *denied) or (None if mute else ()))


def _first_looked_into(survey: Survey) -> tuple[str, ...]:
    """The folders of the files that the engine looks for first: a fence lies among them."""
    paths = (path for image in survey.images for path in image.first_read)
    return tuple(dict.fromkeys(path.rpartition("/")[0] for path in paths))


def _topics(job: JobSpec, facts: Facts, doors: Doors) -> Topics | None:
    wanted, kafka = facts.wanted_offsets, job.kafka
    if kafka is None or not wanted:
        return None
    brokers = kafka.bootstrap_servers
    try:
        topics = Topics(brokers, doors.ask_topics(kafka, sorted(wanted)))
    except StateshiftError as error:
        return Topics(brokers, {}, error.fact, error.hint)
    if doors.ask_records is None:
        return topics
    topics = _with_records(topics, kafka.properties, wanted, doors.ask_records)
    if kafka.source_bootstrap_servers is None:
        return topics
    source = _with_records(
        Topics(kafka.source_bootstrap_servers), kafka.source_properties, wanted, doors.ask_records
    )
    return replace(topics, source=source)


def _with_records(
    topics: Topics, properties: str | None, wanted: Offsets, ask: AskRecords
) -> Topics:
    """The records around the job's offsets, or why they were not to be had."""
    try:
        return replace(topics, records=ask(topics.brokers, properties, wanted))
    except StateshiftError as error:
        spans_are_there = bool(topics.spans)
        unread = replace(topics, unread=error.fact)
        return unread if spans_are_there else replace(unread, wrong=error.fact, hint=error.hint)

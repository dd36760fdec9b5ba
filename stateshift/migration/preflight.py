"""The questions beside the surveys before anything moves: space, permission, what the brokers still
have. Reads only.

    source, merges  may the fence's files be made there? (the folders that the engine looks into
                    first)
    target          is there space, may we write there, and beside it, where the lock goes?
    data            the same, where it is copied
    topics          the span of each partition that the checkpoint has an offset of, and the records
                    around that; the same records at the brokers that the job has read so far

Nothing of it is in a plan's fingerprint: space comes and goes, and topics grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stateshift.errors import StateshiftError
from stateshift.migration.adapters import Adapters, AskRecords
from stateshift.specification import JobSpec, Spec
from stateshift.storage import locations
from stateshift.survey import Facts, Survey, Topics

Offsets = Mapping[str, Mapping[int, int]]


def ask(spec: Spec, job: JobSpec, facts: Facts, adapters: Adapters) -> Facts:
    """Add the answers to facts."""
    if not spec.restart:
        return facts
    stays = job.target is None
    source = facts.source
    is_changed = not stays or bool(job.transform)
    if spec.engine == "spark" and job.moves and is_changed:  # it gets a fence
        source = _asked(source, adapters, _first_looked_into(source))
    if stays:
        source = _asked(_beside(source, adapters), adapters, ())
        target = source
    else:
        target = _asked(_beside(facts.target, adapters), adapters, ("",))
    merges = [_asked(each, adapters, ("", *_first_looked_into(each))) for each in facts.merges]
    data = []
    for spec_of_data, (from_survey, to_survey) in zip(job.data, facts.data, strict=True):
        if spec_of_data.copy:
            to_survey = _asked(to_survey, adapters, ("",))
        data.append((from_survey, to_survey))
    return replace(
        facts,
        source=source,
        target=target,
        merges=tuple(merges),
        data=tuple(data),
        topics=_topics(job, facts, adapters),
    )


def _asked(survey: Survey, adapters: Adapters, folders: tuple[str, ...]) -> Survey:
    """Add free space to a survey, and those of the folders that may not be written to."""
    storage = adapters.open_storage(survey.location)
    answers = {}
    for folder in folders:
        answers[locations.join(survey.location, folder)] = storage.writable(folder)
    return _with_denied(replace(survey, room=survey.room or storage.room()), answers)


def _beside(survey: Survey, adapters: Adapters) -> Survey:
    """Ask about the directory above a target: the lock lies there, beside the target."""
    above = locations.parent(survey.location)
    return _with_denied(survey, {above: adapters.open_storage(above).writable()})


def _with_denied(survey: Survey, answers: Mapping[str, bool | None]) -> Survey:
    """Add the places that may not be written to. That is known, whatever else is not known."""
    denied = [place for place, answer in answers.items() if answer is False]
    known = (*(survey.denied or ()), *denied)
    is_unknown = any(answer is None for answer in answers.values())
    return replace(survey, denied=None if is_unknown and not known else known)


def _first_looked_into(survey: Survey) -> tuple[str, ...]:
    """Return the folders of the files that the engine looks for first: a fence lies among them."""
    folders: dict[str, None] = {}
    for image in survey.images:
        folders |= dict.fromkeys(path.rpartition("/")[0] for path in image.first_read)
    return tuple(folders)


def _topics(job: JobSpec, facts: Facts, adapters: Adapters) -> Topics | None:
    wanted, kafka = facts.wanted_offsets, job.kafka
    if kafka is None or not wanted:
        return None
    brokers = kafka.bootstrap_servers
    try:
        topics = Topics(brokers, adapters.ask_topics(kafka, sorted(wanted)))
    except StateshiftError as error:
        return Topics(brokers, {}, error.fact, error.hint)
    if adapters.ask_records is None:
        return topics
    topics = _with_records(topics, kafka.properties, wanted, adapters.ask_records)
    if kafka.source_bootstrap_servers is None:
        return topics
    source = _with_records(
        Topics(kafka.source_bootstrap_servers),
        kafka.source_properties,
        wanted,
        adapters.ask_records,
    )
    return replace(topics, source=source)


def _with_records(
    topics: Topics, properties: str | None, wanted: Offsets, ask: AskRecords
) -> Topics:
    """Add the records around the job's offsets, or why they were not to be had."""
    try:
        return replace(topics, records=ask(topics.brokers, properties, wanted))
    except StateshiftError as error:
        spans_are_there = bool(topics.spans)
        unread = replace(topics, unread=error.fact)
        return unread if spans_are_there else replace(unread, wrong=error.fact, hint=error.hint)

"""The facts that a plan is computed from: surveys of both ends, and what clusters, brokers and
sinks say. Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, Protocol, TypeVar

from stateshift.clusters.protocol import Cluster
from stateshift.engines.protocol import Engine
from stateshift.engines.registry import absence, engine
from stateshift.engines.views import Opening
from stateshift.errors import Interrupted, MissingFile, PlanError, StateshiftError
from stateshift.estimating import probe
from stateshift.formats.marks import FOLDER
from stateshift.formats.standby import aside_folder, epoch_folder
from stateshift.migration.adapters import Adapters, AskRecords, impatient
from stateshift.migration.arrivals import Arrivals, with_arrivals, with_target_in_the_way
from stateshift.migration.cluster_facts import facts_of_source, facts_of_target
from stateshift.sources.kafka import with_remembered
from stateshift.sources.topic_positions import OpenTopics, Wait
from stateshift.specification import JobSpec, Spec
from stateshift.specification.transform import Change, Reposition, Rewind, locations_merged
from stateshift.step.claims import state_at
from stateshift.storage import locations
from stateshift.storage.opening import real_location
from stateshift.storage.protocol import Storage
from stateshift.storage.wrappers import Rearranged
from stateshift.survey import (
    ClusterFacts,
    Facts,
    Finding,
    GroupCommit,
    GroupOffset,
    Image,
    InputFacts,
    NewPosition,
    SinkFacts,
    Survey,
    Topics,
    refuse,
)
from stateshift.terms import terms_of
from stateshift.workdir import Workdir

LOOKS = 4
SECONDS_BETWEEN_LOOKS = 0.25
SECONDS_BETWEEN_LOOKS_AT_MIRROR = 1.0
QUESTIONS_AT_ONCE = 8

T = TypeVar("T")
Offsets = Mapping[str, Mapping[int, int]]
# How much is asked: for a plan that is shown, for the move, for a round of a job that goes on.
Extent = Literal["plan", "move", "round"]


@dataclass(frozen=True)
class Inquiry:
    """Whom to ask about the jobs of a spec."""

    spec: Spec
    adapters: Adapters
    workdir: Workdir

    @cached_property
    def engine(self) -> Engine:
        return engine(self.spec.engine)

    def open_cluster(self, name: str) -> Cluster:
        return self.adapters.open_cluster(self.spec.cluster(name), self.workdir)


def gather(
    inquiry: Inquiry,
    job: JobSpec,
    extent: Extent = "move",
    arrived: Arrivals | None = None,
    before: Facts | None = None,
) -> Facts:
    """Do all the reading there is before a plan exists. For a plan that is shown, that is also the
    speed of its storages, and questions before anything moves. A round copies what is there: where
    sources read on is not asked for it. `arrived` is what rounds have left at the target; with
    facts from `before` no cluster is asked.
    """
    check_submits(inquiry.spec, job)
    with _asking(job, inquiry.adapters) as ask:
        facts, storage = _ask_everything(inquiry, job, ask, before)
        if extent == "plan":
            facts = replace(facts, rates=probe(storage, facts.source))
        if extent != "round":
            facts = replace(facts, positions=_positions(inquiry, job, facts.source))
        # Whoever has waived a finding about them does not wait for a storage that is away.
        asking = impatient(inquiry.adapters) if job.waive else inquiry.adapters
        inputs: tuple[InputFacts, ...] = ()
        if extent != "round" or not job.waive:
            inputs = inquiry.engine.ask_inputs(job, facts.source, asking.open_storage)
        tables = inquiry.engine.ask_tables(job, facts, inquiry.adapters.open_storage)
        sink = sink_of(inquiry, job, facts.source)
        facts = replace(facts, sink=sink, inputs=inputs, tables=tables)
    if arrived:
        facts = with_arrivals(facts, arrived)
    elif job.set_aside:
        facts = with_target_in_the_way(facts)
    if extent == "plan":
        return _ask_preflight(inquiry.spec, job, facts, inquiry.adapters)
    if job.takes_over is not None:
        # Its epoch may be a newer one than the plan's that was shown, and the brokers' mirror late.
        topics = ask_brokers(job, facts.wanted_offsets, inquiry.adapters)
        facts = replace(facts, topics=topics)
    return facts


def _positions(inquiry: Inquiry, job: JobSpec, source: Survey) -> tuple[NewPosition, ...]:
    """Ask where sources read on from elsewhere. A mirror that lags is waited for, and that is told
    whenever the line changes.
    """
    adapters = inquiry.adapters

    def patience(seconds: float) -> Wait:
        until, told = adapters.clock.now() + seconds, set[str]()

        def wait(line: str) -> bool:
            if adapters.stop.is_set():
                raise Interrupted("interrupted; a mirror that lags was waited for")
            if adapters.clock.now() >= until:
                return False
            if line not in told:
                adapters.meter.say(f"{job.name}: {line}")
                told.add(line)
            adapters.clock.sleep(SECONDS_BETWEEN_LOOKS_AT_MIRROR)
            return True

        return wait

    open_topics = _topics_of_standby(inquiry, job, source.epoch)
    positions = inquiry.engine.ask_positions(
        job, source, adapters.open_storage, open_topics, patience
    )
    changes = [change for change in job.transform if isinstance(change, Reposition)]
    groups = [None if job.mode == "fork" else change.commit for change in changes]
    pairs = zip(positions, groups, strict=True)
    return tuple(_with_commit(inquiry, job, position, group) for position, group in pairs)


def _with_commit(
    inquiry: Inquiry, job: JobSpec, position: NewPosition, group: str | None
) -> NewPosition:
    """Return the position with the offsets that a consumer group gets there. A group with members
    is refused: they would commit their own.
    """
    kafka = job.kafka
    if group is None or kafka is None or not position.changes:
        return position
    brokers = kafka.bootstrap_servers
    try:
        with inquiry.adapters.open_groups(brokers, kafka.properties) as groups:
            state, committed = groups.state(group), groups.committed(group)
    except StateshiftError as error:
        told = refuse(error.fact, hint=error.hint)
        return replace(position, findings=(*position.findings, told))
    offsets = []
    for change in position.changes:
        topic, _, partition = change.partition.rpartition("/")
        before = committed.get((topic, int(partition)))
        offsets.append(GroupOffset(topic, int(partition), before, change.after))
    told = Finding("note", f"the group {group} at {brokers} gets {len(offsets)} offsets")
    if state not in ("", "Dead", "Empty"):
        told = refuse(
            f"the group {group} at {brokers} has members (it is {state}), which read on where they "
            "are",
            hint='stop them first; or leave out --commit (in a spec, "commit")',
        )
    commit = GroupCommit(group, brokers, kafka.properties, tuple(offsets))
    return replace(position, commit=commit, findings=(*position.findings, told))


def _topics_of_standby(inquiry: Inquiry, job: JobSpec, epoch: int | None) -> OpenTopics:
    """Return a way to open topics; of a job that starts from its standby with the records that were
    kept of the brokers which it has read: nobody asks those.
    """
    adapters, kafka = inquiry.adapters, job.kafka
    starts = job.takes_over is not None or job.rehearses
    if not starts or not job.transform or kafka is None or kafka.source_bootstrap_servers is None:
        return adapters.open_topics
    state = state_at(adapters.open_storage(job.source))
    for kept in state.kept if state is not None else ():
        if kept.epoch == epoch and kept.records is not None:
            brokers = kafka.source_bootstrap_servers
            return with_remembered(adapters.open_topics, brokers, kept.records)
    return adapters.open_topics


class Ask(Protocol):
    """A question is put, and its answer is asked for when it is needed."""

    def __call__(self, question: Callable[[], T], /) -> Callable[[], T]: ...


@contextmanager
def _asking(job: JobSpec, adapters: Adapters) -> Iterator[Ask]:
    """Ask all at once if they wait for a network: the job may be down. Else ask one by one."""
    if adapters.open_storage(job.source).traits.at_once <= 1:
        yield lambda question: question
        return
    with ThreadPoolExecutor(QUESTIONS_AT_ONCE, thread_name_prefix="gather") as threads:
        yield lambda question: threads.submit(copy_context().run, question).result


def _ask_everything(
    inquiry: Inquiry, job: JobSpec, ask: Ask, before: Facts | None
) -> tuple[Facts, Storage]:
    """Put all questions, then take the answers."""
    source_answer = ask(partial(_source, inquiry, job))
    target_answer = None
    if job.target:
        target_answer = ask(partial(_survey, inquiry, job.target))
    merges = [ask(partial(_survey, inquiry, location)) for location in job.merge_locations]
    data_sources = [ask(partial(_data, inquiry, data.source, True)) for data in job.data]
    data_targets = [ask(partial(_data, inquiry, data.target, data.copy)) for data in job.data]
    others = [ask(partial(_survey, inquiry, at, job.transform)) for at in other_images(job)]
    source_cluster = ask(partial(_source_cluster, inquiry, job, before))
    target_cluster = ask(partial(_target_cluster, inquiry, job, before))
    storage, survey = source_answer()
    source = inquiry.engine.own_part(inquiry.spec, job, _with_traits(survey, storage))
    facts = Facts(
        source=source,
        target=source if target_answer is None else target_answer(),
        merges=_answers(merges),
        data=tuple(zip(_answers(data_sources), _answers(data_targets), strict=True)),
        source_cluster=source_cluster(),
        target_cluster=target_cluster(),
        at=inquiry.adapters.clock.now(),
        others=_answers(others),
    )
    return facts, storage


def _answers(questions: Iterable[Callable[[], T]]) -> tuple[T, ...]:
    return tuple(answer() for answer in questions)


def sink_of(inquiry: Inquiry, job: JobSpec, survey: Survey) -> SinkFacts | None:
    """Read the log of the sink that the spec names, as far as it has the queries of this image.
    Unless a rewind asks for more, it is read to the image's own last batch.
    """
    if job.sink is None:
        return None
    queries = {}
    for image in survey.images:
        if image.identity is not None:
            queries[image.identity] = image.epoch or 0
    return inquiry.engine.read_sink(job.sink, inquiry.adapters.open_storage, queries)


def check_submits(spec: Spec, job: JobSpec) -> None:
    """Check how the job is started where it goes, and where it was if that is taken back."""
    names = [other.name for other in spec.jobs]
    pointer = f"/jobs/{names.index(job.name)}"
    rehearsed = None if job.drill is None else job.drill.submit
    starts = (
        ("submit", job.submit, job.target_cluster, job.connection),
        ("source_submit", job.source_submit, job.source_cluster, None),
        ("drill/submit", rehearsed, job.drill_cluster, None),
    )
    for key, submit, cluster, connection in starts:
        if submit is not None and cluster is not None:
            # Nobody waits for this import without a cluster.
            from stateshift.clusters.kind import check_submit

            options = submit.options
            check_submit(spec.cluster(cluster), options, f"{pointer}/{key}", connection)


def _source(inquiry: Inquiry, job: JobSpec) -> tuple[Storage, Survey]:
    """Survey the source; of images that are still to be taken, there is nothing. A job that is
    followed while it runs is looked at where its last checkpoint is. One that runs tidies up while
    we look: what is really missing is missing the next time, too.
    """
    for _ in range(LOOKS if job.may_run else 0):
        with suppress(MissingFile):
            storage, survey = source_now(inquiry, job)
            if not survey.damages:
                return storage, survey
        inquiry.adapters.clock.sleep(SECONDS_BETWEEN_LOOKS)
    try:
        return source_now(inquiry, job)
    except MissingFile:
        if not job.image_writers:
            raise
        # Each checkpoint is gone by the time it is read: the next look, or the end.
        return _nothing_yet(job, inquiry.adapters)


def source_now(inquiry: Inquiry, job: JobSpec) -> tuple[Storage, Survey]:
    """Survey the source once."""
    if not job.image_writers:
        return _survey_source(inquiry, job, job.source)
    location = _last_checkpoint(inquiry, job) if job.mode == "warm" else None
    if location is None:
        return _nothing_yet(job, inquiry.adapters)
    storage, survey = _survey_source(inquiry, job, location)
    if survey.engine is None:
        raise MissingFile(
            f"the checkpoint at {location} is gone: a newer one has been completed",
            location=location,
        )
    return storage, survey


def _survey_source(inquiry: Inquiry, job: JobSpec, location: str) -> tuple[Storage, Survey]:
    open_storage, take_over = inquiry.adapters.open_storage, job.takes_over
    if take_over is not None and take_over.epoch is not None:
        return survey_taken_over(inquiry.engine, job, open_storage, take_over.epoch)
    return inquiry.engine.survey(location, open_storage, changes=job.transform)


def _nothing_yet(job: JobSpec, adapters: Adapters) -> tuple[Storage, Survey]:
    storage = adapters.open_storage(job.source)
    return storage, Survey(storage.location, None, "empty", ())


def _last_checkpoint(inquiry: Inquiry, job: JobSpec) -> str | None:
    """Return the location of the last checkpoint; None where the cluster cannot say."""
    assert job.source_cluster is not None, "a spec that is checked"
    cluster = inquiry.open_cluster(job.source_cluster)
    ask: Callable[[str], str | None] | None = getattr(cluster, "latest_checkpoint", None)
    return ask(job.image_writers[0]) if ask is not None else None


def other_images(job: JobSpec) -> tuple[str, ...]:
    """Return the images whose state is added to the job's."""
    return (*job.further_images, *locations_merged(job.transform))


def _survey(inquiry: Inquiry, location: str, changes: Sequence[Change] = ()) -> Survey:
    """Survey a place beside the job's own; what is to be gone back to is the job's own batch."""
    asked = [change for change in changes if not isinstance(change, Rewind)]
    storage, survey = inquiry.engine.survey(location, inquiry.adapters.open_storage, changes=asked)
    return _with_traits(survey, storage)


def _with_traits(survey: Survey, storage: Storage) -> Survey:
    traits = storage.traits
    known = {
        "renames": traits.renames,
        "keeps_times": traits.keeps_times,
        "owners": traits.owners,
        # Than anything new is there.
        "renames_sooner": traits.renames_sooner,
    }
    real = real_location(survey.location)
    absent = absence(survey.location) if survey.kind == "empty" else ""
    faster_by = traits.faster_by
    return replace(survey, traits=known, real=real, faster_by=faster_by, absence=absent)


def _data(inquiry: Inquiry, location: str, ours: bool) -> Survey:
    """Survey a place of the job's data; also whether others misplaced the files there."""
    storage = inquiry.adapters.open_storage(location)
    files = tuple(sorted(storage.list()))
    findings = () if ours else inquiry.engine.misplaced(storage, files)
    survey = Survey(storage.location, None, "data" if files else "empty", files, findings=findings)
    return _with_traits(survey, storage)


def _source_cluster(inquiry: Inquiry, job: JobSpec, before: Facts | None) -> ClusterFacts | None:
    if before is not None:
        return before.source_cluster
    if job.source_cluster is None:
        return None
    cluster = inquiry.open_cluster(job.source_cluster)
    spec = inquiry.spec.cluster(job.source_cluster)
    return facts_of_source(inquiry.engine, cluster, spec, job)


def _target_cluster(inquiry: Inquiry, job: JobSpec, before: Facts | None) -> ClusterFacts | None:
    if before is not None:
        return before.target_cluster
    if job.target_cluster is None:
        return None
    cluster = inquiry.open_cluster(job.target_cluster)
    source = inquiry.open_cluster(job.source_cluster) if job.source_cluster else None
    spec = inquiry.spec.cluster(job.target_cluster)
    return facts_of_target(inquiry.engine, cluster, spec, job, source)


# ----------------------------------------------------------------- questions before anything moves


def _ask_preflight(spec: Spec, job: JobSpec, facts: Facts, adapters: Adapters) -> Facts:
    """Add the answers to the questions beside the surveys. None of them is in a plan's fingerprint:
    space comes and goes, and topics grow.

        source, merges  may the fence's files be made there? (the folders that the engine looks into
                        first)
        target          is there space, may we write there, and beside it, where the lock goes?
        data            the same, where it is copied
        topics          the span of each partition that the checkpoint has an offset of, and the
                        records around that; the same records at the brokers that the job has read
    """
    if not spec.restart:
        return facts
    stays = job.target is None
    source = facts.source
    is_changed = not stays or bool(job.transform)
    if spec.engine == "spark" and job.fences_source and is_changed:  # it gets a fence
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


def ask_brokers(job: JobSpec, wanted: Offsets, adapters: Adapters) -> Topics | None:
    """Return the spans of a job's topics; None where the spec names no brokers."""
    kafka = job.kafka
    if kafka is None or not wanted:
        return None
    try:
        return Topics(kafka.bootstrap_servers, adapters.ask_topics(kafka, sorted(wanted)))
    except StateshiftError as error:
        return Topics(kafka.bootstrap_servers, {}, error.fact, error.hint)


def _topics(job: JobSpec, facts: Facts, adapters: Adapters) -> Topics | None:
    wanted, kafka = facts.wanted_offsets, job.kafka
    topics = ask_brokers(job, wanted, adapters)
    if kafka is None or topics is None or topics.wrong is not None or adapters.ask_records is None:
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


# ------------------------------------------------------------- the earlier epochs of a standby


def image_of_epoch(engine: Engine, location: str, opening: Opening, epoch: int) -> Image | None:
    """Return the image of an epoch as its files are now; None where it is not there whole."""
    own_names: dict[str, str] = {}

    def opening_then(place: str) -> Storage:
        storage = opening(place)
        if storage.location != location:
            return storage
        own_names.update(names_before(storage, epoch))
        return Rearranged.renamed(storage, own_names)

    _, survey = engine.survey(location, opening_then, changes=(Rewind(epoch),))
    if survey.epoch != epoch or _is_refused(survey):
        return None
    return under_names_now(survey.images[0], own_names)


def names_before(storage: Storage, epoch: int) -> dict[str, str]:
    """Return the files of an epoch that have another name now: what they were called."""
    folder = epoch_folder(epoch)
    return {file.path: file.path.removeprefix(f"{folder}/") for file in storage.list(folder)}


def under_names_now(image: Image, own_names: Mapping[str, str]) -> Image:
    """Return an image with the names that its files have now."""
    now = {own: path for path, own in own_names.items()}
    needed = tuple(now.get(path, path) for path in image.needed)
    first_read = tuple(now.get(path, path) for path in image.first_read)
    return replace(image, needed=needed, first_read=first_read)


def _is_refused(survey: Survey) -> bool:
    findings = [*survey.findings]
    for image in survey.images:
        findings.extend(image.findings)
    return any(finding.level == "refuse" for finding in findings)


def survey_taken_over(
    engine: Engine, job: JobSpec, opening: Opening, epoch: int
) -> tuple[Storage, Survey]:
    """Return the survey of a standby as the renames leave it.

    Raises:
        PlanError: this epoch is not there, or not whole.
    """
    storage = opening(job.source)
    names = renames_back(engine, job, opening, epoch)

    def opening_then(place: str) -> Storage:
        there = opening(place)
        return Rearranged.renamed(there, names) if there.location == storage.location else there

    return engine.survey(job.source, opening_then)


def renames_back(engine: Engine, job: JobSpec, opening: Opening, epoch: int) -> dict[str, str]:
    """Return the new names of files: what came later is set aside first, then the epoch's own files
    take their names again. There are none where it is the newest epoch. The batch that was planned
    next goes as well, if the job drops it.
    """
    take_over = job.takes_over
    assert take_over is not None, "the job of a standby"
    storage, survey = engine.survey(job.source, opening)
    if survey.epoch == epoch and not _is_refused(survey):
        return {}
    image = image_of_epoch(engine, storage.location, opening, epoch)
    if image is None:
        at = f"{terms_of(engine.name).at} {epoch}"
        raise PlanError(
            f"{at} is not at {job.source}, or not whole",
            hint=f"stateshift verify {job.source} --deep   # tells what it can be started from",
        )
    needed, aside = set(image.needed_files), aside_folder(take_over.generation)
    if job.planned_batch == "drop":
        planned = engine.files_of_planned(image)
        if planned is None:
            terms = terms_of(engine.name)
            raise PlanError(
                f"the {terms.one} after {terms.at} {epoch} cannot be planned anew at {job.source}: "
                "a log of its input was compacted with it"
            )
        needed.difference_update(planned)
    names: dict[str, str] = {}
    for file in sorted(storage.list(), reverse=True):
        if file.path not in needed and not file.path.startswith(f"{FOLDER}/"):
            names[file.path] = f"{aside}/{file.path}"
    return names | names_before(storage, epoch)

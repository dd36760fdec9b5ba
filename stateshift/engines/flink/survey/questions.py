"""The questions to clusters and brokers about Flink's jobs before a plan is made: what keeps a run
from succeeding, once it has begun.

    ask_source  which jobs run there, whether each can write the savepoint that is asked for, or
                leaves its last checkpoint behind; of an image without a job, what they have written
    ask_target  is the jar there, and are there slots for the parallelism, with those that the
                source will give back?
    ask_positions  where sources read on elsewhere, as a `reposition` of the spec asks for it

A cluster that is asked through other words than Flink's has none of these questions, and is not
asked.

A partition without an offset yet: `earliest` counts as offset 0, for nothing of it was read; one
that no reader has yet is new to the job. Other marks stand for a place that only the old brokers
could tell. That the state can be rewritten is tried at once: no job stops for a plan that cannot be
carried out.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from typing import Protocol, cast

from stateshift.clusters.protocol import Cluster, JobState, RunningJob, Slots
from stateshift.engines.flink.image import id_of, is_readable, metadata_of, places_of
from stateshift.engines.flink.new_offsets import NewOffsets, rewrite_operator
from stateshift.engines.flink.streams import Streams
from stateshift.engines.flink.survey.new_roots import file_position, look_at_root
from stateshift.engines.repositioning import (
    Outside,
    RefusedError,
    TopicSource,
    endpoint_of,
    positions_of,
    topics_elsewhere,
)
from stateshift.engines.tables import snapshot_search
from stateshift.errors import ClusterError
from stateshift.sources.topics import DYNAMIC, EARLIEST
from stateshift.specification import JobSpec
from stateshift.specification.transform import Reposition
from stateshift.survey import (
    ClusterFacts,
    Endpoint,
    Finding,
    Image,
    LiveJob,
    NewPosition,
    PositionChange,
    Savable,
    Survey,
    refuse,
    warn,
)

SLOTS = "free-slots"


class AsksFlink(Protocol):
    """The questions that `flink_rest` answers beside those of each such cluster."""

    def running(self, job_id: str) -> tuple[RunningJob, ...]: ...

    def alive(self) -> tuple[RunningJob, ...]: ...

    def no_canonical(self, job_id: str) -> str | None: ...

    def slots(self) -> Slots | None: ...

    def jars(self) -> dict[str, str] | None: ...

    def job_settings(self, job_id: str) -> dict[str, str]: ...

    def keeper(self, job_id: str) -> str | None: ...

    def given_settings(self) -> dict[str, str]: ...

    def live(self) -> tuple[LiveJob, ...]: ...


def ask_source(cluster: Cluster, job: JobSpec, known: ClusterFacts) -> ClusterFacts:
    """Return a cluster's facts, and each job for a savepoint, with why none canonical."""
    asks = cast(AsksFlink, cluster)
    settings: dict[str, str] = {}
    # Those that the job runs under, or ran under until it was stopped. Several jobs may differ.
    if len(job.ids_on_cluster) == 1 and _tells(cluster, "job_settings"):
        running = asks.running(job.ids_on_cluster[0])
        settings = asks.job_settings(running[-1].id) if running else {}
    known = replace(known, settings=settings)
    # A job that the spec names has been found, or this run has stopped it: no other is its own.
    if job.is_known_by_files and not job.ids_on_cluster and _tells(cluster, "live"):
        return _with_live_jobs(cluster, job, known)
    if not job.image_writers or not _tells(cluster, "running"):
        return known
    findings = known.findings
    alive = _alive(cluster, job.image_writers[0]) if job.mode == "warm" else []
    if any(running.lasting is False for running in alive):
        refusal = refuse(
            f"the checkpoints of {job.name} are deleted when it is cancelled, and it is to end "
            "with one",
            hint='start it with "execution.checkpointing.externalized-checkpoint-retention": '
            '"RETAIN_ON_CANCELLATION"; or "mode": "move"',
        )
        findings = (*findings, refusal)
    for id in job.image_writers:
        # Such a tool writes a stopped job back as its repository has it: it would run twice.
        keeper = asks.keeper(id) if job.moves and _tells(cluster, "keeper") else None
        if keeper is not None:
            message = f"{keeper} keeps {id} on {cluster.name}: it may start the moved job again"
            hint = f'pause {keeper} for it, or write "state: suspended" to its repository first'
            findings = (*findings, warn(message, hint=hint))
    savable = tuple(_savable(cluster, id) for id in job.image_writers)
    return replace(known, findings=findings, savable=savable)


def _with_live_jobs(cluster: Cluster, job: JobSpec, known: ClusterFacts) -> ClusterFacts:
    """Return the facts with the jobs that run there, or with a warning that they are not told."""
    try:
        return replace(known, live=cast(AsksFlink, cluster).live())
    except ClusterError as error:
        fact = f"{known.name} does not tell which jobs run there: {error.fact}"
        message = f"{fact}. If {job.name} does, it runs on beside the new one"
        return replace(known, findings=(*known.findings, warn(message, hint=error.hint)))


def _savable(cluster: Cluster, id: str) -> Savable:
    asks, alive = cast(AsksFlink, cluster), _alive(cluster, id)
    if not alive:
        others = asks.alive() if _tells(cluster, "alive") else ()
        return Savable(id, listed=tuple(f"{other.id} ({other.name})" for other in others))
    job = alive[0]
    backend = str(job.settings.get("state_backend") or "") or None
    why = asks.no_canonical(job.id) if _tells(cluster, "no_canonical") else None
    widths = {name: (parallelism, most) for name, parallelism, most in job.vertices.values()}
    return Savable(id, job.name, backend, why, widths)


def _alive(cluster: Cluster, id: str) -> list[RunningJob]:
    return [job for job in cast(AsksFlink, cluster).running(id) if job.state.alive]


def ask_target(
    cluster: Cluster, job: JobSpec, known: ClusterFacts, source: Cluster | None
) -> ClusterFacts:
    """Return a cluster's facts with the obstacles to a submission now, as far as it says them."""
    if job.submit is None or job.flink is None:
        return known
    try:
        findings = (*_of_jar(cluster, job), *_of_slots(cluster, job, source))
    except ClusterError:
        return known
    if source is None and job.is_known_by_files and _tells(cluster, "live"):
        known = _with_live_jobs(cluster, job, known)
    given = cast(AsksFlink, cluster).given_settings() if _tells(cluster, "given_settings") else {}
    return replace(known, findings=(*known.findings, *findings), settings=given)


def _of_jar(cluster: Cluster, job: JobSpec) -> tuple[Finding, ...]:
    assert job.submit is not None, "only a job that is to be started"
    id = job.submit.options.get("jar_id")
    if id is None or not _tells(cluster, "jars"):
        return ()
    jars = cast(AsksFlink, cluster).jars()
    if jars is None or str(id) in jars:
        return ()
    names = ", ".join(sorted(jars)) or "none"
    hint = f'jars there: {names}; or "jar" names a file here, which is uploaded'
    return (refuse(f"{cluster.name} has no jar {str(id)!r}", hint=hint),)


def _of_slots(cluster: Cluster, job: JobSpec, source: Cluster | None) -> tuple[Finding, ...]:
    assert job.submit is not None, "only a job that is to be started"
    wanted = job.submit.options.get("parallelism")
    if not isinstance(wanted, int) or not _tells(cluster, "slots"):
        return ()
    slots = cast(AsksFlink, cluster).slots()
    if slots is None or slots.on_demand:
        return ()
    free = slots.free
    if source is not None:
        url = _url(source)
        has_same_url = url != "" and url == _url(cluster)
        if source.name == cluster.name or has_same_url:
            free += _slots_given_back(job, source)
    if wanted <= free:
        return ()
    message = (
        f"{job.name} is to run with parallelism {wanted}, and {cluster.name} has {free} free "
        f"slots of {slots.all}"
    )
    if slots.adaptive and free > 0:
        return (warn(f"{message}: its adaptive scheduler starts it with fewer"),)
    hint = (
        f'a "parallelism" up to {free}, or more TaskManagers; or, where there will be '
        f'enough by then, "waive": ["{SLOTS}"]'
    )
    return (refuse(message, SLOTS, hint),)


def _slots_given_back(job: JobSpec, source: Cluster) -> int:
    assert job.flink is not None, "a spec that is checked"
    is_ended = job.moves and job.flink.cancel_job is not False
    if not is_ended or not _tells(source, "running"):
        return 0
    slots = 0
    for id in job.image_writers:
        for running in cast(AsksFlink, source).running(id):
            if running.state is JobState.RUNNING:
                # A job has as many slots as its widest vertex has subtasks.
                slots += max((count for _, count, _ in running.vertices.values()), default=0)
    return slots


def _url(cluster: Cluster) -> str:
    return str(getattr(cluster, "options", {}).get("url", "")).rstrip("/")


def _tells(cluster: Cluster, question: str) -> bool:
    return callable(getattr(cluster, question, None))


# ---- brokers

Topics = dict[str, dict[int, int]]


def ask_positions(survey: Survey, outside: Outside) -> tuple[NewPosition, ...]:
    """Return the new positions of the sources that the job repositions."""

    def locate(change: Reposition) -> Endpoint | None:
        if not is_readable(survey):
            _look_ahead(change, outside)
            return None
        image = survey.images[0]
        return endpoint_of(image.endpoints, _by_index(image, change))

    def translate(change: Reposition, endpoint: Endpoint) -> NewPosition:
        return _position(survey, change, endpoint, outside)

    return positions_of(outside, locate, translate)


def _look_ahead(change: Reposition, outside: Outside) -> None:
    """Refuse brokers that do not answer, topics that they do not have, folders without files, and
    tables that are none, before a job stops: its savepoint tells the rest.
    """
    kafka = outside.job.kafka
    if change.table is not None:
        snapshot_search(change, change.source or "", 0, outside.opening)
    if change.root is not None:
        look_at_root(change, outside.opening)
    if kafka is None or change.by is None:
        return
    with outside.open_topics(kafka.bootstrap_servers, kafka.properties) as new:
        for old_name, name in change.topics.items():
            if not new.spans(name):
                raise RefusedError(
                    f"{new.brokers} has no topic {name}",
                    f'name it: --topic {old_name}=TOPIC (in a spec, "topics")',
                )


def _by_index(image: Image, change: Reposition) -> Reposition:
    """Return the change with its source called as the image calls it: by uid, else name, else id.

    Raises RefusedError where several operators are called so.
    """
    if change.source is None:
        return change
    called = [operator.uid or operator.name or operator.id for operator in image.operators]
    source = change.source
    for index, operator in zip(called, image.operators, strict=True):
        if change.source == operator.name or id_of(change.source) == operator.id:
            source = index
    if called.count(source) > 1:
        raise RefusedError(
            f"several operators are called {change.source}",
            "give each a uid in the job, and take another savepoint",
        )
    return replace(change, source=source)


def _position(
    survey: Survey, change: Reposition, endpoint: Endpoint, outside: Outside
) -> NewPosition:
    source = endpoint.index
    if change.table is not None:
        return _snapshot_position(survey, change, endpoint, outside)
    if change.root is not None:
        return file_position(survey, change, endpoint, outside)
    _require_topics(endpoint)
    found = topics_elsewhere(TopicSource(source, change, _read(endpoint)), outside)
    findings = tuple(chain.from_iterable(each.findings for each in found))
    if not all(each.read for each in found):
        return NewPosition(source, endpoint.kind, findings=findings)
    offsets = {each.topic: dict(sorted(each.read.items())) for each in found}
    return NewPosition(
        source,
        endpoint.kind,
        replace(endpoint, offsets=offsets, details={"offsets": offsets}),
        _offsets_of(survey, source, NewOffsets(change.topics, offsets), outside),
        tuple(chain.from_iterable(each.changes for each in found)),
        findings,
    )


def _offsets_of(survey: Survey, source: str, new: NewOffsets, outside: Outside) -> dict[int, str]:
    """Return the new offsets as a position has them. Whatever rewriting the source's operator
    raises is why they cannot be.
    """
    image = survey.images[0]
    streams = Streams(outside.opening(survey.location).chunks, places_of(image))
    for operator in metadata_of(image).operators:
        if source == (operator.uid or operator.name or operator.id.hex()):
            rewrite_operator(operator, streams, new)
    return {image.epoch or 0: json.dumps(new.plain(), separators=(",", ":"))}


def _snapshot_position(
    survey: Survey, change: Reposition, endpoint: Endpoint, outside: Outside
) -> NewPosition:
    """Return the position of a source of Iceberg in another table."""
    source, details = endpoint.index, endpoint.details
    last, unread = details["snapshot_id"], details["splits"]
    if last is None:
        raise RefusedError(
            f"source {source} has found no snapshot in its table yet",
            "start the job from this image as it is: it reads another table from its first "
            "snapshot on",
        )
    if unread:
        raise RefusedError(
            f"source {source} has unread splits ({unread:,}), which name files of the table that "
            "it has read",
            "take the savepoint when the source is idle: let nobody write to the table until the "
            "job has read it to its end",
        )
    search = snapshot_search(change, source, last, outside.opening)
    snapshot = search.equal_snapshot()
    counts, proof = search.proof(snapshot)
    texts: dict[int, str] = {}
    if snapshot.id != last:
        new = NewOffsets({}, {}, snapshot=(snapshot.id, snapshot.time_ms))
        texts = _offsets_of(survey, source, new, outside)
    after = {**details, "snapshot_id": snapshot.id, "time_ms": snapshot.time_ms}
    return NewPosition(
        source,
        endpoint.kind,
        replace(endpoint, details=after),
        texts,
        (PositionChange(source, search.location, last, snapshot.id, *counts),),
        (proof, *search.unreadable()),
    )


def _read(endpoint: Endpoint) -> Topics:
    """Return topic -> partition -> the next offset, of the partitions that the job reads."""
    details, source = endpoint.details, endpoint.index
    topics: Topics = {topic: dict(read) for topic, read in details["offsets"].items()}
    unassigned = frozenset(details.get("unassigned") or ())
    for topic, partitions in (details.get("marks") or {}).items():
        own = topics.setdefault(topic, {})
        for number, mark in partitions.items():
            if mark == EARLIEST:
                own[int(number)] = 0
            elif f"{topic}/{number}" not in unassigned:
                raise RefusedError(
                    f"source {source} has no position in {topic}/{number} yet ({mark})",
                    "let the job read something of it first",
                )
    if not topics:
        raise RefusedError(
            f"the state of source {source} names no topic",
            "take a savepoint while the job reads. A FlinkKafkaConsumer that is stopped with a "
            "savepoint may leave no positions in it",
        )
    return topics


def _require_topics(endpoint: Endpoint) -> None:
    """Refuse a source whose state says more than partitions and offsets of one cluster."""
    details, source = endpoint.details, endpoint.index
    unread = details.get("enumerator")
    if unread == DYNAMIC:
        raise RefusedError(
            f"source {source} is a DynamicKafkaSource, whose clusters cannot be replaced",
            "its metadata service says which clusters it reads: change that",
        )
    if unread:
        raise RefusedError(
            f"the enumerator of source {source} cannot be read: {unread}",
            "let the job read on where it is",
        )
    for topic, partitions in (details.get("ends") or {}).items():
        for number, end in partitions.items():
            if isinstance(end, int):
                raise RefusedError(
                    f"source {source} ends at {end} in {topic}/{number}, which is no place in "
                    "another topic",
                    "let the job read to its end where it is",
                )

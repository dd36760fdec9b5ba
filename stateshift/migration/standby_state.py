"""The state file of a standby at its target: a machine there needs nothing else to start it. And
the bound of the spec on what would be lost.

The file is written after each image, and outside of plans: a run that is killed in between leaves
the file of the image before, which tells less than there is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from shlex import quote

from stateshift.clusters.protocol import StopRequest
from stateshift.dataflow.cuts import writers_for
from stateshift.errors import FormatError, StateshiftError
from stateshift.formats.standby import (
    STATE,
    KeptEpoch,
    KeptImage,
    OtherStandby,
    ReadUpTo,
    StandbyState,
    encode_state,
)
from stateshift.journal import ImageKept, RpoJudged
from stateshift.migration.context import RunContext
from stateshift.migration.gathering import image_of_epoch, names_before, under_names_now
from stateshift.migration.notifications import tell_rpo
from stateshift.plain import JsonObject
from stateshift.sources.kafka import remember
from stateshift.specification import JobSpec, Spec, to_plain_spec
from stateshift.specification.standby import is_startable, spec_again, spec_at_target, spec_home
from stateshift.step.claims import state_at
from stateshift.storage.protocol import Storage
from stateshift.survey import Facts, Image
from stateshift.terms import moment, terms_of

SECONDS_BETWEEN_JUDGEMENTS = 1.0

_log = logging.getLogger(__name__)

AGAIN = "standby.json"


def kept_images(
    context: RunContext, job: JobSpec, facts: Facts, known: Iterable[Image]
) -> tuple[Image, ...]:
    """Return the images that the state file at the target names, as far as they are there: none of
    their files goes while it names them. Those that are `known` are not looked for again.
    """
    storage = context.world.storage(job.destination)
    state = _readable_state(storage)
    if state is None:
        return facts.shown
    shown: dict[int | None, Image] = {}
    for image in facts.shown:
        if image.epoch is not None:
            # A later one takes the names of some of its files.
            shown[image.epoch] = under_names_now(image, names_before(storage, image.epoch))
    found = {image.epoch: image for image in known} | shown
    images: list[Image] = []
    for kept in state.kept:
        there = found.get(kept.epoch)
        if there is None:
            opening = context.world.storage
            there = image_of_epoch(context.engine, storage.location, opening, kept.epoch)
        if there is not None:
            images.append(there)
    named = {image.epoch for image in images}
    return (*images, *(image for epoch, image in shown.items() if epoch not in named))


def _readable_state(storage: Storage) -> StandbyState | None:
    """Return the state at a target; None also of one that is damaged: it is written anew."""
    try:
        return state_at(storage)
    except FormatError:
        return None


def _earlier(storage: Storage, images: Iterable[Image], epoch: int | None) -> list[KeptEpoch]:
    """Return the epoch that is kept beside the newest: the newest of these images that was read to
    its end, or else the newest of them, if it is earlier and still there.
    """
    state = _readable_state(storage)
    if state is None or epoch is None:
        return []
    image_of = {image.epoch: image for image in images}
    found: list[KeptEpoch] = []
    for kept in state.kept:
        image = image_of.get(kept.epoch)
        if image is None or kept.epoch >= epoch:
            continue
        if all(storage.stat(path) is not None for path in image.first_read):
            found.append(kept)
    checked = [kept for kept in found if kept.checked]
    return (checked or found)[:1]


@dataclass(frozen=True, slots=True)
class Publication:
    """An image of a standby that is published: when the source had nothing newer; whether it was
    read to its end; how far the writers of what the job reads were by then.
    """

    as_of: float
    checked: bool
    read_up_to: tuple[ReadUpTo, ...] = ()


def announce_images(
    context: RunContext, job: JobSpec, facts: Facts, publication: Publication
) -> None:
    """Write down at the target which epochs are published next, beside those that are kept: whoever
    finds one of them there before `tell_standby` knows when the source had written it.
    """
    storage, newest = context.world.storage(job.destination), _common_epoch(facts)
    state, now = _readable_state(storage), context.now()
    if state is None or state.epoch is None or newest is None:
        return
    coming = []
    for epoch, written_at in sorted(context.engine.times_written(facts.source).items()):
        if state.epoch < epoch <= newest:
            checked = publication.checked and epoch == newest
            coming.append(KeptEpoch(epoch, written_at, now, checked, publication.read_up_to))
    _write_state(storage, replace(state, coming=tuple(coming)))


def tell_standby(context: RunContext, job: JobSpec, facts: Facts, publication: Publication) -> None:
    """Write down, here and at the target, which image of a standby was published. The images in
    `facts.kept` were there before, and still are unless they were hidden for it.
    """
    as_of = publication.as_of
    images = tuple(
        KeptImage(image.path, image.epoch, image.identity) for image in facts.source.images
    )
    epoch = _common_epoch(facts)
    committed_at = _written_at(context, facts)
    storage = context.world.storage(job.destination)
    home = spec_home(context.spec, job)
    state = StandbyState(
        job=job.name,
        engine=context.spec.engine,
        location=job.destination,
        source=facts.source.location,
        epoch=epoch,
        images=images,
        committed_at=committed_at,
        at=context.now(),
        run=context.world.run,
        spec=to_plain_spec(spec_at_target(context.spec, job, context.world.run)),
        as_of=as_of,
        rpo_seconds_max=job.standby.rpo,
        checked=publication.checked,
        earlier=tuple(_earlier(storage, facts.kept, epoch)),
        reads_from=tuple(writers_of(context.spec, job)),
        read_up_to=publication.read_up_to,
        records=_records_read(context, job, facts),
        home=to_plain_spec(home) if is_startable(home) else None,
    )
    _write_state(storage, state)
    context.record(ImageKept(context.now(), job.name, epoch, committed_at, as_of, job.standby.rpo))


def _common_epoch(facts: Facts) -> int | None:
    """Return the epoch of all images at the source; None where they differ."""
    epochs = {image.epoch for image in facts.source.images}
    return epochs.pop() if len(epochs) == 1 else None


def _write_state(storage: Storage, state: StandbyState) -> None:
    content = encode_state(state)
    storage.write(STATE, lambda: iter((content,)))
    storage.sync()


def writers_of(spec: Spec, job: JobSpec) -> Iterator[OtherStandby]:
    """Yield the other standbys of a spec whose jobs write what this one reads."""
    standbys = {other.name: other for other in spec.jobs if other.is_standby}
    if spec.dataflow is not None:
        for name in writers_for(spec.dataflow, job.name, standbys.keys() - {job.name}):
            yield OtherStandby(name, standbys[name].destination)


def _records_read(context: RunContext, job: JobSpec, facts: Facts) -> JsonObject | None:
    """Return the records around the offsets of a job that reads on at other brokers after a
    failover: nobody can ask for them then. None if there is no such job, or nobody can ask now.
    """
    adapters, kafka = context.adapters, job.kafka
    if not job.transform or kafka is None or kafka.source_bootstrap_servers is None:
        return None
    brokers = kafka.source_bootstrap_servers
    try:
        read = context.engine.offsets_read(job, facts.source, adapters.open_storage)
        with adapters.open_topics(brokers, kafka.source_properties) as reader:
            return remember(reader, read)
    except StateshiftError as error:
        context.say(
            f"{job.name}: {error.fact}: what this image has read last is not kept beside it, and a "
            f"failover from it has to ask {brokers}"
        )
        return None


def forget_state(context: RunContext, job: JobSpec) -> None:
    """Remove the state file at the target, before the images that it names are hidden."""
    storage = context.world.storage(job.destination)
    storage.remove(STATE)


def _written_at(context: RunContext, facts: Facts) -> float | None:
    """Return the time at which the source had written its image."""
    times = context.engine.times_written(facts.source)
    epoch = _common_epoch(facts)
    if epoch is not None and epoch in times:
        return times[epoch]
    wanted: set[str] = set()
    for image in facts.source.images:
        wanted.update(image.first_read)
    found = [file.modified for file in facts.source.files if file.path in wanted]
    return max(found, default=None)


class RpoWatch:
    """The bounds on what standbys would lose. Each is passed once the source is known to have gone
    on, or cannot be asked, for longer than the bound. That is told once, and once that it is kept
    again; a resumed run does not repeat it. A second thread judges while a round takes its time.
    """

    def __init__(self, context: RunContext, jobs: Sequence[JobSpec]) -> None:
        self._context, self._lock = context, threading.Lock()
        self._bounds = {job.name: job.standby.rpo for job in jobs if job.standby.rpo is not None}
        self._as_of = {}
        for name, kept in context.progress.kept.items():
            if kept.as_of is not None:
                self._as_of[name] = kept.as_of

    def as_of(self, job: str) -> float | None:
        """Return the last time at which the source of a standby had nothing newer."""
        return self._as_of.get(job)

    def is_level(self, job: str, at: float) -> None:
        """Note that the source of a standby had nothing newer at this time."""
        self._as_of[job] = at
        self.judge()

    def judge(self) -> None:
        """Tell the bounds that are passed now, or kept again."""
        with self._lock:
            now = self._context.now()
            for name, bound in self._bounds.items():
                as_of = self._as_of.get(name)
                was_kept = name not in self._context.progress.rpo_passed
                if as_of is not None and was_kept != (now - as_of <= bound):
                    self._tell(name, bound, as_of, not was_kept)

    def _tell(self, name: str, bound: float, as_of: float, is_kept: bool) -> None:
        """Killed in between, it is told once more: better than never."""
        context, image = self._context, self._context.progress.kept[name]
        terms = terms_of(context.spec.engine)
        has = terms.at_each if image.epoch is None else f"{terms.at} {image.epoch}"
        lost = f"{bound:g} s of its work would be lost"
        if is_kept:
            line = f"no more than {lost} (`rpo`) again: its standby has {has}"
        else:
            line = (
                f"more than {lost} (`rpo`): its standby has {has}, and the source has gone on, or "
                f"gives no answer, since {moment(as_of)}"
            )
        context.say(f"{name}: {line}")
        tell_rpo(context, name, line, is_kept)
        context.record(RpoJudged(context.now(), name, is_kept))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Judge again and again, also while a storage gives no answer."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(SECONDS_BETWEEN_JUDGEMENTS):
                try:
                    self.judge()
                except StateshiftError as error:  # the journal's disk is full: tried again
                    _log.warning("the bound of a standby could not be judged: %s", error.fact)

        watcher = threading.Thread(target=watch, name="rpo", daemon=True)
        if self._bounds:
            watcher.start()
        try:
            yield
        finally:
            over.set()
            if self._bounds:
                watcher.join()


def offer_standby(context: RunContext, job: JobSpec) -> None:
    """Write the spec of a standby where a job has come home from, and say how it is kept."""
    if job.takes_back is None:
        return
    if job.image_writers:
        cluster = context.world.cluster(job.target_cluster or "")
        id = cluster.find_source(StopRequest(job.name, job.destination)).id
        job = job.written_by((id or "",))
    context.workdir.write(AGAIN, to_plain_spec(spec_again(context.spec, job)))
    file = quote(str(context.workdir.path / AGAIN))
    context.say(
        f"{job.name} is home. To keep a standby at {job.source} again: stateshift apply {file} "
        "--continuous --yes"
    )

"""Failover and failback from a program and for the command: a job is started from its standby, and
goes home again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from stateshift.documents.standby import FencedFacts, StandbyFacts
from stateshift.errors import JournalError, PlanError, SpecError, StateshiftError, StorageError
from stateshift.specification import Spec
from stateshift.specification.location import relation
from stateshift.specification.model import WAIVERS
from stateshift.standby.location import (
    Standby,
    failback_spec,
    failover_spec,
    find_standby,
    joint_spec,
    spec_of,
)
from stateshift.step.claims import takeover_error
from stateshift.step.evidence import PrimaryFenced
from stateshift.step.take_over import Successor
from stateshift.storage import locations
from stateshift.suggestion import did_you_mean
from stateshift.survey import first_unread_of

if TYPE_CHECKING:
    from stateshift.api.requests import SpecLike
    from stateshift.api.runs import PathLike, Watch
    from stateshift.api.values import RunResult
    from stateshift.migration import Adapters


ASK_SECONDS_MAX = 10.0  # for a source whose region may be dark
# Between two attempts to fence a primary.
PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 30.0


def failover(
    place: PathLike,
    *others: PathLike,
    epoch: int | Mapping[str, int] | None = None,
    primary_is_down: bool = False,
    waive: Sequence[str] = (),
    workdir: PathLike | None = None,
    progress: Watch | None = None,
    stop: threading.Event | None = None,
    adapters: Adapters | None = None,
) -> RunResult:
    """Start a job from its standby, or several at one cut. Nobody is asked.

    Args:
        place: where the standby is, or the workdir of the run that keeps it and others.
        others: more of them.
        epoch: which of those that the standby keeps the job is started from; of several by their
            locations. None: the newest, or of several those of the newest cut.
        primary_is_down: the primary is not asked: its job does not run, and cannot come back.
        waive: refusals that the caller takes responsibility for, beside those of the spec.
        workdir: as `apply` takes it.
        progress: likewise.
        stop: likewise.
        adapters: how storages and clusters are reached, where a test has its own.

    Returns:
        How the run ended; `failover` of each of `report.jobs` says what was lost.

    Raises:
        PlanError: there is no standby, it cannot be started from, or its primary cannot be fenced.
        OtherRunError: it was taken over already.
        StateshiftError: what else went wrong, as `apply` has it.
    """
    from stateshift import migration
    from stateshift.api.runs import apply

    reached = adapters or migration.real_adapters()
    standbys = standbys_at([os.fspath(each) for each in (place, *others)], reached)
    for standby in standbys:
        if standby.is_taken_over:
            raise takeover_error(standby.location, standby.claim)
    if isinstance(epoch, int):
        epoch = {standby.location: epoch for standby in standbys}
    spec = with_waivers(spec_of_failover(standbys, primary_is_down, epoch or {}), waive)
    return apply(spec, workdir=workdir, progress=progress, stop=stop, adapters=adapters)


def spec_of_failover(
    standbys: Sequence[Standby], primary_is_down: bool, epochs: Mapping[str, int]
) -> Spec:
    """Return the spec that starts the jobs of these standbys, from the epochs that are named.

    Raises:
        SpecError: an epoch is named for a place that is none of them.
        PlanError: as `failover_spec`; or they cannot be in one run.
    """
    epoch_of: dict[str, int] = {}
    for place, epoch in epochs.items():
        location = locations.normal(place, os.getcwd())
        meant = [each.location for each in standbys if relation(each.location, location) == "same"]
        if not meant:
            named = ", ".join(each.location for each in standbys)
            raise SpecError.of("--epoch", f"{place} is none of the standbys", place, named)
        epoch_of[meant[0]] = epoch
    specs = []
    for standby in standbys:
        specs.append(failover_spec(standby, primary_is_down, epoch_of.get(standby.location)))
    return joint_spec(specs)


def standbys_at(places: Sequence[str], adapters: Adapters) -> list[Standby]:
    """Return the standbys at these locations, and of the runs in these workdirs, each once.

    Raises:
        PlanError, FormatError, StorageError: as `standby_at`.
    """
    found: dict[str, Standby] = {}
    for place in places:
        for location in _locations_of(place):
            standby = _standby_there(location, adapters)
            found[standby.location.rstrip("/")] = standby
    return list(found.values())


def standby_at(place: str, adapters: Adapters) -> Standby:
    """Return the standby at a location, or of the run in a workdir.

    Raises:
        PlanError: there is none; or the run has several.
        FormatError: its files are damaged, or of a version that is not known here.
        StorageError: the location cannot be read.
    """
    held = _locations_of(place)
    if len(held) > 1:
        hint = f"name one of them: {', '.join(held)}"
        raise PlanError(f"the run in {place} has {len(held)} standbys", hint=hint)
    return _standby_there(held[0], adapters)


def _standby_there(location: str, adapters: Adapters) -> Standby:
    found = find_standby(adapters.open_storage(location))
    if found is not None:
        return found
    raise PlanError(
        f"there is no standby at {location}: it has no _stateshift/standby.json",
        hint="`stateshift apply --continuous` keeps one, from its first image on; "
        f"`stateshift inspect {location}` tells what is there",
    )


def _locations_of(place: str) -> list[str]:
    from stateshift import migration
    from stateshift.workdir import Workdir

    if "://" in place or not Workdir(place).exists:
        return [locations.normal(place, os.getcwd())]
    targets = [job.destination for job in migration.spec_of(Workdir(place)).jobs if job.is_standby]
    if not targets:
        raise PlanError(f"the run in {place} has no standby")
    return targets


def with_waivers(spec: Spec, names: Sequence[str]) -> Spec:
    """Return the spec whose jobs waive these findings, too.

    Raises:
        SpecError: one of them is no name of a finding.
    """
    for name in names:
        if name not in WAIVERS:
            message = f"nothing is waived by {name!r}{did_you_mean(name, WAIVERS)}"
            raise SpecError.of("--waive", message, expected=f"some of {', '.join(WAIVERS)}")
    jobs = [replace(job, waive=(*job.waive, *names)) for job in spec.jobs]
    return replace(spec, jobs=tuple(jobs))


def standby_now(standby: Standby, adapters: Adapters) -> StandbyFacts:
    """Return a standby, how far its source is ahead, and what its job would read, as far as the
    source's storage and the brokers answer in time.
    """
    now = adapters.clock.now()
    if standby.is_taken_over:
        return StandbyFacts(standby, now)
    ahead = _AnswerInTime(lambda: _batches_ahead(standby, adapters))
    unread = _AnswerInTime(lambda: _records_unread(standby, adapters))
    return StandbyFacts(standby, now, ahead.wait(), unread.wait())


class _AnswerInTime:
    """A question to a region that may be dark, put at once."""

    def __init__(self, question: Callable[[], int | None]) -> None:
        self._answer: int | None = None
        self._question = question
        self._until = time.monotonic() + ASK_SECONDS_MAX
        self._asking = threading.Thread(target=self._ask, name="ask-source", daemon=True)
        self._asking.start()

    def _ask(self) -> None:
        with suppress(StateshiftError):
            self._answer = self._question()

    def wait(self) -> int | None:
        """Return the answer; None where there is none in time."""
        self._asking.join(max(0.0, self._until - time.monotonic()))
        return self._answer


def _batches_ahead(standby: Standby, adapters: Adapters) -> int | None:
    """Return the number of batches that the source is ahead, by its storage. None where another
    job's image is there, or where files do not tell it: the newest checkpoint of Flink is its
    cluster's to name.
    """
    from stateshift.engines.registry import engine

    state = standby.state
    _, job = spec_of(standby)
    if not job.writes_at_source:
        return None
    _, survey = engine(state.engine).survey(state.source, adapters.open_storage)
    newest = {image.identity: image.epoch for image in survey.images}
    ahead = 0
    for image in state.images:
        epoch = newest.get(image.identity)
        if epoch is None or image.epoch is None or epoch < image.epoch:
            return None
        ahead += epoch - image.epoch
    return ahead


def _records_unread(standby: Standby, adapters: Adapters) -> int | None:
    """Return the number of records that the brokers of the standby have after its offsets."""
    from stateshift.engines.registry import engine
    from stateshift.migration.gathering import ask_brokers

    _, job = spec_of(standby)
    if job.transform:  # where it would read on is found by a failover
        return None
    _, survey = engine(standby.state.engine).survey(standby.location, adapters.open_storage)
    unread = first_unread_of(survey.images)
    topics = ask_brokers(job, unread, adapters)
    return None if topics is None else topics.records_after(unread)


def follow_primaries(
    places: Sequence[str],
    adapters: Adapters,
    say: Callable[[str], None] = lambda line: None,
    seconds_max: float | None = None,
) -> Iterator[FencedFacts]:
    """Fence the primaries of failovers, each as soon as it answers. It is tried again and again,
    each time after a longer pause.

    Args:
        places: where the jobs run now, or the workdirs of the runs that kept the standbys.
        adapters: how storages and clusters are reached.
        say: told why it does not work yet, once for each reason.
        seconds_max: how long to go on trying; 0: once.
    Yields:
        Each primary that is fenced.
    Raises:
        PlanError: no failover has claimed the place, or nothing could ever fence its primary.
        StorageError, JournalError: as `fence_again`, when the time is over.
    """
    clock, pause = adapters.clock, PAUSE_SECONDS
    until = float("inf") if seconds_max is None else clock.now() + seconds_max
    said: set[str] = set()
    refusals: list[PlanError] = []
    pending = [standby.location for standby in standbys_at(places, adapters)]
    while True:
        failures: dict[str, StateshiftError] = {}
        for place in pending:
            try:
                standby = _standby_there(place, adapters)
                yield FencedFacts(standby, fence_again(standby, adapters))
            except (StorageError, JournalError) as error:
                failures[place] = error
            except PlanError as error:  # of this one alone
                refusals.append(error)
        if not failures:
            break
        pending = list(failures)
        if clock.now() + pause > until:
            raise failures[pending[0]]
        for failure in failures.values():
            if failure.fact not in said:
                said.add(failure.fact)
                say(f"{failure.fact}; trying again")
        clock.sleep(pause)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)
    if refusals:
        raise refusals[0]


def fence_again(standby: Standby, adapters: Adapters) -> PrimaryFenced:
    """Keep the primary of a finished failover from going on, once it answers. Done again, nothing
    changes.

    Raises:
        PlanError: no failover has claimed the place, or nothing could ever fence its primary.
        JournalError: the failover is not finished.
        StorageError: the primary still gives no answer.
    """
    from stateshift.migration import world_of
    from stateshift.migration.take_over import fence_step
    from stateshift.workdir import Workdir

    by = standby.claim
    if by is None or not standby.is_taken_over:
        raise PlanError(
            f"no failover has started {standby.state.job} at {standby.location}: there is no "
            "primary to fence",
            hint=f"stateshift failover {quote(standby.location)}   # starts it there",
        )
    refuse_unfinished(standby, adapters)
    spec, job = spec_of(standby)
    state = standby.state
    successor = Successor(state.engine, standby.location, standby.epoch, by.host, by.workdir)
    step = fence_step(job, successor)
    if step is None:
        raise PlanError(f"the state file at {standby.location} names no primary")
    fenced = step.run(world_of(spec, by.run, Workdir(by.workdir), adapters))
    assert isinstance(fenced, PrimaryFenced), "the evidence of this step"
    if not fenced.cannot_go_on and not fenced.why and step.cluster is None:
        raise PlanError(
            f"nothing keeps the primary of {job.name} from going on: its files do not, and the "
            "standby's spec has no `source_cluster`",
            hint=f"make sure that the job does not run at {step.location}",
        )
    if not fenced.cannot_go_on or (fenced.why and not fenced.paths):
        raise StorageError(
            f"the primary of {job.name} still cannot be kept from going on: {fenced.why}",
            location=step.location,
            hint="the same command again, once it answers: by cron, for example",
        )
    return fenced


def refuse_unfinished(standby: Standby, adapters: Adapters) -> None:
    """Refuse a standby whose failover is not finished.

    Raises:
        JournalError: its run holds the lock on the location still.
    """
    from stateshift import lock

    by = standby.claim
    assert by is not None, "a failover has claimed it"
    parent = adapters.open_storage(locations.parent(standby.location))
    try:
        lock.refuse_held(parent, locations.name(standby.location))
    except JournalError as error:
        raise error.with_hint(
            f"it was not finished; on {by.host}: stateshift resume {by.workdir}"
        ) from error


def failback(
    place: PathLike,
    *,
    spec: SpecLike | None = None,
    waive: Sequence[str] = (),
    workdir: PathLike | None = None,
    progress: Watch | None = None,
    stop: threading.Event | None = None,
    adapters: Adapters | None = None,
) -> RunResult:
    """Move a job home from its standby, where it runs since a failover. Nobody is asked.

    Args:
        place: where the standby is, or the workdir of the run that kept it.
        spec: the spec that kept the standby, where its state file does not say how the job is
            started at home.
        waive: refusals that the caller takes responsibility for, beside those of the spec.
        workdir: as `apply` takes it.
        progress: likewise.
        stop: likewise.
        adapters: how storages and clusters are reached, where a test has its own.

    Returns:
        How the run ended. `standby.json` in its workdir keeps a standby where the job came from.

    Raises:
        PlanError: the job does not run at a standby; nobody knows how it is started at home; or it
            may run there.
        OtherRunError: another run takes it home.
        StateshiftError: what else went wrong, as `apply` has it.
    """
    from stateshift import migration
    from stateshift.api.runs import apply

    reached = adapters or migration.real_adapters()
    standby = standby_at(os.fspath(place), reached)
    wanted = with_waivers(spec_of_failback(standby, spec, reached), waive)
    return apply(wanted, workdir=workdir, progress=progress, stop=stop, adapters=adapters)


def spec_of_failback(standby: Standby, given: SpecLike | None, adapters: Adapters) -> Spec:
    """Return the spec that moves the job home.

    Raises:
        PlanError: as `failback`.
        JournalError: the failover is not finished.
    """
    from stateshift.api.requests import spec_of
    from stateshift.clusters.protocol import StopRequest
    from stateshift.workdir import Workdir

    own = None if given is None else spec_of(given)
    spec = failback_spec(standby, own)
    refuse_unfinished(standby, adapters)
    job = spec.jobs[0]
    if not job.image_writers:
        return spec
    assert job.source_cluster is not None, "a spec that is checked"
    cluster = adapters.open_cluster(spec.cluster(job.source_cluster), Workdir(os.curdir))
    status = cluster.find_source(StopRequest(job.name, job.source))
    if not status.state.alive or status.id is None:
        raise PlanError(
            f"{job.name} does not run on {job.source_cluster}: it is {status.state}",
            hint="only a job that runs is followed home; one that has ended is moved by a spec "
            "with the checkpoint it left: stateshift apply",
        )
    return replace(spec, jobs=(job.written_by((status.id,)),))

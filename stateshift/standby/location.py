"""A standby as its location tells of it, and the spec that starts its job there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stateshift import plain
from stateshift.errors import PlanError, SpecError
from stateshift.extensions import names_added
from stateshift.formats.standby import STATE, Claim, StandbyState
from stateshift.plain import JsonObject
from stateshift.specification import JobSpec, Spec, parse_spec
from stateshift.specification.location import relation
from stateshift.specification.model import TakeBack
from stateshift.specification.standby import is_startable, spec_home
from stateshift.step.claims import newest_claim, state_at, takeover_error
from stateshift.storage.protocol import Storage
from stateshift.terms import terms_of


@dataclass(frozen=True, slots=True)
class Standby:
    """A standby: its state as the last round has left it, and who may write there."""

    location: str
    state: StandbyState
    claim: Claim | None

    @property
    def epoch(self) -> int | None:
        """The epoch that the job was started from by a failover, or would be."""
        started = None if self.claim is None else self.claim.epoch
        return self.state.epoch if started is None else started

    @property
    def is_taken_over(self) -> bool:
        """Whether a failover has claimed it."""
        return self.claim is not None and self.claim.verb == "failover"


def find_standby(storage: Storage) -> Standby | None:
    """Return the standby at a location; None where there is none.

    Raises:
        FormatError: its files are damaged, or of a version that is not known here.
    """
    state = state_at(storage)
    return None if state is None else Standby(storage.location, state, newest_claim(storage))


def spec_of(standby: Standby) -> tuple[Spec, JobSpec]:
    """Return the spec in the state file, and its one job, which takes over.

    Raises:
        PlanError: the state file is of another place, or holds no spec that could be carried out.
    """
    state, path = standby.state, _path_of(standby)
    spec = _parsed(standby, state.spec)
    job = spec.jobs[0]
    is_meant = len(spec.jobs) == 1 and job.takes_over is not None
    if not is_meant or relation(job.source, state.location) != "same":
        raise PlanError(f"the spec in {path} does not start a job from there")
    return spec, job


def failover_spec(standby: Standby, primary_is_down: bool, epoch: int | None = None) -> Spec:
    """Return the spec that starts the job at its standby.

    Args:
        standby: which has to be where its state file says that it is.
        primary_is_down: somebody says so, and the primary is not asked.
        epoch: the one to start from; the newest where nobody says.
    Raises:
        PlanError: as `spec_of`; or it does not say how the job is started, or does not keep the
            epoch.
    """
    spec, job = spec_of(standby)
    assert job.takes_over is not None, "a job of a standby"
    location = standby.state.location
    if job.submit is None or job.target_cluster is None:
        raise PlanError(
            f"{_path_of(standby)} does not say how {job.name} is started: the standby's spec has "
            "no `submit` or no `target_cluster`",
            hint=f"start it by hand from {location}; `stateshift verify {location} --deep` says "
            "from where",
        )
    claim = standby.claim
    if claim is not None and claim.verb in ("failback", "returned"):
        raise takeover_error(standby.location, claim)
    _refuse_not_kept(standby, epoch)
    before = 0 if claim is None else claim.generation
    take_over = replace(job.takes_over, generation=before + 1, epoch=epoch)
    if primary_is_down:
        take_over = replace(take_over, primary=None, cluster=None)
    return replace(spec, jobs=(replace(job, takes_over=take_over),))


def joint_spec(specs: Sequence[Spec]) -> Spec:
    """Return the spec that starts the jobs of several standbys together: one wave.

    Raises:
        PlanError: they cannot be in one run.
    """
    first, *others = specs
    jobs, clusters = list(first.jobs), {cluster.name: cluster for cluster in first.clusters}
    for spec in others:
        if (spec.engine, spec.uid_hash) != (first.engine, first.uid_hash):
            raise PlanError(
                f"{jobs[0].name} and {spec.jobs[0].name} are not of one engine",
                hint="stateshift failover LOCATION, for those of each engine",
            )
        for cluster in spec.clusters:
            if clusters.setdefault(cluster.name, cluster) != cluster:
                raise PlanError(
                    f"two standbys' specs have a cluster {cluster.name!r}, and not the same",
                    hint="stateshift failover LOCATION, for each of them",
                )
        jobs += spec.jobs
    names = [job.name for job in jobs]
    for name in names:
        if names.count(name) > 1:
            places = ", ".join(job.source for job in jobs if job.name == name)
            raise PlanError(
                f"two standbys are of a job {name!r}: {places}",
                hint="stateshift failover LOCATION, for each of them",
            )
    waves = (tuple(names),) if others else first.waves
    return replace(first, jobs=tuple(jobs), clusters=tuple(clusters.values()), waves=waves)


def _refuse_not_kept(standby: Standby, epoch: int | None) -> None:
    kept = [str(each.epoch) for each in standby.state.kept]
    if epoch is None or str(epoch) in kept:
        return
    terms = terms_of(standby.state.engine)
    has = f"{terms.at} {' and '.join(kept)}" if kept else f"one {terms.one} of each query"
    raise PlanError(
        f"{standby.location} keeps {has}, and not {epoch}",
        hint=f"stateshift status {standby.location}   # tells what it can be started from",
    )


def failback_spec(standby: Standby, own: Spec | None = None) -> Spec:
    """Return the spec that moves the job home from its standby.

    Args:
        standby: where the job runs since a failover.
        own: the spec by which the standby was kept, where the one in its state file is not enough.
    Raises:
        PlanError: the job does not run there; or nobody knows how it is started at home.
    """
    location, claim = standby.location.rstrip("/"), standby.claim
    if claim is None or claim.verb == "standby":
        raise PlanError(
            f"{standby.state.job} was not started from its standby at {location}: it has no home "
            "to go back to",
            hint=f"stateshift status {location}",
        )
    if claim.verb == "returned":
        raise PlanError(
            f"{standby.state.job} has gone home from {location} already",
            hint=f"stateshift status {claim.workdir}   # on {claim.host}",
        )
    if claim.verb == "failback":
        raise takeover_error(location, claim)
    spec = _home_of(standby, own)
    job = spec.jobs[0]
    if any(data.copy for data in job.data):
        raise PlanError(
            f"{job.name} has data that moves along, which is not set aside at home",
            hint="write a spec for a move by hand: from here to an empty place; then stateshift "
            "apply",
        )
    back = TakeBack(claim.generation + 1, standby.epoch)
    if job.flink is not None:  # its checkpoints have no place of their own that they go back to
        assert job.target is not None, "a job that goes home"
        job = replace(job, target=f"{job.target.rstrip('/')}/{job.name}-{back.generation}")
    return replace(spec, jobs=(replace(job, takes_back=back),))


def _home_of(standby: Standby, own: Spec | None) -> Spec:
    """Return the spec of the way home, by the state file or by the spec that fed the standby."""
    location, home = standby.location.rstrip("/"), standby.state.home
    if own is not None:
        kept = [job for job in own.jobs if job.mode == "warm"]
        fed = [job for job in kept if relation(job.destination, location) == "same"]
        if not fed:
            raise PlanError(f"no job of that spec keeps a standby at {location}")
        spec = spec_home(own, fed[0])
        if is_startable(spec):
            return spec
        home = None
    if home is None:
        raise PlanError(
            f"nobody knows how {standby.state.job} is started at {standby.state.source}: the "
            "standby's spec has no `source_cluster`, or no `submit`",
            hint=f"stateshift failback {location} --spec FILE   # the standby's spec, with both",
        )
    spec = _parsed(standby, home)
    job = spec.jobs[0]
    if len(spec.jobs) != 1 or job.mode != "warm" or relation(job.source, location) != "same":
        raise PlanError(f"the spec in {_path_of(standby)} does not move a job from there")
    return spec


def _parsed(standby: Standby, given: JsonObject) -> Spec:
    """Return a spec of the state file.

    Raises:
        PlanError: it is not valid, or the file is of another place.
    """
    state, path = standby.state, _path_of(standby)
    if relation(state.location, standby.location.rstrip("/")) != "same":
        raise PlanError(
            f"{path} tells of a standby at {state.location}: it was copied from there",
            hint=f"stateshift status {state.location}",
        )
    try:
        return parse_spec(plain.canonical(given), names_added=names_added)
    except SpecError as error:
        complaint = error.complaints[0]
        raise PlanError(
            f"the spec in {path} is not valid: {complaint.pointer}: {complaint.message}",
            hint="write a spec by hand: the job with this place as its checkpoint_location, and "
            "how it is started; then stateshift apply",
        ) from error


def _path_of(standby: Standby) -> str:
    return f"{standby.location.rstrip('/')}/{STATE}"

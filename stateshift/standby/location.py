"""A standby as its location tells of it, and the spec that starts its job there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stateshift import plain
from stateshift.errors import PlanError, SpecError
from stateshift.extensions import names_added
from stateshift.formats.standby import STATE, Claim, StandbyState
from stateshift.specification import JobSpec, Spec, parse_spec
from stateshift.specification.location import relation
from stateshift.step.claims import newest_claim, state_at
from stateshift.storage.protocol import Storage
from stateshift.terms import terms_of


@dataclass(frozen=True, slots=True)
class Standby:
    """A standby: its state as the last round has left it, and who may write there."""

    location: str
    state: StandbyState
    claim: Claim | None

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
    state = standby.state
    path = _path_of(standby)
    if relation(state.location, standby.location.rstrip("/")) != "same":
        raise PlanError(
            f"{path} tells of a standby at {state.location}: it was copied from there",
            hint=f"stateshift failover {state.location}",
        )
    try:
        spec = parse_spec(plain.canonical(state.spec), names_added=names_added)
    except SpecError as error:
        complaint = error.complaints[0]
        raise PlanError(
            f"the spec in {path} is not valid: {complaint.pointer}: {complaint.message}",
            hint="write a spec by hand: the job with this place as its checkpoint_location, and "
            "how it is started; then stateshift apply",
        ) from error
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
    _refuse_not_kept(standby, epoch)
    before = 0 if standby.claim is None else standby.claim.generation
    take_over = replace(job.takes_over, generation=before + 1, epoch=epoch)
    if primary_is_down:
        take_over = replace(take_over, primary=None, cluster=None)
    return replace(spec, jobs=(replace(job, takes_over=take_over),))


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


def _path_of(standby: Standby) -> str:
    return f"{standby.location.rstrip('/')}/{STATE}"

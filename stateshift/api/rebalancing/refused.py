"""Moves that have failed, remembered so that none is tried again in vain.

    FOLDER/refused/0007.json    {"jobs", "target", "spec", "fact", "at", "lasting"}

One that failed for its spec's reasons (a program that refuses its arguments, a class that is not
there) is not tried again, to any cluster, until the spec of its jobs is another. One that an outage
has ended is not tried again to that cluster until the cool-down is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stateshift import plain
from stateshift.advise.rebalance.decision import Move
from stateshift.api.rebalancing.folder import Folder, MoveRecord
from stateshift.api.rebalancing.request import RebalanceRequest
from stateshift.clusters.protocol import Silent
from stateshift.errors import Interrupted, JournalError, StateshiftError, StorageError
from stateshift.specification import Spec, to_plain_spec
from stateshift.workdir import Workdir

# Another attempt may meet another world.
_PASSING = (Silent, StorageError)
_UNTOLD = (Interrupted, JournalError)


@dataclass(frozen=True, slots=True)
class Refused:
    """A move that has failed; `spec` is the fingerprint of what the spec said of its jobs."""

    jobs: tuple[str, ...]
    target: str
    spec: str
    fact: str
    at: float
    lasting: bool


def remember(
    folder: Folder, request: RebalanceRequest, move: MoveRecord, error: StateshiftError, now: float
) -> None:
    """Write down that a move has failed, unless somebody has ended it."""
    if isinstance(error, _UNTOLD):
        return
    lasting = not isinstance(error, _PASSING)
    spec = _fingerprint(request.spec, move.jobs)
    refused = Refused(move.jobs, move.target, spec, error.fact, now, lasting)
    Workdir(folder.path).write(f"refused/{move.number:04}.json", plain.to_plain(refused))


def reason_against(folder: Folder, request: RebalanceRequest, move: Move, now: float) -> str | None:
    """Return the reason why a move is not tried now; None if there is none."""
    spec = _fingerprint(request.spec, move.jobs)
    for path in sorted((folder.path / "refused").glob("[0-9]*.json"), reverse=True):
        try:
            written = Workdir(folder.path).read(f"refused/{path.name}")
            refused: Refused = plain.from_plain(Refused, written)
        except (JournalError, plain.Misfit):
            continue
        if refused.jobs != move.jobs:
            continue
        if refused.lasting and refused.spec == spec:
            return f"its last move failed, and its spec is the same: {refused.fact}"
        is_recent = now - refused.at < request.section.cool_down
        if not refused.lasting and refused.target == move.target and is_recent:
            return f"its last move there failed, and the cool-down is not over: {refused.fact}"
    return None


def refused_numbers(folder: Folder) -> set[int]:
    """Return the numbers of all moves that have failed."""
    return {int(path.stem) for path in (folder.path / "refused").glob("[0-9]*.json")}


def _fingerprint(spec: Spec, jobs: tuple[str, ...]) -> str:
    """Return a short name for all that a spec says of these jobs, and of the clusters."""
    named = tuple(job for job in spec.jobs if job.name in jobs)
    written = to_plain_spec(replace(spec, jobs=named or spec.jobs, waves=(), dataflow=None))
    return plain.fingerprint([written.get("jobs"), written.get("clusters")])

"""The outcome of a run of `rebalance`: the decision, and the state of each move.

The views print this value, and nothing else. `decision` is None where nothing was decided: another
run is at work (`busy` says which), or a move of an earlier run comes first (`unfinished`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stateshift.advise.rebalance.decision import Decision

CarriedState = Literal["planned", "finished", "failed", "unfinished"]


@dataclass(frozen=True, slots=True)
class Carried:
    """A move, and its state.

    Args:
        number: counts the moves of all runs; it is in the name of the move's workdir.
        jobs: what moves, in one run of its own.
        source: the cluster that they leave.
        target: the cluster that gets them.
        state: "planned" in a dry run; "unfinished" for a move of an earlier run that has to go on.
        workdir: the folder of the move's run, for `status`, `resume` and `rollback`.
        downtime_seconds: how long the jobs were down, measured; None before the move is finished.
        fact: what went wrong, or what is to be done; "" if nothing is.
    """

    number: int
    jobs: tuple[str, ...]
    source: str
    target: str
    state: CarriedState
    workdir: str | None = None
    downtime_seconds: float | None = None
    fact: str = ""


@dataclass(frozen=True, slots=True)
class Cordon:
    """A cluster that nothing moves to: since a drain, or as the spec says (`since` is None)."""

    cluster: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Drained:
    """A cluster that was to be emptied, asked again at the end of the run.

    Args:
        cluster: its name in the spec.
        jobs: the jobs of the spec that it still holds, and why each stays.
        others: what runs there that the spec does not know, by its names.
        unknown: why the cluster cannot be asked; "" if it answers.
        note: what it does not tell, although it answers.
    """

    cluster: str
    jobs: tuple[tuple[str, str], ...] = ()
    others: tuple[str, ...] = ()
    unknown: str = ""
    note: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether the cluster says that nothing runs there any more."""
        return not (self.jobs or self.others or self.unknown)


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A run of `rebalance`.

    Args:
        decision: what was decided; None where nothing was.
        carried: the moves of this run, in the order of `decision.moves`.
        folder: where the run keeps what it knows; None for a decision that was made again from a
            file.
        file: where the decision and its inputs are kept; None where they are not.
        busy: which other run is at work; None if none is.
        unfinished: moves of earlier runs: those that this run has finished first, or that are to be
            finished.
        notes: what else should be known, a line each.
        inputs: all that the decision was made from, as `--replay` reads it.
        cordoned: the clusters that nothing moves to.
        drained: of each cluster that was to be emptied, what it holds.
    """

    decision: Decision | None
    carried: tuple[Carried, ...] = ()
    folder: str | None = None
    file: str | None = None
    busy: str | None = None
    unfinished: tuple[Carried, ...] = ()
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, object] | None = None
    cordoned: tuple[Cordon, ...] = ()
    drained: tuple[Drained, ...] = ()

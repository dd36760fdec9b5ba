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
    """A move, and its state."""

    number: int  # counts the moves of all runs; it is in the name of the move's workdir
    jobs: tuple[str, ...]  # what moves, in one run of its own
    source: str  # the cluster that they leave
    target: str  # the cluster that gets them
    # "planned" in a dry run; "unfinished" for a move of an earlier run that has to go on
    state: CarriedState
    # the folder of the move's run, for `status`, `resume` and `rollback`
    workdir: str | None = None
    # how long the jobs were down, measured; None before the move is finished
    downtime_seconds: float | None = None
    fact: str = ""  # what went wrong, or what is to be done; "" if nothing is


@dataclass(frozen=True, slots=True)
class Cordon:
    """A cluster that nothing moves to: since a drain, or as the spec says (`since` is None)."""

    cluster: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Drained:
    """A cluster that was to be emptied, asked again at the end of the run."""

    cluster: str  # its name in the spec
    # the jobs of the spec that it still holds, and why each stays
    jobs: tuple[tuple[str, str], ...] = ()
    others: tuple[str, ...] = ()  # what runs there that the spec does not know, by its names
    unknown: str = ""  # why the cluster cannot be asked; "" if it answers
    note: str = ""  # what it does not tell, although it answers

    @property
    def is_empty(self) -> bool:
        """Whether the cluster says that nothing runs there any more."""
        return not (self.jobs or self.others or self.unknown)


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A run of `rebalance`."""

    decision: Decision | None  # what was decided; None where nothing was
    carried: tuple[Carried, ...] = ()  # the moves of this run, in the order of `decision.moves`
    # where the run keeps what it knows; None for a decision that was made again from a file
    folder: str | None = None
    file: str | None = None  # where the decision and its inputs are kept; None where they are not
    busy: str | None = None  # which other run is at work; None if none is
    # moves of earlier runs: those that this run has finished first, or that are to be finished
    unfinished: tuple[Carried, ...] = ()
    notes: tuple[str, ...] = ()  # what else should be known, a line each
    # all that the decision was made from, as `--replay` reads it
    inputs: Mapping[str, object] | None = None
    cordoned: tuple[Cordon, ...] = ()  # the clusters that nothing moves to
    drained: tuple[Drained, ...] = ()  # of each cluster that was to be emptied, what it holds

"""The states of a task, and what may follow which (T-4); the words a coordinator and its tasks
exchange.

    created ─▶ scheduled ─▶ deployed ─▶ running ─▶ finished
                                        │    ▲
                                        ▼    │
                                     pausing ─▶ paused

    paused ─▶ running                             taken back, as it was before
    each that is no end ─▶ failed
    each that is no end ─▶ canceling ─▶ canceled

`running`, `finished` and `failed` mean of a task what they mean of a run (journal.progress.State):
the same words. A run is never created, scheduled or deployed, since it needs no place; and where a
run is *rolled back*, a task is *running*: nothing of it is left to see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from stateshift.live.protocol.task_flow import Modification, Task

# The state of a task, which the protocol hands on and does not look into. The task knows its type.
Snapshot: TypeAlias = Any

TaskState = Literal[
    "created",
    "scheduled",
    "deployed",
    "running",
    "finished",
    "failed",
    "canceling",
    "canceled",
    "pausing",
    "paused",
]
_ENDING: frozenset[TaskState] = frozenset(("failed", "canceling"))
FOLLOWS: Mapping[TaskState, frozenset[TaskState]] = {
    "created": _ENDING | {"scheduled"},
    "scheduled": _ENDING | {"deployed"},
    "deployed": _ENDING | {"running"},
    "running": _ENDING | {"finished", "pausing"},
    "pausing": _ENDING | {"paused"},
    "paused": _ENDING | {"running"},
    "canceling": frozenset(("canceled", "failed")),
    "finished": frozenset(),
    "failed": frozenset(),
    "canceled": frozenset(),
}


Role = Literal["buffers", "ships", "rewires", "replaces"]


@dataclass(frozen=True, slots=True)
class Trigger:
    """All instructions in one message: every task finds its own part in it (T-6). It goes to the
    sources, and from there with the data, so that it is everywhere before the checkpoint that it
    names.
    """

    migration: Modification
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Restore:
    """The order to the place that a task moves to: begin from this state, and wait for the word to
    run.
    """

    name: str
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Complete:
    """The new place runs, the old one is over; what was buffered goes out."""

    name: str


@dataclass(frozen=True, slots=True)
class Abort:
    """Everything runs on where it was; what was buffered goes out."""

    name: str


Order = Trigger | Restore | Complete | Abort


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A task knows its part; no role is one as well: it ignores the migration, and says so
    (T-2).
    """

    task: Task
    roles: tuple[Role, ...]


@dataclass(frozen=True, slots=True)
class Shipped:
    """A task is paused at the checkpoint, and this is its state."""

    task: Task
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Deployed:
    """The new place has the state."""

    task: Task


@dataclass(frozen=True, slots=True)
class Running:
    """A task runs and holds nothing back any more."""

    task: Task


@dataclass(frozen=True, slots=True)
class Refused:
    """A task cannot do its part. It still runs."""

    task: Task
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Somebody outside wants it taken back."""

    reason: str


Word = Acknowledged | Shipped | Deployed | Running | Refused | GiveUp

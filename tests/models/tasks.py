"""The tasks that a coordinator knows, the migration that it is asked for, and the words that both
exchange (T-4, T-6). All complaints about a migration come at once.

    operator  a name, and how many tasks of it run beside each other
    edge      from an operator to one, with the exchange pattern that says which tasks are connected
              (T-12):
                forward        each task with the one of its own number; both sides have as many
                broadcast      every task with every task; each of them gets every record
                partitioned    every task with every task; one of them gets a record, by its key
    task      (operator, number): runs at a place and holds state
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from stateshift.errors import Complaint, PlanError, SpecError

Exchange = Literal["forward", "broadcast", "partitioned"]

# The state of a task, which the protocol hands on and does not look into. The task knows its type.
Snapshot: TypeAlias = Any


class Task(NamedTuple):
    """One of an operator's tasks, by number."""

    operator: str
    number: int

    def __str__(self) -> str:
        return f"{self.operator}-{self.number}"


class Edge(NamedTuple):
    """Two operators, and which of their tasks send to each other."""

    source: str
    target: str
    exchange: Exchange = "partitioned"


@dataclass(frozen=True, slots=True)
class Flow:
    """Operators, each with how many tasks it has, and the edges between them."""

    operators: Mapping[str, int]
    edges: tuple[Edge, ...]

    @property
    def tasks(self) -> tuple[Task, ...]:
        tasks: list[Task] = []
        for operator, count in self.operators.items():
            tasks += [Task(operator, number) for number in range(count)]
        return tuple(tasks)

    @property
    def sources(self) -> tuple[Task, ...]:
        """The tasks that nobody sends to: there a migration is triggered."""
        fed = {edge.target for edge in self.edges}
        return tuple(task for task in self.tasks if task.operator not in fed)


@dataclass(frozen=True, slots=True)
class Migration:
    """Tasks that go to other places, with their state, at one checkpoint."""

    name: str
    places: Mapping[Task, str]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Operators that get other functions where they are: no task moves, and none ships state."""

    name: str
    operators: tuple[str, ...]

    @property
    def places(self) -> Mapping[Task, str]:
        """The tasks that go elsewhere: none."""
        return {}


# A coordinator is asked for one of these (T-1). An operator that is introduced into a chain is a
# replacement of the chain.
Modification = Migration | Replacement


@dataclass(frozen=True, slots=True)
class Deployment:
    """The place of each task of a dataflow, and how many slots each place has free."""

    flow: Flow
    running: Mapping[Task, str]
    free: Mapping[str, int]


def check(modification: Modification, now: Deployment) -> None:
    """Check a request, and whether the places have free slots (T-5, the first step: allocate)."""
    match modification:
        case Migration():
            wrong = tuple(_place_complaints(modification, now))
            if wrong:
                hint = "name tasks that run, and places that the cluster has"
                raise SpecError(wrong, hint=hint)
            wanted = Counter(modification.places.values())
            short = [
                f"{place} has free slots for {now.free[place]} of {wanted[place]}"
                for place in sorted(wanted)
                if now.free[place] < wanted[place]
            ]
            if short:
                hint = "free task slots there, or move fewer tasks at once"
                raise PlanError("; ".join(short), hint=hint)
        case Replacement(_, operators):
            known = ", ".join(sorted(now.flow.operators))
            unknown = tuple(
                Complaint(f"/operators/{name}", f"there is no operator {name!r}", name, known)
                for name in operators
                if name not in now.flow.operators
            )
            if unknown:
                raise SpecError(unknown, hint="name operators that run")


def _place_complaints(migration: Migration, now: Deployment) -> Iterator[Complaint]:
    """Yield the complaints about the tasks that move, and about their new places."""
    if not migration.places:
        yield Complaint("/places", "no task that moves", {})
    for task, place in migration.places.items():
        pointer = f"/places/{task}"
        if task not in now.flow.tasks:
            yield Complaint(pointer, f"there is no task {task}", str(task))
        elif now.running[task] == place:
            yield Complaint(pointer, f"{task} runs at {place} already", place)
        if place not in now.free:
            places = ", ".join(sorted(now.free))
            yield Complaint(pointer, f"there is no place {place!r}", place, places)


# ------------------------------------------------------------------------------------ the words


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
    """The order to a task's new place: begin from this state, and wait for the word to run."""

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
    """A task knows its part; without a role it ignores the migration, and says so (T-2)."""

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

"""The dataflow that a coordinator knows, and the migration that it is asked for; both checked, all
complaints at once.

    flow({"source": 2, "join": 2, "sink": 1}, [("source", "join"), ("join", "sink", "broadcast")])

    operator  a name, and how many tasks of it run beside each other
    edge      from an operator to one, with the exchange pattern that says which tasks are connected
              (T-12):
                forward        each task with the one of its own number; both sides have as many
                broadcast      every task with every task; each of them gets every record
                partitioned    every task with every task; one of them gets a record, by its key
    task      (operator, number): what runs at a place and holds state

Whoever has another kind of dataflow gives its operators and edges as plain tuples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Literal, NamedTuple, cast, get_args

from stateshift.errors import Complaint, PlanError, SpecError

Exchange = Literal["forward", "broadcast", "partitioned"]
EXCHANGES: tuple[str, ...] = get_args(Exchange)


class Task(NamedTuple):
    """What runs at a place and holds state: one of an operator's tasks, by number."""

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
        for operator in self.operators:
            tasks += self._tasks_of(operator)
        return tuple(tasks)

    @property
    def sources(self) -> tuple[Task, ...]:
        """The tasks that nobody sends to: there a migration is triggered."""
        fed = {edge.target for edge in self.edges}
        return tuple(task for task in self.tasks if task.operator not in fed)

    def targets(self, task: Task) -> tuple[Task, ...]:
        """Return the tasks that it sends to."""
        targets: list[Task] = []
        for edge in self._edges_from(task):
            targets += self._ends(edge, edge.target, task.number)
        return tuple(targets)

    def feeders(self, task: Task) -> tuple[Task, ...]:
        """Return the tasks that send to it."""
        sources: list[Task] = []
        for edge in self.edges:
            if edge.target == task.operator:
                sources += self._ends(edge, edge.source, task.number)
        return tuple(sources)

    def _edges_from(self, task: Task) -> list[Edge]:
        return [edge for edge in self.edges if edge.source == task.operator]

    def _ends(self, edge: Edge, operator: str, number: int) -> tuple[Task, ...]:
        if edge.exchange == "forward":
            return (Task(operator, number),)
        return self._tasks_of(operator)

    def _tasks_of(self, operator: str) -> tuple[Task, ...]:
        return tuple(Task(operator, number) for number in range(self.operators[operator]))


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


# What a coordinator is asked for (T-1). An operator that is introduced into a chain is a
# replacement of the chain.
Modification = Migration | Replacement


def flow(operators: Mapping[str, int] | Sequence[str], edges: Iterable[Sequence[str]]) -> Flow:
    """Return a checked dataflow. Operators by name alone have one task; edges without an exchange
    pattern are partitioned.
    """
    wrong: list[Complaint] = []
    if isinstance(operators, Mapping):
        counts = dict(operators)
    else:
        counts = dict.fromkeys(operators, 1)
        wrong += _doubled(operators)
    for name, count in counts.items():
        if count < 1:
            message = f"{count} tasks of {name!r}"
            wrong.append(Complaint(f"/operators/{name}", message, count, "at least 1"))
    given = [tuple(edge) for edge in edges]
    for index in range(len(given)):
        wrong += _edge_complaints(index, given, counts)
    if not wrong:
        wrong += _cycle(given)
    if wrong:
        hint = "edges join operators there are, and lead from sources to sinks"
        raise SpecError(tuple(wrong), hint=hint)
    return Flow(counts, tuple(_edge(*edge) for edge in given))


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where the tasks of a dataflow run, and how many slots each place has free."""

    flow: Flow
    running: Mapping[Task, str]
    free: Mapping[str, int]


def check(modification: Modification, now: Deployment) -> None:
    """Check whether it can be asked for, and whether the places have free slots (T-5, the first
    step: allocate).
    """
    match modification:
        case Migration():
            _check_migration(modification, now)
        case Replacement(_, operators):
            unknown = [name for name in operators if name not in now.flow.operators]
            if unknown:
                known = ", ".join(sorted(now.flow.operators))
                wrong = [_unknown_operator(name, known) for name in unknown]
                raise SpecError(tuple(wrong), hint="name operators that run")


def _unknown_operator(name: str, known: str) -> Complaint:
    return Complaint(f"/operators/{name}", f"there is no operator {name!r}", name, known)


def _check_migration(migration: Migration, now: Deployment) -> None:
    wrong = tuple(_place_complaints(migration, now))
    if wrong:
        raise SpecError(wrong, hint="name tasks that run, and places that the cluster has")
    short = tuple(_short_places(migration, now))
    if short:
        raise PlanError("; ".join(short), hint="free task slots there, or move fewer tasks at once")


def _place_complaints(migration: Migration, now: Deployment) -> Iterator[Complaint]:
    """Yield what is wrong with the tasks that move, and with where they go."""
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


def _short_places(migration: Migration, now: Deployment) -> Iterator[str]:
    """Yield a sentence for each place that has too few free slots."""
    wanted = Counter(migration.places.values())
    for place in sorted(wanted):
        if now.free[place] < wanted[place]:
            yield f"{place} has free slots for {now.free[place]} of {wanted[place]}"


def _edge(source: str, target: str, exchange: str = "partitioned") -> Edge:
    return Edge(source, target, cast(Exchange, exchange))


def _doubled(names: Sequence[str]) -> Iterator[Complaint]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Complaint(f"/operators/{index}", f"{name!r} stands twice", name, "each once")


def _edge_complaints(
    index: int, edges: Sequence[Sequence[str]], counts: Mapping[str, int]
) -> Iterator[Complaint]:
    edge = edges[index]
    pointer = f"/edges/{index}"
    if len(edge) not in (2, 3):
        message = "an edge is a source, a target and perhaps an exchange"
        yield Complaint(pointer, message, list(edge))
        return
    source, target = edge[:2]
    for end, name in enumerate((source, target)):
        if name not in counts:
            yield Complaint(f"{pointer}/{end}", f"there is no operator {name!r}", name)
    if any(earlier[:2] == edge[:2] for earlier in edges[:index]):
        message = f"the edge from {source!r} to {target!r} stands twice"
        yield Complaint(pointer, message, list(edge))
    exchange = edge[2] if len(edge) == 3 else "partitioned"
    if exchange not in EXCHANGES:
        message = f"no exchange pattern: {exchange!r}"
        yield Complaint(f"{pointer}/2", message, exchange, ", ".join(EXCHANGES))
    are_known = source in counts and target in counts
    if exchange == "forward" and are_known and counts[source] != counts[target]:
        message = f"forward from {counts[source]} tasks to {counts[target]}"
        yield Complaint(f"{pointer}/2", message, exchange, "as many on both sides")


def _cycle(edges: Sequence[Sequence[str]]) -> list[Complaint]:
    feeders: dict[str, set[str]] = {}
    for edge in edges:
        feeders.setdefault(edge[1], set()).add(edge[0])
    try:
        tuple(TopologicalSorter(feeders).static_order())
    except CycleError as error:
        cycle = error.args[1]
        return [Complaint("/edges", "operators in a circle: " + " → ".join(cycle), cycle)]
    return []

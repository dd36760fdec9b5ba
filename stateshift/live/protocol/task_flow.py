"""What a coordinator knows of a dataflow, and the migration that it is asked for; both checked, all
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
    operator: str
    number: int

    def __str__(self) -> str:
        return f"{self.operator}-{self.number}"


class Edge(NamedTuple):
    source: str
    target: str
    exchange: Exchange = "partitioned"


@dataclass(frozen=True, slots=True)
class Flow:
    operators: Mapping[str, int]
    edges: tuple[Edge, ...]

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(
            Task(name, number) for name, count in self.operators.items() for number in range(count)
        )

    @property
    def sources(self) -> tuple[Task, ...]:
        """Tasks that nobody sends to: there a migration is triggered."""
        fed = {edge.target for edge in self.edges}
        return tuple(task for task in self.tasks if task.operator not in fed)

    def targets(self, task: Task) -> tuple[Task, ...]:
        """The tasks that it sends to."""
        edges = (edge for edge in self.edges if edge.source == task.operator)
        return tuple(
            target for edge in edges for target in self._ends(edge, edge.target, task.number)
        )

    def feeders(self, task: Task) -> tuple[Task, ...]:
        """The tasks that send to it."""
        edges = (edge for edge in self.edges if edge.target == task.operator)
        return tuple(
            source for edge in edges for source in self._ends(edge, edge.source, task.number)
        )

    def routes(self, task: Task, key: int) -> Iterator[Task]:
        """Where a record of a key goes from a task: along each edge, to those its exchange
        pattern says.
        """
        for edge in self.edges:
            if edge.source == task.operator:
                ends = self._ends(edge, edge.target, task.number)
                yield from (ends[key % len(ends)],) if edge.exchange == "partitioned" else ends

    def _ends(self, edge: Edge, operator: str, number: int) -> tuple[Task, ...]:
        if edge.exchange == "forward":
            return (Task(operator, number),)
        return tuple(Task(operator, n) for n in range(self.operators[operator]))


@dataclass(frozen=True, slots=True)
class Migration:
    """These tasks go to other places, with their state, at one checkpoint."""

    name: str
    places: Mapping[Task, str]


def flow(operators: Mapping[str, int] | Sequence[str], edges: Iterable[Sequence[str]]) -> Flow:
    """A checked dataflow. Operators by name alone have one task; edges without an exchange
    pattern are partitioned.
    """
    counts = dict(operators) if isinstance(operators, Mapping) else dict.fromkeys(operators, 1)
    found = [] if isinstance(operators, Mapping) else list(_doubled(operators))
    told = [tuple(edge) for edge in edges]
    few = ((name, count) for name, count in counts.items() if count < 1)
    found += [
        Complaint(f"/operators/{name}", f"{count} tasks of {name!r}", count, "at least 1")
        for name, count in few
    ]
    found += [
        complaint
        for index in range(len(told))
        for complaint in _edge_complaints(index, told, counts)
    ]
    if not found:
        found += _cycle(told)
    if found:
        raise SpecError(
            tuple(found), hint="edges join operators there are, and lead from sources to sinks"
        )
    return Flow(counts, tuple(_edge(*edge) for edge in told))


def check_migration(
    migration: Migration, flow: Flow, running: Mapping[Task, str], free: Mapping[str, int]
) -> None:
    """Whether it can be asked for, and whether the places have room (T-5, the first step:
    allocate).
    """
    found = [] if migration.places else [Complaint("/places", "no task that moves", {})]
    for task, place in migration.places.items():
        if task not in flow.tasks:
            found.append(Complaint(f"/places/{task}", f"there is no task {task}", str(task)))
        elif running[task] == place:
            found.append(Complaint(f"/places/{task}", f"{task} runs at {place} already", place))
        if place not in free:
            found.append(
                Complaint(
                    f"/places/{task}",
                    f"there is no place {place!r}",
                    place,
                    ", ".join(sorted(free)),
                )
            )
    if found:
        raise SpecError(tuple(found), hint="name tasks that run, and places that the cluster has")
    short = [
        f"{place} has room for {free[place]} of {count}"
        for place, count in sorted(Counter(migration.places.values()).items())
        if free[place] < count
    ]
    if short:
        raise PlanError("; ".join(short), hint="free task slots there, or move fewer tasks at once")


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
    if len(edge) not in (2, 3):
        yield Complaint(
            f"/edges/{index}", "an edge is a source, a target and perhaps an exchange", list(edge)
        )
        return
    for end, name in enumerate(edge[:2]):
        if name not in counts:
            yield Complaint(f"/edges/{index}/{end}", f"there is no operator {name!r}", name)
    if edge[:2] in [earlier[:2] for earlier in edges[:index]]:
        yield Complaint(
            f"/edges/{index}", f"the edge from {edge[0]!r} to {edge[1]!r} stands twice", list(edge)
        )
    exchange = edge[2] if len(edge) == 3 else "partitioned"
    if exchange not in EXCHANGES:
        yield Complaint(
            f"/edges/{index}/2",
            f"no exchange pattern: {exchange!r}",
            exchange,
            ", ".join(EXCHANGES),
        )
    elif (
        exchange == "forward"
        and counts.get(edge[0]) != counts.get(edge[1])
        and {*edge[:2]} <= {*counts}
    ):
        message = f"forward from {counts[edge[0]]} tasks to {counts[edge[1]]}"
        yield Complaint(f"/edges/{index}/2", message, exchange, "as many on both sides")


def _cycle(edges: Sequence[Sequence[str]]) -> list[Complaint]:
    feeders: dict[str, set[str]] = {}
    for edge in edges:
        feeders.setdefault(edge[1], set()).add(edge[0])
    try:
        tuple(TopologicalSorter(feeders).static_order())
    except CycleError as error:
        return [
            Complaint(
                "/edges", "operators in a circle: " + " → ".join(error.args[1]), error.args[1]
            )
        ]
    return []

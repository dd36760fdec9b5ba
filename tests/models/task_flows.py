"""A dataflow by plain tuples, checked with all complaints at once; and its tasks' neighbours.

flow({"source": 2, "join": 2, "sink": 1}, [("source", "join"), ("join", "sink", "broadcast")])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import cast, get_args

from stateshift.errors import Complaint, SpecError
from tests.models.tasks import Edge, Exchange, Flow, Task

EXCHANGES: tuple[str, ...] = get_args(Exchange)


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


def targets(of: Flow, task: Task) -> tuple[Task, ...]:
    """Return the tasks that it sends to."""
    found: list[Task] = []
    for edge in of.edges:
        if edge.source == task.operator:
            found += _ends(of, edge, edge.target, task.number)
    return tuple(found)


def feeders(of: Flow, task: Task) -> tuple[Task, ...]:
    """Return the tasks that send to it."""
    found: list[Task] = []
    for edge in of.edges:
        if edge.target == task.operator:
            found += _ends(of, edge, edge.source, task.number)
    return tuple(found)


def _ends(of: Flow, edge: Edge, operator: str, number: int) -> tuple[Task, ...]:
    if edge.exchange == "forward":
        return (Task(operator, number),)
    return tuple(task for task in of.tasks if task.operator == operator)


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

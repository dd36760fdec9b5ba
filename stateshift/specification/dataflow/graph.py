"""A dataflow as numbers: who is next to whom, found without recursion and in O(V+E).

    Graph              neighbours by index
    topological        every operator behind all that are upstream of it; None if there is a cycle
    cycles             one cycle of each strongly connected component, as names
    strong_components  the nodes that reach each other, together
    reachable          what is reached from some operators, following edges one way
    weak_components    the members that some edges connect, in whatever direction

Nothing here knows what operators do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stateshift.specification.dataflow.operators import Dataflow

Neighbours = list[list[int]]


@dataclass(frozen=True, slots=True)
class Graph:
    """`before[i]` and `after[i]` are the neighbours of operator i."""

    names: tuple[str, ...]
    before: Neighbours
    after: Neighbours
    number: dict[str, int]

    def numbers(self, names: Iterable[str]) -> list[int]:
        return [self.number[name] for name in names]


def graph_of(dataflow: Dataflow, *, cut: bool = False) -> Graph:
    """Return the dataflow as numbers; `cut` leaves out what blocking operators send (F-14)."""
    number = {name: i for i, name in enumerate(dataflow.names)}
    before: Neighbours = [[] for _ in number]
    after: Neighbours = [[] for _ in number]
    for edge in dataflow.edges:
        if cut and dataflow[edge.upstream].kind == "blocking":
            continue
        upstream, downstream = number[edge.upstream], number[edge.downstream]
        after[upstream].append(downstream)
        before[downstream].append(upstream)
    return Graph(dataflow.names, before, after, number)


def topological(graph: Graph) -> list[int] | None:
    """Return the operators upstream first, else in their order. None where there is a cycle."""
    inputs_left = [len(before) for before in graph.before]
    first = [i for i, count in enumerate(inputs_left) if count == 0]
    order = upstream_first(first, inputs_left, graph.after)
    return order if len(order) == len(graph.names) else None


def upstream_first(
    first: list[int],
    inputs_left: dict[int, int] | list[int],
    after: Mapping[int, Sequence[int]] | Neighbours,
) -> list[int]:
    """Return each node behind all that it waits for, from those that wait for none (Kahn).

    `inputs_left` counts the edges into each node, and is used up. Nodes on a cycle are left out.
    """
    order = list(first)
    for node in order:  # grows while it is walked
        for downstream in after[node]:
            inputs_left[downstream] -= 1
            if inputs_left[downstream] == 0:
                order.append(downstream)
    return order


def cycles(graph: Graph) -> list[tuple[str, ...]]:
    """Return one cycle of each strongly connected component: its names, the first again last."""
    found = []
    for component in strong_components(graph.after):
        start, members = component[0], set(component)
        if len(component) == 1 and start not in graph.after[start]:
            continue
        # From each node of a component an edge leads to another, so that a walk comes back to
        # where it has been.
        path, place = [start], {start: 0}
        while True:
            here = next(other for other in graph.after[path[-1]] if other in members)
            if here in place:
                break
            place[here] = len(path)
            path.append(here)
        found.append(tuple(graph.names[i] for i in (*path[place[here] :], here)))
    return found


def strong_components(after: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the nodes that reach each other, in lists by their smallest numbers (Kosaraju)."""
    before: Neighbours = [[] for _ in after]
    for node, neighbours in enumerate(after):
        for downstream in neighbours:
            before[downstream].append(node)
    root_of: dict[int, int] = {}
    for start in reversed(_order_of_leaving(after)):
        _mark(before, root_of, start)
    return _grouped((root_of[node], node) for node in range(len(after)))


def _mark(
    neighbours: Mapping[int, Sequence[int]] | Sequence[Sequence[int]],
    root_of: dict[int, int],
    start: int,
) -> None:
    """Give `start` as root to itself and to all that are reached from it, if they have none yet."""
    if start in root_of:
        return
    root_of[start] = start
    pending = [start]
    while pending:
        for other in neighbours[pending.pop()]:
            if other not in root_of:
                root_of[other] = start
                pending.append(other)


def _grouped(roots: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the nodes of (root, node), those of one root together, in their order."""
    members: dict[int, list[int]] = {}
    for root, node in roots:
        members.setdefault(root, []).append(node)
    return list(members.values())


def _order_of_leaving(after: Sequence[Sequence[int]]) -> list[int]:
    """Return the nodes in the order in which a depth-first walk leaves them."""
    seen = bytearray(len(after))
    order: list[int] = []
    for start in range(len(after)):
        path = [] if seen[start] else [(start, iter(after[start]))]
        seen[start] = 1
        while path:
            node, edges_left = path[-1]
            unseen = next((other for other in edges_left if not seen[other]), None)
            if unseen is None:
                order.append(node)
                path.pop()
            else:
                seen[unseen] = 1
                path.append((unseen, iter(after[unseen])))
    return order


def reachable(neighbours: Sequence[Sequence[int]], start: Iterable[int]) -> bytearray:
    """Return 1 for each operator in `start` and each that is reached from there, else 0."""
    reached = bytearray(len(neighbours))
    pending = list(start)
    for node in pending:
        reached[node] = 1
    while pending:
        for other in neighbours[pending.pop()]:
            if not reached[other]:
                reached[other] = 1
                pending.append(other)
    return reached


def weak_components(members: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the members, those together that edges connect whatever their direction."""
    beside: dict[int, list[int]] = {member: [] for member in members}
    for upstream, downstream in edges:
        beside[upstream].append(downstream)
        beside[downstream].append(upstream)
    root_of: dict[int, int] = {}
    for member in members:
        _mark(beside, root_of, member)
    return _grouped((root_of[member], member) for member in members)

"""What has to change together in large dataflows: ours, and the same by networkx' own
reachability.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from random import Random
from typing import TypeVar

from stateshift.dataflow.schedulers import fries
from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge

Found = list[frozenset[str]]
T = TypeVar("T")


def random_dataflow(operators: int, edges: int, chance: Random) -> Dataflow:
    names = [f"operator {i}" for i in range(operators)]
    ends = set()
    while len(ends) < edges:
        one, other = sorted(chance.sample(range(operators), 2))
        ends.add((one, other))
    return Dataflow(
        tuple(DataflowOperator(name, "one-to-one", False, 1) for name in names),
        tuple(Edge(names[one], names[other], "forward", False) for one, other in sorted(ends)),
    )


def ours(dataflow: Dataflow, targets: tuple[str, ...]) -> tuple[float, Found]:
    """From the dataflow to the components, with pruning, heads and all edges."""
    seconds, found = _timed(lambda: fries(dataflow, targets))
    return seconds, [frozenset(one.operators) for one in found.components]


def by_networkx(dataflow: Dataflow, targets: tuple[str, ...]) -> tuple[float, Found] | None:
    """The graph is made before the clock starts; a node before and one behind all targets spare
    a walk for each.
    """
    try:
        import networkx as nx
    except ImportError:
        return None
    graph = nx.DiGraph((edge.upstream, edge.downstream) for edge in dataflow.edges)
    graph.add_nodes_from(dataflow.names)

    def find() -> Found:
        graph.add_edges_from((0, target) for target in targets)
        below = nx.descendants(graph, 0)
        graph.remove_node(0)
        graph.add_edges_from((target, 0) for target in targets)
        above = nx.ancestors(graph, 0)
        graph.remove_node(0)
        return [
            frozenset(one) for one in nx.weakly_connected_components(graph.subgraph(below & above))
        ]

    return _timed(find)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    """As timeit does, without the garbage collector, which would walk the other one's graph as
    well.
    """
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        done = work()
        return time.process_time() - began, done
    finally:
        gc.enable()

"""Several jobs as one dataflow: each job's operators under its name, and edges where topics lead
from one to another.

    within(plan, "fraud", "east")  its operators as fraud/…, of that job, on that cluster
    joined(dataflow)               an edge from every operator that writes a topic to every one that
                                   reads it

A topic with several readers hands each of them every tuple. That is an operator of its own that
replicates: the copies of one tuple may meet different targets.
"""

from __future__ import annotations

from dataclasses import replace

from stateshift.specification.dataflow.operators import Dataflow, Edge, Operator

Named = dict[str, list[str]]


def within(plan: Dataflow, job: str, cluster: str | None) -> Dataflow:
    """Return the plan of a job among others. Its operators still go by the names that the plan has
    for them.
    """
    operators = [_operator_within(operator, job, cluster) for operator in plan.operators]
    edges = [_edge_within(edge, job) for edge in plan.edges]
    return Dataflow(tuple(operators), tuple(edges), job)


def _operator_within(operator: Operator, job: str, cluster: str | None) -> Operator:
    return replace(
        operator,
        name=f"{job}/{operator.name}",
        job=job,
        cluster=cluster or operator.cluster,
        also=(operator.name, *operator.also),
    )


def _edge_within(edge: Edge, job: str) -> Edge:
    return replace(edge, upstream=f"{job}/{edge.upstream}", downstream=f"{job}/{edge.downstream}")


def joined(dataflow: Dataflow) -> Dataflow:
    """Return the dataflow with the edges that its topics make."""
    writers, readers = _by_topic(dataflow)
    taken = set(dataflow.names)
    replicates: list[Operator] = []
    edges = {edge.ends: edge for edge in dataflow.edges}
    for topic in filter(writers.__contains__, readers):
        if len(readers[topic]) == 1:
            made = _edges_to(readers[topic][0], writers[topic])
        else:
            replicate = _replicate(topic, taken)
            replicates.append(replicate)
            made = [
                *_edges_to(replicate.name, writers[topic]),
                *_edges_from(replicate.name, readers[topic]),
            ]
        for edge in made:
            edges.setdefault(edge.ends, edge)
    operators = (*dataflow.operators, *replicates)
    return replace(dataflow, operators=operators, edges=tuple(edges.values()))


def _by_topic(dataflow: Dataflow) -> tuple[Named, Named]:
    """Return the operators that write each topic, and those that read it."""
    writers: Named = {}
    readers: Named = {}
    for operator in dataflow.operators:
        for topic in operator.writes:
            writers.setdefault(topic, []).append(operator.name)
        for topic in operator.reads:
            readers.setdefault(topic, []).append(operator.name)
    return writers, readers


def _edges_to(reader: str, writers: list[str]) -> list[Edge]:
    return [Edge(writer, reader, "partitioned") for writer in writers]


def _edges_from(replicate: str, readers: list[str]) -> list[Edge]:
    return [Edge(replicate, reader, "partitioned", one_per_tuple=True) for reader in readers]


def _replicate(topic: str, taken: set[str]) -> Operator:
    """Return the operator that hands each tuple of a topic to several readers."""
    name = f"topic {topic}"
    while name in taken:
        name += "'"
    taken.add(name)
    return Operator(name, "one-to-many", cost_seconds=0.0, replicate=True)

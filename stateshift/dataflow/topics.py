"""Several jobs as one dataflow: each job's operators under its name, and edges where topics lead
from one to another.

    within(plan, "fraud", "east")  its operators as fraud/…, of that job, on that cluster
    joined(dataflow)               an edge from every operator that writes a topic to every one that
                                   reads it

A topic with several readers hands each of them every tuple. That is an operator of its own that
replicates: the copies of one tuple may meet different targets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from stateshift.dataflow.operators import Dataflow, Edge, Operator


def within(plan: Dataflow, job: str, cluster: str | None) -> Dataflow:
    """The plan of a job among others. Its operators still go by the names that the plan has for
    them.
    """
    operators = tuple(
        replace(
            one,
            name=f"{job}/{one.name}",
            job=job,
            cluster=cluster or one.cluster,
            also=(one.name, *one.also),
        )
        for one in plan.operators
    )
    edges = tuple(
        replace(one, upstream=f"{job}/{one.upstream}", downstream=f"{job}/{one.downstream}")
        for one in plan.edges
    )
    return Dataflow(operators, edges, job)


def joined(dataflow: Dataflow) -> Dataflow:
    """The dataflow with the edges that its topics make."""
    writers, readers = _by_topic(dataflow, "writes"), _by_topic(dataflow, "reads")
    operators, edges = list(dataflow.operators), {edge.ends: edge for edge in dataflow.edges}
    taken = set(dataflow.names)
    for topic in (topic for topic in readers if topic in writers):
        ends, made = _through(topic, writers[topic], readers[topic], taken)
        operators += made
        edges |= {edge.ends: edge for edge in ends if edge.ends not in edges}
    return replace(dataflow, operators=tuple(operators), edges=tuple(edges.values()))


def _by_topic(dataflow: Dataflow, which: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for operator in dataflow.operators:
        for topic in getattr(operator, which):
            found[topic].append(operator.name)
    return found


def _through(
    topic: str, writers: list[str], readers: list[str], taken: set[str]
) -> tuple[Iterable[Edge], list[Operator]]:
    if len(readers) == 1:
        return [Edge(writer, readers[0], "partitioned") for writer in writers], []
    name = f"topic {topic}"
    while name in taken:
        name += "'"
    replica = Operator(name, "one-to-many", cost_seconds=0.0, replicate=True)
    return [
        *(Edge(writer, name, "partitioned") for writer in writers),
        *(Edge(name, reader, "partitioned", one_per_tuple=True) for reader in readers),
    ], [replica]

"""Several jobs as one dataflow: each job's operators under its name, and edges where topics lead
from one to another.

    within(plan, "fraud", "east")  its operators as fraud/…, of that job, on that cluster
    join_topics(dataflow)          an edge from every operator that writes a topic to every one that
                                   reads it

A topic with several readers hands each of them every tuple. That is an operator of its own that
replicates: the copies of one tuple may meet different targets.
"""

from __future__ import annotations

from dataclasses import replace

from stateshift.specification.dataflow.operators import Dataflow, Edge, Operator, free_name

Named = dict[str, list[str]]


def within(plan: Dataflow, job: str, cluster: str | None) -> Dataflow:
    """Return the plan of a job among others. Its operators still go by the names that the plan has
    for them.
    """
    operators = [
        replace(
            operator,
            name=f"{job}/{operator.name}",
            job=job,
            cluster=cluster or operator.cluster,
            also=(operator.name, *operator.also),
        )
        for operator in plan.operators
    ]
    edges = [
        replace(edge, upstream=f"{job}/{edge.upstream}", downstream=f"{job}/{edge.downstream}")
        for edge in plan.edges
    ]
    return Dataflow(tuple(operators), tuple(edges), job)


def join_topics(dataflow: Dataflow) -> Dataflow:
    """Return the dataflow with the edges that its topics make."""
    writers: Named = {}
    readers: Named = {}
    for operator in dataflow.operators:
        for topic in operator.writes:
            writers.setdefault(topic, []).append(operator.name)
        for topic in operator.reads:
            readers.setdefault(topic, []).append(operator.name)
    taken = set(dataflow.names)
    replicates: list[Operator] = []
    edges = {edge.ends: edge for edge in dataflow.edges}
    for topic in filter(writers.__contains__, readers):
        reader, made = readers[topic][0], []
        if len(readers[topic]) > 1:
            reader = free_name(f"topic {topic}", taken)
            replicates.append(Operator(reader, "one-to-many", cost_seconds=0.0, replicate=True))
            made = [Edge(reader, to, "partitioned", one_per_tuple=True) for to in readers[topic]]
        written = [Edge(writer, reader, "partitioned") for writer in writers[topic]]
        for edge in (*written, *made):
            edges.setdefault(edge.ends, edge)
    operators = (*dataflow.operators, *replicates)
    return replace(dataflow, operators=operators, edges=tuple(edges.values()))

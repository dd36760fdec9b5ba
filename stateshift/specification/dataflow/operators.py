"""A dataflow: operators and the edges between them, as values.

    Dataflow
      operators  what each of them makes of a tuple, on how many workers, of which job on which
                 cluster
      edges      upstream -> downstream, and how a tuple finds its worker there

The number of tuples that an operator makes of one (Fries, sections 3 and 5) decides everything
else:

    one-to-one   at most one tuple, on one of its edges
    one-to-many  any number of them, on any edges; where an edge is `one_per_tuple`, at most one on
                 that one
    blocking     nothing before it has read all of its input: what it then sends are source tuples
                 of their own
    unique       at most one tuple for each *source* tuple, however many of its descendants come by

Several jobs are one dataflow: each job's operators under its name (`within`), and edges where
topics lead from one to another (`join_topics`).

A dataflow has no cycle, no two operators of a name and no two edges between the same operators;
`parse.problems` says so of one that nobody has checked. Names are what everything else refers to;
`also` are other names of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal["one-to-one", "one-to-many", "blocking"]
Way = Literal["forward", "broadcast", "partitioned"]


@dataclass(frozen=True, slots=True)
class DataflowOperator:
    """Rates and costs are None where not measured; a `replicate` stands for a broadcast."""

    name: str
    kind: Kind = "one-to-one"
    unique: bool = False
    workers: int = 1
    job: str | None = None
    cluster: str | None = None
    cost_seconds: float | None = None
    rate_per_second: float | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    replicate: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A way of tuples from one operator to another."""

    upstream: str
    downstream: str
    way: Way = "forward"
    one_per_tuple: bool = False

    @property
    def ends(self) -> tuple[str, str]:
        return self.upstream, self.downstream


@dataclass(frozen=True, slots=True)
class Dataflow:
    """Operators by name (`dataflow[name]`), and edges. `parse.problems` checks them, not this."""

    operators: tuple[DataflowOperator, ...]
    edges: tuple[Edge, ...]
    name: str = "dataflow"
    _by_name: dict[str, DataflowOperator] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {operator.name: operator for operator in self.operators}
        object.__setattr__(self, "_by_name", by_name)

    def __getitem__(self, name: str) -> DataflowOperator:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(operator.name for operator in self.operators)

    @property
    def sources(self) -> tuple[str, ...]:
        """Operators that read from outside: nothing in the dataflow is upstream of them."""
        fed = {edge.downstream for edge in self.edges}
        return tuple(name for name in self.names if name not in fed)

    def called(self, name: str) -> tuple[DataflowOperator, ...]:
        """Return the operator that has this name, or else all for which it is another name."""
        if name in self:
            return (self[name],)
        return tuple(operator for operator in self.operators if name in operator.also)


def with_replicates(dataflow: Dataflow) -> Dataflow:
    """Return the same dataflow with each broadcast to several workers as a one-to-many operator of
    its own (Fries, section 6), beside its upstream; done twice, it stays so.
    """
    taken = set(dataflow.names)
    replicates: list[DataflowOperator] = []
    edges: list[Edge] = []
    for edge in dataflow.edges:
        upstream, downstream = dataflow[edge.upstream], dataflow[edge.downstream]
        makes_copies = edge.way == "broadcast" and downstream.workers > 1
        if not makes_copies or upstream.replicate:
            edges.append(edge)
            continue
        made = DataflowOperator(
            free_name(f"replicate {edge.upstream} to {edge.downstream}", taken),
            "one-to-many",
            workers=upstream.workers,
            job=upstream.job,
            cluster=upstream.cluster,
            cost_seconds=0.0,
            replicate=True,
        )
        replicates.append(made)
        edges.append(replace(edge, downstream=made.name, way="forward"))
        edges.append(Edge(made.name, edge.downstream, "broadcast"))
    if not replicates:
        return dataflow
    return replace(dataflow, operators=(*dataflow.operators, *replicates), edges=tuple(edges))


def free_name(name: str, taken: set[str]) -> str:
    """Return the name, with as many primes as it takes to differ from all others, and take it."""
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def within(plan: Dataflow, job: str, cluster: str | None) -> Dataflow:
    """Return a job's plan among others': its operators as job/…, on that cluster."""
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
    """Return the dataflow with an edge from each writer of a topic to each reader. Several readers
    get every tuple: an operator of its own replicates, since its copies may meet different targets.
    """
    writers: dict[str, list[str]] = {}
    readers: dict[str, list[str]] = {}
    for operator in dataflow.operators:
        for topic in operator.writes:
            writers.setdefault(topic, []).append(operator.name)
        for topic in operator.reads:
            readers.setdefault(topic, []).append(operator.name)
    taken = set(dataflow.names)
    replicates: list[DataflowOperator] = []
    edges = {edge.ends: edge for edge in dataflow.edges}
    for topic in filter(writers.__contains__, readers):
        reader, made = readers[topic][0], []
        if len(readers[topic]) > 1:
            reader = free_name(f"topic {topic}", taken)
            replicates.append(
                DataflowOperator(reader, "one-to-many", cost_seconds=0.0, replicate=True)
            )
            made = [Edge(reader, to, "partitioned", one_per_tuple=True) for to in readers[topic]]
        written = [Edge(writer, reader, "partitioned") for writer in writers[topic]]
        for edge in (*written, *made):
            edges.setdefault(edge.ends, edge)
    operators = (*dataflow.operators, *replicates)
    return replace(dataflow, operators=operators, edges=tuple(edges.values()))

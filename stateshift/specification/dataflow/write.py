"""A dataflow written as our own JSON: the inverse of `document`.

    to_plain(dataflow)  the document
    settle(dataflow)    the dataflow that is read from this document again

A plan's operators and edges are written one by one, so that its file is not needed again. Only
properties that decide nothing any more are lost: other names of operators, and `one_per_tuple` of
an edge whose upstream sends on one edge at a time anyway.
"""

from __future__ import annotations

from dataclasses import replace

from stateshift.specification.dataflow.keys import EDGE, OPERATOR
from stateshift.specification.dataflow.operators import Dataflow, Edge, Operator, join_topics
from stateshift.specification.key import Keys


def to_plain(dataflow: Dataflow) -> dict[str, object]:
    """Return the document of a dataflow, its plans as the operators and edges that they name.
    Topics join it again.
    """
    written = _as_written(dataflow)
    return {
        "name": written.name,
        "operators": [_plain_operator(written, operator) for operator in written.operators],
        "edges": [_plain(EDGE, edge) for edge in written.edges],
    }


def settle(dataflow: Dataflow) -> Dataflow:
    """Return the dataflow that is read from the document of this one."""
    return join_topics(_as_written(dataflow))


def _as_written(dataflow: Dataflow) -> Dataflow:
    """Return the part of a dataflow that a document holds: nothing that stands for topics, no other
    names, and `one_per_tuple` only where an operator may send on several edges: to say so of a
    one-to-one operator would make it one-to-many.
    """
    operators = [operator for operator in dataflow.operators if not operator.replicate]
    names = {operator.name for operator in operators}
    edges = []
    for edge in dataflow.edges:
        if names.issuperset(edge.ends):
            sends_on_several = dataflow[edge.upstream].kind == "one-to-many"
            edges.append(replace(edge, one_per_tuple=edge.one_per_tuple and sends_on_several))
    return Dataflow(
        operators=tuple(replace(operator, also=()) for operator in operators),
        edges=tuple(edges),
        name=dataflow.name,
    )


def _plain_operator(dataflow: Dataflow, operator: Operator) -> dict[str, object]:
    plain = _plain(OPERATOR, operator)
    single = [edge for edge in dataflow.edges if edge.one_per_tuple]
    ends = [edge.downstream for edge in single if edge.upstream == operator.name]
    return {**plain, "one_per_edge": ends} if ends else plain


def _plain(keys: Keys, part: Operator | Edge) -> dict[str, object]:
    """Return the values that differ from the defaults, as JSON has them."""
    plain: dict[str, object] = {}
    for key in keys.all:
        value = getattr(part, key.field) if key.field else key.default
        if value != key.default:
            plain[key.name] = list(value) if isinstance(value, tuple) else value
    return plain

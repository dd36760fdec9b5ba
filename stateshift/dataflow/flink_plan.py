"""A running Flink job's own plan to a dataflow: what `GET /jobs/:jobid/plan` answers.

    {"plan": {"jid": …, "name": …, "nodes": [
        {"id": "cbc3…", "parallelism": 2, "description": "Source: orders -&gt; Map", "inputs": []},
        {"id": "90be…", "parallelism": 4, "description": "Score<br/>+- Sink: Print",
         "inputs": [{"num": 0, "id": "cbc3…", "ship_strategy": "HASH", "exchange":
         "pipelined_bounded"}]}]}}

(Flink, JsonPlanGenerator.) A node is a chain of functions that run in one task; what changes one of
them, changes the task. The plan does not say how many tuples a function makes of one: chains of
which every part is known to make at most one are one-to-one, all others one-to-many, which is never
wrong, only slower. A node that several others read from hands each of them every tuple.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stateshift.dataflow.operators import Dataflow, Edge, Operator, Way
from stateshift.specification.place import Complaints, Place

# How Flink's own functions of which at most one tuple comes call themselves.
ONE_TO_ONE = (
    *(
        "Source",
        "Sink",
        "Map",
        "Filter",
        "Calc",
        "Timestamps/Watermarks",
        "WatermarkAssigner",
        "Keyed Reduce",
    ),
    *(
        "Keyed Aggregation",
        "ConstraintEnforcer",
        "DropUpdateBefore",
        "Writer",
        "Committer",
        "Print to Std. Out",
    ),
    *(
        "StreamRecordTimestampInserter",
        "TableToDataStream",
        "DataSteamToTable",
        "DataStreamToTable",
    ),
)
_WAYS: dict[str, Way] = {"FORWARD": "forward", "BROADCAST": "broadcast"}
_BETWEEN = re.compile(r"\s*(?:->|<br\s*/?>)\s*(?:[:|]\s+)*(?:[+:]-)?\s*")
_NUMBER = re.compile(r"^\[\d+\]:?")
_ID_SHOWN = 8
ANSWER = "what GET /jobs/:jobid/plan answers of a job that is there"


def is_plan(value: Any) -> bool:
    """Whether a JSON value looks like one, whatever may be wrong with it."""
    inner = value.get("plan", value) if isinstance(value, dict) else None
    return isinstance(inner, dict) and "nodes" in inner


def error_in(value: Any) -> str | None:
    """What Flink says where it answers with an error (ErrorResponseBody), the first line of each,
    without its trace. None where a JSON value is no such answer.
    """
    if (
        not isinstance(value, dict)
        or value.keys() != {"errors"}
        or not isinstance(value["errors"], list)
    ):
        return None
    lines = (str(one).strip().partition("\n")[0].strip() for one in value["errors"])
    return (
        "; ".join(line for line in lines if line and not line.startswith("<"))
        or "it does not say which"
    )


def parse(root: Place, complaints: Complaints) -> Dataflow:
    """The dataflow of a plan; what does not look like one is complained of and left out."""
    plan = root / "plan" if "plan" in root.value else root
    nodes = plan / "nodes"
    if not isinstance(nodes.value, list):
        complaints.add(nodes, "not a list of nodes", ANSWER)
        return Dataflow((), ())
    if not nodes.value:
        complaints.add(nodes, "no node", "at least one operator")
    whole = [node for node in nodes.items if _is_node(complaints, node)]
    operators = dict(zip((str(node.value["id"]) for node in whole), _named(whole), strict=False))
    edges = [edge for node in whole for edge in _edges(complaints, node, operators)]
    name = plan.value.get("name")
    return _replicating(
        Dataflow(tuple(operators.values()), tuple(edges), name if isinstance(name, str) else "job")
    )


def parts(description: str) -> tuple[str, ...]:
    """The functions of a chain, by the names they were given."""
    text = html.unescape(html.unescape(description))
    return tuple(part for piece in _BETWEEN.split(text) if (part := _NUMBER.sub("", piece).strip()))


def _is_node(complaints: Complaints, node: Place) -> bool:
    if isinstance(node.value, dict) and isinstance(node.value.get("id"), str | int):
        return True
    complaints.add(node, "not a node of a plan", "an object with an id")
    return False


def _named(nodes: list[Place]) -> Iterator[Operator]:
    """Operators called as their chains are; those that share a name, by their ids as well."""
    chains = [parts(str(node.value.get("description") or node.value["id"])) for node in nodes]
    often = Counter(chains)
    for node, chain in zip(nodes, chains, strict=True):
        number, name = str(node.value["id"]), " -> ".join(chain)
        also = (*dict.fromkeys(chain if len(chain) > 1 else ()), number)
        yield Operator(
            name if often[chain] == 1 else f"{name} ({number[:_ID_SHOWN]})",
            "one-to-one" if all(_at_most_one(part) for part in chain) else "one-to-many",
            workers=_workers(node.value.get("parallelism")),
            also=also if often[chain] == 1 else (name, *also),
        )


def _workers(parallelism: Any) -> int:
    return parallelism if isinstance(parallelism, int) and parallelism > 0 else 1


def _at_most_one(part: str) -> bool:
    return any(part == known or part.startswith((f"{known}:", f"{known}(")) for known in ONE_TO_ONE)


def _edges(complaints: Complaints, node: Place, operators: dict[str, Operator]) -> Iterator[Edge]:
    inputs = node / "inputs" if node.value.get("inputs") else None
    if inputs is None or not isinstance(inputs.value, list):
        return
    mine = operators[str(node.value["id"])].name
    for place in inputs.items:
        number = str(place.value.get("id")) if isinstance(place.value, dict) else None
        if number not in operators:
            complaints.add(
                place, f"reads from {number}, which is no node of the plan", "the id of a node"
            )
            continue
        yield Edge(
            operators[number].name, mine, _WAYS.get(place.value.get("ship_strategy"), "partitioned")
        )


def _replicating(dataflow: Dataflow) -> Dataflow:
    """Nodes that several others read from are one-to-many; one tuple for each edge, where their
    chains make one. A node that another reads from twice is one-to-many, and has one edge.
    """
    sent = Counter(edge.ends for edge in dataflow.edges)
    reads = Counter(edge.upstream for edge in dataflow.edges)
    several = {
        one.name for one in dataflow.operators if reads[one.name] > 1 and one.kind == "one-to-one"
    }
    operators = tuple(
        replace(one, kind="one-to-many") if one.name in several else one
        for one in dataflow.operators
    )
    edges = {edge.ends: edge for edge in dataflow.edges}
    single = {
        ends: replace(edge, one_per_tuple=edge.upstream in several and sent[ends] == 1)
        for ends, edge in edges.items()
    }
    return replace(dataflow, operators=operators, edges=tuple(single.values()))

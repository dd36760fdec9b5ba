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
from itertools import product

from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge, Kind, Way
from stateshift.specification.place import Complaints, Place

# How Flink's own functions of which at most one tuple comes call themselves.
ONE_TO_ONE = (
    "Source",
    "Sink",
    "Map",
    "Filter",
    "Calc",
    "Timestamps/Watermarks",
    "WatermarkAssigner",
    "Keyed Reduce",
    "Keyed Aggregation",
    "ConstraintEnforcer",
    "DropUpdateBefore",
    "Writer",
    "Committer",
    "Print to Std. Out",
    "StreamRecordTimestampInserter",
    "TableToDataStream",
    "DataSteamToTable",
    "DataStreamToTable",
)
_ONE_TO_ONE_WITH_MORE = tuple(map("".join, product(ONE_TO_ONE, ":(")))
NO_REASON = "it does not say which"
_WAYS: dict[str, Way] = {"FORWARD": "forward", "BROADCAST": "broadcast"}
_BETWEEN = re.compile(r"\s*(?:->|<br\s*/?>)\s*(?:[:|]\s+)*(?:[+:]-)?\s*")
_NUMBER = re.compile(r"^\[\d+\]:?")
_ID_SHOWN = 8
ANSWER = "what GET /jobs/:jobid/plan answers of a job that is there"


def is_plan(value: object) -> bool:
    """Whether a JSON value looks like a plan, whatever may be wrong with it."""
    inner = value.get("plan", value) if isinstance(value, dict) else None
    return isinstance(inner, dict) and "nodes" in inner


def error_in(value: object) -> str | None:
    """Return the errors of Flink's ErrorResponseBody, each without its trace; else None."""
    if not isinstance(value, dict) or value.keys() != {"errors"}:
        return None
    if not isinstance(value["errors"], list):
        return None
    lines = [str(error).strip().partition("\n")[0].strip() for error in value["errors"]]
    facts = [line for line in lines if not line.startswith("<")]
    return "; ".join(filter(None, facts)) or NO_REASON


def parse(root: Place, complaints: Complaints) -> Dataflow:
    """Return the dataflow of a plan; complain of what does not look like one, and leave it out."""
    plan = root / "plan" if "plan" in root.value else root
    nodes = plan / "nodes"
    if not isinstance(nodes.value, list):
        complaints.add(nodes, "not a list of nodes", ANSWER)
        return Dataflow((), ())
    if not nodes.value:
        complaints.add(nodes, "no node", "at least one operator")
    known = []
    for node in nodes.items:
        if isinstance(node.value, dict) and isinstance(node.value.get("id"), str | int):
            known.append(node)
        else:
            complaints.add(node, "not a node of a plan", "an object with an id")
    operators = _operators(known)
    edges = list(_edges(complaints, known, operators))
    name = plan.value.get("name")
    name = name if isinstance(name, str) else "job"
    return _replicate_shared(Dataflow(tuple(operators.values()), tuple(edges), name))


def parts(description: str) -> tuple[str, ...]:
    """Return the functions of a chain, by the names they were given."""
    text = html.unescape(html.unescape(description))
    names = [_NUMBER.sub("", piece).strip() for piece in _BETWEEN.split(text)]
    return tuple(name for name in names if name)


def _id_of(node: Place) -> str:
    return str(node.value["id"])


def _operators(nodes: list[Place]) -> dict[str, DataflowOperator]:
    """Return operators called as their chains, by node ids, with the id where a name comes twice.
    One is one-to-one if all of its functions are known to be: `Map`, `Source: orders`.
    """
    chains = [parts(str(node.value.get("description") or node.value["id"])) for node in nodes]
    times = Counter(chains)
    operators = {}
    for node, chain in zip(nodes, chains, strict=True):
        name = " -> ".join(chain)
        functions = chain if len(chain) > 1 else ()
        others = (*dict.fromkeys(functions), _id_of(node))
        if times[chain] > 1:
            others = (name, *others)
            name = f"{name} ({_id_of(node)[:_ID_SHOWN]})"
        is_known = [part in ONE_TO_ONE or part.startswith(_ONE_TO_ONE_WITH_MORE) for part in chain]
        kind: Kind = "one-to-one" if all(is_known) else "one-to-many"
        parallelism = node.value.get("parallelism")
        workers = parallelism if isinstance(parallelism, int) and parallelism > 0 else 1
        operators[_id_of(node)] = DataflowOperator(name, kind, workers=workers, also=others)
    return operators


def _edges(
    complaints: Complaints, nodes: list[Place], operators: dict[str, DataflowOperator]
) -> Iterator[Edge]:
    for node in nodes:
        inputs = node / "inputs" if isinstance(node.value.get("inputs"), list) else Place([], "")
        for place in inputs.items:
            number = str(place.value.get("id")) if isinstance(place.value, dict) else None
            if number in operators:
                way = _WAYS.get(place.value.get("ship_strategy"), "partitioned")
                yield Edge(operators[number].name, operators[_id_of(node)].name, way)
            else:
                message = f"reads from {number}, which is no node of the plan"
                complaints.add(place, message, "the id of a node")


def _replicate_shared(dataflow: Dataflow) -> Dataflow:
    """Make nodes that are read more than once one-to-many; one tuple an edge if chains make one."""
    times_read = Counter(edge.upstream for edge in dataflow.edges)
    replicating = set()
    operators = []
    for operator in dataflow.operators:
        if operator.kind == "one-to-one" and times_read[operator.name] > 1:
            replicating.add(operator.name)
            operator = replace(operator, kind="one-to-many")
        operators.append(operator)
    times_connected = Counter(edge.ends for edge in dataflow.edges)
    by_ends = {}
    for edge in dataflow.edges:
        is_only_copy = edge.upstream in replicating and times_connected[edge.ends] == 1
        by_ends[edge.ends] = replace(edge, one_per_tuple=is_only_copy)
    return replace(dataflow, operators=tuple(operators), edges=tuple(by_ends.values()))

"""Our own JSON of a dataflow to its parts: operators, edges, and jobs whose plans stand in files
of their own.

    {"operators": [{"name": "score", "kind": "one-to-many", "workers": 4}, …],
     "edges": ["read -> score", {"from": "score", "to": "alert", "way": "partitioned"}],
     "jobs": [{"name": "fraud", "cluster": "east", "plan": "fraud.plan.json",
               "operators": [{"name": "Source: payments", "reads": ["payments"]}]}]}

    read_document(reader, root, opened) -> Draft
    to_plain(dataflow)                  its inverse

Reading goes on after each complaint. The parts of a draft have not been held against each other
yet; `parse` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import Any

from stateshift.errors import SpecError
from stateshift.specification.dataflow import flink_plan, spark_plan
from stateshift.specification.dataflow.keys import (
    DATAFLOW,
    EDGE,
    JOB,
    OPERATOR,
    refused_as_too_large,
    resolve_name,
)
from stateshift.specification.dataflow.operators import (
    Dataflow,
    DataflowOperator,
    Edge,
    join_topics,
    within,
)
from stateshift.specification.key import Keys, Reader, Values, present
from stateshift.specification.place import Complaints, Place
from stateshift.specification.text import read_text
from stateshift.suggestion import did_you_mean

Opened = Callable[[str], str]
Edges = list[tuple[Place, Edge]]


@dataclass(slots=True)
class Draft:
    """The parts that were read, with their places. `partly`: unread operators may have any name."""

    name: str = "dataflow"
    operators: list[tuple[Place, DataflowOperator]] = field(default_factory=list)
    edges: Edges = field(default_factory=list)
    partly: bool = False


@dataclass(frozen=True, slots=True)
class _Written:
    """An operator as somebody wrote it: the fields that were given, and its one_per_edge."""

    place: Place
    name: str
    values: Values
    one_per_edge: Place | None

    @property
    def operator(self) -> DataflowOperator:
        return DataflowOperator(self.name, **self.values)


def read_document(reader: Reader, root: Place, opened: Opened | None) -> Draft:
    """Return the draft of a document. `opened` returns the text of a file that it names."""
    places = reader.known(root, DATAFLOW)
    is_object = isinstance(root.value, dict)
    if is_object and "jobs" not in places:
        reader.need(root, places, "operators")
    _optional(reader, DATAFLOW, places, "version")
    name = _optional(reader, DATAFLOW, places, "name")
    draft = Draft(name or "dataflow", partly=not is_object)
    written = _operators(reader, places.get("operators"), draft)
    draft.operators = [(each.place, each.operator) for each in written]
    names: set[str] = set()
    for job in _items(reader, places.get("jobs")):
        _job(reader, job, draft, opened, names)
    if not (draft.operators or draft.partly or reader.complaints.made):
        reader.complaints.add(places.get("operators", root), "no operator", "at least one operator")
        draft.partly = True
    for place in _items(reader, places.get("edges")):
        draft.edges += _edges(reader, place)
    draft.edges = _flagged(reader.complaints, draft.edges, written, "")
    return draft


def _items(reader: Reader, place: Place | None) -> list[Place]:
    return [] if place is None else reader.items(place, "a list")


def _optional(reader: Reader, keys: Keys, places: Mapping[str, Place], key: str) -> Any:
    """Return the value of a key; None where it is not there, or wrong."""
    return reader.value(keys[key], places[key]) if key in places else None


def _operators(reader: Reader, place: Place | None, draft: Draft) -> Sequence[_Written]:
    """Return the operators of a list that have a name; complain of the others."""
    items = _items(reader, place)
    written = present(_operator(reader, item) for item in items)
    if len(written) < len(items):
        draft.partly = True
    return written


def _operator(reader: Reader, item: Place) -> _Written | None:
    places = reader.known_with(item, OPERATOR, "name")
    if places is None:
        return None
    one_per_edge = places.pop("one_per_edge", None)
    if one_per_edge is not None and one_per_edge.value is False:
        one_per_edge = None
    fitting = {
        key: place for key, place in places.items() if not refused_as_too_large(reader, key, place)
    }
    values = reader.fields(OPERATOR, fitting)
    if one_per_edge is not None and values.setdefault("kind", "one-to-many") != "one-to-many":
        # Only a one-to-many operator uses several edges. If the two disagree, nothing is
        # guessed: to believe the kind could part what one tuple meets.
        message = (
            f"{values['kind']!r} contradicts one_per_edge, by which one tuple makes one on each of "
            "several edges"
        )
        reader.complaints.add(places["kind"], message, "one-to-many, or no one_per_edge")
    if "name" not in values:
        return None
    return _Written(item, values.pop("name"), values, one_per_edge)


def _edges(reader: Reader, place: Place) -> Iterator[tuple[Place, Edge]]:
    """Yield the edge of an object, or those along a way: 'a -> b -> c'."""
    if not isinstance(place.value, str):
        places = reader.known_with(place, EDGE, "from", "to")
        values = {} if places is None else reader.fields(EDGE, places)
        if {"upstream", "downstream"} <= values.keys():
            yield place, Edge(**values)
        return
    names = [name.strip() for name in place.value.split("->")]
    if len(names) < 2 or not all(names):
        reader.refuse(place, "a way such as 'a -> b -> c'")
        return
    for ends in pairwise(names):
        yield place, Edge(*ends)


def _job(
    reader: Reader, place: Place, draft: Draft, opened: Opened | None, others: set[str]
) -> None:
    """Add a job's operators and edges to the draft: its plan, and what stands beside it, which
    counts. A job of a name that was there is skipped: all of it would collide.
    """
    places = reader.known_with(place, JOB, "name", "plan")
    if places is None:
        draft.partly = True
        return
    name = reader.value(JOB["name"], places["name"])
    if name in others:
        message = f"two jobs are called {name}"
        reader.complaints.add(places["name"], message, "a name that no other job has")
        draft.partly = True
        return
    if name is not None:
        others.add(name)
    plan = _plan(reader, places["plan"], opened)
    cluster = _optional(reader, JOB, places, "cluster")
    written = _operators(reader, places.get("operators"), draft)
    if plan is None or name is None or not plan.operators:
        draft.partly = True
        return
    _add_plan(reader, places["plan"], draft, within(plan, name, cluster), written)


def _add_plan(
    reader: Reader, place: Place, draft: Draft, plan: Dataflow, written: Iterable[_Written]
) -> None:
    """Add a job's plan to the draft, with what stands beside the plan."""
    by_name = {resolve_name(reader.complaints, plan, one.place, one.name): one for one in written}
    for operator in plan.operators:
        over = by_name.get(operator.name)
        if over is None:
            draft.operators.append((place, operator))
        else:
            draft.operators.append((over.place, replace(operator, **over.values)))
    edges: Edges = []
    for edge in plan.edges:
        over = by_name.get(edge.upstream)
        # A kind that stands beside the plan replaces all that the plan knows of what the edges of
        # that operator carry.
        if over is not None and over.values.get("kind") == "one-to-many":
            edge = replace(edge, one_per_tuple=False)
        edges.append((place, edge))
    named = [replace(one, name=proper) for proper, one in by_name.items() if proper is not None]
    draft.edges += _flagged(reader.complaints, edges, named, f"{plan.name}/")


def _plan(reader: Reader, place: Place, opened: Opened | None) -> Dataflow | None:
    """Return a plan from the document, or the file that it names; None after a complaint."""
    root = place
    if not isinstance(place.value, dict):
        text: str | None = reader.value(JOB["name"], place)
        if text is not None and not spark_plan.is_plan(text):
            text = _text_of_file(reader, place, text, opened)
        if text is None:
            return None
        if spark_plan.is_plan(text):
            return spark_plan.parse(text, place, reader.complaints)
        try:
            root = Place(read_text(text, {}, Complaints()).value, place.pointer)
        except SpecError:
            root = Place(None, place.pointer)
    if flink_plan.is_plan(root.value):
        return flink_plan.parse(root, reader.complaints)
    error = flink_plan.error_in(root.value)
    if error is not None:
        message = f"Flink's answer is an error and no plan: {error}"
        reader.complaints.add(place, message, flink_plan.ANSWER)
    else:
        expected = "a Flink job's plan with its nodes, or what Spark explains"
        reader.complaints.add(place, "no plan of a job", expected)
    return None


def _text_of_file(reader: Reader, place: Place, name: str, opened: Opened | None) -> str | None:
    try:
        if opened is not None:
            return opened(name)
        fact = "there is no place beside which it could be"
    except (OSError, ValueError) as error:
        fact = getattr(error, "strerror", None) or str(error)
    expected = "a file beside the dataflow, or the plan itself"
    reader.complaints.add(place, f"{name} cannot be read: {fact}", expected)
    return None


def _flagged(
    complaints: Complaints, edges: Edges, written: Iterable[_Written], prefix: str
) -> Edges:
    """Return the edges with what one_per_edge says of them. Complain of edges that do not exist."""
    after: dict[str, set[str]] = {}
    for _, edge in edges:
        after.setdefault(edge.upstream, set()).add(edge.downstream)
    single: set[tuple[str, str]] = set()
    for operator in written:
        if operator.one_per_edge is not None:
            reached = after.get(operator.name, set())
            chosen = _chosen(complaints, operator.name, operator.one_per_edge, reached, prefix)
            single.update(product((operator.name,), chosen))
    return [
        (place, replace(edge, one_per_tuple=True) if edge.ends in single else edge)
        for place, edge in edges
    ]


def _chosen(
    complaints: Complaints, name: str, chosen: Place, reached: Collection[str], prefix: str
) -> Collection[str]:
    """Return those of the operators that `name` sends to for which one_per_edge holds."""
    if chosen.value is True:
        return reached
    if not isinstance(chosen.value, list):
        expected = "true, or names of operators it sends to"
        complaints.add(chosen, "not true, false or a list", expected)
        return ()
    names = []
    for place in chosen.items:
        other = place.value if place.value in reached else f"{prefix}{place.value}"
        if other in reached:
            names.append(other)
        else:
            hint = did_you_mean(str(place.value), reached)
            message = f"there is no edge from {name!r} to {place.value!r}{hint}"
            complaints.add(place, message, "an operator that it sends to")
    return names


# -------------------------------------------------------------------------- writing


def to_plain(dataflow: Dataflow) -> dict[str, object]:
    """Return the document of a dataflow. A plan's operators and edges are written one by one, so
    that its file is not needed again; topics join them again. Only properties that decide nothing
    any more are lost: other names of operators, and `one_per_tuple` of an edge whose upstream sends
    on one edge at a time anyway.
    """
    written = _as_written(dataflow)
    single = [edge for edge in written.edges if edge.one_per_tuple]
    operators = []
    for operator in written.operators:
        plain = _plain(OPERATOR, operator)
        ends = [edge.downstream for edge in single if edge.upstream == operator.name]
        if ends:
            plain["one_per_edge"] = ends
        operators.append(plain)
    edges = [_plain(EDGE, edge) for edge in written.edges]
    return {"name": written.name, "operators": operators, "edges": edges}


def settle(dataflow: Dataflow) -> Dataflow:
    """Return the dataflow that is read from the document of this one."""
    return join_topics(_as_written(dataflow))


def _as_written(dataflow: Dataflow) -> Dataflow:
    """Return the part that a document holds: nothing for topics, no other names, and
    `one_per_tuple` only of one-to-many operators (else it would make them that).
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


def _plain(keys: Keys, part: DataflowOperator | Edge) -> dict[str, object]:
    """Return the values that differ from the defaults, as JSON has them."""
    plain: dict[str, object] = {}
    for key in keys.all:
        value = getattr(part, key.field) if key.field else key.default
        if value != key.default:
            plain[key.name] = list(value) if isinstance(value, tuple) else value
    return plain

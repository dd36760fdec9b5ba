"""Our own JSON of a dataflow to its parts: operators, edges, and jobs whose plans stand in files
of their own.

    {"operators": [{"name": "score", "kind": "one-to-many", "workers": 4}, …],
     "edges": ["read -> score", {"from": "score", "to": "alert", "way": "partitioned"}],
     "jobs": [{"name": "fraud", "cluster": "east", "plan": "fraud.plan.json",
               "operators": [{"name": "Source: payments", "reads": ["payments"]}]}]}

    read_document(reader, root, opened) -> Draft

Reading goes on after each complaint. The parts of a draft have not been held against each other
yet; `parse` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import Any

from stateshift.errors import SpecError
from stateshift.specification.dataflow import flink_plan, spark_plan
from stateshift.specification.dataflow.checks import refused_as_too_large, resolved
from stateshift.specification.dataflow.keys import DATAFLOW, EDGE, JOB, OPERATOR
from stateshift.specification.dataflow.operators import Dataflow, Edge, Operator
from stateshift.specification.dataflow.topics import within
from stateshift.specification.key import Keys, Reader
from stateshift.specification.place import Complaints, Place
from stateshift.specification.text import read_text
from stateshift.suggestion import did_you_mean

Opened = Callable[[str], str]
Edges = list[tuple[Place, Edge]]


@dataclass(slots=True)
class Draft:
    """What has been read so far, and where. `partly`: some operators could not be read, so that an
    unknown name may be one of theirs.
    """

    name: str = "dataflow"
    operators: list[tuple[Place, Operator]] = field(default_factory=list)
    edges: Edges = field(default_factory=list)
    partly: bool = False


@dataclass(frozen=True, slots=True)
class _Written:
    """An operator as somebody wrote it: the fields that were given, and its one_per_edge."""

    place: Place
    name: str
    values: dict[str, Any]
    one_per_edge: Place | None

    @property
    def operator(self) -> Operator:
        return Operator(self.name, **self.values)


def read_document(reader: Reader, root: Place, opened: Opened | None) -> Draft:
    """Return the draft of a document. `opened` returns the text of a file by the name that the
    document has for it.
    """
    places = reader.known(root, DATAFLOW)
    _need_operators_or_jobs(reader, root, places)
    _optional(reader, DATAFLOW, places, "version")
    name = _optional(reader, DATAFLOW, places, "name")
    draft = Draft(name or "dataflow", partly=not isinstance(root.value, dict))
    written = _operators(reader, places.get("operators"), draft)
    draft.operators = [(each.place, each.operator) for each in written]
    jobs: set[str] = set()
    for job in _items(reader, places.get("jobs")):
        _job(reader, job, draft, opened, jobs)
    if _lacks_operators(draft, reader.complaints):
        reader.complaints.add(places.get("operators", root), "no operator", "at least one operator")
        draft.partly = True
    for place in _items(reader, places.get("edges")):
        draft.edges += _edges(reader, place)
    draft.edges = _flagged(reader.complaints, draft.edges, written, "")
    return draft


def _need_operators_or_jobs(reader: Reader, root: Place, places: Mapping[str, Place]) -> None:
    if isinstance(root.value, dict) and "jobs" not in places:
        reader.need(root, places, "operators")


def _lacks_operators(draft: Draft, complaints: Complaints) -> bool:
    """Whether a draft has no operator, and nothing else says so yet."""
    return not (draft.operators or draft.partly or complaints.made)


def _is_object_with(reader: Reader, item: Place, places: Mapping[str, Place], *keys: str) -> bool:
    """Whether an item is an object that has these keys. Those that it lacks are complained of."""
    return isinstance(item.value, dict) and reader.need(item, places, *keys)


def _optional(reader: Reader, keys: Keys, places: Mapping[str, Place], key: str) -> Any:
    """Return the value of a key; None where it is not there, or wrong."""
    return reader.value(keys[key], places[key]) if key in places else None


def _operators(reader: Reader, place: Place | None, draft: Draft) -> list[_Written]:
    """Return the operators of a list that have a name; complain of the others."""
    written = []
    for item in _items(reader, place):
        operator = _operator(reader, item)
        if operator is None:
            draft.partly = True
        else:
            written.append(operator)
    return written


def _operator(reader: Reader, item: Place) -> _Written | None:
    places = reader.known(item, OPERATOR)
    if not _is_object_with(reader, item, places, "name"):
        return None
    one_per_edge = places.pop("one_per_edge", None)
    if one_per_edge is not None and one_per_edge.value is False:
        one_per_edge = None
    _drop_too_large(reader, places)
    values = reader.fields(OPERATOR, places)
    if one_per_edge is not None:
        _expect_one_to_many(reader, places, values)
    if "name" not in values:
        return None
    return _Written(item, values.pop("name"), values, one_per_edge)


def _drop_too_large(reader: Reader, places: dict[str, Place]) -> None:
    for key, place in list(places.items()):
        if refused_as_too_large(reader, key, place):
            del places[key]


def _expect_one_to_many(
    reader: Reader, places: Mapping[str, Place], values: dict[str, object]
) -> None:
    """Give an operator with one_per_edge the only kind that fits it, or complain of another one."""
    kind = values.setdefault("kind", "one-to-many")
    if kind != "one-to-many":
        _refuse_contradiction(reader, places["kind"], kind)


def _refuse_contradiction(reader: Reader, place: Place, kind: object) -> None:
    """Only a one-to-many operator uses several edges. Where the two disagree, nothing is guessed:
    to believe the kind could part what one tuple meets.
    """
    message = (
        f"{kind!r} contradicts one_per_edge, by which one tuple makes one on each of several edges"
    )
    reader.complaints.add(place, message, "one-to-many, or no one_per_edge")


def _edges(reader: Reader, place: Place) -> Iterator[tuple[Place, Edge]]:
    """Yield one edge, or those along a way."""
    if isinstance(place.value, str):
        yield from _edges_along(reader, place)
    else:
        yield from _edges_of_object(reader, place)


def _edges_of_object(reader: Reader, place: Place) -> Iterator[tuple[Place, Edge]]:
    """Yield the edge of an object; none where it is wrong."""
    places = reader.known(place, EDGE)
    if _is_object_with(reader, place, places, "from", "to"):
        values = reader.fields(EDGE, places)
        if {"upstream", "downstream"} <= values.keys():
            yield place, Edge(**values)


def _edges_along(reader: Reader, place: Place) -> Iterator[tuple[Place, Edge]]:
    """Yield the edges of a way: 'a -> b -> c'."""
    names = [name.strip() for name in place.value.split("->")]
    if len(names) < 2 or not all(names):
        reader.refuse(place, "a way such as 'a -> b -> c'")
        return
    for ends in pairwise(names):
        yield place, Edge(*ends)


def _job(
    reader: Reader, place: Place, draft: Draft, opened: Opened | None, others: set[str]
) -> None:
    """Add a job's operators and edges to the draft, from its own plan and what stands beside it,
    which counts. Skip one that is called as one of the others: all that it says would collide with
    what that one says.
    """
    places = reader.known(place, JOB)
    if not _is_object_with(reader, place, places, "name", "plan"):
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
    by_name = {resolved(reader.complaints, plan, one.place, one.name): one for one in written}
    draft.operators += _overridden(place, plan.operators, by_name)
    edges: Edges = [(place, edge) for edge in _carrying(plan.edges, by_name)]
    named = [replace(one, name=proper) for proper, one in by_name.items() if proper is not None]
    draft.edges += _flagged(reader.complaints, edges, named, f"{plan.name}/")


def _overridden(
    place: Place, operators: Iterable[Operator], by_name: Mapping[str | None, _Written]
) -> Iterator[tuple[Place, Operator]]:
    """Yield the operators of a plan; what stands beside it replaces what the plan says."""
    for operator in operators:
        over = by_name.get(operator.name)
        if over is None:
            yield place, operator
        else:
            yield over.place, replace(operator, **over.values)


def _carrying(edges: Iterable[Edge], by_name: Mapping[str | None, _Written]) -> Iterator[Edge]:
    """Yield the edges of a plan. A kind that stands beside the plan replaces all that the plan
    knows of what the edges of that operator carry.
    """
    for edge in edges:
        over = by_name.get(edge.upstream)
        if over is not None and over.values.get("kind") == "one-to-many":
            edge = replace(edge, one_per_tuple=False)
        yield edge


def _plan(reader: Reader, place: Place, opened: Opened | None) -> Dataflow | None:
    """Return a plan that stands in the document, or in the file that it names; None after a
    complaint.
    """
    if isinstance(place.value, dict):
        return _flink_plan(reader, place, place)
    text = _text_of_plan(reader, place, opened)
    return None if text is None else _plan_in_text(reader, place, text)


def _text_of_plan(reader: Reader, place: Place, opened: Opened | None) -> str | None:
    """Return the text that stands at a place, or in the file that it names."""
    text: str | None = reader.value(JOB["name"], place)
    if text is None or spark_plan.is_plan(text):
        return text
    return _text_of_file(reader, place, text, opened)


def _plan_in_text(reader: Reader, place: Place, text: str) -> Dataflow | None:
    if spark_plan.is_plan(text):
        return spark_plan.parse(text, place, reader.complaints)
    return _flink_plan(reader, place, _root(text, place))


def _flink_plan(reader: Reader, place: Place, root: Place) -> Dataflow | None:
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
        fact = _reason(error)
    expected = "a file beside the dataflow, or the plan itself"
    reader.complaints.add(place, f"{name} cannot be read: {fact}", expected)
    return None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _root(text: str, place: Place) -> Place:
    """Return the tree of a file's JSON, as if it stood where the file is named; None in it where
    the file is no JSON.
    """
    inside = Complaints()
    try:
        return Place(read_text(text, {}, inside).value, place.pointer)
    except SpecError:
        return Place(None, place.pointer)


def _flagged(
    complaints: Complaints, edges: Edges, written: Iterable[_Written], prefix: str
) -> Edges:
    """Return the edges with what one_per_edge says of them. Complain of edges that do not exist."""
    after: dict[str, set[str]] = {}
    for _, edge in edges:
        after.setdefault(edge.upstream, set()).add(edge.downstream)
    single = set(_single_ends(complaints, after, written, prefix))
    return [(place, _with_flag(edge, single)) for place, edge in edges]


def _single_ends(
    complaints: Complaints, after: Mapping[str, set[str]], written: Iterable[_Written], prefix: str
) -> Iterator[tuple[str, str]]:
    """Yield the ends of the edges for which one_per_edge holds."""
    for operator in written:
        if operator.one_per_edge is not None:
            reached = after.get(operator.name, set())
            chosen = _chosen(complaints, operator.name, operator.one_per_edge, reached, prefix)
            yield from product((operator.name,), chosen)


def _with_flag(edge: Edge, single: Collection[tuple[str, str]]) -> Edge:
    return replace(edge, one_per_tuple=True) if edge.ends in single else edge


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
        other = _proper_name(place.value, reached, prefix)
        if other in reached:
            names.append(other)
        else:
            hint = did_you_mean(str(place.value), reached)
            message = f"there is no edge from {name!r} to {place.value!r}{hint}"
            complaints.add(place, message, "an operator that it sends to")
    return names


def _proper_name(name: str, known: Collection[str], prefix: str) -> str:
    return name if name in known else f"{prefix}{name}"


def _items(reader: Reader, place: Place | None) -> list[Place]:
    if place is None or not reader.is_a(place, list, "a list"):
        return []
    return list(place.items)

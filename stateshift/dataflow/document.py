"""Our own JSON of a dataflow to its parts: operators, edges, and jobs whose plans are told
elsewhere.

    {"operators": [{"name": "score", "kind": "one-to-many", "workers": 4}, …],
     "edges": ["read -> score", {"from": "score", "to": "alert", "way": "partitioned"}],
     "jobs": [{"name": "fraud", "cluster": "east", "plan": "fraud.plan.json",
               "operators": [{"name": "Source: payments", "reads": ["payments"]}]}]}

    read_document(reader, root, opened) -> Draft

Reading goes on after each complaint. The parts of a draft have not been held against each other
yet; `parse` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from stateshift.dataflow import flink_plan, spark_plan
from stateshift.dataflow.checks import refused_as_too_large, resolved
from stateshift.dataflow.keys import DATAFLOW, EDGE, JOB, OPERATOR
from stateshift.dataflow.operators import Dataflow, Edge, Operator
from stateshift.dataflow.topics import within
from stateshift.errors import SpecError
from stateshift.specification.keys import Keys
from stateshift.specification.place import Complaints, Place
from stateshift.specification.text import read_text
from stateshift.specification.values import Reader
from stateshift.suggestion import did_you_mean

Opened = Callable[[str], str]


@dataclass(slots=True)
class Draft:
    """What has been read so far, and where. `partly`: some operators could not be read, so that a
    name nobody knows may be one of theirs.
    """

    name: str = "dataflow"
    operators: list[tuple[Place, Operator]] = field(default_factory=list)
    edges: list[tuple[Place, Edge]] = field(default_factory=list)
    partly: bool = False


@dataclass(frozen=True, slots=True)
class _Said:
    """An operator as somebody wrote it: the fields that were given, and its one_per_edge."""

    place: Place
    name: str
    values: dict[str, Any]
    single: Place | None


def read_document(reader: Reader, root: Place, opened: Opened | None) -> Draft:
    """The draft of a document. `opened` brings the text of a file by the name that the document
    has for it.
    """
    places = reader.known(root, DATAFLOW)
    if isinstance(root.value, dict) and "jobs" not in places:
        reader.need(root, places, "operators")
    values = {
        key: reader.value(DATAFLOW[key], places[key])
        for key in ("version", "name")
        if key in places
    }
    draft = Draft(values.get("name") or "dataflow", partly=not isinstance(root.value, dict))
    said = _operators(reader, places.get("operators"), draft)
    draft.operators = [(one.place, Operator(one.name, **one.values)) for one in said]
    jobs: set[str] = set()
    for job in _items(reader, places.get("jobs")):
        _job(reader, job, draft, opened, jobs)
    if not draft.operators and not draft.partly and not reader.complaints.found:
        reader.complaints.add(places.get("operators", root), "no operator", "at least one operator")
        draft.partly = True
    for place in _items(reader, places.get("edges")):
        draft.edges += _edges(reader, place)
    draft.edges = _flagged(reader.complaints, draft.edges, said, "")
    return draft


def _operators(reader: Reader, place: Place | None, draft: Draft) -> list[_Said]:
    """The operators of a list that have a name; the others are complained of."""
    found = []
    for item in _items(reader, place):
        known = reader.known(item, OPERATOR)
        values: dict[str, Any] = {}
        if isinstance(item.value, dict) and reader.need(item, known, "name"):
            single = known.pop("one_per_edge", None)
            single = None if single is None or single.value is False else single
            known = {
                key: place
                for key, place in known.items()
                if not refused_as_too_large(reader, key, place)
            }
            values = ({"kind": "one-to-many"} if single else {}) | reader.fields(OPERATOR, known)
            if single is not None and values["kind"] != "one-to-many":
                _refuse_contradiction(reader, known["kind"], values["kind"])
        if "name" in values:
            found.append(_Said(item, values.pop("name"), values, single))
        else:
            draft.partly = True
    return found


def _refuse_contradiction(reader: Reader, place: Place, kind: str) -> None:
    """Only a one-to-many operator uses several edges. Where the two disagree, nothing is guessed:
    to believe the kind could part what one tuple meets.
    """
    message = (
        f"{kind!r} contradicts one_per_edge, by which one tuple makes one on each of several edges"
    )
    reader.complaints.add(place, message, "one-to-many, or no one_per_edge")


def _edges(reader: Reader, place: Place) -> Iterator[tuple[Place, Edge]]:
    """One edge, or those along a way."""
    if isinstance(place.value, str):
        names = [name.strip() for name in place.value.split("->")]
        if len(names) < 2 or not all(names):
            reader.refuse(place, "a way such as 'a -> b -> c'")
        else:
            yield from ((place, Edge(*ends)) for ends in pairwise(names))
        return
    known = reader.known(place, EDGE)
    if isinstance(place.value, dict) and reader.need(place, known, "from", "to"):
        values = reader.fields(EDGE, known)
        if {"upstream", "downstream"} <= values.keys():
            yield place, Edge(**values)


def _job(
    reader: Reader, place: Place, draft: Draft, opened: Opened | None, others: set[str]
) -> None:
    """A job's operators and edges, from its own plan and what is said beside it, which counts. One
    that is called as one of the others is not looked at: all that it says would collide with what
    that one says.
    """
    known = reader.known(place, JOB)
    if not isinstance(place.value, dict) or not reader.need(place, known, "name", "plan"):
        draft.partly = True
        return
    name = reader.value(JOB["name"], known["name"])
    if name in others:
        reader.complaints.add(
            known["name"], f"two jobs are called {name}", "a name that no other job has"
        )
        draft.partly = True
        return
    others |= set() if name is None else {name}
    plan = _plan(reader, known["plan"], opened)
    cluster = reader.value(JOB["cluster"], known["cluster"]) if "cluster" in known else None
    said = _operators(reader, known.get("operators"), draft)
    if plan is None or name is None or not plan.operators:
        draft.partly = True
        return
    plan = within(plan, name, cluster)
    proper = {resolved(reader.complaints, plan, one.place, one.name): one for one in said}
    for operator in plan.operators:
        over = proper.get(operator.name)
        made = operator if over is None else replace(operator, **over.values)
        draft.operators.append((known["plan"] if over is None else over.place, made))
    # A kind that is said beside the plan takes the place of all that the plan knows of what its
    # edges carry.
    many = {name for name, one in proper.items() if one.values.get("kind") == "one-to-many"}
    edges = [
        replace(edge, one_per_tuple=edge.one_per_tuple and edge.upstream not in many)
        for edge in plan.edges
    ]
    mine = [
        replace(one, name=proper_name)
        for proper_name, one in proper.items()
        if proper_name is not None
    ]
    draft.edges += _flagged(
        reader.complaints, [(known["plan"], edge) for edge in edges], mine, f"{name}/"
    )


def _plan(reader: Reader, place: Place, opened: Opened | None) -> Dataflow | None:
    """A plan that stands in the document, or in the file that it names; None after a complaint."""
    if isinstance(place.value, dict):
        root: Place | None = place
    else:
        text = reader.value(JOB["name"], place)
        if text is not None and not spark_plan.is_plan(text):
            text = _opened(reader, place, text, opened)
        if text is None:
            return None
        if spark_plan.is_plan(text):
            return spark_plan.parse(text, place, reader.complaints)
        root = _root(text, place)
    if root is not None and flink_plan.is_plan(root.value):
        return flink_plan.parse(root, reader.complaints)
    if root is not None and (told := flink_plan.error_in(root.value)) is not None:
        reader.complaints.add(
            place, f"Flink's answer is an error and no plan: {told}", flink_plan.ANSWER
        )
        return None
    reader.complaints.add(
        place, "no plan of a job", "a Flink job's plan with its nodes, or what Spark explains"
    )
    return None


def _opened(reader: Reader, place: Place, name: str, opened: Opened | None) -> str | None:
    try:
        if opened is not None:
            return opened(name)
        fact = "there is no place beside which it could be"
    except (OSError, ValueError) as error:
        fact = getattr(error, "strerror", None) or str(error)
    reader.complaints.add(
        place, f"{name} cannot be read: {fact}", "a file beside the dataflow, or the plan itself"
    )
    return None


def _root(text: str, place: Place) -> Place | None:
    """The tree of a file's JSON, as if it stood where the file is named."""
    inside = Complaints()
    try:
        return Place(read_text(text, {}, inside).value, place.pointer)
    except SpecError:
        return None


def _flagged(
    complaints: Complaints, edges: list[tuple[Place, Edge]], said: Iterable[_Said], prefix: str
) -> list[tuple[Place, Edge]]:
    """The edges with what one_per_edge says of them; an edge that is not there is a complaint."""
    after: dict[str, set[str]] = {}
    for _, edge in edges:
        after.setdefault(edge.upstream, set()).add(edge.downstream)
    single: set[tuple[str, str]] = set()
    for one in said:
        if one.single is not None:
            reached = after.get(one.name, set())
            single |= {
                (one.name, name)
                for name in _chosen(complaints, one.name, one.single, reached, prefix)
            }
    return [
        (place, replace(edge, one_per_tuple=True) if edge.ends in single else edge)
        for place, edge in edges
    ]


def _chosen(
    complaints: Complaints, name: str, single: Place, reached: Collection[str], prefix: str
) -> Iterable[str]:
    if single.value is True:
        return reached
    if not isinstance(single.value, list):
        complaints.add(
            single, "not true, false or a list", "true, or names of operators it sends to"
        )
        return ()
    found = []
    for place in single.items:
        other = place.value if place.value in reached else f"{prefix}{place.value}"
        if other in reached:
            found.append(other)
        else:
            message = (
                f"there is no edge from {name!r} to "
                f"{place.value!r}{did_you_mean(str(place.value), reached)}"
            )
            complaints.add(place, message, "an operator that it sends to")
    return found


def _items(reader: Reader, place: Place | None) -> list[Place]:
    return list(place.items) if place is not None and reader.is_a(place, list, "a list") else []


def to_plain(dataflow: Dataflow) -> dict[str, Any]:
    """The document of a dataflow, its plans as the operators and edges that they tell. Topics
    join it again.
    """
    single: dict[str, list[str]] = {}
    for edge in dataflow.edges:
        if edge.one_per_tuple:
            single.setdefault(edge.upstream, []).append(edge.downstream)
    # A one-to-one operator's edges carry one each anyway: to say so would make it one-to-many.
    flags = {
        name: {"one_per_edge": others}
        for name, others in single.items()
        if dataflow[name].kind == "one-to-many"
    }
    kept = [one for one in dataflow.operators if not one.replicate]
    names = {one.name for one in kept}
    return {
        "name": dataflow.name,
        "operators": [_plain(OPERATOR, one) | flags.get(one.name, {}) for one in kept],
        "edges": [_plain(EDGE, edge) for edge in dataflow.edges if names.issuperset(edge.ends)],
    }


def _plain(keys: Keys, part: Operator | Edge) -> dict[str, Any]:
    """What is not as it is where nothing is said, as JSON has it."""
    values = {key.name: getattr(part, key.field) for key in keys.all if key.field}
    told = {key: value for key, value in values.items() if value != keys[key].default}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in told.items()}

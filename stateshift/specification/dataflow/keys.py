"""Every key a dataflow's JSON may hold, once: the reader, the writer and its JSON Schema are made
from this table. And the rules between its parts: names that are known, one of each, and no cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import TypeVar, get_args

from stateshift.specification.dataflow.graph import cycles, graph_of
from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge, Way
from stateshift.specification.dataflow.operators import Kind as OperatorKind
from stateshift.specification.key import Keys, Kind, Reader, array, either, reference
from stateshift.specification.place import Complaints, Place
from stateshift.specification.values import (
    BOOLEAN,
    CHOICE,
    COUNT,
    NUMBER,
    SOME_TEXT,
    TEXT,
    TEXTS,
    VERSION,
    as_it_stands,
)
from stateshift.suggestion import did_you_mean

_ARROWS = {"type": "string", "pattern": r"\S\s*->\s*\S"}
OPERATOR_LIST = Kind("operators", as_it_stands, array(reference("operator")), shared=True)
EDGE_LIST = Kind("edges", as_it_stands, array(either(_ARROWS, reference("edge"))), shared=True)
JOB_LIST = Kind("planned_jobs", as_it_stands, array(reference("job")), shared=True)
ONE_PER_EDGE = Kind(
    "one_per_edge", as_it_stands, either({"type": "boolean"}, array(SOME_TEXT)), shared=True
)
PLAN = Kind("plan", as_it_stands, either(SOME_TEXT, {"type": "object"}), shared=True)

DATAFLOW = Keys(
    None,
    **{"$schema": TEXT("Where this schema is, for editors.")},
    version=VERSION("The version of this dialect."),
    name=TEXT("What the dataflow is called."),
    operators=OPERATOR_LIST("The operators, each with a name that no other has."),
    edges=EDGE_LIST("Which operator sends to which: objects, or texts such as 'a -> b -> c'."),
    jobs=JOB_LIST(
        "Running jobs whose own plans tell their operators; topics join them to the rest."
    ),
)

OPERATOR = Keys(
    DataflowOperator,
    name=TEXT("What it is called; everything else calls it by that."),
    kind=CHOICE(
        "one-to-one: at most one tuple for each it reads, on one of its edges. one-to-many: any "
        "number. blocking: it sends nothing before it has read all.",
        choices=get_args(OperatorKind),
    ),
    one_per_edge=ONE_PER_EDGE(
        "One-to-many, but at most one tuple for each it reads on each of its edges (true), or on "
        "those to these operators."
    ),
    unique=BOOLEAN(
        "At most one tuple for each tuple of a source, however many of its descendants come by."
    ),
    workers=COUNT("On how many workers it runs."),
    job=TEXT("The job it belongs to."),
    cluster=TEXT("The cluster it runs on."),
    cost_seconds=NUMBER("What one tuple takes on one worker; for the expected delay."),
    rate_per_second=NUMBER("Tuples a source reads in a second; for the expected delay."),
    reads=TEXTS("Topics it reads: an edge from every operator that writes them."),
    writes=TEXTS("Topics it writes."),
)

EDGE = Keys(
    Edge,
    **{"from": TEXT("The operator that sends.", field="upstream")},
    to=TEXT("The operator that is sent to.", field="downstream"),
    way=CHOICE(
        "forward: to the worker of the same number. partitioned: to the worker the key belongs to. "
        "broadcast: to all workers.",
        choices=get_args(Way),
    ),
)

JOB = Keys(
    None,
    name=TEXT("What the job is called; its operators are 'name/operator'."),
    cluster=TEXT("The cluster it runs on."),
    plan=PLAN(
        "Its plan: a file beside this one, or what is in it. Flink: the answer of GET "
        "/jobs/:id/plan. Spark: what explain(extended=True) prints."
    ),
    operators=OPERATOR_LIST(
        "What the plan does not tell of its operators: each with its name in the plan."
    ),
)


Part = TypeVar("Part", DataflowOperator, Edge)
NUMBER_MAX = 1e15  # what `spec.values` takes at most
_NAMED_MAX = 5


def resolve_name(
    complaints: Complaints, dataflow: Dataflow, place: Place, name: str, lenient: bool = False
) -> str | None:
    """Return the proper name of the one operator that goes by `name`; None after a complaint.
    If some operators could not be read (`lenient`), an unknown name may be one of theirs.
    """
    operators = dataflow.called(name)
    if len(operators) == 1:
        return operators[0].name
    if operators:
        message = f"{len(operators)} operators go by {name!r}"
        complaints.add(place, message, _one_of([operator.name for operator in operators]))
    elif not lenient:
        message = f"no operator {name!r}{did_you_mean(name, _spellings(dataflow))}"
        more = ", …" if len(dataflow.names) > _NAMED_MAX else ""
        expected = f"{_one_of(dataflow.names)}{more}" if dataflow.names else None
        complaints.add(place, message, expected)
    return None


def _one_of(names: Sequence[str]) -> str:
    return f"one of {', '.join(map(repr, names[:_NAMED_MAX]))}"


def _spellings(dataflow: Dataflow) -> list[str]:
    """Return every name by which an operator goes, proper names first."""
    others = [operator.also for operator in dataflow.operators]
    return [*dataflow.names, *chain.from_iterable(others)]


def split_names(dataflow: Dataflow, text: str) -> Iterator[str]:
    """Yield the names in a text with commas between. A comma may be a part of a name: the longest
    that an operator goes by, from each comma on, is one.
    """
    known = {name.strip() for name in _spellings(dataflow)}
    pieces_max = max((name.count(",") for name in known), default=0) + 1
    pieces = text.split(",")
    while pieces:
        count = min(pieces_max, len(pieces))
        while count > 1 and ",".join(pieces[:count]).strip() not in known:
            count -= 1
        name = ",".join(pieces[:count]).strip()
        if name:
            yield name
        pieces = pieces[count:]


def refused_as_too_large(reader: Reader, key: str, place: Place) -> bool:
    """Whether a number is above the bound, which is complained of. This is checked before the value
    is read: `spec.values` has the same bound, and only says that it is no number above 0.
    """
    if OPERATOR[key].kind not in (COUNT, NUMBER):
        return False
    if not isinstance(place.value, int | float) or place.value <= NUMBER_MAX:
        return False
    reader.complaints.add(place, "too large", f"at most {NUMBER_MAX:g}")
    return True


def refuse_doubles(complaints: Complaints, parts: Iterable[tuple[Place, Part]]) -> list[Part]:
    """Return the parts, each name or pair of ends once. Complain of the others."""
    first: dict[object, Part] = {}
    for place, part in parts:
        identity = part.name if isinstance(part, DataflowOperator) else part.ends
        if identity not in first:
            first[identity] = part
        elif isinstance(part, DataflowOperator):
            message = f"two operators are called {part.name!r}"
            complaints.add(place, message, "a name that no other operator has")
        else:
            message = f"the edge {part.upstream} -> {part.downstream} stands twice"
            complaints.add(place, message, "each once")
    return list(first.values())


def refuse_cycles(
    complaints: Complaints, dataflow: Dataflow, places: Mapping[tuple[str, str], Place]
) -> None:
    """Complain of one cycle in each strongly connected component, at its last edge."""
    for cycle in cycles(graph_of(dataflow)):
        written = [places[edge] for edge in pairwise(cycle) if edge in places]
        place = written[-1] if written else Place(None, "")
        complaints.add(place, f"a cycle: {' -> '.join(cycle)}", "a dataflow without cycles")

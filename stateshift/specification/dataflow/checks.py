"""Rules between the parts of a dataflow: names that are known, one of each, and no cycle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import TypeVar

from stateshift.specification.dataflow.graph import cycles, graph_of
from stateshift.specification.dataflow.keys import OPERATOR
from stateshift.specification.dataflow.operators import Dataflow, Edge, Operator
from stateshift.specification.key import Reader
from stateshift.specification.place import Complaints, Place
from stateshift.specification.values import COUNT, NUMBER
from stateshift.suggestion import did_you_mean

Part = TypeVar("Part", Operator, Edge)
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
        identity = part.name if isinstance(part, Operator) else part.ends
        if identity not in first:
            first[identity] = part
        elif isinstance(part, Operator):
            message = f"two operators are called {part.name!r}"
            complaints.add(place, message, "a name that no other operator has")
        else:
            message = f"the edge {part.upstream} -> {part.downstream} stands twice"
            complaints.add(place, message, "each once")
    return list(first.values())


def refuse_cycles(
    complaints: Complaints, dataflow: Dataflow, places: Mapping[tuple[str, str], Place]
) -> None:
    """Complain of one cycle in each strongly connected component, at the last of its edges that
    stands in the document.
    """
    for cycle in cycles(graph_of(dataflow)):
        written = [places[edge] for edge in pairwise(cycle) if edge in places]
        place = written[-1] if written else Place(None, "")
        complaints.add(place, f"a cycle: {' -> '.join(cycle)}", "a dataflow without cycles")

"""What has to hold between the parts of a dataflow: names that are known, one of each, and no
cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
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


def resolved(
    complaints: Complaints, dataflow: Dataflow, place: Place, name: str, lenient: bool = False
) -> str | None:
    """Return the proper name of the one operator that goes by `name`; None after a complaint.
    Where some operators could not be read (`lenient`), an unknown name may be one of theirs.
    """
    operators = dataflow.called(name)
    if len(operators) == 1:
        return operators[0].name
    if operators or not lenient:
        complaints.add(place, *_unresolved(dataflow, name, operators))
    return None


def _unresolved(
    dataflow: Dataflow, name: str, operators: Sequence[Operator]
) -> tuple[str, str | None]:
    """Return the message, and what is expected, of a name by which none or several go."""
    if operators:
        some = ", ".join(repr(operator.name) for operator in operators[:_NAMED_MAX])
        return f"{len(operators)} operators go by {name!r}", f"one of {some}"
    hint = did_you_mean(name, _spellings(dataflow))
    return f"no operator {name!r}{hint}", _expected_names(dataflow)


def _spellings(dataflow: Dataflow) -> list[str]:
    """Return every name by which an operator goes, proper names first."""
    spellings = [*dataflow.names]
    for operator in dataflow.operators:
        spellings += operator.also
    return spellings


def _expected_names(dataflow: Dataflow) -> str | None:
    if not dataflow.names:
        return None
    more = ", …" if len(dataflow.names) > _NAMED_MAX else ""
    return f"one of {', '.join(map(repr, dataflow.names[:_NAMED_MAX]))}{more}"


def named(dataflow: Dataflow, text: str) -> list[str]:
    """Return the names in a text with commas between. A comma may be a part of a name: the longest
    that an operator goes by, from each comma on, is one.
    """
    known = {name.strip() for name in _spellings(dataflow)}
    return [name for name in _joined_pieces(text.split(","), known) if name]


def _joined_pieces(pieces: Sequence[str], known: Collection[str]) -> Iterator[str]:
    """Yield names put together again from the pieces between commas."""
    pieces_max = max((name.count(",") for name in known), default=0) + 1
    while pieces:
        count = _pieces_of_first_name(pieces[:pieces_max], known)
        yield ",".join(pieces[:count]).strip()
        pieces = pieces[count:]


def _pieces_of_first_name(pieces: Sequence[str], known: Collection[str]) -> int:
    """Return how many pieces from the first on are the longest known name; 1 where none is."""
    for count in range(len(pieces), 1, -1):
        if ",".join(pieces[:count]).strip() in known:
            return count
    return 1


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
        identity = _identity(part)
        if identity in first:
            complaints.add(place, *_double(part))
        else:
            first[identity] = part
    return list(first.values())


def _identity(part: Operator | Edge) -> object:
    """Return what no two parts of a dataflow share: a name, or a pair of ends."""
    return part.name if isinstance(part, Operator) else part.ends


def _double(part: Operator | Edge) -> tuple[str, str]:
    """Return the message, and what is expected, of a part that is there twice."""
    if isinstance(part, Operator):
        return f"two operators are called {part.name!r}", "a name that no other operator has"
    return f"the edge {part.upstream} -> {part.downstream} stands twice", "each once"


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

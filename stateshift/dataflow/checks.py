"""What has to hold between the parts of a dataflow: names that are known, one of each, and no
way in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TypeVar

from stateshift.dataflow.graph import cycles, graph_of
from stateshift.dataflow.keys import OPERATOR
from stateshift.dataflow.operators import Dataflow, Edge, Operator
from stateshift.specification.place import Complaints, Place
from stateshift.specification.values import Reader
from stateshift.suggestion import did_you_mean

Part = TypeVar("Part", Operator, Edge)
NUMBER_MAX = 1e15  # what `spec.values` takes at most
_NAMED_MAX = 5


def resolved(
    complaints: Complaints, dataflow: Dataflow, place: Place, name: str, lenient: bool = False
) -> str | None:
    """The proper name of the one operator that goes by `name`; None after a complaint. Where some
    operators could not be read (`lenient`), an unknown name may be one of theirs.
    """
    found = dataflow.called(name)
    if len(found) == 1:
        return found[0].name
    if found:
        some = ", ".join(repr(operator.name) for operator in found[:_NAMED_MAX])
        complaints.add(place, f"{len(found)} operators go by {name!r}", f"one of {some}")
    elif not lenient:
        spellings = [
            *dataflow.names,
            *(other for operator in dataflow.operators for other in operator.also),
        ]
        more = ", …" if len(dataflow.names) > _NAMED_MAX else ""
        expected = (
            f"one of {', '.join(map(repr, dataflow.names[:_NAMED_MAX]))}{more}"
            if dataflow.names
            else None
        )
        complaints.add(place, f"no operator {name!r}{did_you_mean(name, spellings)}", expected)
    return None


def named(dataflow: Dataflow, text: str) -> list[str]:
    """The names in a text with commas between. A comma may be a part of a name: the longest that an
    operator goes by, from each comma on, is one.
    """
    known = {
        name.strip() for operator in dataflow.operators for name in (operator.name, *operator.also)
    }
    pieces = text.split(",")
    most = max((name.count(",") for name in known), default=0) + 1
    found, here = [], 0
    while here < len(pieces):
        ends = range(min(len(pieces), here + most), here, -1)
        end = next((end for end in ends if ",".join(pieces[here:end]).strip() in known), here + 1)
        found.append(",".join(pieces[here:end]).strip())
        here = end
    return [name for name in found if name]


def refused_as_too_large(reader: Reader, key: str, place: Place) -> bool:
    """Told before the value is read: `spec.values` has the same bound, and only says that it is
    no number above 0.
    """
    large = isinstance(place.value, int | float) and place.value > NUMBER_MAX
    if large and OPERATOR[key].kind in ("count", "number"):
        reader.complaints.add(place, "too large", f"at most {NUMBER_MAX:g}")
        return True
    return False


def refuse_doubles(complaints: Complaints, parts: Iterable[tuple[Place, Part]]) -> list[Part]:
    """The parts, each name or pair of ends once."""
    first: dict[object, Part] = {}
    for place, part in parts:
        said = part.name if isinstance(part, Operator) else part.ends
        if said not in first:
            first[said] = part
        elif isinstance(part, Operator):
            complaints.add(
                place,
                f"two operators are called {part.name!r}",
                "a name that no other operator has",
            )
        else:
            complaints.add(
                place, f"the edge {part.upstream} -> {part.downstream} stands twice", "each once"
            )
    return list(first.values())


def refuse_cycles(
    complaints: Complaints, dataflow: Dataflow, places: Mapping[tuple[str, str], Place]
) -> None:
    """For each knot a complaint that names a cycle in it, at the last of its edges that somebody
    wrote.
    """
    for way in cycles(graph_of(dataflow)):
        ends = list(pairwise(way))
        written = [places[end] for end in ends if end in places]
        place = written[-1] if written else Place(None, "")
        complaints.add(place, f"a cycle: {' -> '.join(way)}", "a dataflow without cycles")

"""State that belongs to no key, dealt to other subtasks: old subtask n's goes to new subtask n mod
the new parallelism, and what several get is joined in one file.

    handles_of(subtask)     (role, handle) of those that it has
    joined(held, copies)    Joined(content, states)

A file begins with a header of its states (a raw one has none), which has to be the same in all: it
is not read. Behind it are elements, each up to where the next one begins. A list's and a union's
are put behind each other; broadcast state is there once in each file, the same everywhere, and
every new subtask gets a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stateshift.errors import Incompatible
from stateshift.formats.flink.metadata import SubtaskState
from stateshift.formats.flink.operator_handles import BROADCAST, Partitioned

MANAGED, RAW = "operator", "raw operator"
UNKEYED = (MANAGED, RAW)  # the roles of such state: managed, and an operator's own
COMPRESSED_FROM = (
    6  # the version of a file's header since which it says whether what follows is compressed
)
_COMPRESSED_AT = 4


def handles_of(subtask: SubtaskState) -> Iterator[tuple[str, Partitioned]]:
    for role, handle in zip(UNKEYED, (subtask.managed_operator, subtask.raw_operator), strict=True):
        if handle is not None:
            yield role, handle


@dataclass(frozen=True, slots=True)
class Held:
    """One old subtask's: what its metadata says, and its file."""

    handle: Partitioned
    content: bytes
    raw: bool = False

    @property
    def starts(self) -> list[int]:
        offsets: set[int] = set()
        for state in self.handle.states:
            offsets.update(state.offsets)
        return sorted(offsets)

    @property
    def head(self) -> bytes:
        return self.content[: self.starts[0]]

    def elements(self) -> dict[int, bytes]:
        return {
            start: self.content[start:end]
            for start, end in pairwise((*self.starts, len(self.content)))
        }


@dataclass(frozen=True, slots=True)
class Joined:
    """A file, and its states: (name, mode, where their elements begin). Empty where there is
    nothing.
    """

    content: bytes = b""
    states: tuple[tuple[str, int, tuple[int, ...]], ...] = ()


def why_not(heads: Sequence[bytes], raw: bool) -> str | None:
    """What keeps files with these headers from being joined."""
    if not raw and any(_is_compressed(head) for head in heads):
        return "its operator state is compressed, and cannot be taken apart"
    if len(set(heads)) > 1:
        return "its operator states are others, or in another order, in one file than in another"
    return None


def joined(held: Iterable[Held], every: Iterable[Held]) -> Joined:
    """One new subtask's, of what it gets; `every` old subtask has the broadcast state."""
    own, others = ([one for one in some if one.starts] for some in (held, every))
    if not others:
        return Joined()
    why = why_not([one.head for one in others], others[0].raw)
    if why is not None:
        raise Incompatible(why, hint="leave out the rescale: Flink itself deals operator state out")
    out, places, at = [others[0].head], dict[tuple[str, int], list[int]](), len(others[0].head)
    for name, mode, element in _elements(own, _broadcast(others)):
        places.setdefault((name, mode), []).append(at)
        out.append(element)
        at += len(element)
    states = tuple((name, mode, tuple(offsets)) for (name, mode), offsets in places.items())
    return Joined(b"".join(out), states) if states else Joined()


Element = tuple[str, int, bytes]


def _elements(own: Sequence[Held], broadcast: Sequence[Element]) -> list[Element]:
    dealt = []
    for one in own:
        for elements in [one.elements()]:
            for state in one.handle.states:
                if state.mode != BROADCAST:
                    for offset in state.offsets:
                        dealt.append((state.name, state.mode, elements[offset]))
    return sorted(dealt, key=lambda element: element[0]) + list(broadcast)


def _broadcast(every: Sequence[Held]) -> list[Element]:
    found: dict[str, bytes] = {}
    for one in every:
        elements = one.elements()
        for state in one.handle.states:
            for offset in state.offsets if state.mode == BROADCAST else ():
                if found.setdefault(state.name, elements[offset]) != elements[offset]:
                    raise Incompatible(
                        (
                            f"broadcast state {state.name!r} is not the same everywhere: which "
                            "one counts cannot be told"
                        ),
                        hint="drop it from all but one, or rename its operator there",
                    )
    return [(name, BROADCAST, content) for name, content in sorted(found.items())]


def _is_compressed(head: bytes) -> bool:
    return (
        int.from_bytes(head[:_COMPRESSED_AT], "big") >= COMPRESSED_FROM
        and head[_COMPRESSED_AT] != 0
    )

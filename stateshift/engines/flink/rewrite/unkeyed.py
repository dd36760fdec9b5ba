"""State that belongs to no key, dealt to other subtasks: old subtask n's goes to new subtask n mod
the new parallelism, and what several get is joined in one file.

    handles_of(subtask)     (role, handle) of those that it has
    join_subtask(held, every)    Joined(content, states)

A file begins with a header of its states (a raw one has none), which has to be the same in all: it
is not read. Behind it are elements, each up to where the next one begins. A list's and a union's
are put behind each other; broadcast state is there once in each file, the same everywhere, and
every new subtask gets a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from stateshift.errors import Incompatible
from stateshift.formats.flink.metadata import SubtaskState
from stateshift.formats.flink.operator_handles import BROADCAST, Partitioned
from stateshift.formats.flink.operator_state import COMPRESSED_FROM

KEYED, MANAGED, RAW = "keyed", "operator", "raw operator"
UNKEYED = (MANAGED, RAW)  # the roles of such state: managed, and an operator's own
_COMPRESSED_AT = 4


def handles_of(subtask: SubtaskState) -> Iterator[tuple[str, Partitioned]]:
    """Yield role and handle of the state that belongs to no key."""
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

    def elements(self) -> Iterator[Element]:
        """Yield the elements, state by state: each ends where the next one of the file begins."""
        ends = dict(pairwise((*self.starts, len(self.content))))
        for state in self.handle.states:
            for offset in state.offsets:
                yield Element(state.name, state.mode, self.content[offset : ends[offset]])


class Element(NamedTuple):
    """One element of a state; broadcast state has one."""

    state: str
    mode: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """A file and its states (name, mode, where their elements begin); empty where none is."""

    content: bytes = b""
    states: tuple[tuple[str, int, tuple[int, ...]], ...] = ()


def why_not(heads: Sequence[bytes], raw: bool) -> str | None:
    """Return the obstacle to joining files with these headers."""
    for head in () if raw else heads:
        version = int.from_bytes(head[:_COMPRESSED_AT], "big")
        if version >= COMPRESSED_FROM and head[_COMPRESSED_AT] != 0:
            return "its operator state is compressed, and cannot be taken apart"
    if len(set(heads)) > 1:
        return "its operator states are others, or in another order, in one file than in another"
    return None


def join_subtask(held: Iterable[Held], every: Iterable[Held]) -> Joined:
    """Return one new subtask's, of what it gets; `every` old subtask has the broadcast state."""
    others = [file for file in every if file.starts]
    if not others:
        return Joined()
    heads = [file.head for file in others]
    why = why_not(heads, others[0].raw)
    if why is not None:
        raise Incompatible(why, hint="leave out the rescale: Flink itself deals operator state out")
    # The subtask's own elements, those of a state together.
    own: list[Element] = []
    for file in held:
        own += [element for element in file.elements() if element.mode != BROADCAST]
    own.sort(key=lambda element: element.state)
    return _file_of(heads[0], [*own, *_broadcast_elements(others)])


def _file_of(head: bytes, elements: Sequence[Element]) -> Joined:
    if not elements:
        return Joined()
    offsets: dict[tuple[str, int], list[int]] = {}
    at = len(head)
    for element in elements:
        offsets.setdefault((element.state, element.mode), []).append(at)
        at += len(element.content)
    states = tuple((name, mode, tuple(own)) for (name, mode), own in offsets.items())
    return Joined(head + b"".join(element.content for element in elements), states)


def _broadcast_elements(every: Iterable[Held]) -> list[Element]:
    """Return the broadcast state, which is the same everywhere."""
    by_state: dict[str, Element] = {}
    for file in every:
        for element in file.elements():
            if element.mode != BROADCAST:
                continue
            first = by_state.setdefault(element.state, element)
            if first.content != element.content:
                raise Incompatible(
                    f"broadcast state {element.state!r} is not the same everywhere: which one "
                    "counts is not known",
                    hint="drop it from all but one, or rename its operator there",
                )
    return [element for _, element in sorted(by_state.items())]

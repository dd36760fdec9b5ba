"""Moves in steps, one after the other: the strategies.

    AllAtOnce()  one step                     shortest, and every record waits for all of the state
    Fluid()      a move a step                a record waits for one bin's state
    Batched(k)   k moves a step               between the two
    Optimised()  moves that do not interfere  no worker gives two bins in a step, or takes two, in
                                              exactly as few steps as there can be

The moves of a step are made at one time; a step follows the one before. As text the strategies are
`all-at-once`, `fluid`, `batched(16)` and `optimised`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from stateshift.dataflow.edge_colouring import colours
from stateshift.errors import Complaint, SpecError
from stateshift.specification.grammars import STRATEGY_EXPECTED, normal_strategy


class Move(NamedTuple):
    """Bin `bin` from worker `source` to worker `target`."""

    bin: int
    source: int
    target: int


Step = tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """Every move in one step."""

    def __str__(self) -> str:
        return "all-at-once"


@dataclass(frozen=True, slots=True)
class Fluid:
    """A step for each move."""

    def __str__(self) -> str:
        return "fluid"


@dataclass(frozen=True, slots=True)
class Batched:
    """`moves` at a time."""

    moves: int

    def __str__(self) -> str:
        return f"batched({self.moves})"


@dataclass(frozen=True, slots=True)
class Optimised:
    """Return as few steps as possible in which no worker gives twice, nor takes twice."""

    def __str__(self) -> str:
        return "optimised"


Strategy = AllAtOnce | Fluid | Batched | Optimised


def in_steps(strategy: Strategy, moves: Sequence[Move]) -> tuple[Step, ...]:
    """Return the moves in the strategy's steps, each move in one of them. No step is empty."""
    match strategy:
        case AllAtOnce():
            return (tuple(moves),) if moves else ()
        case Fluid():
            return tuple((move,) for move in moves)
        case Batched(count):
            assert count > 0, "some moves at a time"
            spread = list(chain.from_iterable(_without_conflict(moves)))
            starts = range(0, len(spread), count)
            return tuple(tuple(spread[start : start + count]) for start in starts)
        case Optimised():
            return _without_conflict(moves)


def strategy_of(text: str, pointer: str = "/strategy") -> Strategy:
    """Return the strategy of a text: the inverse of `str`."""
    name = normal_strategy(text)
    if name is None:
        is_bare = text.strip() == "batched"
        message = "batched needs to know how many moves at a time" if is_bare else "no strategy"
        complaint = Complaint(pointer, message, text, STRATEGY_EXPECTED)
        raise SpecError((complaint,), hint="for instance: batched(16)")
    for strategy in (AllAtOnce(), Fluid(), Optimised()):
        if str(strategy) == name:
            return strategy
    return Batched(int(name.removeprefix("batched(").removesuffix(")")))


def degree(moves: Sequence[Move]) -> int:
    """Return the most moves out of one worker, or into one: no order has fewer steps without two in
    each other's way.
    """
    out = Counter(move.source for move in moves)
    into = Counter(move.target for move in moves)
    return max((*out.values(), *into.values()), default=0)


def _without_conflict(moves: Sequence[Move]) -> tuple[Step, ...]:
    """Return steps in which no worker gives twice, nor takes twice: exactly as many as its busiest
    worker has to make.
    """
    steps: list[list[Move]] = [[] for _ in range(degree(moves))]
    step_of = colours([(move.source, move.target) for move in moves])
    for move, number in zip(moves, step_of, strict=True):
        steps[number].append(move)
    return tuple(map(tuple, steps))

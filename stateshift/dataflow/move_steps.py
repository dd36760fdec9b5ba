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
from typing import NamedTuple

from stateshift.dataflow.edge_colouring import colours
from stateshift.errors import Complaint, SpecError
from stateshift.specification.strategy import EXPECTED, normal_strategy


class Move(NamedTuple):
    """Bin `bin` from worker `source` to worker `target`."""

    bin: int
    source: int
    target: int


Step = tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    def __str__(self) -> str:
        return "all-at-once"


@dataclass(frozen=True, slots=True)
class Fluid:
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
    def __str__(self) -> str:
        return "optimised"


Strategy = AllAtOnce | Fluid | Batched | Optimised


def in_steps(strategy: Strategy, moves: Sequence[Move]) -> tuple[Step, ...]:
    """The moves in the strategy's steps, each of them in one; none is empty."""
    match strategy:
        case AllAtOnce():
            return (tuple(moves),) if moves else ()
        case Fluid():
            return tuple((move,) for move in moves)
        case Batched(count):
            assert count > 0, "some moves at a time"
            spread = [move for step in _without_conflict(moves) for move in step]
            return tuple(tuple(spread[n : n + count]) for n in range(0, len(spread), count))
        case Optimised():
            return _without_conflict(moves)


def strategy_of(text: str, pointer: str = "/strategy") -> Strategy:
    """The inverse of `str`."""
    name = normal_strategy(text)
    plain = {str(strategy): strategy for strategy in (AllAtOnce(), Fluid(), Optimised())}
    if name is not None:
        return plain.get(name) or Batched(int(name.removeprefix("batched(").removesuffix(")")))
    message = (
        "batched needs to know how many moves at a time"
        if text.strip() == "batched"
        else "no strategy"
    )
    raise SpecError(
        (Complaint(pointer, message, text, EXPECTED),), hint="for instance: batched(16)"
    )


def degree(moves: Sequence[Move]) -> int:
    """The most moves out of one worker, or into one: no order has fewer steps without two in
    each other's way.
    """
    out, into = Counter(move.source for move in moves), Counter(move.target for move in moves)
    return max((*out.values(), *into.values()), default=0)


def _without_conflict(moves: Sequence[Move]) -> tuple[Step, ...]:
    """Steps in which no worker gives twice, nor takes twice: exactly as many as its busiest
    worker has to make.
    """
    steps: list[list[Move]] = [[] for _ in range(degree(moves))]
    for move, colour in zip(
        moves, colours([(move.source, move.target) for move in moves]), strict=True
    ):
        steps[colour].append(move)
    return tuple(tuple(step) for step in steps)

"""The strategies: moves in steps, one after the other.

    AllAtOnce()  one step                     shortest, and every record waits for all of the state
    Fluid()      a move a step                a record waits for one bin's state
    Batched(k)   k moves a step               between the two
    Optimised()  moves that do not interfere  a worker gives one bin and takes one bin in a step: it
                                              waits for
                                              one bin's state, in exactly as few steps as
                                              there can be

As text they are `all-at-once`, `fluid`, `batched(16)` and `optimised`. What each costs is told by
`cost`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stateshift.errors import Complaint, SpecError
from stateshift.specification.strategy import EXPECTED, normal_strategy
from stateshift.strategies.colouring import colours
from stateshift.strategies.moves import Move, Step, degree


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

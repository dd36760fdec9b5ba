"""Moves in steps, one after the other: the strategies.

    AllAtOnce()  one step                     shortest, and every record waits for all of the state
    Fluid()      a move a step                a record waits for one bin's state
    Batched(k)   k moves a step               between the two
    Optimised()  moves that do not interfere  no worker gives two bins in a step, or takes two, in
                                              exactly as few steps as there can be

The moves of a step are made at one time; a step follows the one before. As text the strategies are
`all-at-once`, `fluid`, `batched(16)` and `optimised`.

Moves are edges of a bipartite multigraph, from the workers that give to the workers that take, and
a colour is a step: `colours` gives edges that share an end different ones, and takes exactly Δ of
them, the most edges at one vertex.
The published code takes a maximum matching again and again, which may take up to half as many steps
more; König's theorem (1916) promises Δ. How it is done, in O(m log m log Δ) for m edges, without
one augmenting path:

    regular   vertices of few edges are glued together, edges that do not count are added: every
              vertex has Δ edges
    Δ even    a walk along all edges, every second one to the left half, the others to the right:
              twice Δ/2
    Δ odd     a perfect matching is a colour and taken out: Δ-1 is even
    matching  each edge 2^t/Δ times, filled up to 2^t at each vertex with edges that are none
              ("bad"); halved t times, each time the half with fewer bad edges is kept, and they are
              so few that the last has none (N. Alon, A simple algorithm for edge-coloring bipartite
              multigraphs, IPL 85, 2003)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

from stateshift.errors import SpecError
from stateshift.specification.grammars import STRATEGY_EXPECTED, normal_strategy


class BinMove(NamedTuple):
    """Bin `bin` from worker `source` to worker `target`."""

    bin: int
    source: int
    target: int


Step = tuple[BinMove, ...]


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


def in_steps(strategy: Strategy, moves: Sequence[BinMove]) -> tuple[Step, ...]:
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
        hint = "for instance: batched(16)"
        raise SpecError.of(pointer, message, text, STRATEGY_EXPECTED, hint=hint)
    for strategy in (AllAtOnce(), Fluid(), Optimised()):
        if str(strategy) == name:
            return strategy
    return Batched(int(name.removeprefix("batched(").removesuffix(")")))


def degree(moves: Sequence[BinMove]) -> int:
    """Return the most moves out of, or into, one worker: no order has fewer steps than that."""
    out = Counter(move.source for move in moves)
    into = Counter(move.target for move in moves)
    return max((*out.values(), *into.values()), default=0)


def _without_conflict(moves: Sequence[BinMove]) -> tuple[Step, ...]:
    """Return steps in which no worker gives or takes twice: as many as the busiest needs."""
    steps: list[list[BinMove]] = [[] for _ in range(degree(moves))]
    step_of = colours([(move.source, move.target) for move in moves])
    for move, number in zip(moves, step_of, strict=True):
        steps[number].append(move)
    return tuple(map(tuple, steps))


T = TypeVar("T")

Edge = tuple[int, int]


def colours(edges: Sequence[Edge]) -> list[int]:
    """Return a colour for each edge: Δ of them from 0 on, and the same ones every time."""
    regular, degree = _regular(edges)
    colour_of = [0] * len(regular)
    for colour, matching in enumerate(_matchings(regular, list(range(len(regular))), degree)):
        for place in matching:
            colour_of[place] = colour
    return colour_of[: len(edges)]


def _matchings(edges: Sequence[Edge], chosen: list[int], degree: int) -> list[list[int]]:
    """Split the chosen edges, `degree` of them at each vertex, into that many perfect matchings."""
    if degree == 0:
        return []
    if degree == 1:
        return [chosen]
    subgraph = _picked(edges, chosen)
    if degree % 2:
        matching, rest = _parted(chosen, set(_perfect(subgraph, degree)))
        return [matching, *_matchings(edges, rest, degree - 1)]
    left, right = _halves(subgraph)
    first = _matchings(edges, _picked(chosen, left), degree // 2)
    return first + _matchings(edges, _picked(chosen, right), degree // 2)


def _picked(items: Sequence[T], places: Iterable[int]) -> list[T]:
    return [items[place] for place in places]


def _parted(chosen: Sequence[int], places: Collection[int]) -> tuple[list[int], list[int]]:
    """Return the edges at these places, and the rest."""
    inside: list[int] = []
    rest: list[int] = []
    for place, edge in enumerate(chosen):
        side = inside if place in places else rest
        side.append(edge)
    return inside, rest


def _halves(edges: Sequence[Edge]) -> tuple[list[int], list[int]]:
    """Return the edges' places in two halves, every second edge of a walk in the other: each has
    half the edges of every vertex (an even number).
    """
    places_at: dict[int, list[int]] = {}  # of each vertex's edges; those of the right are `~right`
    for place, (left, right) in enumerate(edges):
        places_at.setdefault(left, []).append(place)
        places_at.setdefault(~right, []).append(place)
    walked = bytearray(len(edges))
    first: list[int] = []
    second: list[int] = []
    for start in dict.fromkeys(left for left, _ in edges):
        walk = list(_walk(edges, places_at, walked, start))
        first += walk[::2]
        second += walk[1::2]
    return first, second


def _walk(
    edges: Sequence[Edge], places_at: Mapping[int, list[int]], walked: bytearray, start: int
) -> Iterator[int]:
    """Yield the places of a walk from a left vertex along edges that have not been walked along."""
    is_at_left = True
    place = _unwalked(places_at[start], walked)
    while place is not None:
        walked[place] = 1
        yield place
        left, right = edges[place]
        vertex = ~right if is_at_left else left
        is_at_left = not is_at_left
        # A walk ends where it began: everywhere else it can leave again.
        place = _unwalked(places_at[vertex], walked)


def _unwalked(places: list[int], walked: bytearray) -> int | None:
    """Take edges off a vertex until one has not been walked along; None where all have."""
    while places:
        place = places.pop()
        if not walked[place]:
            return place
    return None


def _perfect(edges: Sequence[Edge], degree: int) -> list[int]:
    """Return the places of a perfect matching among edges of which every vertex has `degree`.

    Edges after the given ones are the bad ones. A weight is the number of times an edge is there.
    """
    vertices = len(edges) // degree
    times = (len(edges) - 1).bit_length()
    each, lacking = divmod(1 << times, degree)
    weights = dict.fromkeys(range(len(edges)), each)
    with_bad = list(edges)
    if lacking:
        with_bad += [(vertex, vertex) for vertex in range(vertices)]
        weights |= dict.fromkeys(range(len(edges), len(with_bad)), lacking)
    for _ in range(times):
        good = len(edges)
        odd = [place for place, weight in weights.items() if weight % 2]
        first, second = (_picked(odd, half) for half in _halves(_picked(with_bad, odd)))
        halved = {place: weight // 2 for place, weight in weights.items()}
        for place in min(first, second, key=lambda places: sum(place >= good for place in places)):
            halved[place] += 1
        weights = {place: weight for place, weight in halved.items() if weight}
    assert all(place < len(edges) for place in weights), "fewer bad edges than one are none"
    return list(weights)


def _regular(edges: Sequence[Edge]) -> tuple[list[Edge], int]:
    """Return the edges over glued vertices, then those that only fill up; and the degree."""
    left_counts, right_counts = _counts_of_ends(edges)
    degree = max((*left_counts.values(), *right_counts.values()), default=0)
    left_of, right_of = _glued(left_counts, degree), _glued(right_counts, degree)
    glued = [(left_of[left], right_of[right]) for left, right in edges]
    vertices = 1 + max(map(max, glued), default=-1)
    glued_left_counts, glued_right_counts = _counts_of_ends(glued)
    lefts = _lacking(glued_left_counts, vertices, degree)
    rights = _lacking(glued_right_counts, vertices, degree)
    return [*glued, *zip(lefts, rights, strict=True)], degree


def _counts_of_ends(edges: Sequence[Edge]) -> tuple[Counter[int], Counter[int]]:
    """Return the number of edges of each vertex, of the left side and of the right one."""
    return Counter(left for left, _ in edges), Counter(right for _, right in edges)


def _glued(counts: Counter[int], degree: int) -> dict[int, int]:
    """Glue vertices together up to `degree` edges: at most twice as many stay as are needed."""
    glued: dict[int, int] = {}
    vertex, load = -1, degree
    for name in sorted(counts):
        if load + counts[name] > degree:
            vertex, load = vertex + 1, 0
        glued[name] = vertex
        load += counts[name]
    return glued


def _lacking(counts: Counter[int], vertices: int, degree: int) -> list[int]:
    """Return each vertex as many times as it lacks edges."""
    lacking: list[int] = []
    for vertex in range(vertices):
        lacking += [vertex] * (degree - counts[vertex])
    return lacking

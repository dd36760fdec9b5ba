"""A bipartite multigraph's edges in exactly Δ colours, Δ being the most edges at one vertex. Never
more.

    colours(edges) -> a colour from 0 to Δ-1 for each edge; edges that share an end have different
    ones

Moves are such edges, from the workers that give to the workers that take, and a colour is a step.
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
from collections.abc import Callable, Sequence

Edge = tuple[int, int]


def colours(edges: Sequence[Edge]) -> list[int]:
    """A colour for each edge (left, right), from 0 on. Exactly Δ of them are used, and the same
    ones every time.
    """
    regular, degree = _regular(edges)
    found = [0] * len(regular)
    for colour, matched in enumerate(_matchings(regular, list(range(len(regular))), degree)):
        for edge in matched:
            found[edge] = colour
    return found[: len(edges)]


def _matchings(edges: Sequence[Edge], chosen: list[int], degree: int) -> list[list[int]]:
    """The chosen edges, `degree` of them at each vertex, as that many perfect matchings."""
    if degree == 0:
        return []
    if degree == 1:
        return [chosen]
    if degree % 2:
        matched = set(_perfect([edges[n] for n in chosen], degree))
        left = [edge for place, edge in enumerate(chosen) if place not in matched]
        return [[chosen[place] for place in sorted(matched)], *_matchings(edges, left, degree - 1)]
    halves = _halves([edges[n] for n in chosen])
    parts = ([chosen[place] for place in half] for half in halves)
    return [matching for part in parts for matching in _matchings(edges, part, degree // 2)]


def _halves(edges: Sequence[Edge]) -> tuple[list[int], list[int]]:
    """The edges' places in two halves, each with exactly half the edges of every vertex. All
    have an even number.
    """
    beside: dict[int, list[int]] = {}
    for place, (left, right) in enumerate(edges):
        beside.setdefault(left, []).append(place)
        beside.setdefault(~right, []).append(place)
    gone, halves = bytearray(len(edges)), ([0] * 0, [0] * 0)
    for start in [vertex for vertex in beside if vertex >= 0]:
        vertex, side = start, 0
        while True:  # a walk ends where it began: everywhere else it can leave again
            around = beside[vertex]
            while around and gone[around[-1]]:
                around.pop()
            if not around:
                break
            place = around.pop()
            gone[place] = 1
            halves[side].append(place)
            vertex, side = (~edges[place][1], 1) if side == 0 else (edges[place][0], 0)
    return halves


def _perfect(edges: Sequence[Edge], degree: int) -> list[int]:
    """The places of a perfect matching among edges of which every vertex has `degree`."""
    vertices = len(edges) // degree
    times = (len(edges) - 1).bit_length()
    each, rest = divmod(1 << times, degree)
    everything = [*edges, *((vertex, vertex) for vertex in range(vertices))]
    weights = dict.fromkeys(range(len(edges)), each)
    weights.update(dict.fromkeys(range(len(edges), len(everything)), rest) if rest else {})
    for _ in range(times):
        odd = [place for place, weight in weights.items() if weight % 2]
        kept = [{odd[n] for n in half} for half in _halves([everything[place] for place in odd])]
        bad = [sum(place >= len(edges) for place in half) for half in kept]
        better = kept[0] if bad[0] <= bad[1] else kept[1]
        halved = ((place, weight // 2 + (place in better)) for place, weight in weights.items())
        weights = {place: weight for place, weight in halved if weight}
    assert all(place < len(edges) for place in weights), "fewer bad edges than one are none"
    return list(weights)


def _regular(edges: Sequence[Edge]) -> tuple[list[Edge], int]:
    """The edges over glued vertices, numbered from 0 on both sides, and behind them those that
    do not count.
    """
    counts = Counter(left for left, _ in edges), Counter(right for _, right in edges)
    degree = max((*counts[0].values(), *counts[1].values()), default=0)
    glued = [_glued(count, degree) for count in counts]
    found = [(glued[0][left], glued[1][right]) for left, right in edges]
    vertices = 1 + max((vertex for edge in found for vertex in edge), default=-1)
    lacking = [_lacking(found, side, vertices, degree) for side in (0, 1)]
    return [*found, *zip(*lacking, strict=True)], degree


def _glued(counts: Counter[int], degree: int) -> dict[int, int]:
    """Neighbours as one vertex while they have no more than `degree` edges together: so no more
    vertices are left than twice as many as the edges need.
    """
    found: dict[int, int] = {}
    vertex, load = -1, degree
    for name in sorted(counts):
        if load + counts[name] > degree:
            vertex, load = vertex + 1, 0
        found[name], load = vertex, load + counts[name]
    return found


def _lacking(edges: Sequence[Edge], side: int, vertices: int, degree: int) -> list[int]:
    """Each vertex as many times as it lacks edges."""
    end: Callable[[Edge], int] = lambda edge: edge[side]  # noqa: E731
    has = Counter(map(end, edges))
    return [vertex for vertex in range(vertices) for _ in range(degree - has[vertex])]

"""Moves in steps: the four strategies, and the least number of steps that moves without conflict
can take.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.dataflow.move_steps import (
    AllAtOnce,
    Batched,
    BinMove,
    Edge,
    Fluid,
    Optimised,
    Step,
    Strategy,
    colours,
    degree,
    in_steps,
    strategy_of,
)
from stateshift.errors import SpecError
from stateshift.live.protocol.configuration import Update, moves_between, updates_of

RANDOM_ONES = 10_000
STRATEGIES: tuple[Strategy, ...] = (
    AllAtOnce(),
    Fluid(),
    Batched(1),
    Batched(3),
    Batched(1000),
    Optimised(),
)


def _random_edges(chance: random.Random, vertices: int, edges: int) -> list[Edge]:
    left, right = chance.randint(1, vertices), chance.randint(1, vertices)
    return [
        (chance.randrange(left), chance.randrange(right)) for _ in range(chance.randint(0, edges))
    ]


def _degree(edges: Sequence[Edge]) -> int:
    ends = Counter(edge[0] for edge in edges), Counter(edge[1] for edge in edges)
    return max((*ends[0].values(), *ends[1].values()), default=0)


def _conflicts(edges: Sequence[Edge], found: Sequence[int]) -> int:
    """How many ends of edges share a vertex and a colour with another."""
    seen = Counter(
        (side, edge[side], colour)
        for edge, colour in zip(edges, found, strict=True)
        for side in (0, 1)
    )
    return sum(count - 1 for count in seen.values())


def _fewest_colours(edges: Sequence[Edge]) -> int:
    """By trying: the least number of matchings that hold all edges."""

    @cache
    def fewest(left: tuple[Edge, ...]) -> int:
        return min((1 + fewest(rest) for rest in _without_a_matching(left)), default=0)

    return fewest(tuple(sorted(edges)))


def _without_a_matching(edges: tuple[Edge, ...]) -> list[tuple[Edge, ...]]:
    """What is left without a matching that has the first edge, for each such matching."""
    found: list[tuple[Edge, ...]] = []

    def choose(at: int, taken: tuple[Edge, ...], rest: tuple[Edge, ...]) -> None:
        if at == len(edges):
            found.append(rest)
            return
        edge = edges[at]
        if all(edge[0] != left and edge[1] != right for left, right in taken):
            choose(at + 1, (*taken, edge), rest)
        if taken:
            choose(at + 1, taken, (*rest, edge))

    if edges:
        choose(0, (), ())
    return found


@pytest.mark.long
@pytest.mark.row("M-3")
def test_on_ten_thousand_random_ones_as_many_colours_are_used_as_the_busiest_vertex_has_edges(
    seed: int,
) -> None:
    print(f"seed: {seed}")
    chance = random.Random(seed)
    for _ in range(RANDOM_ONES):
        edges = _random_edges(chance, vertices=chance.choice((2, 4, 16)), edges=32)
        found = colours(edges)
        assert sorted(set(found)) == list(range(_degree(edges))), edges
        assert _conflicts(edges, found) == 0, edges


@pytest.mark.row("M-3")
def test_fewer_colours_than_we_use_are_not_to_be_found_by_trying_all(seed: int) -> None:
    print(f"seed: {seed}")
    chance = random.Random(seed)
    for _ in range(150):
        edges = _random_edges(chance, vertices=4, edges=8)
        assert len(set(colours(edges))) == _fewest_colours(edges), edges


def test_a_large_one_takes_no_step_more_either(seed: int) -> None:
    print(f"seed: {seed}")
    chance = random.Random(seed)
    edges = [(chance.randrange(64), chance.randrange(64)) for _ in range(8192)]
    found = colours(edges)
    assert len(set(found)) == _degree(edges)
    assert _conflicts(edges, found) == 0


def test_conflicts_and_colours_too_many_would_be_seen() -> None:
    edges = [(0, 0), (0, 1), (1, 1)]
    assert _conflicts(edges, [0, 0, 0]) == 2
    assert _conflicts(edges, [0, 1, 0]) == 0
    assert _fewest_colours([(0, 0), (0, 0), (1, 0)]) == 3


@st.composite
def moves(draw: st.DrawFn) -> tuple[BinMove, ...]:
    bins, workers = 1 << draw(st.integers(0, 6)), draw(st.integers(1, 6))
    assigned = st.lists(st.integers(0, workers - 1), min_size=bins, max_size=bins)
    return moves_between(draw(assigned), draw(assigned))


@pytest.mark.row("M-3")
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@given(moves=moves())
@settings(deadline=None)
def test_every_strategy_makes_every_move_once(
    strategy: Strategy, moves: tuple[BinMove, ...]
) -> None:
    steps = in_steps(strategy, moves)
    assert sorted(move for step in steps for move in step) == sorted(moves)
    assert all(steps)


@pytest.mark.row("M-3")
@given(moves=moves(), count=st.integers(1, 9))
@settings(deadline=None)
def test_steps_are_as_many_and_as_large_as_the_strategy_says(
    moves: tuple[BinMove, ...], count: int
) -> None:
    sizes = [
        [len(step) for step in in_steps(s, moves)] for s in (AllAtOnce(), Fluid(), Batched(count))
    ]
    assert sizes[0] == ([len(moves)] if moves else [])
    assert sizes[1] == [1] * len(moves)
    assert sizes[2][:-1] == [count] * (max(0, len(moves) - 1) // count)
    optimised = in_steps(Optimised(), moves)
    assert len(optimised) == degree(moves)
    assert all(_without_conflict(step) for step in optimised)


def _without_conflict(step: Step) -> bool:
    ends = [move.source for move in step], [move.target for move in step]
    return all(len(set(end)) == len(end) for end in ends)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_a_strategy_is_read_from_its_own_words(strategy: Strategy) -> None:
    assert strategy_of(str(strategy)) == strategy


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("All at once", AllAtOnce()),
        (" FLUID ", Fluid()),
        ("optimized", Optimised()),
        ("batched( 007 )", Batched(7)),
    ],
)
def test_its_words_may_be_spelled_as_keys_may(text: str, strategy: Strategy) -> None:
    assert strategy_of(text) == strategy


@pytest.mark.parametrize(
    "text", ["", "batched", "batched(0)", "batched(-1)", "fluid(3)", "sudden", "batched(1e3)"]
)
def test_other_words_are_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        strategy_of(text, "/jobs/0/strategy")
    (complaint,) = refused.value.complaints
    assert (complaint.pointer, complaint.found) == ("/jobs/0/strategy", text)
    assert "batched(k)" in str(complaint.expected)


def test_what_differs_moves() -> None:
    found = moves_between([0, 0, 2, 2], [0, 1, 2, 3])
    assert found == (BinMove(1, 0, 1), BinMove(3, 2, 3))
    assert updates_of(found, 45) == (Update(45, 1, 1), Update(45, 3, 3))
    assert degree([BinMove(0, 0, 1), BinMove(1, 0, 2), BinMove(2, 1, 2), BinMove(3, 3, 2)]) == 3


def test_sides_that_do_not_fit_each_other_are_refused_together() -> None:
    with pytest.raises(SpecError) as refused:
        moves_between([0, 0, 0], [0, 0])
    assert [complaint.pointer for complaint in refused.value.complaints] == ["/before", "/after"]

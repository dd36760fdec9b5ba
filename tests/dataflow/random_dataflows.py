"""Dataflows drawn by hypothesis: any acyclic shape, with every flag there is."""

from __future__ import annotations

from hypothesis import strategies as st

from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge

ONE_TO_ONE = ("one-to-one",)
ANY_KIND = ("one-to-one", "one-to-one", "one-to-many", "one-to-many", "blocking")


@st.composite
def dataflows(
    draw: st.DrawFn,
    size_max: int = 5,
    kinds: tuple[str, ...] = ANY_KIND,
    workers_max: int = 1,
    flags: bool = True,
) -> Dataflow:
    """Operators a, b, c …, edges only from earlier to later ones. `flags` draws what the kinds
    alone do not say.
    """
    some = st.booleans() if flags else st.just(False)
    size = draw(st.integers(2, size_max))
    ways = st.sampled_from(
        ("forward", "partitioned", "broadcast") if workers_max > 1 and flags else ("forward",)
    )
    operators = tuple(
        DataflowOperator(
            "abcdefghijkl"[i],
            draw(st.sampled_from(kinds)),
            draw(some),
            draw(st.integers(1, workers_max)),
        )  # type: ignore[arg-type]
        for i in range(size)
    )
    pairs = [(i, j) for i in range(size) for j in range(i + 1, size) if draw(st.integers(0, 2)) < 2]
    single = [draw(some) and operators[i].kind == "one-to-many" for i, _ in pairs]
    edges = tuple(
        Edge(operators[i].name, operators[j].name, draw(ways), one)  # type: ignore[arg-type]
        for (i, j), one in zip(pairs, single, strict=True)
    )
    return Dataflow(operators, edges)


@st.composite
def with_targets(
    draw: st.DrawFn, flows: st.SearchStrategy[Dataflow]
) -> tuple[Dataflow, tuple[str, ...]]:
    dataflow = draw(flows)
    chosen = draw(st.sets(st.sampled_from(dataflow.names), min_size=1, max_size=4))
    return dataflow, tuple(name for name in dataflow.names if name in chosen)

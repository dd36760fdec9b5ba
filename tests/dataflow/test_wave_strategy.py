"""The jobs of a spec, moved as bins are: which of them make a wave."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.errors import SpecError
from stateshift.migration import waves
from stateshift.specification import Spec, parse_spec

pytestmark = pytest.mark.row("IS-8")


def asked(moves: list[tuple[str, str]], **more: Any) -> Spec:
    """One job for each pair of clusters, called by its number."""
    clusters = sorted({name for pair in moves for name in pair})
    jobs = [
        {
            "name": f"{n}",
            "checkpoint_location": f"file:///{here}/{n}",
            "remote_location": f"file:///{there}/{n}",
            "source_cluster": here,
            "target_cluster": there,
        }
        for n, (here, there) in enumerate(moves)
    ]
    kinds = {name: {"kind": "manual"} for name in clusters}
    return parse_spec(
        json.dumps({"version": 1, "engine": "spark", "clusters": kinds, "jobs": jobs, **more})
    )


def names(spec: Spec) -> list[list[str]]:
    return [[job.name for job in wave] for wave in waves(spec)]


FOUR = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (None, [["0"], ["1"], ["2"], ["3"]]),
        ("fluid", [["0"], ["1"], ["2"], ["3"]]),
        ("All at once", [["0", "1", "2", "3"]]),
        ("optimised", [["0", "3"], ["1", "2"]]),
        ("batched(2)", [["0", "3"], ["1", "2"]]),
        ("batched(3)", [["0", "1", "2"], ["3"]]),
        ("batched(9)", [["0", "1", "2", "3"]]),
    ],
)
def test_a_strategy_says_which_jobs_move_together(
    strategy: str | None, expected: list[list[str]]
) -> None:
    found = names(asked(FOUR, **({"strategy": strategy} if strategy else {})))
    assert found == expected


def test_jobs_without_clusters_are_told_apart_by_their_storages() -> None:
    places = ["hdfs://a:8020/1", "hdfs://a:8020/2", "s3://b/3"]
    jobs = [
        {"name": place[-1], "checkpoint_location": place, "remote_location": f"file:///moved/{n}"}
        for n, place in enumerate(places)
    ]
    spec = parse_spec(
        json.dumps({"version": 1, "engine": "spark", "strategy": "optimised", "jobs": jobs})
    )
    assert names(spec) == [["1"], ["2"], ["3"]], "all of them go to one disk"
    for job, host in zip(jobs, "xyz", strict=True):
        job["remote_location"] = f"hdfs://{host}:8020/moved"
    spec = parse_spec(
        json.dumps({"version": 1, "engine": "spark", "strategy": "optimised", "jobs": jobs})
    )
    assert names(spec) in ([["1", "3"], ["2"]], [["1"], ["2", "3"]])


@pytest.mark.parametrize("strategy", ["fluid", "optimised", "batched(1)"])
def test_jobs_that_share_a_source_stay_together(strategy: str) -> None:
    moves = [
        {
            "name": name,
            "checkpoint_location": "file:///here/workflow",
            "remote_location": f"file:///{name}",
            "operators": [name],
        }
        for name in ("one", "two")
    ]
    other = {
        "name": "other",
        "checkpoint_location": "file:///here/other",
        "remote_location": "file:///moved",
    }
    spec = parse_spec(
        json.dumps(
            {
                "version": 1,
                "engine": "spark",
                "strategy": strategy,
                "jobs": [moves[0], other, moves[1]],
            }
        )
    )
    assert sorted(map(tuple, names(spec))) == [("one", "two"), ("other",)]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz")), min_size=1, max_size=30),
    st.sampled_from(
        ["fluid", "all-at-once", "optimised", "batched(1)", "batched(4)", "batched(100)"]
    ),
)
def test_every_job_moves_once_and_an_optimised_wave_has_no_two_that_contend(
    moves: list[tuple[str, str]], strategy: str
) -> None:
    found = [[moves[int(name)] for name in wave] for wave in names(asked(moves, strategy=strategy))]
    assert sorted(move for wave in found for move in wave) == sorted(moves)
    if strategy == "optimised":
        ends = [Counter(side) for side in zip(*moves, strict=True)]
        assert len(found) == max(max(side.values()) for side in ends), "as few as there can be"
        assert all(
            len(set(side)) == len(side) for wave in found for side in zip(*wave, strict=True)
        )
    if strategy == "batched(4)":
        assert sorted(map(len, found))[1:] == [4] * (len(found) - 1)
    if strategy in ("fluid", "batched(1)"):
        assert [move for wave in found for move in wave] == moves, (
            "one after the other, as the spec has them"
        )


@pytest.mark.parametrize(
    ("more", "pointer", "told"),
    [
        ({"strategy": "sudden"}, "/strategy", '"sudden" is not all-at-once, fluid, batched(k)'),
        ({"strategy": "batched(0)"}, "/strategy", '"batched(0)" is not'),
        ({"strategy": 3}, "/strategy", "3 is not"),
        ({"strategy": "fluid", "waves": [["0", "1", "2", "3"]]}, "/strategy", "beside waves"),
    ],
)
def test_what_is_no_strategy_is_refused_where_it_stands(
    more: dict[str, Any], pointer: str, told: str
) -> None:
    with pytest.raises(SpecError) as refused:
        asked(FOUR, **more)
    (complaint,) = refused.value.complaints
    assert complaint.pointer == pointer
    assert told in complaint.message


def test_a_cut_that_moves_between_several_clusters_is_a_wave_of_its_own() -> None:
    operators = [{"name": "o0", "job": "0"}, {"name": "o1", "job": "1"}]
    parts = [{"name": f"o{n}", "job": f"{n}"} for n in (2, 3)]
    flow = {"operators": [*operators, *parts], "edges": ["o0 -> o1"]}
    spec = asked(
        [("c1", "d1"), ("c2", "d2"), ("c2", "d3"), ("c3", "d2")],
        strategy="optimised",
        dataflow=flow,
    )
    assert names(spec) == [["0", "1"], ["2", "3"]]
    spec = asked(
        [("c1", "d1"), ("c1", "d1"), ("c2", "d3"), ("c1", "d2")],
        strategy="optimised",
        dataflow=flow,
    )
    assert names(spec) == [["0", "1"], ["2", "3"]]

"""Why operators are part of a change: somebody is told of each, whatever the dataflow."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.dataflow.components import RULES
from stateshift.dataflow.schedulers import SCHEDULERS, reasons, schedule
from stateshift.specification.dataflow.operators import Dataflow
from tests.dataflow.random_dataflows import dataflows, with_targets

Asked = tuple[Dataflow, tuple[str, ...]]


@settings(max_examples=200, deadline=None)
@given(with_targets(dataflows(size_max=8)), st.sampled_from(SCHEDULERS), st.sampled_from(RULES))
def test_everybody_who_waits_or_says_a_version_or_was_spared_has_a_reason(
    asked: Asked, scheduler: str, rule: str
) -> None:
    made = schedule(*asked, scheduler, rule)  # type: ignore[arg-type]
    told = reasons(made)
    names = [name for name, _ in told]
    pruned = [one.operator for one in made.pruned]
    assert names[: len(made.paused) + len(made.tagging_only) + len(pruned)] == [
        *made.paused,
        *made.tagging_only,
        *pruned,
    ]
    for name, why in told:
        between = why.startswith("on a way from")
        first, _, second = why.partition(":")[0].removeprefix("on a way from ").partition(" to ")
        assert not between or (second in asked[1] and first in made.members), f"{name}: {why}"
        assert not why.endswith("may meet both") or first in asked[1], f"{name}: {why}"

"""State that was changed on its way goes on in a real Spark as if nothing had happened: a sample. `./scripts/matrix`
runs every combination of kind, provider and change (tests/matrix.md)."""

from __future__ import annotations

import pytest

from tests.acceptance.matrix.outcomes import Outcome
from tests.acceptance.samples import CELLS

pytestmark = pytest.mark.spark


@pytest.mark.row("IS-11")
@pytest.mark.row("IS-12")
@pytest.mark.row("IS-16")
@pytest.mark.row("IS-17")
def test_changed_state_goes_on_as_if_nothing_had_happened(changed: dict[str, Outcome]) -> None:
    assert {name: (outcome.result, outcome.told) for name, outcome in changed.items()} == {
        cell.name: ("passed", "") for cell in CELLS
    }


def test_the_sample_has_state_of_python_and_both_providers() -> None:
    assert {"pandas", "timed", "expiring"} < {cell.base.kind for cell in CELLS}
    assert {cell.base.provider.partition("-")[0] for cell in CELLS} == {"hdfs", "rocksdb"}

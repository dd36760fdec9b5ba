"""State that was changed on its way goes on in a real Spark as if nothing had happened: a sample.
`./scripts/matrix` runs every combination of kind, provider and change (tests/matrix.md).
"""

from __future__ import annotations

import pytest

from tests.acceptance.matrix.kinds import KINDS, NEWEST, PROVIDERS, Base, Cell, missing
from tests.acceptance.matrix.outcomes import Outcome
from tests.acceptance.matrix.running import Version
from tests.acceptance.samples import CELLS, CELLS_BY_DEFAULT

pytestmark = pytest.mark.spark


@pytest.mark.row("IS-11")
@pytest.mark.row("IS-12")
@pytest.mark.row("IS-16")
@pytest.mark.row("IS-17")
def test_changed_state_goes_on_as_if_nothing_had_happened(
    changed: dict[str, Outcome], cells: list[Cell]
) -> None:
    assert {name: (outcome.result, outcome.told) for name, outcome in changed.items()} == {
        cell.name: ("passed", "") for cell in cells
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "provider",
    ["hdfs", "rocksdb", "rocksdb-changelog", "rocksdb-format2", "rocksdb-changelog-format2"],
)
@pytest.mark.parametrize("change", ["renumber", "import"])
def test_state_of_every_kind_goes_on_under_new_numbers_and_from_its_own_rows(
    spark: Version, provider: str, change: str
) -> None:
    bases = [Base(NEWEST, kind, provider) for kind in KINDS]
    able = [
        base for base in bases if missing(NEWEST, KINDS[base.kind], PROVIDERS[provider]) is None
    ]
    cells = [Cell(base, change) for base in able]
    outcomes = {outcome.cell: (outcome.result, outcome.told) for outcome in spark.outcomes(cells)}
    assert outcomes == {cell.name: ("passed", "") for cell in cells}


def test_the_sample_has_state_of_python_and_both_providers() -> None:
    assert {"pandas", "timed", "expiring"} < {cell.base.kind for cell in CELLS}
    assert "timed" in {cell.base.kind for cell in CELLS_BY_DEFAULT}
    for cells in (CELLS, CELLS_BY_DEFAULT):
        assert {cell.base.provider.partition("-")[0] for cell in cells} == {"hdfs", "rocksdb"}

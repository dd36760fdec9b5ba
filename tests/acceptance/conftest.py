"""One Spark version's ground for all samples of the matrix: what one of them has run, the others
use.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.acceptance.matrix.kinds import NEWEST, Cell
from tests.acceptance.matrix.outcomes import Outcome
from tests.acceptance.matrix.running import Version
from tests.acceptance.samples import CELLS, CELLS_BY_DEFAULT, DAMAGES


@pytest.fixture(scope="session")
def cells(request: pytest.FixtureRequest) -> list[Cell]:
    return CELLS if request.config.getoption("--full") else CELLS_BY_DEFAULT


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """The Spark that the package is installed with, and all jobs of the samples as it left them."""
    return Version(NEWEST, tmp_path_factory.mktemp("matrix"), Path(sys.executable))


@pytest.fixture(scope="session")
def changed(spark: Version, cells: list[Cell]) -> dict[str, Outcome]:
    return {outcome.cell: outcome for outcome in spark.outcomes(cells)}


@pytest.fixture(scope="session")
def damaged(spark: Version) -> dict[str, Outcome]:
    return {outcome.cell: outcome for outcome in spark.verdicts(DAMAGES)}

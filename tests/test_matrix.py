"""The pages of what was run on real Sparks name every combination that there is, and none that failed."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.matrix import table
from tests.acceptance.matrix.damage import every as every_damage
from tests.acceptance.matrix.kinds import KINDS, PROVIDERS, TITLES, Cell, every_cell, missing
from tests.acceptance.matrix.outcomes import Lines
from tests.acceptance.matrix.running import chunks, in_order, needs

HERE = Path(__file__).parent


def rows(page: str, columns: int) -> list[list[str]]:
    """The first columns of every row of the page's tables."""
    lines = (line for line in page.splitlines() if line.startswith("| "))
    return [[cell.strip() for cell in line.split(" | ")][:columns] for line in lines]


def test_the_page_of_the_matrix_has_a_row_for_every_combination() -> None:
    page = (HERE / "matrix.md").read_text()
    assert rows(page, 3) == rows(table.written(list(every_cell()), {}), 3)
    assert "FAILED" not in page


def test_the_page_of_damages_has_a_row_for_each_of_a_hundred() -> None:
    page = (HERE / "damage.md").read_text()
    assert len(every_damage()) > 100
    assert len(rows(page, 1)) == len(every_damage()) + 1
    assert "FAILED |" not in page


def test_every_kind_is_changed_in_every_provider_that_spark_has_it_in() -> None:
    cells = list(every_cell())
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        base = cell.base
        assert missing(base.version, KINDS[base.kind], PROVIDERS[base.provider]) is None
        assert needs(cell)
    assert {cell.base.kind for cell in cells} == set(KINDS) == set(TITLES)


def test_a_run_takes_one_version_at_a_time_and_loses_nothing() -> None:
    wanted = in_order([*every_cell(), *every_damage()])
    parts = list(chunks(wanted, 7))
    assert [one for part in parts for one in part] == wanted
    assert all(len({(type(one), one.base.version) for one in part}) == 1 and len(part) <= 7 for part in parts)
    assert not isinstance(parts[0][0], Cell)


def test_a_line_that_was_cut_short_is_forgotten_and_what_follows_is_not(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "lines")
    lines.add("a", 1)
    lines.add("b", [2])
    with (tmp_path / "lines").open("a") as file:
        file.write('["c", [3')
    again = Lines(tmp_path / "lines")
    assert again.held == {"a": 1, "b": [2]}
    again.add("d", 4)
    assert Lines(tmp_path / "lines").held == {"a": 1, "b": [2], "d": 4}

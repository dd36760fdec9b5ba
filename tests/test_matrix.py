"""The pages of what was run on real Sparks name every combination that there is, and none that
failed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.acceptance import crossing
from tests.acceptance.matrix import table
from tests.acceptance.matrix.damage import every as every_damage
from tests.acceptance.matrix.kinds import (
    KINDS,
    NEWEST,
    PROVIDERS,
    TITLES,
    Base,
    Cell,
    every_cell,
    missing,
)
from tests.acceptance.matrix.outcomes import Lines
from tests.acceptance.matrix.running import Version, chunks, in_order, needs
from tests.support.checkpoints import Checkpoint

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


def test_what_an_older_spark_does_not_go_on_with_is_refused_by_name() -> None:
    page = (HERE / "versions.md").read_text()
    told = {(writer.strip("| "), kind, provider) for writer, kind, provider in rows(page, 3)}
    assert {(NEWEST, base.kind, base.provider) for base in crossing.bases(NEWEST)} - told <= {
        (NEWEST, "join-1", provider)
        for provider in PROVIDERS  # which it does not start
    }
    assert crossing.MISSED not in page
    assert {"refused", "goes on", "warned"} <= {
        cell for row in rows(page, 12) for cell in (c.strip(" |") for c in row)
    }


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
    assert all(
        len({(type(one), one.base.version) for one in part}) == 1 and len(part) <= 7
        for part in parts
    )
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


FAKE = """#!{python}
import json, sys
from pathlib import Path

here = Path(__file__).parent
asked = json.loads(Path(sys.argv[2]).read_text())
dies = (here / "dies").exists()
with (here / "log").open("a") as log, open(sys.argv[3], "a") as results:
    for order in asked[:1] if dies else asked:
        log.write(order["name"] + "\\n")
        checkpoint, output = Path(order["checkpoint"]), Path(order["output"])
        first = 3 if checkpoint.exists() else 0
        output.mkdir(parents=True, exist_ok=True)
        for path, text in json.loads((here / "files").read_text()).items() if not first else ():
            (checkpoint / path).parent.mkdir(parents=True, exist_ok=True)
            (checkpoint / path).write_bytes(bytes.fromhex(text))
        for batch in range(first, first + 2):
            (output / f"{{batch:06}}.json").write_text(f"a row of {{batch}}\\n")
        results.write(json.dumps({{"name": order["name"], "wrong": None}}) + "\\n")
"""


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """An executable in Spark's place: every job has the same small checkpoint, and puts out the
    same rows. It notes what it was asked; where there is a file `dies` beside it, it ends after the
    first.
    """
    path = tmp_path / "spark" / "python"
    path.parent.mkdir()
    path.write_text(FAKE.format(python=sys.executable))
    path.chmod(0o755)
    files = Checkpoint(inputs="file:///in").files()
    (path.parent / "files").write_text(
        json.dumps({name: content.hex() for name, content in files.items()})
    )
    return path


def asked(fake: Path) -> list[str]:
    log = fake.parent / "log"
    return log.read_text().splitlines() if log.exists() else []


def test_what_a_spark_was_asked_once_it_is_not_asked_again_until_other_bytes_come_out(
    fake: Path,
) -> None:
    state = fake.parent / "state"
    cell = Cell(Base(NEWEST, "unique", "hdfs"), "compact")
    (first,) = Version(NEWEST, state, fake).outcomes([cell])
    assert (first.result, first.told) == ("passed", "")
    before = asked(fake)
    assert len(before) == len(set(before)) == 3, "the base, the untouched one, and the changed one"
    (again,) = Version(NEWEST, state, fake).outcomes([cell])
    assert (again, asked(fake)) == (first, before)
    (base,) = state.glob("*/unique.hdfs/whole/checkpoint/commits/2")
    base.write_bytes(base.read_bytes() + b" ")
    list(Version(NEWEST, state, fake).outcomes([cell]))
    assert asked(fake) == [*before, before[-1]]


def test_a_spark_that_dies_is_started_again_for_what_it_had_not_done(fake: Path) -> None:
    (fake.parent / "dies").touch()
    cells = [Cell(Base(NEWEST, "unique", "hdfs"), change) for change in ("compact", "fork")]
    found = list(Version(NEWEST, fake.parent / "state", fake).outcomes(cells))
    assert [outcome.result for outcome in found] == ["passed", "passed"]
    assert len(asked(fake)) == 4

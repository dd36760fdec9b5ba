"""A table of RocksDB, looked at alone."""

from pathlib import Path

import pytest

from stateshift import look
from stateshift.errors import FormatError
from tests.formats.golden import CASES, expected

CASE = next(
    case for case in CASES if case.name == "window-rocksdb" and case.parent.name == "spark-4.3.0"
)


def tables() -> list[Path]:
    return sorted((CASE / "checkpoint").glob("state/0/*/SSTs/*.sst"))


def test_a_table_shows_its_writes_by_the_columns_that_the_schema_beside_it_names() -> None:
    rows = {repr(row[1]): row[2] for store in expected(CASE)["stores"] for row in store["rows"]}
    seen = 0
    for path in tables():
        found = look.inspect(str(path)).file
        assert found is not None and found.format == f"RocksDB table, {len(found.value)} entries"
        assert len(found.lines) == len(found.value)
        for write in found.value:
            window, word = write["key"].values()
            known = rows.get(repr([list(window.values()), word]))
            seen += (
                known is not None
                and write["do"] == "put"
                and list(write["value"].values()) == known
            )
    assert seen >= len(rows), "every row that Spark reads stands in one of the tables"


def test_a_damaged_table_is_refused_with_its_path(tmp_path: Path) -> None:
    place = tmp_path / "state/0/1/SSTs" / tables()[0].name
    place.parent.mkdir(parents=True)
    content = bytearray(tables()[0].read_bytes())
    content[20] ^= 1
    place.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        look.inspect(str(place))
    assert str(place) in str(caught.value.path)

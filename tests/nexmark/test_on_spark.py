"""What comes out of NEXMark's queries on a real Spark is what they say: of those that a user of
Spark writes, and of the live operators.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.nexmark import live_rows, native_rows, reference

pytestmark = [pytest.mark.spark, pytest.mark.slow]
Rows = dict[str, list[list[Any]]]


def rows_of(script: str, folder: Path) -> Rows:
    """The rows of all queries, of one session."""
    file = folder / "rows.json"
    ours = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ran = subprocess.run(
        [sys.executable, script, str(file)],
        env={**os.environ, **ours},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return rows_of(native_rows.__file__, tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return rows_of(live_rows.__file__, tmp_path_factory.mktemp("live"))


def assert_rows_are_what_it_says(query: str, found: Rows) -> None:
    market = native_rows.market(query)
    until = int(market.at(native_rows.END - 500))  # some time before the last watermark
    events = market.events(0, native_rows.END)
    expected = reference.final(reference.QUERIES[query](events), until)
    assert reference.final(map(tuple, found[query]), until) == expected
    assert expected


@pytest.mark.parametrize("query", reference.QUERIES)
def test_what_spark_puts_out_is_what_the_query_says(query: str, native: Rows) -> None:
    assert_rows_are_what_it_says(query, native)


@pytest.mark.row("M-18", on="Spark")
@pytest.mark.parametrize("query", reference.QUERIES)
def test_what_live_operators_put_out_is_what_the_query_says(query: str, live: Rows) -> None:
    assert_rows_are_what_it_says(query, live)

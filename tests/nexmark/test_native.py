"""What comes out of NEXMark's queries on a real Spark is what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.nexmark import native_rows, reference

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Any]]]:
    """The rows of all queries, of one session."""
    file = tmp_path_factory.mktemp("nexmark") / "rows.json"
    ours = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, str(Path(native_rows.__file__)), str(file)]
    ran = subprocess.run(
        command, env={**os.environ, **ours}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(file.read_text())


@pytest.mark.parametrize("query", reference.QUERIES)
def test_what_spark_puts_out_is_what_the_query_says(
    query: str, found: dict[str, list[list[Any]]]
) -> None:
    market = native_rows.market(query)
    until = int(market.at(native_rows.END - 500))  # some time before the last watermark
    events = market.events(0, native_rows.END)
    expected = reference.final(reference.QUERIES[query](events), until)
    assert reference.final(map(tuple, found[query]), until) == expected
    assert expected

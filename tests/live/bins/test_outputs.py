"""Where the rows of a worker go: what comes again is there once, and nothing else is taken for it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet
import pytest

from stateshift import live
from stateshift.errors import PlanError
from stateshift.live.bins.worker import Delivery

ROWS = pa.table({"key": ["a", "b"], "mean": [1.5, float("nan")]})


def delivery(table: pa.Table, operator: str = "visits", worker: str = "west") -> Delivery:
    return Delivery(operator, worker, 3, table)


def test_a_delivery_that_comes_again_is_there_once(tmp_path):
    write = live.files(str(tmp_path))
    write(delivery(ROWS))
    in_two_chunks = pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)])
    for again in (ROWS, in_two_chunks):
        write(delivery(again))
    (path,) = tmp_path.iterdir()
    assert path.name == "visits-west-000000003.parquet"
    assert str(pyarrow.parquet.read_table(path).to_pylist()) == str(ROWS.to_pylist())


@pytest.mark.parametrize(
    ("operator", "worker"), [("visits", "eu-west"), ("visits-eu", "west")], ids=str
)
def test_rows_of_another_group_or_operator_are_not_dropped_for_a_name_that_is_taken(
    tmp_path, operator, worker
):
    write = live.files(str(tmp_path))
    write(delivery(ROWS, "visits-eu", "west"))
    with pytest.raises(PlanError, match=r"000000003.parquet is there already, with other rows"):
        write(delivery(ROWS.slice(1), operator, worker))
    assert pyarrow.parquet.read_table(tmp_path).num_rows == ROWS.num_rows


def test_a_file_that_is_none_of_ours_is_not_taken_for_a_delivery(tmp_path):
    (tmp_path / "visits-west-000000003.parquet").write_bytes(b"half of it")
    with pytest.raises(PlanError, match="with other rows"):
        live.files(str(tmp_path))(delivery(ROWS))

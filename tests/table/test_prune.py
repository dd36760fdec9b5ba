"""What a condition names is gone from all stores of its operator, and nothing else is changed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stateshift import api, look
from stateshift.table.tables import tables_of
from tests.cli.support import said
from tests.formats.golden import ROOT
from tests.look.golden_images import STATEFUL

WAIVED = ("--fork", "--waive", "paths-stay")  # a move would put a fence at the golden itself
JOIN = ROOT / "spark-4.3.0" / "join-hdfs" / "checkpoint"
# Without those whose keys have no column of text or numbers, and of several operators.
OTHERS = ("tws", "limit", "total", "types", "chained", "dedup-old-types")
PRUNED = [case for case in STATEFUL if not case.name.startswith(OTHERS)]


def first_key(checkpoint: str, table: str) -> tuple[str, object]:
    """A column of a table's keys, and its value in the last of them."""
    (row,) = api.query(f"select key from {table} order by 1 desc limit 1", checkpoint).to_pylist()
    plain = [(name, value) for name, value in row["key"].items() if type(value) in (str, int)]
    return plain[0]


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", PRUNED, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_all_stores_lose_the_same_keys_and_nothing_else(case: Path, tmp_path: Path) -> None:
    source, target = str(case / "checkpoint"), str(tmp_path / "pruned")
    tables = [table.name for table in tables_of([source], look.open_patiently)]
    name, value = first_key(source, tables[0])
    shown = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else value
    where = f'key."{name}" = {shown}'
    workdir = str(tmp_path / "run")
    words = ("--to", target, "--where", where, *WAIVED, "--yes", "--workdir", workdir)
    done = said("prune", source, *words)
    assert done.code == 0, done.err
    gone = 0
    for table in tables:
        sql = (
            f"select (select count(*) from a_{table}), (select count(*) from b_{table}), "
            f"(select count(*) from a_{table} where {where}), "
            f"(select count(*) from (select key, value from a_{table} where ({where}) is not true "
            f"except all select key, value from b_{table}))"
        )
        ((before, after, lost, changed),) = map(
            dict.values, api.query(sql, source, target).to_pylist()
        )
        assert before - lost == after and changed == 0, table
        gone += lost
    assert gone
    assert look.restartable(target, look.open_patiently, thorough=True).restartable


@pytest.mark.parametrize(
    ("where", "fact"),
    [
        ("key.country = 'de'", "country"),
        ("key.index = 1", "index"),  # a column of some stores of the join, and not of others
        ("value.value = 1", "value"),  # an operator with several stores
        ("key.field0 = ", "syntax error"),
        ("1 = 1; drop table entries", "not one expression"),
        ("key.field0 = 'a') or (true", "syntax error"),
        ("false) union all (select 0", "syntax error"),
        ("key.field0 in (select 'a')", "SELECT"),
        ("now() > timestamp '2026-01-01'", "now, which changes"),
        ("current_date > '2026-01-01'", "current_date, which changes"),
        ("random() < 0.5", "random, which changes"),
        ("stateshift_row = 1", "`key` and `value`"),
    ],
)
def test_a_condition_that_does_not_fit_all_stores_is_refused(
    tmp_path: Path, where: str, fact: str
) -> None:
    words = ("--to", str(tmp_path / "new"), "--where", where, *WAIVED, "--yes", "--json")
    done = said("prune", str(JOIN), *words, "--workdir", str(tmp_path / "run"))
    assert done.code == 4
    assert fact in json.dumps(json.loads(done.out)) and not (tmp_path / "new").exists()


def test_entries_of_an_operator_with_one_store_are_chosen_by_their_values(tmp_path: Path) -> None:
    source = ROOT / "spark-4.3.0" / "window-hdfs" / "checkpoint"
    where = "value.count >= 2 or key.window.end < timestamp '1990-01-01'"
    words = ("--to", str(tmp_path / "new"), "--where", where, *WAIVED, "--yes")
    assert said("prune", str(source), *words, "--workdir", str(tmp_path / "run")).code == 0
    (row,) = api.query("select count(*) n from state_0", str(tmp_path / "new")).to_pylist()
    asked = f"select count(*) n from state_0 where ({where}) is not true"
    assert [row] == api.query(asked, str(source)).to_pylist()


def test_of_several_operators_one_is_named(tmp_path: Path) -> None:
    source = ROOT / "spark-4.3.0" / "chained-rocksdb" / "checkpoint"
    name, value = first_key(str(source), "state_1")
    where = f"key.\"{name}\" = '{value}'" if isinstance(value, str) else f'key."{name}" = {value}'
    words = (*WAIVED, "--where", where, "--yes", "--to", str(tmp_path / "new"))
    refused = said("prune", str(source), *words, "--workdir", str(tmp_path / "refused"))
    assert refused.code == 4 and "--operator" in refused.err
    done = said("prune", str(source), *words, "--operator", "1", "--workdir", str(tmp_path / "run"))
    assert done.code == 0, done.err
    for table in ("state_0", "state_1", "state_2"):
        sql = f"select (select count(*) from a_{table}) - (select count(*) from b_{table}) as gone"
        (row,) = api.query(sql, str(source), str(tmp_path / "new")).to_pylist()
        assert (row["gone"] > 0) == (table == "state_1")


def test_times_in_a_condition_are_in_utc_on_every_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = str(ROOT / "spark-4.3.0" / "window-hdfs" / "checkpoint")
    where = "key.window.start < timestamp '2026-01-01 00:06:00'"
    counts = set()
    for zone in ("UTC", "America/Los_Angeles", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        target = str(tmp_path / zone)
        words = ("--to", target, "--where", where, *WAIVED, "--yes")
        assert said("prune", source, *words, "--workdir", f"{target}-run").code == 0
        counts.add(api.query("select count(*) n from state_0", target).to_pylist()[0]["n"])
    monkeypatch.undo()
    time.tzset()
    (count,) = counts
    assert 0 < count < api.query("select count(*) n from state_0", source).to_pylist()[0]["n"]

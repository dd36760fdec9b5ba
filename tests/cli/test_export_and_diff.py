"""`export` and `diff` from argv to exit code."""

import json
from pathlib import Path

import pytest

from stateshift.storage.local.storage import LocalStorage
from tests.cli.support import SOURCE, TARGET, Outside, said, with_checkpoint
from tests.look.golden_images import NEWEST
from tests.support.checkpoints import Checkpoint

pytestmark = pytest.mark.usefixtures("own_folder")


def golden(name: str) -> str:
    return str(NEWEST[name] / "checkpoint")


def test_export_tells_programs_what_was_promised(tmp_path: Path) -> None:
    found = said("export", golden("window-rocksdb"), "--to", "state.parquet", "--json")
    assert (found.code, found.err) == (0, "")
    assert found.document.keys() >= {"entries", "file"}
    assert (found.document["entries"], found.document["file"]) == (10, "state.parquet")
    assert (tmp_path / "state.parquet").stat().st_size == found.document["bytes"]
    assert [file.path for file in LocalStorage(str(tmp_path)).list()] == ["state.parquet"]


def test_export_writes_json_lines_to_stdout_with_the_keys_that_were_promised() -> None:
    found = said("export", golden("window-hdfs"), "--to", "-")
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert (found.code, found.err, len(rows)) == (0, "", 10)
    assert list(rows[0]) == ["operator", "store", "shard", "key", "value"]
    assert rows[0]["key"].keys() == {"window", "word"} and rows[0]["value"].keys() == {
        "count",
        "sum",
        "max",
    }
    changed = said("export", golden("window-hdfs"), "--changes", "1..2", "--to", "-")
    assert list(json.loads(changed.out.splitlines()[0]))[:2] == ["batch", "change"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--to", "-", "--json"), 2),
        (("--to", "-", "--batch", "1", "--changes", "1..2"), 2),
        (("--to", "-", "--changes", "yesterday"), 2),
        (("--to", "state.csv"), 2),
        (("--to", "-", "--store", "nothing"), 4),
    ],
)
def test_export_refuses_what_does_not_fit(arguments: tuple[str, ...], code: int) -> None:
    found = said("export", golden("window-hdfs"), *arguments)
    assert found.code == code and found.err.startswith("error: ")


def test_diff_of_the_same_state_is_zero() -> None:
    found = said("diff", golden("window-hdfs"), golden("window-rocksdb"), "--json")
    assert found.code == 0 and found.document["equal"] is True
    (operator,) = found.document["operators"]
    assert operator.keys() >= {"id", "added", "removed", "changed"}
    assert (operator["id"], operator["added"], operator["same"]) == ("0", 0, 10)
    assert said("diff", golden("window-hdfs"), golden("window-rocksdb")).out.startswith(
        "equal, 10 entries: "
    )


def test_diff_exits_5_where_images_differ_and_shows_some_of_it() -> None:
    outside = with_checkpoint(Checkpoint(batches=3))
    Checkpoint(batches=4).write(outside.disk.open(TARGET))
    document = outside.run("diff", SOURCE, TARGET, "--json", "--show", "2").document
    assert document["equal"] is False and document["epochs"] == [2, 3]
    assert document["operators"][0]["changed"] == 6 and len(document["differences"]) == 2
    assert document["differences"][0].keys() >= {
        "operator",
        "store",
        "change",
        "key",
        "before",
        "after",
    }
    found = outside.run("diff", SOURCE, TARGET, "--show", "1")
    assert (
        found.code == 5
        and found.out.startswith("different: ")
        and "and more: --show N" in found.out
    )


def test_diff_of_what_is_not_there_compares_nothing() -> None:
    assert Outside().run("diff", SOURCE, TARGET).code == 4

"""An operator or a store that is missing everywhere is missing: nothing else in a checkpoint names
it, and a real Spark does not find its state.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.damage import images
from tests.damage.commands import document_of, run

CHAINED = "spark-4.3.0/chained-rocksdb"
TO = "file:///elsewhere/copy"


def judged(
    name: str, path_of: Callable[[str], str | None], level: str = "refuse"
) -> tuple[int | None, list[str]]:
    """Return the exit code of `verify`, and what it refuses (or says at another level), where each
    file lies where `path_of` says: None, and it is gone.
    """
    golden = images.image(name)
    files = {}
    for place, content in golden.files.items():
        path = path_of(place.removeprefix(f"{golden.location}/"))
        if path is not None:
            files[f"{golden.location}/{path}"] = content
    shown = run(images.on_a_disk(files), "verify", golden.location, "--json")
    findings = document_of(shown)["findings"]
    return shown.code, [each["message"] for each in findings if each["level"] == level]


def without(part: str) -> Callable[[str], str | None]:
    """Leave out the files with this in their paths, and what operators say of themselves."""
    return lambda path: None if part in path or "/_metadata/metadata" in path else path


@pytest.mark.parametrize("operator", ["0", "1"])
def test_a_hole_among_the_operators_is_refused(operator: str) -> None:
    code, refused = judged(CHAINED, without(f"state/{operator}/"))
    assert code == 5
    assert f"state/{operator} is missing" in refused[0]


def test_the_only_operator_has_the_number_0() -> None:
    name = "spark-3.5.9/window-hdfs"
    code, refused = judged(name, lambda path: path.replace("state/0/", "state/1/"))
    assert code == 5
    assert "state/0 is missing, and state/1 is there" in refused[0]


@pytest.mark.parametrize(
    ("more", "code", "levels"),
    [
        ({}, 4, ["refuse"]),
        ({"transform": [{"kind": "compact"}]}, 4, ["refuse"]),
        ({"waive": ["operator-numbers"]}, 0, ["warn"]),
        ({"transform": [{"kind": "rename", "operators": {"1": "0"}}]}, 0, []),
        ({"transform": [{"kind": "rename", "operators": {"1": "2"}}]}, 0, ["warn"]),
    ],
    ids=["moved", "compacted", "waived", "filled", "one by one"],
)
def test_a_plan_refuses_a_hole_that_it_does_not_fill(
    more: dict[str, Any], code: int, levels: list[str], tmp_path: Path
) -> None:
    golden = images.image("spark-3.5.9/window-hdfs")
    files = {path.replace("state/0/", "state/1/"): each for path, each in golden.files.items()}
    waived = ["paths-stay", *more.get("waive", ())]
    job = {
        "name": "orders",
        "checkpoint_location": golden.location,
        "remote_location": TO,
        "mode": "fork",
    }
    spec = {"version": 1, "engine": "spark", "jobs": [{**job, **more, "waive": waived}]}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    shown = run(images.on_a_disk(files), "plan", str(tmp_path / "spec.json"), "--json")
    findings = document_of(shown)["findings"]
    holes = [each["level"] for each in findings if "state/0 is missing" in each["message"]]
    assert (shown.code, holes) == (code, levels)


@pytest.mark.row("W-2")
@pytest.mark.parametrize("name", ["spark-4.3.0/join-hdfs", "spark-3.5.9/join-rocksdb"])
@pytest.mark.parametrize("store", ["right-keyToNumValues", "left-keyWithIndexToValue", "right-"])
def test_a_join_has_both_stores_of_both_sides(name: str, store: str) -> None:
    code, refused = judged(name, without(f"/{store}"))
    assert code == 5
    assert f"state/0/0/{store}" in refused[0]
    assert "a join has 4 stores" in refused[0]


def test_an_operator_that_the_commit_names_is_there() -> None:
    code, refused = judged("spark-4.3.0/window-rocksdb-format2", without("state/"))
    assert code == 5
    assert "commits/5 names state of operator 0, of which nothing is there" in refused[0]


@pytest.mark.parametrize("name", ["spark-4.3.0/window-hdfs", "spark-3.5.9/join-hdfs"])
def test_a_folder_of_the_state_that_is_no_number_is_no_operator(name: str) -> None:
    golden = images.image(name)
    files = dict(golden.files)
    for path, content in golden.files.items():
        files[path.replace("/state/0/", "/state/0.bak/")] = content
    shown = run(images.on_a_disk(files), "verify", golden.location, "--deep", "--json")
    assert shown.code == 0
    notes = [each["message"] for each in document_of(shown)["findings"]]
    assert any(" files in state/0.bak/0/" in note for note in notes), notes


def test_a_file_that_several_read_is_refused_once() -> None:
    golden = images.image("spark-4.3.0/window-hdfs")
    files = {**golden.files, f"{golden.location}/offsets/6": b"v1\n"}
    shown = run(images.on_a_disk(files), "verify", golden.location, "--json")
    messages = [each["message"] for each in document_of(shown)["findings"]]
    assert sum("offsets/6 is damaged" in message for message in messages) == 1

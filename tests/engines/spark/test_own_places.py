"""Absolute paths inside a checkpoint: of one that was copied by other means, what `verify`,
`inspect` and `move` say; of input that stays, whether it is there. What Spark does with such copies:
tests/acceptance/test_copied_by_hand.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.support import said
from tests.damage import images
from tests.damage.commands import document_of, run
from tests.formats.golden import ROOT
from tests.look.golden_images import contents, made_at

OLD = "file:///old/orders"
TWS, JOIN = "spark-4.3.0/tws-timers", "spark-4.3.0/join-rocksdb-v4"


def copied(name: str, there: str = OLD) -> tuple[images.GoldenImage, dict[str, bytes]]:
    """A checkpoint that was made at one place, and copied to where the golden image lies."""
    golden = images.image(name)
    files = {}
    for path, content in golden.files.items():
        files[path] = made_at(there, path, content)
    return golden, files


def old_place(name: str, kind: str) -> dict[str, bytes]:
    """What is where the copy was made."""
    files = {}
    for path, content in contents(ROOT / name).items():
        if kind == "other" and "/_stateSchema/" in path:
            path = path[:-4] + "0000"
        if kind == "different" and "/_stateSchema/" in path:
            content = content.replace(b'"long"', b'"date"')
        if kind != "gone":
            files[f"{OLD}/{path}"] = made_at(OLD, path, content)
    return files


@pytest.mark.row("W-2")
@pytest.mark.parametrize(
    ("name", "kind", "found", "level"),
    [
        (TWS, "gone", "missing", "refuse"),
        (TWS, "other", "missing", "refuse"),
        (TWS, "different", "different", "refuse"),
        (TWS, "equal", "equal", "warn"),
        (JOIN, "gone", "missing", "warn"),
        (JOIN, "different", "different", "refuse"),
        (JOIN, "equal", "equal", "warn"),
    ],
)
def test_a_copy_that_names_another_place_is_judged_by_what_is_there(
    name: str, kind: str, found: str, level: str
) -> None:
    golden, files = copied(name)
    disk = images.on_a_disk(files | old_place(name, kind))
    shown = run(disk, "verify", golden.location, "--json")
    (finding,) = (each for each in document_of(shown)["findings"] if OLD in each["message"])
    assert (shown.code, finding["level"]) == (5 if level == "refuse" else 0, level)
    assert f"--was-at {OLD}" in finding["hint"]
    inspected = document_of(run(disk, "inspect", golden.location, "--json"))
    named = [each["found"] for each in inspected["paths"] if each["role"] == "self"]
    assert named == [found]


def test_a_place_that_cannot_be_read_is_refused_and_one_of_an_hdfs_by_another_name_is_not() -> None:
    golden, files = copied(TWS, "nofs://x/orders")
    assert run(images.on_a_disk(files), "verify", golden.location).code == 5


def local_copy(folder: Path, name: str, there: Path) -> Path:
    for path, content in contents(ROOT / name).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(made_at(f"file:{there}", path, content))
    return folder


@pytest.mark.row("W-1")
@pytest.mark.parametrize("words", [("move",), ("move", "--was-at"), ("repair", "--was-at")])
def test_a_copy_is_moved_or_repaired_and_then_names_its_own_place(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    copy, old = local_copy(tmp_path / "copy", TWS, tmp_path / "old"), tmp_path / "old"
    verb, *option = words
    more = [*option, str(old)] if option else []
    flags = ["--waive", "paths-stay", "--yes", "--workdirs", str(tmp_path / "runs")]
    shown = said(verb, str(copy), "--to", str(tmp_path / "new"), *more, *flags)
    assert shown.code == 0, shown.err
    assert "copy (finished)" in shown.out
    named = b"".join(path.read_bytes() for path in tmp_path.glob("new/state/*/_metadata/v2/*"))
    assert f"{tmp_path}/new/state/0/_stateSchema".encode() in named
    assert str(old).encode() not in named
    assert said("verify", str(tmp_path / "new"), "--deep").code == 0


@pytest.mark.row("W-1")
@pytest.mark.parametrize(("gone", "level"), [(0, "warn"), (1, "refuse")])
def test_input_that_stays_is_looked_for_and_no_waiver_is_wanted_where_it_is_there(
    tmp_path: Path, gone: int, level: str
) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "spark-4.3.0/window-hdfs/checkpoint", source)
    named = set()
    for log in (source / "sources/0").iterdir():
        text = log.read_text().replace("file:///tmp/stateshift-golden", f"file://{tmp_path}")
        log.write_text(text)
        entries = text.splitlines()[1:]
        named |= {json.loads(entry)["path"].removeprefix("file://") for entry in entries}
    for path in sorted(named)[gone:]:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("{}")
    spec = {"checkpoint_location": str(source), "remote_location": str(tmp_path / "target")}
    (tmp_path / "spec.json").write_text(
        json.dumps({"version": 1, "engine": "spark", "jobs": [{"name": "a", **spec}]})
    )
    shown = said("plan", str(tmp_path / "spec.json"), "--json")
    found = shown.document["findings"]
    (finding,) = (each for each in found if "sources/0 names" in each["message"])
    assert finding["level"] == level
    told = f"{gone} of {len(named)} are missing" if gone else "all of them are there"
    assert told in finding["message"]

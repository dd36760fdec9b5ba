"""A savepoint is named by its folder or by its `_metadata`, in every command; old images and all
states are told.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.formats.flink.keyed_handles import Changelog, KeyGroups
from stateshift.formats.flink.metadata import SubtaskState, decode_metadata, encode_metadata
from stateshift.formats.flink.stream_handles import RelativeFile
from stateshift.specification import parse_spec
from tests.cli.support import Outside
from tests.engines.flink import golden
from tests.support.checkpoints import put

COUNT = "flink-2.3.0/count-canonical-hashmap"


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.mark.parametrize(
    "command",
    [("inspect", "--entries"), ("verify",), ("verify", "--deep"), ("export", "--to", "-")],
    ids=" ".join,
)
def test_a_command_says_of_metadata_what_it_says_of_its_folder(
    outside: Outside, command: tuple[str, ...]
) -> None:
    location = golden.write(outside.disk, COUNT)
    name, *flags = command
    of_folder = outside.run(name, location, *flags)
    of_file = outside.run(name, f"{location}/_metadata", *flags)
    assert of_folder.code == 0
    plain = []
    for out in (of_file.out, of_folder.out):
        plain.append(re.sub(r" +\d+\.\d+ s", " N s", out.replace("/_metadata", "")))
    assert plain[0] == plain[1]
    assert of_file.code == of_folder.code


def test_diff_compares_folders_by_their_metadata(outside: Outside) -> None:
    location = golden.write(outside.disk, COUNT)
    assert outside.run("diff", f"{location}/_metadata", location).code == 0
    assert outside.run("diff", f"{location}/_metadata", f"{location}/_metadata").code == 0


def test_a_plan_takes_metadata_for_its_folder(outside: Outside, tmp_path: Path) -> None:
    location = golden.write(outside.disk, COUNT)
    job = {
        "name": "orders",
        "existing_savepoint_paths": [f"{location}/_metadata"],
        "new_savepoint_path": "file:///there/savepoint/_metadata",
    }
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"version": 1, "engine": "flink", "jobs": [job]}))
    answer = outside.run("plan", str(path), "--json")
    assert answer.code == 0, answer.err
    spec = parse_spec(path.read_text())
    assert (spec.jobs[0].source, spec.jobs[0].target) == (location, "file:///there/savepoint")


@pytest.mark.parametrize(
    "shortcut", [("gather",), ("merge",), ("rename", "--operator", "orders-count=counted")]
)
def test_a_shortcut_takes_metadata_for_its_folder(
    outside: Outside, tmp_path: Path, shortcut: tuple[str, ...]
) -> None:
    location = golden.write(outside.disk, COUNT)
    sources = [f"{location}/_metadata"]
    if shortcut[0] == "merge":
        sources.append(f"{golden.write(outside.disk, 'flink-2.3.0/count-one-payments')}/_metadata")
    answer = outside.run(
        shortcut[0],
        *sources,
        "--to",
        "file:///there/new",
        *shortcut[1:],
        "--yes",
        "--workdir",
        str(tmp_path / "w"),
    )
    assert answer.code == 0, answer.err
    assert outside.disk.open("file:///there/new").stat("_metadata") is not None


def edited(outside: Outside, location: str, change: object) -> None:
    storage = outside.disk.open(location)
    metadata = decode_metadata(storage.read("_metadata"))
    assert callable(change)
    operators = tuple(
        replace(one, subtasks=one.subtasks and tuple(map(change, one.subtasks)))
        for one in metadata.operators
    )
    put(storage, "_metadata", encode_metadata(replace(metadata, operators=operators)))


def as_before_1_15(subtask: SubtaskState) -> SubtaskState:
    handle = subtask.managed_keyed
    return (
        replace(subtask, managed_keyed=replace(handle, tag=3))
        if isinstance(handle, KeyGroups)
        else subtask
    )


def test_an_image_of_a_flink_before_1_15_is_read_and_not_promised(outside: Outside) -> None:
    location = golden.write(outside.disk, "flink-1.15.4/count-canonical-hashmap")
    assert "not promised" not in outside.run("verify", location).out
    edited(outside, location, as_before_1_15)
    answer = outside.run("verify", location, "--deep")
    assert answer.code == 0
    assert "before 1.15" in answer.out
    assert "not promised" in answer.out


@pytest.mark.parametrize("version", range(1, 6))
def test_an_old_header_of_keyed_state_is_refused_by_its_version(
    outside: Outside, version: int
) -> None:
    location = golden.write(outside.disk, "flink-1.15.4/count-canonical-hashmap")
    storage = outside.disk.open(location)
    metadata = decode_metadata(storage.read("_metadata"))
    for operator in metadata.operators:
        for subtask in operator.subtasks or ():
            handle = subtask.managed_keyed
            if isinstance(handle, KeyGroups) and isinstance(handle.stream, RelativeFile):
                content = storage.read(handle.stream.path)
                put(storage, handle.stream.path, version.to_bytes(4, "big") + content[4:])
    assert outside.run("inspect", location).code == 0
    entries = outside.run("inspect", location, "--entries")
    assert entries.code == 3
    assert f"version {version}, of a Flink before 1.7" in entries.err
    assert outside.run("verify", location, "--deep").code == 5


def with_old_headers(outside: Outside, location: str, most: int) -> None:
    """Make an image as one of Flink 1.6: `most` of its headers of keyed state are of that age."""
    storage = outside.disk.open(location)
    metadata = decode_metadata(storage.read("_metadata"))
    operators = []
    for operator in metadata.operators:
        changed = []
        for subtask in operator.subtasks or ():
            handle = subtask.managed_keyed
            own = replace(subtask, managed_operator=None)
            if isinstance(handle, KeyGroups) and isinstance(handle.stream, RelativeFile):
                own = replace(own, managed_keyed=replace(handle, tag=3))
                if most:
                    most -= 1
                    content = storage.read(handle.stream.path)
                    put(storage, handle.stream.path, (5).to_bytes(4, "big") + content[4:])
            changed.append(own)
        operators.append(replace(operator, subtasks=tuple(changed), coordinator=None))
    old = replace(metadata, version=2, operators=tuple(operators), properties=b"")
    put(storage, "_metadata", encode_metadata(old))


def test_an_image_of_a_flink_before_1_7_is_moved_and_said_not_to_be_read(
    outside: Outside, tmp_path: Path
) -> None:
    location = golden.write(outside.disk, "flink-1.15.4/count-canonical-hashmap")
    with_old_headers(outside, location, 1000)
    answer = outside.run("verify", location, "--deep")
    assert answer.code == 0
    assert "warn" in answer.out
    assert "of a Flink before 1.7, whose states cannot be read" in answer.out
    assert "bytes were not looked at" in answer.out
    assert outside.run("diff", location, location).code == 0
    workdir = str(tmp_path / "run")
    moved = outside.run(
        "gather", location, "--to", f"{location}-there", "--yes", "--workdir", workdir
    )
    assert moved.code == 0
    assert outside.run("diff", location, f"{location}-there").code == 0


def test_one_old_header_among_others_is_damage(outside: Outside) -> None:
    location = golden.write(outside.disk, "flink-1.15.4/count-canonical-hashmap")
    with_old_headers(outside, location, 1)
    answer = outside.run("verify", location, "--deep")
    assert answer.code == 5
    assert "one Flink writes all of an image" in answer.out


def test_states_of_all_subtasks_are_listed(outside: Outside) -> None:
    """One that only the last subtask has is as good as any."""
    location = golden.write(outside.disk, "flink-2.3.0/kinds-canonical-hashmap")
    every = {
        (operator["id"], state["name"])
        for operator in outside.run("inspect", location, "--json").document["operators"]
        for state in operator["states"]
    }

    def without_first(subtask: SubtaskState) -> SubtaskState:
        handle = subtask.managed_operator
        if handle is None or subtask.index > 0 or not handle.states:
            return subtask
        return replace(subtask, managed_operator=replace(handle, states=handle.states[:1]))

    edited(outside, location, without_first)
    found = {
        (operator["id"], state["name"])
        for operator in outside.run("inspect", location, "--json").document["operators"]
        for state in operator["states"]
    }
    assert found == every


@pytest.mark.parametrize("version", ["1.15.4", "2.3.0"])
def test_a_changelog_in_the_metadata_counts_as_state(outside: Outside, version: str) -> None:
    location = golden.write(outside.disk, f"flink-{version}/count-changelog-memory")
    metadata = decode_metadata(outside.disk.open(location).read("_metadata"))
    changed = {
        operator.id.hex()
        for operator in metadata.operators
        if any(isinstance(subtask.managed_keyed, Changelog) for subtask in operator.subtasks or ())
    }
    document = outside.run("inspect", location, "--json").document
    stores = {operator["id"]: operator["stores"] for operator in document["operators"]}
    assert changed
    for operator in changed:
        (store,) = [store for store in stores[operator] if store["name"] == "keyed"]
        assert store["bytes"] > 0

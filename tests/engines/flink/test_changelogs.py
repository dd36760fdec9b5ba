"""Parts of a changelog that are another subtask's, that are missing, or that are there twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stateshift.formats.flink.keyed_handles import Changelog
from stateshift.formats.flink.metadata import (
    Metadata,
    OperatorState,
    SubtaskState,
    decode_metadata,
    encode_metadata,
)
from tests.damage import images
from tests.damage.commands import about, document_of, run

VERSIONS = ("1.15.4", "2.3.0")
NAMES = ("rocksdb", "hashmap", "memory")


def judged(name: str, change: Callable[[Changelog], Changelog]) -> tuple[int | None, str]:
    """Return the exit code of `verify`, and the first that it refuses, where the changelogs of an
    image are changed.
    """
    golden = images.image(name)
    path = next(path for path in golden.files if path.endswith("/_metadata"))
    metadata = changed(decode_metadata(golden.files[path]), change)
    files = {**golden.files, path: encode_metadata(metadata)}
    shown = run(images.on_a_disk(files), "verify", golden.location, "--json")
    return shown.code, about(shown, document_of(shown))


def changed(metadata: Metadata, change: Callable[[Changelog], Changelog]) -> Metadata:
    def of_subtask(subtask: SubtaskState) -> SubtaskState:
        if not isinstance(subtask.managed_keyed, Changelog):
            return subtask
        return replace(subtask, managed_keyed=change(subtask.managed_keyed))

    def of_operator(operator: OperatorState) -> OperatorState:
        return replace(operator, subtasks=tuple(map(of_subtask, operator.all_subtasks)))

    return replace(metadata, operators=tuple(map(of_operator, metadata.operators)))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_changelogs_of_real_images_are_of_their_subtasks(version: str, name: str) -> None:
    code, refused = judged(f"flink-{version}/count-changelog-{name}", lambda handle: handle)
    assert (code, refused) == (0, "")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES[:2])
def test_a_state_of_other_key_groups_is_refused(version: str, name: str) -> None:
    def other(handle: Changelog) -> Changelog:
        away = 4 if handle.first == 0 else -4
        bases = tuple(replace(base, first=base.first + away) for base in handle.bases)
        return replace(handle, bases=bases)

    code, refused = judged(f"flink-{version}/count-changelog-{name}", other)
    assert code == 5
    assert "follows a state of key groups" in refused


@pytest.mark.parametrize("name", NAMES)
def test_changes_of_other_key_groups_are_refused(name: str) -> None:
    def other(handle: Changelog) -> Changelog:
        deltas = tuple(replace(delta, first=delta.first + 1) for delta in handle.deltas)
        return replace(handle, deltas=deltas)

    code, refused = judged(f"flink-2.3.0/count-changelog-{name}", other)
    assert code == 5
    assert "has changes of key groups" in refused


@pytest.mark.parametrize("name", NAMES[:2])
def test_a_state_that_was_written_out_and_is_not_named_is_refused(name: str) -> None:
    code, refused = judged(
        f"flink-2.3.0/count-changelog-{name}", lambda handle: replace(handle, bases=())
    )
    assert code == 5
    assert "follows a state that was written out, and names none" in refused


@pytest.mark.parametrize("name", NAMES)
def test_the_same_changes_twice_are_refused(name: str) -> None:
    code, refused = judged(
        f"flink-2.3.0/count-changelog-{name}",
        lambda handle: replace(handle, deltas=handle.deltas * 2),
    )
    assert code == 5
    assert "names the same changes twice" in refused

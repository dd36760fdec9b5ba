"""States of an operator that lie in its file and that the metadata does not name: Flink restores
none of them, and says nothing.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateshift.formats.flink.metadata import (
    OperatorState,
    SubtaskState,
    decode_metadata,
    encode_metadata,
)
from tests.damage import images
from tests.damage.commands import about, document_of, run


def without_first_state(subtask: SubtaskState) -> SubtaskState:
    handle = subtask.managed_operator
    if handle is None:
        return subtask
    return replace(subtask, managed_operator=replace(handle, states=handle.states[1:]))


def without_first_states(operator: OperatorState) -> OperatorState:
    return replace(operator, subtasks=tuple(map(without_first_state, operator.all_subtasks)))


@pytest.mark.parametrize("version", ["1.15.4", "1.20.5", "2.3.0"])
@pytest.mark.parametrize("name", ["count-canonical-rocksdb", "count-native-hashmap"])
def test_a_file_with_state_of_which_the_metadata_names_none_is_refused(
    version: str, name: str
) -> None:
    golden = images.image(f"flink-{version}/{name}")
    path = next(path for path in golden.files if path.endswith("/_metadata"))
    metadata = decode_metadata(golden.files[path])
    operators = tuple(map(without_first_states, metadata.operators))
    files = {**golden.files, path: encode_metadata(replace(metadata, operators=operators))}
    shown = run(images.on_a_disk(files), "verify", golden.location, "--deep", "--json")
    assert shown.code == 5
    assert "_metadata names none of it" in about(shown, document_of(shown))

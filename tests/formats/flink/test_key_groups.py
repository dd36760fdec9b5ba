"""Keys, key groups and subtasks: held against what a real Flink put where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.formats.flink import key_groups


@given(st.integers(1, 300), st.integers(1, 300))
def test_every_group_belongs_to_the_subtask_that_owns_it(parallelism: int, more: int) -> None:
    groups = parallelism + more
    owned = [
        group
        for subtask in range(parallelism)
        for group in key_groups.groups_of(subtask, groups, parallelism)
    ]
    assert owned == list(range(groups))
    for subtask in range(parallelism):
        for group in key_groups.groups_of(subtask, groups, parallelism):
            assert group * parallelism // groups == subtask


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("a", 97), ("hello", 99162322), ("é", 233), ("😀", 1772899)]
)
def test_strings_hash_as_in_java(text: str, code: int) -> None:
    assert key_groups.hash_string(text) == code


@pytest.mark.parametrize(
    ("value", "code"), [(0, 0), (-1, 0), (1, 1), (1 << 32, 1), (-(1 << 63), 0x80000000)]
)
def test_longs_hash_as_in_java(value: int, code: int) -> None:
    assert key_groups.hash_long(value) == code

"""Keys, key groups and subtasks: held against what a real Flink put where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.engines.flink.entries.image import numbered_entries
from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.engines.flink.rewrite.keyed_files import Origin, keyed_files
from stateshift.engines.flink.streams import Streams
from stateshift.errors import FormatError
from stateshift.formats.flink import key_groups
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.key_groups import (
    code_of,
    has_one_hash,
    hash_next,
    hash_of,
    hashable,
    key_group,
    prefix_bytes,
    raw_hash,
)
from stateshift.formats.flink.serializers import Serializer
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink.golden import NAMES, looked_at, write


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


def simple(name: str, *inner: Serializer) -> Serializer:
    return Serializer(f"{name}Serializer", 3, inner=inner)


# Of java.lang.{Boolean, Character, Float, Double}.hashCode, by a JDK.
@pytest.mark.parametrize(
    ("name", "raw", "code"),
    [
        ("Boolean", "01", 1231),
        ("Boolean", "00", 1237),
        ("Char", "00e9", 233),
        ("Float", "3fc00000", 1069547520),
        ("Float", "80000000", -2147483648),
        ("Float", "7f800001", 2143289344),
        ("Double", "3ff8000000000000", 1073217536),
        ("Double", "8000000000000000", -2147483648),
        ("Double", "fff0000000000001", 2146959360),
        ("Double", "fe37e43c8800759c", 1983353248),
        ("Byte", "f9", -7),
        ("Short", "fed4", -300),
    ],
)
def test_other_keys_hash_as_in_java(name: str, raw: str, code: int) -> None:
    data = DataInput(bytes.fromhex(raw), "a key")
    assert hash_next(simple(name), data) == code & 0xFFFFFFFF


def test_a_row_hashes_as_a_list_behind_its_kind() -> None:
    """As a JDK says of Flink's loop over "a", 5L, null, true, 2.5: a Row of the kind +I."""
    row = simple("Row", *map(simple, ("String", "Long", "Int", "Boolean", "Double")))
    fields = {"f0": "a", "f1": 5, "f2": None, "f3": True, "f4": 2.5}
    assert code_of(row, fields) == 1221955436
    assert code_of(row, {"@kind": "-U", **fields}) == 1221955436 + 31


def test_only_of_some_keys_every_job_has_the_same_hash() -> None:
    """Row.withNames() and GenericRowData hash otherwise than what is read of their bytes."""
    text, row, sql = simple("String"), simple("Row", simple("Int")), simple("RowData")
    assert has_one_hash(text) and has_one_hash(simple("Tuple", text, simple("Double")))
    for other in (row, sql, simple("Tuple", text, row), None):
        assert not has_one_hash(other)
    assert raw_hash(row, bytes.fromhex("0000000001")) is None
    assert raw_hash(sql, bytes(4)) is not None  # whose jobs are SQL's, but for some


@pytest.mark.parametrize("raw", ["00000006000000000000", "ffffffff", "00000008000000"])
def test_a_row_of_sql_that_is_not_whole_is_refused(raw: str) -> None:
    with pytest.raises(FormatError):
        hash_next(simple("RowData"), DataInput(bytes.fromhex(raw), "a key"))


def test_every_key_of_a_real_image_stands_in_the_key_group_that_its_hash_says() -> None:
    found: dict[str, set[bytes]] = {}
    for name in NAMES:
        if "canonical" not in name and "sql-plan" not in name:
            continue
        if "canonical-generic" in name or "canonical-named" in name:
            continue  # they hash otherwise: see the test on which keys have one hash
        disk = MemoryDisk()
        storage, survey = looked_at(disk, write(disk, name))
        streams = Streams(storage.chunks, places_of(survey.images[0]))
        for operator in metadata_of(survey.images[0]).operators:
            for file in keyed_files([Origin(operator, streams)]):
                serializer = file.header.key if file.header else None
                if serializer is None or not hashable(serializer):
                    continue
                for entry in numbered_entries(file.handle, prefix_bytes(file.was), streams):
                    code = hash_of(file.known_header, entry.state, entry.key)
                    assert key_group(code, file.was) == entry.group, (name, operator)
                    found.setdefault(serializer.name, set()).add(entry.key)
    least = {"Int": 30, "Long": 40, "String": 26, "Tuple": 45, "Row": 3, "RowData": 280}
    assert set(found) == {f"{kind}Serializer" for kind in least}
    assert all(len(found[f"{kind}Serializer"]) >= count for kind, count in least.items())

"""The judges themselves: each notices what it is there for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stateshift.errors import FormatError
from stateshift.formats.spark.state_files import StateRecord, decode_snapshot, encode_delta
from tests.fuzz import sst_files, whole
from tests.fuzz.oracles import Broken, affordable, attempt, check_cost, same
from tests.fuzz.seeds import golden, of_cases


def refusing(*arguments: object) -> Callable[[], object]:
    def decode() -> object:
        raise FormatError(*arguments)  # type: ignore[arg-type]

    return decode


def test_a_refusal_inside_of_the_content_is_right() -> None:
    assert attempt(refusing("wrong", None, 3), 3) is None
    assert attempt(lambda: 7, 3) == 7


@pytest.mark.parametrize(
    "arguments",
    [("wrong",), ("wrong", None, 4), ("wrong", None, -1), ("", None, 0), ("x" * 2000, None, 0)],
)
def test_a_refusal_that_does_not_say_where_or_what_is_a_break(
    arguments: tuple[object, ...],
) -> None:
    with pytest.raises(Broken):
        attempt(refusing(*arguments), 3)


def test_any_other_error_is_a_break() -> None:
    with pytest.raises(ZeroDivisionError):
        attempt(lambda: 1 // 0)


def test_two_ways_that_differ_are_a_break() -> None:
    with pytest.raises(Broken, match="a and b"):
        same([1], [2], "a and b")


def test_what_takes_too_much_room_or_time_is_a_break() -> None:
    with pytest.raises(Broken, match="MiB for 1 bytes"):
        affordable(lambda data: bytes(90 << 20) and None, b"x")

    with pytest.raises(Broken, match=r"5\.0 s for 1 bytes"):
        check_cost(1, 5.0, 0)
    check_cost(1, 0.5, 1 << 20)


def test_entries_that_change_behind_the_back_of_verify_are_a_break() -> None:
    """A snapshot written anew with one value changed has every checksum right."""
    _, files, entries = whole._case(0)
    path = "state/0/0/6.snapshot"
    first, *rest = decode_snapshot([files[path]])
    value = first.value or b""
    changed = StateRecord(first.key, value[:8] + bytes((value[8] ^ 1,)) + value[9:])
    others = {
        p: c
        for p, c in files.items()
        if not p.startswith("state/0/0/") or p in (path, "state/0/0/_metadata/schema")
    }
    with pytest.raises(Broken, match="its entries are others"):
        whole.judge(others, path, b"".join(encode_delta([changed, *rest])), entries)


def test_a_table_taken_apart_and_put_together_is_the_same_table() -> None:
    for content in golden("state", "sst")[:10]:
        assert sst_files.with_checksums(content) == content
        blocks = sst_files.data_blocks(content)
        assert sst_files.data_blocks(sst_files.made(blocks, 4, 0)) == blocks


def test_every_case_that_is_mutated_is_there() -> None:
    assert [name for name, _ in of_cases(*whole.NAMES)] == list(whole.NAMES)

"""Keys dealt into other key groups as columns: the bytes are those that come of it entry by entry,
and what is wrong is refused with the same words.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.engines.flink.rewrite.keyed_files import Origin, Sections, keyed_files
from stateshift.engines.flink.rewrite.regroup import dealt_sections, united_sections
from stateshift.engines.flink.rewrite.rescale import Rescaler
from stateshift.errors import FormatError, Incompatible
from tests.support.flink_keyed import (
    NUMBERS,
    Entry,
    Key,
    Kind,
    header_of,
    key_bytes,
    origin_of,
    sections_of,
)

STATES = ("count", "total", "timers")
TIMERS = STATES.index("timers")

kinds: st.SearchStrategy[Kind] = st.sampled_from(
    (*NUMBERS, "string", ("string", "long"), ("int", ("string", "byte"), "short"), ("string",) * 2)
)
texts = st.one_of(
    st.text("ab\0\x7f", max_size=30),
    st.text("aé\u07ff\u0800\uffff😀", max_size=10),
    st.builds(lambda one, count: one * count, st.sampled_from("aé😀"), st.integers(0, 300)),
)


def keys_of(kind: Kind) -> st.SearchStrategy[Key]:
    match kind:
        case tuple():
            return st.tuples(*map(keys_of, kind))
        case "string":
            return st.none() | texts
    bits = 8 * struct.calcsize(NUMBERS[kind])
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def entries_of(kind: Kind) -> st.SearchStrategy[list[Entry]]:
    keys, states, values = keys_of(kind), st.integers(0, 1), st.binary(max_size=5)
    of_keys = st.builds(Entry, states, keys, values)
    timers = st.builds(Entry, st.just(TIMERS), keys, st.just(b""), st.integers(0, (1 << 64) - 1))
    return st.lists(of_keys | timers, max_size=20)


@st.composite
def origins(draw: st.DrawFn) -> Origin:
    """An operator of up to three subtasks, which may number their states differently."""
    kind = draw(kinds)
    was = draw(st.sampled_from((1, 4, 128, 129, 300, 32768)))
    entries = draw(entries_of(kind))
    heads, sections = [], []
    for _ in range(draw(st.integers(1, min(3, was)))):
        order = draw(st.permutations(STATES))
        heads.append(header_of(kind, order))
        numbered = [
            Entry(order.index(STATES[entry.state]), entry.key, entry.value, entry.time)
            for entry in entries
        ]
        sections.append(dict(sections_of(kind, numbered, was)))
    return origin_of(heads, sections, was)


def content_of(made: Sections, becomes: int) -> tuple[tuple[int, ...], bytes]:
    cut = made.cut(range(becomes))
    return cut.offsets, b"".join(cut.content())


@settings(deadline=None)
@given(origins(), st.sampled_from((2, 5, 128, 200, 32768)), st.sampled_from((50, 400, 1 << 20)))
def test_what_is_dealt_as_columns_is_what_is_dealt_one_by_one(
    origin: Origin, becomes: int, batch_bytes: int
) -> None:
    files = keyed_files([origin])
    if not files or becomes == origin.operator.max_parallelism:
        return
    dealt = dealt_sections(files, becomes, BytesIO, batch_bytes)
    one_by_one = united_sections(files, becomes, BytesIO)
    assert content_of(dealt, becomes) == content_of(one_by_one, becomes)


def of_many(value: Callable[[random.Random], bytes], was: int, count: int = 8_000) -> Origin:
    chance = random.Random(7)
    entries = [Entry(n % 2, n * 7919 - 5, value(chance)) for n in range(count)]
    sections = dict(sections_of("long", entries, was))
    return origin_of([header_of("long", STATES)], [sections], was)


def looks_like_entries(chance: random.Random) -> bytes:
    """A value that holds what begins an entry of key group 0 or 1, at any place."""
    one = struct.pack(">I", 10) + bytes((chance.randrange(2),)) + bytes(9) + struct.pack(">I", 3)
    return bytes(chance.randrange(20)) + (one + b"abc") * chance.randrange(4)


@pytest.mark.parametrize("batch_bytes", [1 << 17, 1 << 20, 1 << 24])
@pytest.mark.parametrize(
    "value",
    [
        lambda chance: chance.randbytes(32),
        lambda chance: bytes(32),
        lambda chance: chance.randbytes(chance.randrange(90)),
        lambda chance: chance.randbytes(3000 if chance.random() < 0.02 else 5),
        looks_like_entries,
    ],
    ids=["equal", "zeros", "any length", "some long", "like entries"],
)
def test_large_key_groups_are_taken_apart_from_places_inside_of_them(
    value: Callable[[random.Random], bytes], batch_bytes: int
) -> None:
    files = keyed_files([of_many(value, was=2)])
    dealt = dealt_sections(files, 5, BytesIO, batch_bytes)
    assert content_of(dealt, 5) == content_of(united_sections(files, 5, BytesIO), 5)


def test_an_entry_may_be_longer_than_what_is_read_at_once() -> None:
    files = keyed_files([of_many(lambda chance: chance.randbytes(50_000), was=2, count=40)])
    dealt = dealt_sections(files, 300, BytesIO, 1 << 12)
    assert content_of(dealt, 300) == content_of(united_sections(files, 300, BytesIO), 300)


@pytest.mark.long
@pytest.mark.parametrize("was", [1, 4, 300])
def test_damage_is_told_as_it_is_one_by_one(was: int) -> None:
    chance = random.Random(was)
    keys = [*range(30), *range(10_000, 10_050)]
    entries = [Entry(n % 3, n, bytes(n % 7), n if n % 3 == TIMERS else None) for n in keys]
    sections = dict(sections_of("long", entries, was))
    head = header_of("long", STATES)
    refused = 0
    for _ in range(100):
        group = chance.choice(list(sections))
        content = damaged(sections[group], chance)
        files = keyed_files([origin_of([head], [{**sections, group: content}], was)])
        told = [
            outcome(lambda: content_of(united_sections(files, 7, BytesIO), 7)),  # noqa: B023
            outcome(lambda: content_of(dealt_sections(files, 7, BytesIO), 7)),  # noqa: B023
            outcome(lambda: content_of(dealt_sections(files, 7, BytesIO, 64), 7)),  # noqa: B023
        ]
        kinds_of_outcome = {type(one) for one in told}
        assert len(kinds_of_outcome) == 1, told
        refused += isinstance(told[0], str)
        if isinstance(told[0], tuple):
            assert told[0] == told[1] == told[2]
    assert refused > 30


def damaged(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    match chance.randrange(4):
        case 0:
            flipped = content[place] ^ 1 << chance.randrange(8)
            return content[:place] + bytes((flipped,)) + content[place + 1 :]
        case 1:
            return content[:place] + b"\xff\xff" + content[place + 2 :]
        case 2:
            return content[:place] + content[place + chance.randrange(1, 5) :]
    return content[:place] + chance.randbytes(3) + content[place:]


def outcome(act: Callable[[], object]) -> object:
    try:
        return act()
    except (FormatError, Incompatible) as error:
        return str(error)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "key"),
    [("string", "é" * 3_000), ("string", "a" * 2_100_000), (("string", "int"), ("y" * 20_000, 3))],
)
def test_a_long_key_is_hashed_like_a_short_one(kind: Kind, key: Key) -> None:
    short: Key = "b" if kind == "string" else ("b", 1)
    entries = [Entry(0, key, b"1"), Entry(0, short, b"2")]
    sections = dict(sections_of(kind, entries, 128))
    files = keyed_files([origin_of([header_of(kind, STATES)], [sections], 128)])
    dealt = dealt_sections(files, 200, BytesIO)
    assert content_of(dealt, 200) == content_of(united_sections(files, 200, BytesIO), 200)


def test_a_string_in_more_bytes_than_it_takes_is_hashed_as_flink_reads_it() -> None:
    sections = dict(sections_of("string", [Entry(0, "a", b"1")], 1))
    padded = b"\xe1\x80\x80\x00"  # 'a', in four bytes instead of one
    (section,) = sections.values()
    content = section.replace(key_bytes("string", "a"), b"\x02" + padded)
    content = content.replace(struct.pack(">I", 4), struct.pack(">I", 7), 1)
    files = keyed_files([origin_of([header_of("string", STATES)], [{0: content}], 1)])
    dealt = dealt_sections(files, 200, BytesIO)
    assert content_of(dealt, 200) == content_of(united_sections(files, 200, BytesIO), 200)


def test_keys_that_are_not_where_their_hash_says_are_refused() -> None:
    sections = dict(sections_of("long", [Entry(0, n, b"") for n in range(50)], 128))
    of_another = {group: sections[group] for group in sections}
    group = next(iter(sections))
    (other,) = [section for g, section in sections.items() if g != group][:1]
    of_another[group] = other[:6] + bytes((group | other[6] & 0x80,)) + other[7:]
    origin = origin_of([header_of("long", STATES)], [of_another], 128)
    with pytest.raises(Incompatible, match=f"a key of group {group} does not belong there"):
        Rescaler([origin], 2, 200).keyed(0)

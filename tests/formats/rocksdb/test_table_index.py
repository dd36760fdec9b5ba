"""A block of an index: what is read together is what is read one by one, of whole blocks and of
damaged ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from stateshift.errors import FormatError
from stateshift.formats.rocksdb import table as sst_table
from stateshift.formats.rocksdb.block import TRAILER, Handle, encode_varint
from stateshift.formats.rocksdb.table import IndexEntry, entries_of_index

PLACE = Handle(7000, 0)
COUNT = 300
LARGE = 1 << 35  # its varint has six bytes


def read(block: bytes) -> tuple[list[IndexEntry], str]:
    """Return what is read of a block, and what is then said to be wrong with it."""
    found: list[IndexEntry] = []
    try:
        found.extend(entries_of_index(block, PLACE, True))
    except FormatError as error:
        return found, f"{error.fact} at {error.offset}"
    return found, ""


def both(block: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[list[IndexEntry], str]:
    """Return the same, which is so in both ways."""
    together = read(block)
    with monkeypatch.context() as patched:
        patched.setattr(sst_table, "TOGETHER_MIN", len(block))
        assert read(block) == together
    return together


def index(handles: list[Handle], keys: list[bytes], interval: int = 1) -> bytes:
    """Return a block in which every so many entries are a restart."""
    body, restarts, before = bytearray(), bytearray(), b""
    for number, (key, handle) in enumerate(zip(keys, handles, strict=True)):
        shared = 0
        if number % interval == 0:
            restarts += len(body).to_bytes(4, "little")
        else:
            while key.startswith(before[: shared + 1]) and shared < len(before):
                shared += 1
        body += encode_varint(shared) + encode_varint(len(key) - shared) + key[shared:]
        if shared:
            difference = handle.size - handles[number - 1].size
            body += encode_varint(2 * difference if difference >= 0 else -2 * difference - 1)
        else:
            body += encode_varint(handle.offset) + encode_varint(handle.size)
        before = key
    return bytes(body + restarts) + (len(restarts) // 4).to_bytes(4, "little")


def handles_from(start: int, chance: random.Random, count: int = COUNT) -> list[Handle]:
    """Return the places of blocks that lie behind each other."""
    handles: list[Handle] = []
    for _ in range(count):
        size = chance.choice((1, 100, 127, 128, 4000, 1 << 20))
        handles.append(Handle(start, size))
        start += size + TRAILER
    return handles


def keys_of(size: Callable[[], int], count: int = COUNT) -> list[bytes]:
    return [number.to_bytes(4, "big") + bytes(size()) for number in range(1, count + 1)]


@pytest.mark.parametrize("start", [0, 100, 1 << 20, 1 << 33, LARGE])
@pytest.mark.parametrize("interval", [1, 2, 16])
@pytest.mark.parametrize("longest", [0, 20, 123, 124, 300])
def test_an_index_is_read_as_it_was_written(start, interval, longest, monkeypatch):
    chance = random.Random(f"{start}/{interval}/{longest}")
    handles = handles_from(start, chance)
    keys = keys_of(partial(chance.randint, 0, longest))
    written = list(zip(keys, handles, strict=True))
    assert both(index(handles, keys, interval), monkeypatch) == (written, "")


def test_what_is_read_together_goes_on_where_the_last_ones_end(monkeypatch):
    chance = random.Random(1)
    count = 2 * sst_table.TOGETHER + 1
    handles = handles_from(0, chance, count)
    keys = keys_of(partial(chance.randint, 0, 30), count)
    keys[-3] = b"\xff" * 200  # the size of a key that is two bytes ends it, behind two batches
    written = list(zip(keys, handles, strict=True))
    assert both(index(handles, keys), monkeypatch) == (written, "")


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(400))
def test_a_damaged_index_reads_as_it_does_one_by_one(seed, monkeypatch):
    chance = random.Random(seed)
    block = bytearray(index(handles_from(0, chance), keys_of(partial(chance.randint, 0, 9))))
    for _ in range(chance.choice((1, 1, 1, 30))):
        place = chance.randrange(len(block))
        block[place] = chance.choice((0, block[place] ^ 1 << chance.randrange(8), 0xFF))
    both(bytes(block), monkeypatch)
    both(bytes(block[: chance.randrange(len(block))]), monkeypatch)

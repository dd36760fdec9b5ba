"""States that are read are no burden to Python's search for garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from stateshift import live
from stateshift.live.bins.batches import Records
from stateshift.live.bins.bin_run import Memory
from stateshift.live.bins.commits import BinSnapshot, FilePiece
from stateshift.live.bins.stores import Objects

KEYS = 5000


@live.operator(bins=2, key="key", time="at", out="n long")
def listed(key: int, state: list[int] | None, values: tuple[int, ...]) -> live.Folded:
    return live.Folded([*(state or []), *values])


@pytest.fixture
def memory() -> Iterator[Memory]:
    store = Objects(listed)
    store.apply(Records([((at,), at, at) for at in range(KEYS)]), (KEYS,))
    content = store.whole()
    del store
    yield Memory(listed, lambda piece: content)
    gc.unfreeze()
    gc.enable()


def test_states_that_are_read_are_not_looked_through_again(memory: Memory) -> None:
    before = gc.get_freeze_count()
    store = memory.take(0, BinSnapshot((FilePiece("file", 0, 1),), KEYS))
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + KEYS
    assert store.keys == KEYS


def test_states_that_were_read_are_freed_once_nobody_has_them(memory: Memory) -> None:
    store = memory.take(0, BinSnapshot((FilePiece("file", 0, 1),), KEYS))
    frozen = gc.get_freeze_count()
    del store
    assert gc.get_freeze_count() <= frozen - KEYS


def test_whoever_has_no_search_for_garbage_has_none_afterwards(memory: Memory) -> None:
    gc.disable()
    memory.take(0, BinSnapshot((FilePiece("file", 0, 1),), KEYS))
    assert not gc.isenabled()


class _Ring:
    """An object that only a search for garbage frees."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.long
def test_old_garbage_is_not_kept_for_ever(memory: Memory) -> None:
    ring = _Ring()
    freed = weakref.ref(ring)
    gc.collect()
    gc.collect()  # it is as old as objects get
    del ring
    memory.take(0, BinSnapshot((FilePiece("file", 0, 1),), KEYS))
    assert freed() is None

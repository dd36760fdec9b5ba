"""The items of one step, several at once where each of them waits for a network.

What a storage says of itself decides (`Traits.at_once`): on a disk one after the other is as fast. Results come in the
items' order. After the first failure no more are begun, those that run may finish, and it is raised: the step's repeat
finds what they left. So does an interruption end it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from stateshift.storage.protocol import Storage
from stateshift.world import World

T = TypeVar("T")
R = TypeVar("R")


def each(world: World, items: Sequence[T], do: Callable[[T], R], *storages: Storage) -> list[R]:
    """`do` of every item, in the items' order."""
    at_once = min(len(items), max(storage.traits.at_once for storage in storages))
    failed = threading.Event()

    def one(item: T) -> R:
        world.check_interrupted()
        return do(item)

    def one_of_many(item: T) -> list[R]:
        try:
            return [] if failed.is_set() else [one(item)]
        except BaseException:
            failed.set()
            raise

    if at_once <= 1:
        return [one(item) for item in items]
    with ThreadPoolExecutor(at_once, thread_name_prefix="item") as threads:
        futures = [threads.submit(copy_context().run, one_of_many, item) for item in items]
    return [result for future in futures for result in future.result()]

"""The items of one step, several at once where each of them waits for a network.

The storages say how many: on a disk one after the other is as fast. A storage with a lane
(`storage.lanes`) is used by all steps of a run together for as many as are worth it, one without
for `Traits.at_once` in each step. Results come in the items' order. After the first failure or an
interruption no more are begun, those that run may finish, and it is raised: the step's repeat finds
what they left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from itertools import chain
from typing import TypeVar

from stateshift.storage.protocol import Storage
from stateshift.world import World

T = TypeVar("T")
R = TypeVar("R")


def each(
    world: World,
    items: Sequence[T],
    do: Callable[[T], R],
    *storages: Storage,
    size: Callable[[T], int] = lambda _: 0,
) -> list[R]:
    """Do every item. Return the results in order. `size` is the bytes that an item moves."""
    at_once = min(len(items), max(storage.traits.at_once for storage in storages))
    if at_once <= 1:
        return [_one(world, item, do) for item in items]
    # Each lane once, and in one order: steps that wait for two do not wait for each other.
    lane_at = {storage.location: storage.traits.lane for storage in storages}
    lanes = [lane for _, lane in sorted(lane_at.items()) if lane is not None]
    failed = threading.Event()

    def one_of_many(item: T) -> list[R]:
        moved = None
        try:
            if failed.is_set():
                return []
            done = [_one(world, item, do)]
            moved = size(item)
            return done
        except BaseException:
            failed.set()
            raise
        finally:
            for lane in lanes:
                lane.leave(moved)

    with ThreadPoolExecutor(at_once, thread_name_prefix="item") as threads:
        futures = []
        for item in items:
            with ExitStack() as entered:
                for lane in lanes:
                    lane.enter()
                    entered.callback(lane.leave, None)
                if failed.is_set():
                    break
                futures.append(threads.submit(copy_context().run, one_of_many, item))
                entered.pop_all()
    return list(chain.from_iterable(future.result() for future in futures))


def _one(world: World, item: T, do: Callable[[T], R]) -> R:
    world.check_interrupted()
    return do(item)

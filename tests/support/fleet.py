"""The in-memory twin of a fleet: orders go to the same task as on a real executor, as text, and
answers come back as text; executors are lost when a test says so.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stateshift.errors import Interrupted
from stateshift.fleet.carrier import Lost, add_attempt
from stateshift.fleet.task import carry_out
from stateshift.world import World


@dataclass
class MemoryCarrier:
    """`world_of` is what an executor sees. Of each order's attempts, `lose` tells which are lost,
    before or after the work was done: `lose(label, attempt) -> "before" | "after" | None`.
    """

    world_of: Callable[[Mapping[str, Any]], World] | None = None
    lose: Callable[[str, int], str | None] = lambda label, attempt: None
    slots_there: int = 2
    master: str = "local[2]"
    far: bool = False
    description: str = "in memory"
    carried: list[str] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    closed: bool = False
    attempts: dict[str, int] = field(default_factory=dict)

    def slots(self, waiting: int) -> int:
        return self.slots_there

    def carry(self, order: str, label: str) -> str:
        if self.stop.is_set():
            raise Interrupted("interrupted; what was done is written down")
        attempt = self.attempts[label] = self.attempts.get(label, -1) + 1
        json.loads(order)
        self.carried.append(label)
        self.orders.append(order)
        lost = self.lose(label, attempt)
        if lost == "before":
            raise Lost("an executor is gone")
        answer = carry_out(order, self.world_of)
        if lost == "after":
            raise Lost("an executor is gone")
        return add_attempt(answer, 0)

    def close(self) -> None:
        self.closed = True

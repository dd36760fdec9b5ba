"""The state of one wave, which its stages hand on to each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from stateshift.migration.plan_book import NumberedPlan
from stateshift.specification import JobSpec

# Work that goes on beside others until the event is set.
BesideWork = Callable[[threading.Event], None]


@dataclass
class WaveState:
    """`pending` jobs have not moved yet; `beside_stop` is the work beside their stop, `halted`
    those that a halt of this run has stopped, `moves` the plans for their targets.
    """

    jobs: tuple[JobSpec, ...]
    pending: list[JobSpec] = field(default_factory=list)
    beside_stop: BesideWork | None = None
    halted: frozenset[str] = frozenset()
    moves: list[NumberedPlan] = field(default_factory=list)

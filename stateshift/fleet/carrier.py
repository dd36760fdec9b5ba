"""The interface of a carrier of orders to executors, and its names in messages.

A carrier gets one order to one executor and its answer back, or says that it was Lost. The crew
decides about a loss.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol


class Lost(Exception):
    """An executor went away with an order; nobody knows the rest."""


class Carrier(Protocol):
    """Carries orders to the executors of a cluster, and their answers back."""

    @property
    def master(self) -> str: ...

    @property
    def far(self) -> bool:
        """Whether executors are on machines of their own, as far as the master's name tells."""
        ...

    @property
    def description(self) -> str:
        """The carrier, in a few words."""
        ...

    def slots(self, waiting: int) -> int:
        """Return the number of orders that can be at work, or be handed over while some wait."""
        ...

    def carry(self, order: str, label: str) -> str:
        """Carry an order and return the answer.

        Raises:
            Lost: an executor went away.
            Interrupted: somebody asked to stop.
            ClusterError: nothing can be carried any more.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ways:
    """The names of a crew. A person who has chosen it (`is_chosen`) is told of its use."""

    name: str = "fleet"
    is_chosen: bool = True
    worker: str = "executor"
    too_little: str = (
        "the executors' own logs say why; where it is memory, give them more "
        "(spark.executor.memoryOverhead) or fewer cores, then: stateshift resume WORKDIR"
    )


OF_SPARK = Ways()
OF_THIS_MACHINE = Ways(
    name="processes",
    is_chosen=False,
    worker="process",
    too_little=(
        "where it was memory, give it less to do at once: --parallel 1 starts no processes; then: "
        "stateshift resume WORKDIR"
    ),
)


def add_attempt(text: str, attempt: int) -> str:
    """Return an answer with the number of times that the order had been begun before."""
    return json.dumps({**json.loads(text), "attempt": attempt})

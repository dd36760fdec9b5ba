"""What keeps an operator's state from being divided otherwise, and the way out that there really
is. Types only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AS_IT_IS: Final = (
    "leave out what cannot be changed: Flink itself deals out state for any parallelism "
    "up to the max parallelism"
)
CANONICAL: Final = (
    f'take a canonical savepoint of the job ("stop": {{"format": "canonical"}}); or {AS_IT_IS}'
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why something cannot be done, and what can be."""

    fact: str
    hint: str = AS_IT_IS

"""Plans carried out, asked whether they still hold, and taken back.

running     one loop that carries out plans; does the evidence of their steps still hold?
undoing     take a plan's effects back, last one first
"""

from stateshift.executor.running import (
    DECODED_BYTES_MAX,
    WAITING_BYTES_MAX,
    Broken,
    ask,
    execute_together,
)
from stateshift.executor.undoing import roll_back, roll_back_phases

__all__ = [
    "DECODED_BYTES_MAX",
    "WAITING_BYTES_MAX",
    "Broken",
    "ask",
    "execute_together",
    "roll_back",
    "roll_back_phases",
]

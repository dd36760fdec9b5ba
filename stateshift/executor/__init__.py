"""Plans carried out, asked whether they still hold, and taken back: `running`."""

from stateshift.executor.running import (
    DECODED_BYTES_MAX,
    WAITING_BYTES_MAX,
    Broken,
    ask,
    execute_together,
    roll_back,
    roll_back_phases,
)

__all__ = [
    "DECODED_BYTES_MAX",
    "WAITING_BYTES_MAX",
    "Broken",
    "ask",
    "execute_together",
    "roll_back",
    "roll_back_phases",
]

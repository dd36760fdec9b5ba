"""What an operator of bins computes: a key's state after some values."""

from __future__ import annotations

from typing import Any, NamedTuple

from stateshift.live.protocol.configuration import Time

# The operator's own: whoever writes its function knows their types.
Key = Any
State = Any
Value = Any


class Folded(NamedTuple):
    """A key's state after some values, what that put out, and values it wants to see again at
    times to come.
    """

    state: State
    outputs: tuple[Value, ...] = ()
    later: tuple[tuple[Time, Value], ...] = ()

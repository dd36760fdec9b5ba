"""Ports of 127.0.0.1 that nobody has, and that nobody is given by accident.

They are drawn from below the range that the system takes for outgoing connections, so that a server
that is started again most likely finds its ports free. Whoever takes one between the choice and the
start is survived: see `running`.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack

HOST = "127.0.0.1"
LOWEST, HIGHEST = 15_000, 32_000

Chooser = Callable[[Sequence[str]], dict[str, int]]


def free(names: Sequence[str]) -> dict[str, int]:
    """All at once, so that no two are the same."""
    draw = random.SystemRandom()
    with ExitStack() as held:
        chosen: dict[str, int] = {}
        for name in names:
            while name not in chosen:
                port = draw.randrange(LOWEST, HIGHEST)
                one = held.enter_context(socket.socket())
                try:
                    one.bind((HOST, port))
                except OSError:
                    continue
                chosen[name] = port
        return chosen


def taken(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: what lingers is not taken
        try:
            one.bind((HOST, port))
        except OSError:
            return True
    return False

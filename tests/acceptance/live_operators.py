"""Operators whose bins move, as jobs and their judges know them."""

from __future__ import annotations

from stateshift import live
from stateshift.live.protocol.applying import Folded

BINS = 16
BALLAST = 500  # bytes
LATER = 200  # units of time until a row is seen again


@live.operator(
    bins=BINS,
    key="key",
    time=("at", "number"),
    out="number long, key long, n long, sum long",
    values="number",
)
def visits(key, state, values):
    """Count and sum a key's rows, and see every fifth of them again."""
    n, total = state or (0, 0)
    outputs, later = [], []
    for number in values:
        n, total = n + 1, total + number
        outputs.append((number, key, n, total))
        if number > 0 and number % 5 == 0:
            later.append((number // 3 + LATER, -number))
    return Folded((n, total), tuple(outputs), tuple(later))


@live.operator(
    bins=BINS,
    key="key",
    time=("at", "number"),
    out="number long, key long, n long, sum long, v long",
    values=("number", "v"),
    promise=live.InOrder(partition="partition", partitions=2),
)
def visits_of_partitions(key, state, values):
    """Do the same of rows that come in two partitions, with some ballast a key; say which version
    of a function a row has met.
    """
    n, total, _ = state or (0, 0, b"")
    outputs, later = [], []
    for row in values:
        number, v = row if isinstance(row, tuple) else (row, -1)
        n, total = n + 1, total + number
        outputs.append((number, key, n, total, v))
        if number > 0 and number % 5 == 0:
            later.append((number // 3 + LATER, -number))
    return Folded((n, total, bytes([n % 251]) * BALLAST), tuple(outputs), tuple(later))

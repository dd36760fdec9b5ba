"""The functions that the bench puts into chains: each gives rows its number k, and may be
expensive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SCHEMA = "i long, k long"
BETWEEN_SCHEMA = "i long, k long, v long"
AFTER_SCHEMA = "i long, k long, v long, m long"


def giving(k: int, seconds: float = 0.0, column: str = "k") -> Callable[[Any], Any]:
    """Return a function that gives rows a number, and takes so many seconds for each."""

    def give(rows: Any) -> Any:
        import time

        import pyarrow

        time.sleep(seconds * rows.num_rows)
        if column in rows.schema.names:
            rows = rows.drop_columns([column])
        return rows.append_column(column, pyarrow.array([k] * rows.num_rows, pyarrow.int64()))

    return give


def every_fifth(rest: int) -> Callable[[Any], Any]:
    """Return a filter that keeps the numbers with that rest."""

    def keep(rows: Any) -> Any:
        import pyarrow.compute as c

        whole = c.multiply(c.divide(rows["i"], 5), 5)
        return rows.filter(c.equal(c.subtract(rows["i"], whole), rest))

    return keep


def score(rows: Any) -> Any:
    """Do what a cheap model does: some arithmetic on columns. The query of the overhead runs it."""
    import pyarrow
    import pyarrow.compute as c

    value = c.cast(rows["value"], pyarrow.float64())
    for _ in range(5):
        value = c.sqrt(c.add(c.multiply(value, 1.01), 1.0))
    return rows.append_column("score", value)

"""Functions that tests put into the chains of jobs/live.py while it runs. The chain of a kind of
rows gives each of them a number k; a function is known by the k that it gives.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def giving(k: int, seconds: float = 0.0) -> Callable[[Any], Any]:
    """Return a function that gives rows a k, and takes so long for each Arrow batch."""

    def give(rows: Any) -> Any:
        import pyarrow

        if rows.num_rows:
            time.sleep(seconds)
        if "k" in rows.schema.names:
            rows = rows.drop_columns(["k"])
        return rows.append_column("k", pyarrow.array([k] * rows.num_rows, pyarrow.int64()))

    return give


def giving_in_pandas(k: int) -> Callable[[Any], Any]:
    """Return the same for mapInPandas."""
    return lambda rows: rows.assign(k=k)


def even(rows: Any) -> Any:
    """Keep the even numbers."""
    import pyarrow.compute

    return rows.filter(pyarrow.compute.equal(pyarrow.compute.bit_wise_and(rows["value"], 1), 0))


def of_wrong_type(rows: Any) -> Any:
    """Give rows a k that is a text."""
    import pyarrow

    if "k" in rows.schema.names:
        rows = rows.drop_columns(["k"])
    return rows.append_column("k", pyarrow.array(["0"] * rows.num_rows, "string"))


def raising(rows: Any) -> Any:
    """Raise an error for any rows."""
    import pyarrow

    if rows.num_rows:
        raise ValueError("the model is not there")
    return rows.append_column("k", pyarrow.array([], pyarrow.int64()))


def last_five(rows: Any, state: Any) -> Any:
    """Keep five numbers in place of three: a function of foreachBatch's chain."""
    number = rows.agg({"value": "max"}).collect()[0][0]
    kept = [*state, number][-5:]
    return (rows, kept), kept


def with_two_more(slot: str, state: Any) -> Any:
    """Make a state of three numbers one of five."""
    assert slot == "last"
    return [-2, -1, *state]


def raising_from(k: int, first: int, rows: int, place: int) -> Callable[[Any], Any]:
    """Return a function that gives rows a k, and raises an error for one row of each batch of
    Spark's from its `first` number on.
    """
    give = giving(k)

    def fail(arrow: Any) -> Any:
        values = arrow["value"].to_pylist()
        if any(value >= first and value % rows == place for value in values):
            raise ValueError(f"the model {k} is not there")
        return give(arrow)

    return fail


def first_of_two(number: int, seconds: float = 0.0) -> Callable[[Any], Any]:
    """Return a function that gives rows a number × 1000 as their k."""
    return giving(number * 1000, seconds)


def second_of_two(number: int) -> Callable[[Any], Any]:
    """Return a function that adds a number to k: rows say so which of both they have met."""

    def add(rows: Any) -> Any:
        import pyarrow
        import pyarrow.compute

        k = pyarrow.compute.add(rows["k"], pyarrow.scalar(number, pyarrow.int64()))
        return rows.drop_columns(["k"]).append_column("k", k)

    return add

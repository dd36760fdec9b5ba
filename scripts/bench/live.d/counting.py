"""The operators of the bench: visits of a key are counted, as an object a key and as columns.

    fold      a list of [count, last number, the last four numbers]
    columns   the same as six columns of whole numbers
    plain     a whole number a key, and the table of it

Each row puts out one row: its number, its key, and how often the key has come by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateshift import live

BINS = 256
OUT = "i long, key long, n long"
OUT_TEXT = "i long, key string, n long"
STATE = "n long, last long, a long, b long, c long, d long"


def visits(key: int, state: Any, values: Sequence[int]) -> live.Folded:
    count, _, last_four = state or (0, 0, [0, 0, 0, 0])
    count += len(values)
    last = values[-1]
    return live.Folded(
        [count, last, [*last_four[len(values) :], *values[-4:]]], outputs=((last, key, count),)
    )


def first_state(key: int, value: int) -> list[Any]:
    """Return the state of a key that has been seen before the bench began."""
    return [1, value, [1, 2, 3, 4]]


def visits_in_columns(table: Any, rows: Any) -> tuple[Any, Any]:
    """Count a bin's rows: its state is a table."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as c

    numbers, keys = rows["i"].to_numpy(), rows["key"].to_numpy()
    unique, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
    last = np.zeros(len(unique), np.int64)
    np.maximum.at(last, place, numbers)
    if table is None:
        before = np.zeros(len(unique), np.int64)
        old = [before] * 4
    else:
        at = c.index_in(pa.array(unique), value_set=table["key"].combine_chunks())
        known = table.take(at)
        before = c.fill_null(known["n"], 0).to_numpy()
        old = [c.fill_null(known[name], 0).to_numpy() for name in "abcd"]
    after = before + counts
    changed = [unique, after, last, *old[1:], last]
    names = ["key", "n", "last", "a", "b", "c", "d"]
    ordinal = _ordinals(place, counts)
    put_out = [numbers, keys, before[place] + ordinal]
    return pa.table(dict(zip(names, changed, strict=True))), pa.table(
        dict(zip(("i", "key", "n"), put_out, strict=True))
    )


def _ordinals(place: Any, counts: Any) -> Any:
    """Return of each row the how-manieth of its key it is."""
    import numpy as np

    order = np.argsort(place, kind="stable")
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    ordinal = np.empty(len(place), np.int64)
    ordinal[order] = np.arange(len(place)) - begins + 1
    return ordinal


def count(key: Any, state: Any, values: Sequence[int]) -> live.Folded:
    """Count a key's rows: its state is a whole number."""
    after = (state or 0) + len(values)
    return live.Folded(after, outputs=((values[-1], key, after),))


def first_count(key: Any, value: int) -> int:
    return value


VISITS = live.operator(
    bins=BINS, key="key", time="i", values="i", out=OUT, promise=live.InOrder(), name="visits"
)(visits)
VISITS_IN_COLUMNS = live.operator(
    bins=BINS,
    key="key",
    time="i",
    values="i",
    out=OUT,
    promise=live.InOrder(),
    name="visits",
    form="columns",
    state=STATE,
)(visits_in_columns)
FORMS = {"objects": VISITS, "columns": VISITS_IN_COLUMNS}


def counting(kind: str, bins: int) -> Any:
    """Return a word count: of texts (hash-count) or of whole numbers (key-count)."""
    out = OUT_TEXT if kind == "hash-count" else OUT
    declared = live.operator(
        bins=bins, key="key", time="i", values="i", out=out, promise=live.InOrder(), name="count"
    )
    return declared(count)

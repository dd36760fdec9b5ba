"""An operator of each form, over the log of workers.py."""

from __future__ import annotations

import pyarrow as pa

from stateshift import live
from stateshift.live.protocol.applying import Folded
from tests.live.bins.workers import BINS, LATER, OUT, count_and_ask

WINDOW = 12  # units of time that a left row waits for right ones

fold = count_and_ask


@live.operator(form="unary", bins=BINS, key="key", time=("at", "number"), out=OUT, values="number")
def unary(time, key, state, rows, notified):
    """Count a key's rows and what it is notified of, which it asks for twice."""
    n = (state or 0) + len(rows)
    outputs = [(number, key, n) for number in rows]
    later = [(time + LATER, ("first", number)) for number in rows if number % 7 == 0]
    for what, number in notified:
        n += 1
        outputs.append((-number - 1, key, n))
        if what == "first":
            later.append((time + 3, ("second", number)))
    if n > 40:
        return Folded(None, tuple(outputs), tuple(later))
    return Folded(n, tuple(outputs), tuple(later))


@live.operator(
    form="binary",
    bins=BINS,
    key="key",
    time=("at", "number"),
    sides=("side", "l", "r"),
    out="number long, key long, n long, other long",
    values="number",
)
def binary(time, key, state, left, right, notified):
    """Join each right row with the left ones of a window, and say when one was in none."""
    waiting = dict(state or {})
    outputs, later = [], []
    for number in left:
        waiting[number] = 0
        later.append((time + WINDOW, number))
    for number in right:
        for other in waiting:
            waiting[other] += 1
            outputs.append((number, key, waiting[other], other))
    for number in notified:
        if waiting.pop(number) == 0:
            outputs.append((-number - 1, key, 0, number))
    return Folded(waiting or None, tuple(outputs), tuple(later))


@live.operator(bins=BINS, key="key", time=("at", "number"), out=OUT)
def whole_rows(key, state, rows):
    """Count a key's rows, of which it is given all columns, and keep the last one."""
    n = 0 if state is None else state[0]
    outputs = []
    for row in rows:
        assert state is None or state[1].number < row.number
        n += 1
        outputs.append((row.number, row.key, n))
    return Folded((n, rows[-1]), tuple(outputs))


@live.operator(form="columns", bins=BINS, key="key", time=("at", "number"), out=OUT, state="n long")
def columns(table, rows):
    """Count a key's rows."""
    counts = {} if table is None else dict(zip(*table.to_pydict().values(), strict=True))
    outputs = []
    touched = set()
    for number, key in zip(rows["number"].to_pylist(), rows["key"].to_pylist(), strict=True):
        counts[key] = counts.get(key, 0) + 1
        touched.add(key)
        outputs.append((number, key, counts[key]))
    keys = sorted(touched)
    changed = pa.table({"key": keys, "n": [counts[key] for key in keys]})
    numbers, of, n = zip(*outputs, strict=True)
    return changed, pa.table({"number": numbers, "key": of, "n": n})


FORMS = {
    "fold": fold,
    "whole rows": whole_rows,
    "unary": unary,
    "binary": binary,
    "columns": columns,
}
ASK_LATER = ("fold", "unary", "binary")

"""What the state of a bin costs that moves, by its form: bins become bytes and come back, without
Spark, storage and the batch around it.

    forms.py '{"keys": 1200000, "cases": [{"form": "objects", …}, …]}'

Prints a line of JSON for each case: CPU microseconds a key, and bytes a key.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from counting import BINS, FORMS, first_state

from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.stores import BinTable, Objects, Store, read_store

COLUMNS = ("n", "last", "a", "b", "c", "d")


def main() -> None:
    asked = json.loads(sys.argv[1])
    for case in asked["cases"]:
        print(json.dumps({**case, **measured(case["form"], asked["keys"])}), flush=True)


def measured(form: str, keys: int) -> dict[str, Any]:
    """Give and take all bins once."""
    operator = FORMS[form]
    in_bin = keys // BINS
    made = _objects if form == "objects" else _table
    stores = [made(range(bin * in_bin, (bin + 1) * in_bin)) for bin in range(BINS)]
    count = sum(store.keys for store in stores)
    given, pieces = _timed(_whole, stores)
    stores.clear()
    gc.collect()
    taken, back = _timed(_read, operator, pieces)
    if sum(store.keys for store in back) != count:
        raise SystemExit(f"{form}: not all keys came back")
    return {
        "given": round(1e6 * given / count, 4),
        "taken": round(1e6 * taken / count, 4),
        "bytes": round(sum(map(len, pieces)) / count, 1),
    }


def _objects(keys: range) -> Store:
    states = {key: first_state(key, number) for number, key in enumerate(keys)}
    return Objects(FORMS["objects"], states)


def _table(keys: range) -> Store:
    key = np.arange(keys.start, keys.stop)
    columns = {name: np.full(len(keys), 1, np.int64) for name in COLUMNS}
    return BinTable(FORMS["columns"], pa.table({"key": key, **columns}))


def _whole(stores: list[Store]) -> list[bytes]:
    return [store.whole() for store in stores]


def _read(operator: BinOperator, pieces: list[bytes]) -> list[Store]:
    return [read_store(operator, [piece]) for piece in pieces]


def _timed(do: Callable[..., Any], *words: Any) -> tuple[float, Any]:
    """Return CPU seconds, and what came of it."""
    before = time.process_time()
    done = do(*words)
    return time.process_time() - before, done


if __name__ == "__main__":
    main()

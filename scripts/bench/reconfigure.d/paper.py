"""What is known here of section 8 of the Fries paper (VLDB 2022): the notes in tests/rows.md, rows
F-19 to F-24.

The notes have no delay of a single row or point, but only the least and the most of table 3.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments import W2, W3, drawn

from stateshift.dataflow.schedulers import Scheduler
from stateshift.specification.dataflow.operators import Dataflow

NOT_TOLD = "not told"

Found = tuple[Dataflow, str, str]

# F-22 and F-23: workflow, targets, components.
TABLE_3: tuple[Found, ...] = (
    (W2, "J1", "J1"),
    (W2, "J2", "J2"),
    (W2, "J1, J3", "J1, J2, J3"),
    (W2, "J1, J4", "J1, J2, J3, J4"),
    (W2, "J3, J4", "J3, J4"),
    (W3, "J5", "J5"),
    (W3, "J5, J6", "J5; J6"),
    (W3, "J5, J6, J7, J8", "J5, J6, J7, U1, J8"),
    (W3, "J5, J6, J7, J9", "J5, J6, J7, U1, J8, J9"),
    (W3, "J7, J8, J9", "J7, U1, J8, J9"),
)
W4 = drawn("F1 -> U2 -> FD1 -> F2; U2 -> FD2 -> F2", many="U2")
TABLE_4: tuple[Found, ...] = (
    (W4, "F1, U2", "F1, U2"),
    (W4, "FD1", "U2, FD1"),
    (W4, "F2", "U2, FD1, FD2, F2"),
)

# F-24: targets, edges in the sub-DAG with and without pruning.
W5 = drawn(
    "RE -> FD3 -> S1 -> F3 -> SJ -> E1; RE -> F4 -> FD4 -> SJ",
    many="RE",
    unique="SJ",
    one_per_tuple="RE",
)
TABLE_5 = (("FD4", 0, 2), ("F3", 0, 3), ("F4", 0, 1), ("FD3, FD4", 3, 3), ("E1", 0, 8))

# F-22: the least and the most of table 3's ten rows, in ms.
DELAYS_MS: Mapping[Scheduler, tuple[float, float]] = {"fries": (44, 1702), "epoch": (4127, 20532)}

# F-20: when what happens, in seconds, and what comes of it.
SURGE_SECONDS, REPLACED_SECONDS = "100", "120 and 220"
FALLS_AFTER: Mapping[Scheduler, str] = {
    "fries": "at once",
    "epoch": "once the stragglers are through",
}

# F-21, in words.
SLOPES: Mapping[Scheduler, str] = {"epoch": "significantly larger than Fries'"}

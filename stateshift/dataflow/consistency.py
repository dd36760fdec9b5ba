"""Whether a schedule keeps its promise: no source tuple is met by targets before their change, and
by some after it.

    consistent(schedule)  of this dataflow and these targets, not of the scheduler at large
    unguarded(schedule)   the one-to-many operators whose copies of one tuple may meet old and new,
                          since only the published rule has spared them (F-13)

Epoch barriers and versions always keep it, and so does Fries with the sound rule, or none. Both
answers are exact, as far as operators do the most that their kinds allow: a test holds them against
all interleavings of small dataflows.

    published  what it spares beyond the sound rule can send two copies to targets; they are parted
               by nothing unless the operator is in a component all the same, on a way between
               others
    naive      is what Fries does where that has nothing to synchronise (F-6); anywhere else a tuple
               meets two targets in turn, or two copies of it meet them
"""

from __future__ import annotations

from stateshift.dataflow.schedulers import Schedule, fries


def consistent(schedule: Schedule) -> bool:
    """Whether no source tuple can meet some targets before their change and others after it."""
    match schedule.scheduler:
        case "fries":
            return not unguarded(schedule)
        case "naive":
            return not fries(schedule.dataflow, schedule.targets).edges
        case "epoch" | "multi-version":
            return True


def unguarded(schedule: Schedule) -> tuple[str, ...]:
    """Return the operators that only the published rule has spared."""
    return tuple(pruned.operator for pruned in schedule.pruned if pruned.by is None)

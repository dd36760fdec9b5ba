"""In which steps keys move while a job runs, and what that costs. Pure: no storage, no clock, no
chance.

    hash of a key ──bin_of──▶ bin ──Configuration.worker(time, bin)──▶ worker

    assignment now, assignment wanted ──moves_between──▶ moves ──in_steps──▶ steps ──Rollout──▶
    updates
                                                                   │                               │
                                                                   └──predict──▶ Prediction        ▼
                                                                        worker.py: operators F and
                                                                        S, a model

    bins           keys in classes that move as one: a power of two, the leading bits of a key's
                   hash
    configuration  (time, bin) -> worker, changed by updates that are values; retired, split, merged
    moves          what differs between two assignments
    colouring      moves in as few steps as there can be, none in the way of another of its step
    steps          the strategies: all at once, fluid, batched, optimised
    rollout        when a step may start: flow control, drain gaps, moves prepared for a future time
    plan_file      the file format of Megaphone's experiments
    messages       what workers of a migrating operator are told and tell each other
    worker         the protocol, one worker of it: F routes and moves, S installs and applies
    network        workers and their channels, as one value: a world in which every order can be
                   tried
    promises       what a migration promises, held against what was done
    waves          the jobs of a spec, moved by a strategy as bins are
    cost           latency, duration and memory of a strategy's steps, before anything moves
    sweeps         the published experiments on the cost model

The protocol, the strategies and the file format are those of Megaphone (PVLDB 12(9), 2019): the
rows M-1 to M-25.
"""

from stateshift.strategies.bins import bin_of
from stateshift.strategies.configuration import Configuration, Update
from stateshift.strategies.moves import Move, Step, moves_between
from stateshift.strategies.rollout import Rollout
from stateshift.strategies.steps import (
    AllAtOnce,
    Batched,
    Fluid,
    Optimised,
    Strategy,
    in_steps,
    strategy_of,
)

__all__ = [
    "AllAtOnce",
    "Batched",
    "Configuration",
    "Fluid",
    "Move",
    "Optimised",
    "Rollout",
    "Step",
    "Strategy",
    "Update",
    "bin_of",
    "in_steps",
    "moves_between",
    "strategy_of",
]

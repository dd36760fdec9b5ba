"""The keys of the spec itself: those that stand beside `jobs`, and for all of them."""

from __future__ import annotations

from typing import get_args

from stateshift.specification.job_keys import JOB
from stateshift.specification.key import Engine, Keys, Kind
from stateshift.specification.model import OnFailure, Spec
from stateshift.specification.parts import (
    CLUSTER_LIST,
    DATAFLOW_VALUE,
    THROTTLE_OBJECT,
    UID_HASH_VALUE,
    WAVE_LIST,
    list_or_map,
)
from stateshift.specification.rebalancing import REBALANCE_OBJECT
from stateshift.specification.receivers import ON_OBJECT
from stateshift.specification.values import (
    BOOLEAN,
    CHOICE,
    COUNT,
    STRATEGY,
    TEXT,
    VERSION,
    as_it_stands,
)

# `parse` reads them last: the other keys say in which dialect they are.
JOB_LIST = Kind("jobs", as_it_stands, {**list_or_map("job"), "minItems": 1, "minProperties": 1})

_OWN = Keys(
    Spec,
    **{"$schema": TEXT("Where this schema is, for editors.")},
    version=VERSION("The version of this dialect. INFORE's dialects have none."),
    engine=CHOICE(
        "The engine that keeps the state. Default: flink if a key of Flink's is used, else spark.",
        choices=get_args(Engine),
        added_by="stateshift.engines",
    ),
    restart=BOOLEAN(
        "True: the jobs exist, move and start again. False: a first deployment; they are prepared "
        "and started."
    ),
    jobs=JOB_LIST("The jobs in the order in which they move: a list, or a map by name."),
    waves=WAVE_LIST(
        "Which jobs move together, phase by phase: a list of waves in their order, each a list of "
        "jobs' names; every job is in one. Left out, `strategy` says so; jobs that share a source "
        "move together."
    ),
    strategy=STRATEGY(
        "Which jobs move together, if `waves` is left out. fluid (default): one after the other. "
        "all-at-once: all of them. batched(k): k at a time. optimised: as few waves as possible in "
        "which no cluster loses two jobs or receives two."
    ),
    dataflow=DATAFLOW_VALUE(
        "How the operators of the jobs send to each other: a dataflow "
        "(configs/dataflow.schema.json) whose operators say which job they are of, or a file of "
        "one beside the spec. Jobs that must change at one cut move in one wave."
    ),
    on_failure=CHOICE(
        "What happens when a job fails. restart (the default): the failed wave is rolled back if "
        "the run has stopped a job of it, which so runs again where it was; nothing more starts. "
        "stop: nothing more starts, and what was stopped stays down; you decide. finish: the "
        "failed wave is rolled back, the other waves continue. rollback: the whole run is rolled "
        "back, except waves with a job that has committed at its target. discard: those waves, "
        "too.",
        choices=get_args(OnFailure),
    ),
    on=ON_OBJECT("Who is notified: by event, a command or a webhook. Never keeps the run waiting."),
    rebalance=REBALANCE_OBJECT(
        "Between which clusters `stateshift rebalance` may move the jobs, and when. The jobs have "
        "no target then."
    ),
    clusters=CLUSTER_LIST("Where jobs run: a map by name, or a list."),
    uid_hash=UID_HASH_VALUE(
        "How an operator's name becomes its directory: a profile's name, or constants."
    ),
    production=BOOLEAN("Whether operators keep their results in <hash>_RES directories."),
    parallel=COUNT(
        "At most this many steps at once (4), and processes (one a core); small network steps may "
        "be more. 1 keeps everything in one process."
    ),
    throttle=THROTTLE_OBJECT("Limits on what the storages are asked for."),
)

SPEC = _OWN.with_keys(key for key in JOB.all if key.for_all)

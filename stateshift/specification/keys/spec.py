"""The keys of the spec itself: what stands beside `jobs`, and for all of them."""

from __future__ import annotations

from typing import get_args

from stateshift.specification.keys.job import JOB
from stateshift.specification.keys.key import Engine, Key, Keys
from stateshift.specification.model import OnFailure, Spec

SPEC = Keys(
    Key("$schema", "text", "Where this schema is, for editors."),
    Key("version", "version", "The version of this dialect. INFORE's dialects have none."),
    Key(
        "engine",
        "choice",
        "The engine that keeps the state. Default: flink if a key of Flink's is used, else spark.",
        Spec,
        "engine",
        choices=get_args(Engine),
        added_by="stateshift.engines",
    ),
    Key(
        "restart",
        "boolean",
        (
            "True: the jobs exist, move and start again. False: a first deployment; they are "
            "prepared and started."
        ),
        Spec,
        "restart",
    ),
    Key(
        "jobs",
        "jobs",
        "The jobs in the order in which they move: a list, or a map by name.",
        Spec,
        "jobs",
    ),
    Key(
        "waves",
        "waves",
        "Which jobs move together, phase by phase: a list of waves in their order, each a "
        "list of jobs' names; every "
        "job is in one. Left out, `strategy` says so; jobs that share a source move together.",
        Spec,
        "waves",
    ),
    Key(
        "strategy",
        "strategy",
        "Which jobs move together, if `waves` is left out. fluid (default): one after the other. "
        "all-at-once: all of them. batched(k): k at a time. optimised: as few waves as possible "
        "in which no cluster loses two jobs or receives two.",
        Spec,
        "strategy",
    ),
    Key(
        "dataflow",
        "dataflow",
        "How the operators of the jobs send to each other: a dataflow "
        "(configs/dataflow.schema.json) whose operators "
        "say which job they are of, or a file of one beside the spec. Jobs that must "
        "change at one cut move in one "
        "wave.",
        Spec,
        "dataflow",
    ),
    Key(
        "on_failure",
        "choice",
        "What happens when a job fails. restart (the default): the failed wave is rolled back if "
        "the run has stopped a job of it, which so runs again where it was; nothing more starts. "
        "stop: nothing more starts, and what was stopped stays down; you decide. "
        "finish: the failed wave is rolled back, the other waves continue. rollback: the whole run "
        "is rolled back, except waves with a job that has committed at its target. discard: those "
        "waves, too.",
        Spec,
        "on_failure",
        choices=get_args(OnFailure),
    ),
    Key(
        "on",
        "on",
        "Who is notified: by event, a command or a webhook. Never keeps the run waiting.",
        Spec,
        "on",
    ),
    Key(
        "rebalance",
        "rebalance",
        "Between which clusters `stateshift rebalance` may move the jobs, and when. The jobs have "
        "no target then.",
        Spec,
        "rebalance",
    ),
    Key("clusters", "clusters", "Where jobs run: a map by name, or a list.", Spec, "clusters"),
    Key(
        "uid_hash",
        "uid_hash",
        "How an operator's name becomes its directory: a profile's name, or constants.",
        Spec,
        "uid_hash",
    ),
    Key(
        "production",
        "boolean",
        "Whether operators keep their results in <hash>_RES directories.",
        Spec,
        "production",
    ),
    Key(
        "parallel",
        "count",
        (
            "At most this many steps at once (4), and processes (one a core); small network steps "
            "may be more. 1 keeps everything in one process."
        ),
        Spec,
        "parallel",
    ),
    Key("throttle", "throttle", "Limits on what the storages are asked for."),
    *(key for key in JOB.all if key.for_all),
)

"""The interface for programs: the commands as functions, for notebooks and orchestrators.

    inspect   what is at a location                     -> Inspection
    verify    could a job restart from it, or does a run's evidence still hold
                                                        -> ImageVerdict, RunVerdict
    plan      what would be done                        -> PlannedMove
    sign      sign a plan that was reviewed             -> PlannedMove
    apply     carry out a spec or a plan                -> RunResult
    resume    go on with a run                          -> RunResult
    rollback  take a run back                           -> RunResult
    failover  start a job from its standby              -> RunResult
    drill     rehearse that, and throw it away          -> RunResult
    failback  move it home again                        -> RunResult
    status    where a run stands                        -> RunStatus
    export    state as Arrow tables, batches or files   -> StateExport, ExportedFile
    query     what the state answers to a SELECT        -> an Arrow table
    use_descriptors
              from then on, messages of protobuf have the names of their fields
    diff      two images compared by their entries      -> ImageDiff
    check     will this code start from that state      -> CodeCheck
    advise    whether running jobs fit, or should scale -> JobAdvice, one a job

Each value's `to_dict()` equals what the command prints with `--json`, so `stateshift schema --of`
names its schema. Errors are those of `stateshift.errors`, each with an `exit_code` and, mostly, a
`hint`. README.md has examples.

Importing this package imports nothing heavy; each function imports what it needs when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stateshift import leave_logging_to_the_program

if TYPE_CHECKING:
    from stateshift.api.advice import advise
    from stateshift.api.drills import drill
    from stateshift.api.failovers import failback, failover
    from stateshift.api.images import (
        check,
        diff,
        export,
        inspect,
        query,
        use_descriptors,
        verify,
    )
    from stateshift.api.runs import Progress, apply, plan, resume, rollback, sign, status
    from stateshift.api.values import (
        CodeCheck,
        ExportedFile,
        ImageDiff,
        ImageVerdict,
        Inspection,
        JobAdvice,
        PlannedMove,
        RunResult,
        RunStatus,
        RunVerdict,
        StateExport,
    )
    from stateshift.errors import StateshiftError

leave_logging_to_the_program()

__all__ = [
    "CodeCheck",
    "ExportedFile",
    "ImageDiff",
    "ImageVerdict",
    "Inspection",
    "JobAdvice",
    "PlannedMove",
    "Progress",
    "RunResult",
    "RunStatus",
    "RunVerdict",
    "StateExport",
    "StateshiftError",
    "advise",
    "apply",
    "check",
    "diff",
    "drill",
    "export",
    "failback",
    "failover",
    "inspect",
    "plan",
    "query",
    "resume",
    "rollback",
    "sign",
    "status",
    "use_descriptors",
    "verify",
]

_HOMES = {
    "advise": "stateshift.api.advice",
    "apply": "stateshift.api.runs",
    "check": "stateshift.api.images",
    "diff": "stateshift.api.images",
    "drill": "stateshift.api.drills",
    "export": "stateshift.api.images",
    "failback": "stateshift.api.failovers",
    "failover": "stateshift.api.failovers",
    "inspect": "stateshift.api.images",
    "plan": "stateshift.api.runs",
    "query": "stateshift.api.images",
    "Progress": "stateshift.api.runs",
    "resume": "stateshift.api.runs",
    "rollback": "stateshift.api.runs",
    "sign": "stateshift.api.runs",
    "StateshiftError": "stateshift.errors",
    "status": "stateshift.api.runs",
    "use_descriptors": "stateshift.api.images",
    "verify": "stateshift.api.images",
}


def __getattr__(name: str) -> Any:
    """Import a name where it is first asked for: who only inspects waits for no run."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "stateshift.api.values")), name)

"""One command a file: it reads its arguments, calls `migration` or `look`, shows the result."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

# In the order of the help.
NAMES = (
    "inspect",
    "verify",
    "export",
    "diff",
    "plan",
    "apply",
    "resume",
    "rollback",
    "status",
    "runs",
    "metrics",
    "cutover",
    "pause",
    "throttle",
    "move",
    "compact",
    "repartition",
    "rewind",
    "fork",
    "convert",
    "rename",
    "split",
    "merge",
    "evolve",
    "gather",
    "repair",
    "dataflow",
    "advise",
    "rebalance",
    "live",
    "uid",
    "schema",
    "man",
    "completion",
)

# Those that are groups of commands, whose packages name their members: `stateshift live replace`.
GROUPS = ("live",)


def members_of(name: str) -> tuple[str, ...]:
    """Return the commands of a group, in the order of its help; none of what is no group."""
    if name not in GROUPS:
        return ()
    members: tuple[str, ...] = module_of(name).NAMES
    return members


def module_of(name: str) -> ModuleType:
    """Import the module of a command, or of a group: a process that runs one waits for no other."""
    return import_module(f"{__name__}.{name.replace(' ', '.')}")

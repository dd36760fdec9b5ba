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
    "uid",
    "schema",
    "man",
    "completion",
)


def module_of(name: str) -> ModuleType:
    """Import the module of a command: a process that runs one waits for no other."""
    return import_module(f"{__name__}.{name}")

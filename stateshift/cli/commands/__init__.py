"""One command a file: it reads its arguments, calls `migration` or `look`, shows the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    "live",
    "uid",
    "schema",
    "man",
    "completion",
)

# The commands of a group: `stateshift live replace`.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "live": ("replace", "introduce", "remove", "revert", "history", "status", "abort"),
}


def whole_names() -> Iterator[str]:
    """Yield the names of all commands that do something, those of a group with its name before."""
    for name in NAMES:
        if name in GROUPS:
            yield from (f"{name} {member}" for member in GROUPS[name])
        else:
            yield name


def module_of(name: str) -> ModuleType:
    """Import the module of a command, or of a group: a process that runs one waits for no other."""
    return import_module(f"{__name__}.{name.replace(' ', '.')}")

"""One command a file: it reads its arguments, calls `migration` or `look`, shows the result."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

# The parts of the help, in its order, as the README's table of commands has them.
PANELS = {
    "Look": ("inspect", "verify", "export", "diff", "uid"),
    "Move": ("move", "plan", "apply", "resume", "rollback", "status", "runs", "metrics"),
    "Steer a warm move or a standby": ("cutover", "pause", "throttle", "failover"),
    "Change state": (
        *("compact", "repartition", "rewind", "fork", "convert", "rename"),
        *("split", "merge", "evolve", "gather", "repair"),
    ),
    "Change running jobs": ("live",),
    "Learn what should move": ("dataflow", "advise", "rebalance"),
    "Get schemas and help": ("schema", "man", "completion"),
}
PANEL_OF: dict[str, str] = {}
for _panel, _names in PANELS.items():
    PANEL_OF |= dict.fromkeys(_names, _panel)
NAMES = tuple(PANEL_OF)

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

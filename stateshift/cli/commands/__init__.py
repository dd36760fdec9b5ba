"""The table of commands. One command a file: it reads its arguments, calls `migration` or `look`,
shows the result.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

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

# Those that are groups of commands, `stateshift live replace`, and the package of each, which names
# the module of every member. Imported when one of them is asked for, and by no other way.
GROUPS = {"live": "stateshift.live.cli"}


class Subcommand(NamedTuple):
    """A command as the parser gets it: its function, and the end of its help."""

    run: Callable[..., int | None]
    epilog: str


def members_of(name: str) -> tuple[str, ...]:
    """Return the commands of a group, in the order of its help; none of what is no group."""
    return tuple(import_module(GROUPS[name]).MODULES) if name in GROUPS else ()


def command_of(name: str) -> Subcommand:
    """Import a command, or a group: a process that runs one waits for no other."""
    group, _, member = name.rpartition(" ")
    if group:
        package = GROUPS[group]
        module = import_module(f"{package}.{import_module(package).MODULES[member]}")
        command: Subcommand = module.COMMANDS[member]
        return command
    module = import_module(GROUPS.get(name, f"{__name__}.{name}"))
    return Subcommand(module.command, module.EPILOG)

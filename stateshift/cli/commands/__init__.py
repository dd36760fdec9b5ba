"""The commands: each reads its arguments, calls the program, shows the result. Commands of one
shape share a module.
"""

from __future__ import annotations

from importlib import import_module
from keyword import iskeyword

from stateshift.cli.shell.options import Command

# The parts of the help, in its order, as the README's table of commands has them.
PANELS = {
    "Begin": ("init", "doctor"),
    "Look": (
        *("inspect", "browse", "verify", "check", "export", "query", "profile", "diff", "uid"),
    ),
    "Move": ("move", "plan", "apply", "resume", "rollback", "status", "runs", "metrics"),
    "Steer a warm move or a standby": (
        "cutover",
        "pause",
        "throttle",
        "failover",
        "failback",
        "drill",
    ),
    "Change state": (
        *("compact", "repartition", "rewind", "fork", "convert", "rename"),
        *("split", "merge", "evolve", "prune", "import", "gather", "repair", "reposition"),
    ),
    "Change running jobs": ("live",),
    "Learn what should move": ("dataflow", "advise", "rebalance"),
    "Get schemas and help": ("schema", "man", "completion"),
    "For agents": ("mcp",),
}
PANEL_OF: dict[str, str] = {}
for _panel, _names in PANELS.items():
    PANEL_OF |= dict.fromkeys(_names, _panel)
NAMES = tuple(PANEL_OF)

# Those that are groups of commands, `stateshift live replace`, and the package of each, which names
# the module of every member. Imported when one of them is asked for, and by no other way.
GROUPS = {"live": "stateshift.live.cli"}

# The modules of several commands. Any other command has a module of its own name.
MODULES = {
    "begin": ("init", "doctor"),
    "looks": ("inspect", "browse", "export", "query", "profile", "diff", "uid"),
    "plans": ("plan", "apply"),
    "runs": ("resume", "rollback", "status", "runs"),
    "steering": ("cutover", "pause", "throttle", "failover", "failback", "drill"),
    "transforms": (
        "compact",
        "repartition",
        "rewind",
        "fork",
        "convert",
        "rename",
        "evolve",
        "prune",
        "reposition",
    ),
    "images": ("move", "split", "merge", "gather", "repair", "import"),
    "reference": ("schema", "man", "completion"),
}


def members_of(name: str) -> tuple[str, ...]:
    """Return the commands of a group, in the order of its help; none of what is no group."""
    return tuple(import_module(GROUPS[name]).MODULES) if name in GROUPS else ()


def command_of(name: str) -> Command:
    """Import a command, or a group. A process that runs one waits for no module of another."""
    group, _, member = name.rpartition(" ")
    if name in GROUPS:
        module = import_module(GROUPS[name])
        return Command(module.command, module.EPILOG)
    if group:
        package = GROUPS[group]
        commands = import_module(f"{package}.{import_module(package).MODULES[member]}").COMMANDS
        command: Command = commands[member]
        return command
    shared = [module for module, names in MODULES.items() if name in names]
    module = import_module(f"{__name__}.{shared[0] if shared else name}")
    declared: Command = getattr(module, f"{name}_" if iskeyword(name) else name)
    return declared

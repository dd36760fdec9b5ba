"""The command `mcp`: what `stateshift.api` can look at, for a program that speaks the Model Context
Protocol. Nothing of its library is imported before the command is given.
"""

from __future__ import annotations

from typing import Annotated

from stateshift.cli.shell.options import command, flag
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import PlanError


@command(
    "stateshift mcp\nstateshift mcp --entries",
    (4, 130),
    e0="the client has closed the connection",
    e4="the extra `mcp` is not installed",
)
def mcp(
    terminal: Terminal,
    entries: Annotated[
        bool, flag("--entries", "Show keys and values of state, as `inspect --entries` does.")
    ] = False,
    commands: Annotated[
        bool,
        flag("--allow-commands", "Let `check` run code, and plans ask clusters of commands."),
    ] = False,
) -> int | None:
    """Let agents look, by the Model Context Protocol.

    A server on stdin and stdout. Its tools are inspect, verify, diff, plan, advise, check, status
    and explain. None changes anything.
    """
    try:
        from stateshift.cli.shell.tools import Tools, server
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        fact = "serving agents needs the library mcp"
        raise PlanError(fact, hint="pip install 'stateshift[mcp]'") from None
    server(Tools(terminal.adapters_given, entries, commands)).run("stdio")
    return None

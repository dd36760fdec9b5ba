"""The command `mcp`: what `stateshift.api` can look at, for a program that speaks the Model Context
Protocol. Nothing of its library is imported before the command is given.
"""

from __future__ import annotations

import os
import signal
from typing import Annotated

from stateshift.cli.shell.options import Descriptors, command, flag, option
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import PlanError


@command(
    "stateshift mcp\nstateshift mcp --entries --specs specs",
    (3, 4, 6, 130),
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
        flag(
            "--allow-commands",
            "Also serve `check`, which runs the code that it is given, and let specs run commands.",
        ),
    ] = False,
    specs: Annotated[
        list[str] | None,
        option(
            "--specs",
            "DIR",
            "Read specs, saved plans and workdirs in DIR, and ask the servers that they name. "
            "Repeatable.",
        ),
    ] = None,
    descriptor: Descriptors = None,
) -> None:
    """Let agents look, by the Model Context Protocol.

    A server on stdin and stdout. Its tools are inspect, verify, diff, plan, advise, status, explain
    and read_on. None changes anything. With --allow-commands, code and commands that agents name
    run on this machine, and may do what your account may.
    """
    try:
        from stateshift.cli.shell.tools import Tools, server
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("anyio", "mcp", "mcp_types"):
            raise
        fact = "serving agents needs the library mcp"
        raise PlanError(fact, hint="pip install 'stateshift[mcp]'") from None
    tools = Tools(terminal.adapters(), entries, commands, tuple(specs or ()), terminal.profile)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(130))
    server(tools).run("stdio")
    os._exit(0)  # a call may hang in a read, and only reads

"""`stateshift completion`: a script that completes commands and options in a shell."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift completion bash >> ~/.bash_completion\n"
    'stateshift completion zsh > "$fpath[1]/_stateshift"\n'
    "stateshift completion fish > ~/.config/fish/completions/stateshift.fish",
    2,
    e0="printed",
    e2="there is no script for this shell",
)


def command(
    terminal: Terminal,
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> int | None:
    """A script that completes commands and options.

    The script knows all commands and their options, and completes file names after them. It
    starts no process when a key is pressed. Create it again after an upgrade.
    """
    from stateshift.cli.shell.reference import program_and_commands
    from stateshift.cli.views.completion import SHELLS, script
    from stateshift.errors import Complaint, SpecError
    from stateshift.suggestion import did_you_mean

    if shell not in SHELLS:
        fact = f"there is no script for {shell!r}{did_you_mean(shell, SHELLS)}"
        raise SpecError(
            (Complaint("SHELL", fact, shell, f"one of {', '.join(SHELLS)}"),),
            hint="stateshift completion bash",
        )
    text = script(shell, *program_and_commands())
    if terminal.json:
        terminal.document("completion", {"shell": shell, "script": text})
    else:
        terminal.write(text.encode("utf-8"))
    return None

"""The command line: the only place that prints, reads argv, or exits.

    main        argv to exit code
    commands/   each reads its arguments, calls the program, shows the result
    views/      what is shown, as text, as a JSON document, as a page: values in, values out. Pure
    shell/      what commands share: the entry, settings, options, the terminal, errors, progress

Importing this package imports nothing: help must answer at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stateshift.migration import Adapters

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, adapters: Adapters | None = None) -> int | None:
    """Run one command. `adapters` reach an outside world that is not the real one."""
    from stateshift.cli.shell.entry import enter

    return enter(argv, adapters)

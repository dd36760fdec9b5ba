"""`stateshift man`: man pages of all commands, or one page of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.cli.views.manual import ManPageDocument

EPILOG = epilog(
    "stateshift man ~/.local/share/man/man1\nstateshift man --markdown > commands.md",
    2,
    6,
    e0="written",
    e6="the folder cannot be written",
)


def command(
    terminal: Terminal,
    folder: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help="Where the pages are written; it is made if needed."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print one page of all commands in Markdown.")
    ] = False,
) -> int | None:
    """Man pages of all commands.

    Writes a man page for each command into DIR. `man` finds pages in a folder named man1 on its
    path. The text is that of --help.
    """
    from stateshift.cli.views.text import Line

    if (folder is None) != markdown:
        raise typer.BadParameter("name a folder, or ask for --markdown")
    if folder is None:
        if terminal.json:
            raise typer.BadParameter("--markdown is no JSON document: leave out --json")
        terminal.write(markdown_page().encode("utf-8"))
        return None
    written = write_pages(folder)
    terminal.answer("man", lambda: written, [Line(page["file"]) for page in written])
    return None


def markdown_page() -> str:
    """Return the page of all commands."""
    from stateshift.cli.shell.reference import program_and_commands
    from stateshift.cli.views.manual import reference

    return reference(*program_and_commands())


def write_pages(folder: str) -> list[ManPageDocument]:
    """Write a man page for the program and one for each command; return what was written."""
    from pathlib import Path

    from stateshift import __version__
    from stateshift.cli.shell.reference import program_and_commands
    from stateshift.cli.views.manual import man_page, page_name

    program, commands = program_and_commands()
    Path(folder).mkdir(parents=True, exist_ok=True)
    written: list[ManPageDocument] = []
    for facts in (program, *commands):
        others = commands if facts is program else (program,)
        path = Path(folder) / page_name(facts)
        path.write_text(man_page(facts, others, __version__), "utf-8")
        written.append({"command": facts.whole_name, "file": str(path)})
    return written

"""The commands that print words: schemas, the manual, scripts of completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Protocol, cast

import typer

from stateshift.cli.commands import GROUPS, NAMES, members_of
from stateshift.cli.shell.options import argument, command, flag, option
from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views.manual import (
    PROGRAM,
    CommandFacts,
    HelpBlock,
    Parameter,
    man_page,
    page_name,
    reference,
)
from stateshift.errors import SpecError

if TYPE_CHECKING:
    from stateshift.cli.views.manual import ManPageDocument
    from stateshift.documents.shape import Schema

SPEC = "spec"


@command(
    "stateshift schema > spec.schema.json\nstateshift schema --of dataflow > dataflow.schema.json\n"
    "stateshift schema --of plan",
    (2,),
    e0="printed",
    e2="there is no such schema",
)
def schema(
    terminal: Terminal,
    which: Annotated[str | None, argument("WHICH", "The same as --of.", show_default=False)] = None,
    of: Annotated[
        str | None,
        option(
            "--of",
            "NAME",
            "spec, dataflow; or a document of --json: plan, report, status, inspect, … "
            "(or the command that prints it). [spec]",
        ),
    ] = None,
) -> int | None:
    """The JSON Schema of a spec, or of what --json prints.

    You write specs and dataflows. All other schemas describe what commands print with --json.
    A minor version may add keys there; only a major version removes them.
    """
    if which is not None and of not in (None, which):
        raise typer.BadParameter(f"WHICH is {which!r}, and --of is {of!r}: name one of them")
    terminal.document("schema", schema_named(of or which or SPEC), indent=2)
    return None


def schema_named(name: str) -> Schema:
    """Return the schema of an input, of a document, or of the document that a command prints."""
    from stateshift.cli.views import documents

    if name == SPEC:
        from stateshift.specification.schema import spec_schema

        return spec_schema()
    if name == "dataflow":
        from stateshift.specification.schema import dataflow_schema

        return dataflow_schema()
    document = documents.name_of(name)
    if document is None:
        expected = ", ".join((SPEC, "dataflow", *documents.DOCUMENTS))
        message, hint = f"there is no schema of {name!r}", "stateshift schema --of plan"
        raise SpecError.of("--of", message, name, f"one of {expected}", hint=hint)
    return documents.schema_of(document)


@command(
    "stateshift man ~/.local/share/man/man1\nstateshift man --markdown > commands.md",
    (2, 6),
    e0="written",
    e6="the folder cannot be written",
)
def man(
    terminal: Terminal,
    folder: Annotated[
        str | None, argument("DIR", "Where the pages are written; it is made if needed.")
    ] = None,
    markdown: Annotated[
        bool, flag("--markdown", "Print one page of all commands in Markdown.")
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
        terminal.write(reference(*program_and_commands()).encode("utf-8"))
        return None
    written = write_pages(folder)
    terminal.answer("man", lambda: written, [Line(page["file"]) for page in written])
    return None


def write_pages(folder: str) -> list[ManPageDocument]:
    """Write a man page for the program and one for each command; return what was written."""
    from pathlib import Path

    from stateshift import __version__

    program, commands = program_and_commands()
    Path(folder).mkdir(parents=True, exist_ok=True)
    written: list[ManPageDocument] = []
    for facts in (program, *commands):
        others = commands if facts is program else (program,)
        path = Path(folder) / page_name(facts)
        path.write_text(man_page(facts, others, __version__), "utf-8")
        written.append({"command": facts.whole_name, "file": str(path)})
    return written


@command(
    "stateshift completion bash >> ~/.bash_completion\n"
    'stateshift completion zsh > "$fpath[1]/_stateshift"\n'
    "stateshift completion fish > ~/.config/fish/completions/stateshift.fish",
    (2,),
    e0="printed",
    e2="there is no script for this shell",
)
def completion(
    terminal: Terminal, shell: Annotated[str, argument("SHELL", "bash, zsh or fish.")]
) -> int | None:
    """A script that completes commands and options.

    The script knows all commands and their options. It completes a WORKDIR to the runs in
    .stateshift, or in $STATESHIFT_WORKDIRS, and anything else to file names. It starts no process
    when a key is pressed. Create it again after an upgrade.
    """
    from stateshift.cli.views.completion import SHELLS, script
    from stateshift.suggestion import did_you_mean

    if shell not in SHELLS:
        fact = f"there is no script for {shell!r}{did_you_mean(shell, SHELLS)}"
        expected, hint = f"one of {', '.join(SHELLS)}", "stateshift completion bash"
        raise SpecError.of("SHELL", fact, shell, expected, hint=hint)
    text = script(shell, *program_and_commands())
    if terminal.json:
        terminal.document("completion", {"shell": shell, "script": text})
    else:
        terminal.write(text.encode("utf-8"))
    return None


HELP = Parameter(("--help", "-h"), "", "Show this message and exit.")


class DeclaredParameter(Protocol):
    """The part that we use of a parameter that the parser declares. typer exports no type of it."""

    name: str
    param_type_name: str
    opts: list[str]
    metavar: str | None
    help: str | None
    envvar: str | None
    default: object
    show_default: bool
    required: bool


class DeclaredCommand(Protocol):
    """The part that we use of a command that the parser declares."""

    help: str | None
    epilog: str | None
    params: list[DeclaredParameter]


class DeclaredGroup(DeclaredCommand, Protocol):
    """The part that we use of the program."""

    commands: dict[str, DeclaredCommand]


def program_and_commands() -> tuple[CommandFacts, tuple[CommandFacts, ...]]:
    """Return the facts of the program and of each command, a group before its commands."""
    from stateshift.cli.shell.entry import parser

    program = cast(DeclaredGroup, typer.main.get_command(parser()))
    facts = []
    for name in NAMES:
        facts.append(command_facts(name, program.commands[name]))
        for member in members_of(name):
            group = cast(DeclaredGroup, program.commands[name])
            facts.append(command_facts(f"{name} {member}", group.commands[member]))
    return command_facts("", program), tuple(facts)


def command_facts(name: str, command: DeclaredCommand) -> CommandFacts:
    """Return the facts of one command of the parser."""
    visible = [each for each in command.params if not getattr(each, "hidden", False)]
    paragraphs = [_unfolded(part) for part in (command.help or "").split("\n\n")]
    blocks = []
    for part in (command.epilog or "").split("\n\n"):
        lines = part.strip("\n").split("\n")
        if lines[0] == "\b":  # a block, which stays as it is
            heading = lines[1].removesuffix(":")
            assert heading != lines[1], "the first line of a block is its heading"
            blocks.append(HelpBlock(heading, tuple(lines[2:])))
        elif part.strip():
            paragraphs.append(_unfolded(part))
    return CommandFacts(
        name=name,
        usage=_usage(name, visible),
        summary=paragraphs[0],
        paragraphs=tuple(paragraphs),
        parameters=(*(_parameter(each) for each in visible), HELP),
        blocks=tuple(blocks),
    )


def _parameter(declared: DeclaredParameter) -> Parameter:
    about = declared.help or ""
    notes = []
    if declared.envvar:
        notes.append(f"env var: {declared.envvar}")
    # A number or a word says something.
    says_something = isinstance(declared.default, int | float | str) and declared.default
    if declared.show_default and says_something and declared.default is not True:
        notes.append(f"default: {declared.default}")
    about = f"{about} [{'; '.join(notes)}]".strip() if notes else about
    metavar = declared.metavar or declared.name.upper()
    if not _is_option(declared):
        return Parameter((metavar,), "", about, is_option=False)
    is_flag = getattr(declared, "is_flag", False) or getattr(declared, "count", False)
    return Parameter(tuple(declared.opts), "" if is_flag else metavar, about)


def _is_option(declared: DeclaredParameter) -> bool:
    return declared.param_type_name == "option"


def _usage(name: str, declared: list[DeclaredParameter]) -> str:
    if not name or name in GROUPS:
        return f"{PROGRAM} {name} [OPTIONS] COMMAND [ARGS]...".replace("  ", " ")
    words = [PROGRAM, name, "[OPTIONS]"]
    for parameter in declared:
        if not _is_option(parameter):
            metavar = parameter.metavar or parameter.name.upper()
            words.append(metavar if parameter.required else f"[{metavar}]")
    return " ".join(words)


def _unfolded(paragraph: str) -> str:
    return " ".join(paragraph.split())

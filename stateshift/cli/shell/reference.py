"""The facts of all commands, read from the parser that reads their arguments."""

from __future__ import annotations

from typing import Protocol, cast

import typer

from stateshift.cli.commands import GROUPS, NAMES, members_of
from stateshift.cli.views.manual import PROGRAM, Block, CommandFacts, Parameter

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
    """Return the facts of the program, and of every command in the order of its help; a group
    stands before its commands.
    """
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
            blocks.append(Block(heading, tuple(lines[2:])))
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
    about = _about(declared)
    metavar = _metavar(declared)
    if not _is_option(declared):
        return Parameter((metavar,), "", about, is_option=False)
    is_flag = getattr(declared, "is_flag", False) or getattr(declared, "count", False)
    return Parameter(tuple(declared.opts), "" if is_flag else metavar, about)


def _is_option(declared: DeclaredParameter) -> bool:
    return declared.param_type_name == "option"


def _metavar(declared: DeclaredParameter) -> str:
    return declared.metavar or declared.name.upper()


def _about(declared: DeclaredParameter) -> str:
    about = declared.help or ""
    notes = []
    if declared.envvar:
        notes.append(f"env var: {declared.envvar}")
    # A number or a word says something.
    says_something = isinstance(declared.default, int | float | str) and declared.default
    if declared.show_default and says_something and declared.default is not True:
        notes.append(f"default: {declared.default}")
    return f"{about} [{'; '.join(notes)}]".strip() if notes else about


def _usage(name: str, declared: list[DeclaredParameter]) -> str:
    if not name or name in GROUPS:
        return f"{PROGRAM} {name} [OPTIONS] COMMAND [ARGS]...".replace("  ", " ")
    words = [PROGRAM, name, "[OPTIONS]"]
    for argument in declared:
        if not _is_option(argument):
            metavar = _metavar(argument)
            words.append(metavar if argument.required else f"[{metavar}]")
    return " ".join(words)


def _unfolded(paragraph: str) -> str:
    return " ".join(paragraph.split())

"""The facts of all commands, read from the parser that reads their arguments."""

from __future__ import annotations

from typing import Any

import typer

from stateshift.cli.views.command_facts import PROGRAM, Block, CommandFacts, Parameter

HELP = Parameter(("--help", "-h"), "", "Show this message and exit.")


def program_and_commands() -> tuple[CommandFacts, tuple[CommandFacts, ...]]:
    """Return the facts of the program, and of every command in the order of its help."""
    from stateshift.cli.shell.entry import parser

    group: Any = typer.main.get_command(parser())
    commands = tuple(command_facts(name, command) for name, command in group.commands.items())
    return command_facts("", group), commands


def command_facts(name: str, command: Any) -> CommandFacts:
    """Return the facts of one command of the parser."""
    visible = [each for each in command.params if not getattr(each, "hidden", False)]
    parameters = (*(_parameter(each) for each in visible), HELP)
    paragraphs = tuple(_unfolded(part) for part in (command.help or "").split("\n\n"))
    blocks, notes = _epilog(command.epilog or "")
    return CommandFacts(
        name=name,
        usage=_usage(name, parameters, visible),
        summary=paragraphs[0],
        paragraphs=(*paragraphs, *notes),
        parameters=parameters,
        blocks=blocks,
    )


def _parameter(declared: Any) -> Parameter:
    is_option = declared.param_type_name == "option"
    metavar = declared.metavar or str(declared.name).upper()
    about = declared.help or ""
    notes = []
    if declared.envvar:
        notes.append(f"env var: {declared.envvar}")
    if _shows_default(declared):
        notes.append(f"default: {declared.default}")
    if notes:
        about = f"{about} [{'; '.join(notes)}]".strip()
    if not is_option:
        return Parameter((metavar,), "", about, is_option=False)
    takes_none = declared.is_flag or getattr(declared, "count", False)
    return Parameter(tuple(declared.opts), "" if takes_none else metavar, about)


def _shows_default(declared: Any) -> bool:
    """Return whether a default says something: a number, or a word."""
    if not declared.show_default or not declared.default:
        return False
    return isinstance(declared.default, int | float | str) and declared.default is not True


def _usage(name: str, parameters: tuple[Parameter, ...], declared: list[Any]) -> str:
    if not name:
        return f"{PROGRAM} [OPTIONS] COMMAND [ARGS]..."
    words = [PROGRAM, name, "[OPTIONS]"]
    for parameter, each in zip(parameters, declared, strict=False):
        if not parameter.is_option:
            words.append(parameter.shown if each.required else f"[{parameter.shown}]")
    return " ".join(words)


def _unfolded(paragraph: str) -> str:
    return " ".join(paragraph.split())


def _epilog(text: str) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    r"""Return the parts of an epilog that stay as they are (each begins with a \b), and the rest."""
    blocks, notes = [], []
    for part in text.split("\n\n"):
        lines = part.strip("\n").split("\n")
        if lines[0] == "\b":
            blocks.append(_block(lines[1:]))
        elif part.strip():
            notes.append(_unfolded(part))
    return tuple(blocks), tuple(notes)


def _block(lines: list[str]) -> Block:
    if lines[0].endswith(":"):
        return Block(lines[0].rstrip(":"), tuple(lines[1:]))
    return Block("Notes", tuple(lines))
